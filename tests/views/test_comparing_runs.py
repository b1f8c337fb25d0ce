"""Two runs of one database against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.database.records import ChosenGroup, content_key
from autofuse.views.frames.analysis import open_analysis
from autofuse.views.frames.columns import COLUMNS


def second_night(recorder: Any, us: float, trusted: bool = True) -> int:
    run: int = recorder.run("second")
    recorder.whole(run, "search", us, series="t", trusted=trusted, seed=50)
    best = recorder.candidate(run, "Conv 1x8", 9, 60.0, seed=9)
    groups = [ChosenGroup(("conv1", "relu1"), content_key("Conv 1x8"), best, 60.0)]
    recorder.database.record_choice(run, "search", groups, median_us=us, trusted=trusted)
    recorder.database.finish_run(run)
    return run


def test_two_runs_of_a_model_are_compared_whole_and_by_workload(recorder: Any, night: int, path: Path) -> None:
    second_night(recorder, 150.0)
    with open_analysis(path) as opened:
        table = opened.compare("night", "second")
        assert list(table.columns) == list(COLUMNS["comparison"])
        whole, conv = table.to_dict("records")
        assert (whole["kind"], whole["a_us"], whole["b_us"], whole["verdict"]) == ("model", 300.0, 150.0, "faster")
        assert (conv["kind"], conv["label"], conv["a_us"], conv["b_us"]) == ("workload", "Conv 1x8", 100.0, 60.0)
        assert conv["verdict"] == "faster" and conv["ci_lo"] < conv["ratio"] < conv["ci_hi"]
        back = opened.compare("second", "night").to_dict("records")
        assert [row["verdict"] for row in back] == ["slower", "slower"]


def test_a_run_against_itself_shows_no_difference(recorder: Any, night: int, path: Path) -> None:
    with open_analysis(path) as opened:
        table = opened.compare(night, night)
        assert set(table["verdict"]) == {"no difference"} and len(table) == 2


def test_different_models_are_compared_by_shared_workloads_only(recorder: Any, night: int, path: Path) -> None:
    other = recorder.run("other", graph=content_key("another graph"))
    best = recorder.candidate(other, "Conv 1x8", 9, 60.0)
    groups = [ChosenGroup(("c",), content_key("Conv 1x8"), best, 60.0)]
    recorder.database.record_choice(other, "none", groups, median_us=None, trusted=False)
    with open_analysis(path) as opened:
        assert list(opened.compare(night, other)["kind"]) == ["workload"]
        empty = recorder.run("empty", graph=content_key("another graph"))
        assert opened.compare(night, empty).empty


def choose(recorder: Any, run: int, workload: str, candidate: int, us: float) -> None:
    groups = [ChosenGroup(("conv1", "relu1"), content_key(workload), candidate, us)]
    recorder.database.record_choice(run, "search", groups, median_us=us, trusted=True)


@pytest.mark.long
def test_two_nights_that_chose_the_same_schedule_differ_by_what_each_of_them_measured(
    recorder: Any, path: Path
) -> None:
    first, second = recorder.run("first"), recorder.run("second")
    best = recorder.candidate(first, "Conv 1x8", 1, 100.0)
    assert recorder.candidate(second, "Conv 1x8", 1, 160.0) == best
    for run in (first, second):
        choose(recorder, run, "Conv 1x8", best, 100.0)
    with open_analysis(path) as opened:
        (row,) = opened.compare("first", "second").to_dict("records")
        assert row["a_us"] < 130 < row["b_us"] and row["verdict"] == "slower"
        (back,) = opened.compare("second", "first").to_dict("records")
        assert back["verdict"] == "faster"


def test_what_a_night_took_over_from_an_earlier_one_is_not_called_equal(recorder: Any, path: Path) -> None:
    first, second, third = (recorder.run(name) for name in ("first", "second", "third"))
    best = recorder.candidate(first, "Conv 1x8", 1, 100.0)
    for run in (first, second, third):
        choose(recorder, run, "Conv 1x8", best, 100.0)
    with open_analysis(path) as opened:
        (row,) = opened.compare("first", "second").to_dict("records")
        assert row["verdict"] == "not measured by B" and np.isnan(row["b_us"]) and np.isnan(row["ratio"])
        assert list(opened.compare("second", "first")["verdict"]) == ["not measured by A"]
        assert list(opened.compare("second", "third")["verdict"]) == ["not measured by either"]


def test_a_measurement_that_was_doubted_afterwards_earns_no_verdict(recorder: Any, path: Path) -> None:
    first, second = recorder.run("first"), recorder.run("second")
    slow = recorder.candidate(first, "Conv 1x8", 1, 200.0)
    fast = recorder.candidate(second, "Conv 1x8", 2, 100.0)
    choose(recorder, first, "Conv 1x8", slow, 200.0)
    choose(recorder, second, "Conv 1x8", fast, 100.0)
    with open_analysis(path) as opened:
        assert list(opened.compare("first", "second")["verdict"]) == ["faster"]
        recorder.doubt(fast)
        (row,) = opened.compare("first", "second").to_dict("records")
        assert not row["trusted"] and row["verdict"] == "not trusted"
        assert not opened.measurements.set_index("candidate_id")["trusted"][fast]
        assert not opened.noise["trusted"].iloc[-1]


def test_runs_that_were_cut_off_are_compared_by_the_best_that_each_measured(recorder: Any, path: Path) -> None:
    first, second = recorder.run("first"), recorder.run("second")
    recorder.candidate(first, "Conv 1x8", 1, 300.0)
    recorder.candidate(first, "Conv 1x8", 2, 200.0)
    recorder.candidate(second, "Conv 1x8", 3, 100.0)
    recorder.candidate(second, "Pool 1x8", 3, 100.0)
    with open_analysis(path) as opened:
        (row,) = opened.compare(first, second).to_dict("records")
        assert row["label"] == "Conv 1x8" and row["a_us"] > 180 and row["verdict"] == "faster"


def test_jobs_are_compared_model_by_model(recorder: Any, path: Path) -> None:
    graphs = [content_key("one graph"), content_key("another graph")]
    nights = []
    for night, us in (("monday", 200.0), ("tuesday", 100.0)):
        runs = [recorder.run(f"{night} {graph[:4]}", graph=graph) for graph in graphs]
        for number, run in enumerate(runs):
            candidate = recorder.candidate(run, f"Conv {number}", int(us), us)
            choose(recorder, run, f"Conv {number}", candidate, us)
        recorder.job(night, runs)
        nights.append(runs)
    with open_analysis(path) as opened:
        table = opened.compare("monday", "tuesday")
    assert list(table["label"]) == ["Conv 0", "Conv 1"] and set(table["verdict"]) == {"faster"}
    assert [tuple(pair) for pair in table[["run_a", "run_b"]].to_numpy()] == list(zip(*nights, strict=True))
