"""Models of open sizes in parts are raced with ONNX Runtime alone, and a compile takes what was faster."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import autofuse
from autofuse import api
from autofuse.compiler.open_sizes.head_race import HEAD, head_key, verdict_of_sizes
from autofuse.compiler.parts.open_head import heads_of
from autofuse.compiler.parts.rest import SEGMENTS
from autofuse.database.database import open_database
from autofuse.database.record.benchmarks import record_benchmark
from autofuse.database.records import PlanOutcome, SampleBlock
from autofuse.environment.outcomes import AtSize
from autofuse.environment.place import Place
from autofuse.graph.loading.given.sizes import open_sizes
from autofuse.values.names import ONNX_RUNTIME
from autofuse.values.ratios import SLOWER, Timed
from autofuse.values.statistics import Interval
from tests.segments.models import assert_same, expected, written
from tests.segments.test_rows_on_the_screens import SIZES, finder

pytestmark = pytest.mark.usefixtures("any_size")

BLOCKS = 8
WITH_ROWS, WITHOUT = ["autofuse", "ONNX Runtime", "autofuse"], ["autofuse", "ONNX Runtime"]


def sides(path: Path, database: str, sizes: object = SIZES) -> list[str]:
    report = api.compile(path, dry_run=True, sizes=sizes, database=database, threads=1)  # type: ignore[arg-type]
    return [part.side for part in report.parts]


def record(path: Path, database: str, races: dict[str, tuple[float, dict[str, float]]]) -> None:
    """A race of the model that ended so: microseconds of each contender at sizes, each with its share."""
    sizes = open_sizes(SIZES)
    with heads_of(path, {}, sizes) as heads:
        key = head_key(next(heads), sizes, onnxruntime.__version__)
    name = uuid.uuid4().hex
    outcomes = [
        PlanOutcome(
            state="ok", name=contender, series=f"{name}/{share}/{size}", median_us=us, ci_lo_us=us, ci_hi_us=us,
            trusted=True, blocks=(SampleBlock((us,), 1.0, False),) * BLOCKS,
        )
        for size, (share, times) in races.items()
        for contender, us in times.items()
    ]  # fmt: skip
    with open_database(database) as base:
        setting = Place(database, threads=1).environment(base, measuring=False).setting
        with base.writing() as sql:
            record_benchmark(sql, setting, key, outcomes)


def times(rows_us: float, head_us: float, alone_us: float) -> dict[str, float]:
    return {SEGMENTS: rows_us, HEAD: head_us, ONNX_RUNTIME: alone_us}


def test_a_compile_takes_the_best_of_the_newest_race_over_the_range(tmp_path: Path) -> None:
    path, database = written(finder(), tmp_path), str(tmp_path / "a.db")
    assert sides(path, database) == WITH_ROWS
    record(path, database, {"8x8": (0.5, times(20, 30, 25)), "16x16": (0.5, times(50, 60, 55))})
    assert sides(path, database) == WITH_ROWS
    record(path, database, {"8x8": (0.5, times(30, 20, 25)), "16x16": (0.5, times(60, 50, 55))})
    assert sides(path, database) == WITHOUT
    reasons = api.compile(path, dry_run=True, sizes=SIZES, database=database, threads=1).rest
    assert any("with segments of rows 0.745x" in row.reason for row in reasons)
    record(path, database, {"8x8": (0.5, times(30, 30, 20)), "16x16": (0.5, times(60, 60, 50))})
    assert sides(path, database) == ["ONNX Runtime"]
    assert sides(path, database, {**SIZES, "height": (8, 24, 8)}) == WITH_ROWS  # another range
    plain = api.compile(path, dry_run=True, plan="none", sizes=SIZES, database=database, threads=1)
    assert len(plain.parts) == 3  # what was asked for by name


def test_sizes_count_by_their_shares_of_all_calls() -> None:
    def at(size: str, share: float, ours: float, theirs: float) -> AtSize[Mapping[str, Timed]]:
        made = {
            name: Timed(Interval(us, us, us, 0.95, 0), True, (us,) * BLOCKS, size, tuple(range(BLOCKS)))
            for name, us in ((HEAD, ours), (ONNX_RUNTIME, theirs))
        }
        return AtSize[Mapping[str, Timed]](size, share, made)

    seldom = verdict_of_sizes([at("8", 0.1, 20, 10), at("16", 0.9, 10, 12)])
    often = verdict_of_sizes([at("8", 0.9, 20, 10), at("16", 0.1, 10, 12)])
    assert seldom is not None and often is not None
    assert (seldom.side, often.side, often.ratio.verdict) == (HEAD, ONNX_RUNTIME, SLOWER)
    assert seldom.ratio.value == pytest.approx(0.5**0.1 * 1.2**0.9)
    assert verdict_of_sizes([]) is None


def test_a_library_that_onnx_runtime_runs_alone_takes_any_size(tmp_path: Path) -> None:
    model = finder()
    path, library, database = written(model, tmp_path), tmp_path / "model.so", str(tmp_path / "a.db")
    record(path, database, {"8x8": (1.0, times(30, 30, 20))})
    report = api.compile(path, library, sizes=SIZES, database=database, threads=1)
    assert report.kernels == 0 and report.sizes == {"height": (8, 16), "width": (8, 16)}
    assert any(re.match(r"measured: 0\.667x .*: ONNX Runtime runs the model", row.reason) for row in report.rest)
    assert api.library_check(library).sizes == report.sizes
    session = autofuse.Session(str(library), threads=1)
    for height, width in ((8, 8), (16, 8), (8, 16)):
        given = {"x": np.random.default_rng(height).standard_normal((1, 3, height, width)).astype(np.float32)}
        assert_same(session.run(None, given), expected(model, given))
    assert api.run(library, sizes={"height": 16, "width": 8}).outputs


@pytest.mark.long
@pytest.mark.usefixtures("counted_rounds")
def test_tune_races_the_whole_at_sizes_of_the_range(tmp_path: Path) -> None:
    path, database = written(finder(), tmp_path), str(tmp_path / "a.db")
    found = api.tune(path, sizes=SIZES, database=database, threads=1, trials=1)
    assert re.search(r"as fast as ONNX Runtime alone over its sizes \(at 8x8: .*x, 16x16: .*x\)", found.alone), found
    taken = {"ONNX Runtime": ["ONNX Runtime"], "kernels": WITH_ROWS if "and its segments" in found.alone else WITHOUT}
    runs = found.alone.rpartition(": ")[2]
    assert sides(path, database) == next(own for word, own in taken.items() if runs.startswith(word))


def test_a_race_that_the_budget_has_no_time_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autofuse.parted.in_time.LATE_S", 0.0)
    path, database = written(finder(), tmp_path), str(tmp_path / "a.db")
    found = api.tune(path, sizes=SIZES, database=database, threads=1, budget="1s")
    assert found.alone == "" and "not raced with ONNX Runtime alone: the budget left no time for it" in found.warning
    assert sides(path, database) == WITH_ROWS
