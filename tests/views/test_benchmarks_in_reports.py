"""What `bench` measured after a run stands in the run's report, beside what the run measured itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from autofuse.cli.main import app
from autofuse.database.database import open_database
from autofuse.database.record.benchmarks import record_benchmark
from autofuse.database.records import PlanOutcome
from autofuse.views.frames.analysis import open_analysis
from autofuse.views.report.page import page_data
from autofuse.views.report.render import render_markdown
from autofuse.views.report.series import composed_and_measured
from tests.views.conftest import GRAPH, times


@pytest.fixture
def benched(recorder: Any) -> int:
    """A run that confirmed its choice against no fusion, and a later race of the library with ONNX Runtime."""
    run: int = recorder.run("night")
    recorder.whole(run, "none", 390.0)
    recorder.whole(run, "search", 300.0)
    recorder.database.record_choice(run, "search", [], median_us=300.0, trusted=True)
    recorder.database.finish_run(run)
    rows = [("autofuse", "search", 310.0), ("onnxruntime", None, 372.0), ("none", "none", 500.0)]
    outcomes = [PlanOutcome(name=n, series="b", plan_key=key, **times(us, 3, True)) for n, key, us in rows]  # type: ignore[arg-type]
    with recorder.database.writing() as sql:
        record_benchmark(sql, recorder.setting, GRAPH, outcomes)
    return run


def test_the_headline_names_onnx_runtime_once_bench_has_measured_it(benched: int, path: Path) -> None:
    with open_analysis(path) as af:
        headline = render_markdown(af).splitlines()[0]
        speedup: Any = page_data(af, af.run())["speedup"]
        rows = af.plan_measurements
    assert "1.30x as fast as without fusion" in headline  # as the run measured it, not as bench did
    assert "1.20x as fast as ONNX Runtime" in headline
    assert (speedup["ratio"]["old_us"], speedup["us"]) == (pytest.approx(390.0), pytest.approx(300.0))
    assert (speedup["onnxruntime"]["old_us"], speedup["onnxruntime"]["new_us"]) == (
        pytest.approx(372.0), pytest.approx(310.0)
    )  # fmt: skip
    assert rows["run_id"].isna().sum() == 3


def test_a_later_bench_does_not_take_the_place_of_the_runs_own_time(benched: int, path: Path) -> None:
    composed = pd.Series({"search": 290.0, "none": 380.0})
    with open_analysis(path) as af:
        points = composed_and_measured(af.plan_measurements, composed)
    assert {point["label"]: point["y"] for point in points} == {"search": 300.0, "none": 390.0}


def test_another_model_or_number_of_threads_does_not_see_it(recorder: Any, benched: int, path: Path) -> None:
    other = recorder.run("other", graph="9" * 64)
    with open_analysis(path) as af:
        assert af.frame("plan_measurements", other).empty
        assert len(af.frame("plan_measurements", benched)) == 5


def test_it_survives_a_merge(benched: int, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    open_database(other).close()
    result = CliRunner().invoke(app, ["db", "merge", str(path), "--db", str(other)])
    assert result.exit_code == 0, result.output
    with open_analysis(other) as af:
        assert "as fast as ONNX Runtime" in render_markdown(af).splitlines()[0]


def test_status_shows_what_the_run_measured_itself(benched: int, path: Path) -> None:
    text = CliRunner().invoke(app, ["status", "--db", str(path)]).stdout
    assert "search" in text and "onnxruntime" not in text
