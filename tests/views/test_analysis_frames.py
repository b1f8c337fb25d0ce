"""Each frame holds what was recorded, under documented columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from autofuse.database.records import PlanOutcome, content_key
from autofuse.errors import DatabaseError, InputError
from autofuse.views.frames.analysis import ASKED, Analysis, open_analysis
from autofuse.views.frames.columns import COLUMNS
from tests.views.conftest import GRAPH, SUMMARY, times

FRAMES = [name for name in COLUMNS if name not in ASKED]


@pytest.mark.parametrize("name", FRAMES)
def test_every_frame_has_exactly_its_documented_columns_full_or_empty(
    analysis: Analysis, name: str, tmp_path: Path
) -> None:
    from autofuse.database.database import open_database

    full = analysis.frame(name)
    assert list(full.columns) == list(COLUMNS[name]) == list(analysis.describe(name).index)
    assert len(full) > 0
    assert full.equals(getattr(analysis, name))
    open_database(tmp_path / "empty.db").close()
    with open_analysis(tmp_path / "empty.db") as empty:
        assert list(empty.frame(name).columns) == list(full.columns)
        assert len(empty.frame(name)) == 0
        assert empty.frame(name)[_timed(name)].dtypes.equals(full[_timed(name)].dtypes)


def _timed(name: str) -> list[str]:
    return [column for column in COLUMNS[name] if column.endswith(("_us", "_at")) or column in ("us", "trusted")]


def test_every_meaning_is_said() -> None:
    assert all(meaning.strip() for columns in COLUMNS.values() for meaning in columns.values())
    units = [column for columns in COLUMNS.values() for column in columns if column.endswith("_us")]
    assert units and all("microseconds" in columns[c] for columns in COLUMNS.values() for c in columns if c in units)


def test_tasks_count_candidates_and_compare_the_first_with_the_best(analysis: Analysis) -> None:
    (task,) = analysis.tasks.to_dict("records")
    assert (task["candidates"], task["ok"], task["failed"], task["pending"]) == (4, 3, 1, 0)
    assert (task["first_us"], task["best_us"]) == (200.0, 100.0)


def test_the_best_is_the_fastest_trusted_one_as_in_the_database(analysis: Analysis) -> None:
    (best,) = analysis.best.to_dict("records")
    assert (best["median_us"], best["schedule"]) == (100.0, '{"tile":2}')


def test_samples_stand_one_a_row_with_their_block(analysis: Analysis) -> None:
    samples = analysis.samples
    assert len(samples) == 3 * 11 * 2
    first = samples[samples["measurement_id"] == samples["measurement_id"].min()]
    assert list(first["block"]) == [block for block in range(11) for _ in range(2)]
    assert list(first["sample"]) == [0, 1] * 11
    stored = [us for block in analysis.database.samples(int(first["candidate_id"].iloc[0])) for us in block.us]
    assert list(first["us"]) == stored


def test_trials_carry_the_best_so_far(analysis: Analysis) -> None:
    assert list(analysis.trials["best_us"]) == [400.0, 400.0, 300.0, 300.0]


def test_groups_share_the_time_of_their_choice(analysis: Analysis) -> None:
    assert list(analysis.groups["share"]) == [0.4, 0.4, 0.2]
    assert analysis.groups["candidate_id"].isna().tolist() == [False, False, True]


def test_the_waterfall_of_a_run_is_what_its_summary_says(analysis: Analysis) -> None:
    frame = analysis.waterfall
    assert list(frame["step"]) == ["none", "rule", "schedules", "apart", "remainder", "search"]
    assert list(frame["left_us"]) == [390.0, 330.0, 290.0, 295.0, 300.0, 300.0]
    assert frame["share"].sum() == pytest.approx(1 - 300.0 / 390.0)
    assert list(analysis.not_asked["kind"]) == ["schedules", "plans"]
    assert analysis.not_asked["gain_us"].isna().tolist() == [False, True]


def test_a_summary_that_is_no_waterfall_is_none(recorder: Any, path: Path) -> None:
    run = recorder.run("altered")
    recorder.database.finish_run(run, summary={"waterfall": {"start": "none", "steps": "many"}, "not_asked": 7})
    with open_analysis(path) as opened:
        assert opened.frame("waterfall", "altered").empty and opened.frame("not_asked", "altered").empty


def test_runs_have_dates_with_a_zone_and_a_duration(analysis: Analysis) -> None:
    (run,) = analysis.runs.to_dict("records")
    assert str(run["started_at"].tz) == "UTC" and run["duration_s"] >= 0
    assert run["provenance"] == {"git": "abc", "governor": None} and run["summary"] == SUMMARY


def test_a_run_that_still_runs_has_no_end(recorder: Any, path: Path) -> None:
    recorder.run("now")
    with open_analysis(path) as opened:
        (run,) = opened.runs.to_dict("records")
        assert run["finished_at"] is pd.NaT and pd.isna(run["duration_s"])


def test_a_frame_keeps_to_one_run_by_number_or_name(recorder: Any, night: int, path: Path) -> None:
    other = recorder.run("later", graph=content_key("another graph"))
    recorder.candidate(other, "Gemm 1x10", 1, 10.0)
    with open_analysis(path) as opened:
        assert len(opened.candidates) == 5
        assert set(opened.frame("candidates", night)["label"]) == {"Conv 1x8"}
        assert set(opened.frame("candidates", "later")["label"]) == {"Gemm 1x10"}
        assert list(opened.frame("runs", other)["name"]) == ["later"]
        for name in FRAMES:
            ids = opened.frame(name, other).get("run_id", pd.Series(dtype="Int64"))
            assert set(ids) <= {other}, name
        assert len(opened.frame("devices", other)) == 1 and len(opened.frame("plans", other)) == 0


def test_unknown_frames_and_runs_name_the_known_ones(analysis: Analysis) -> None:
    with pytest.raises(InputError, match="plan_measurements"):
        analysis.frame("everything")
    with pytest.raises(InputError, match="candidates"):
        analysis.describe("everything")
    with pytest.raises(InputError, match="no run 'day'; the newest are night"):
        analysis.run("day")
    with pytest.raises(InputError, match="no run 99"):
        analysis.frame("candidates", 99)


def test_a_database_without_runs_says_so(tmp_path: Path) -> None:
    from autofuse.database.database import open_database

    open_database(tmp_path / "empty.db").close()
    with open_analysis(tmp_path / "empty.db") as opened, pytest.raises(InputError, match="autofuse tune"):
        opened.run()
    with pytest.raises(DatabaseError, match="no such file"):
        open_analysis(tmp_path / "missing.db")


def test_names_of_earlier_versions_are_read_as_the_present_ones(recorder: Any, night: int, path: Path) -> None:
    """An old database: TVM's partition is a plan called "tvm", and TVM as it comes a rival called "tvm"."""
    database = recorder.database
    database.record_plan(GRAPH, "old", '{"groups": []}', "tvm")
    recorder.whole(night, "tvm", 500.0, series="rivals")
    database.record_plan_measurement(
        night, PlanOutcome(name="tvm", series="plans", plan_key="old", **times(400.0, 1, True))
    )
    with open_analysis(path) as af:
        named = af.plan_measurements.set_index("series")["name"]
        assert (named["rivals"], named["plans"]) == ("tvm-untuned", "tvm-partition")
        assert af.plans.set_index("plan_key").loc["old", "origin"] == "tvm-partition"


def test_kernels_with_one_label_are_told_apart_in_every_frame(recorder: Any, night: int, path: Path) -> None:
    other = content_key("another convolution of the same shape")
    recorder.database.record_workload(other, '"other"', "Conv 1x8")
    with open_analysis(path) as af:
        labels = set(af.groups["label"]) | set(af.candidates["label"]) | set(af.tasks["label"])
        wanted = f"Conv 1x8 #{content_key('Conv 1x8')[:4]}"
        assert labels == {wanted, "Pool 1x8"}
        assert set(af.failures["label"]) == {wanted}
