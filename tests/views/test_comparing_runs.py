"""A verdict needs trusted times whose ratio leaves out 1; interleaved times are compared in pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.database.records import Block, ChosenGroup, content_key
from autofuse.views.frames.analysis import open_analysis
from autofuse.views.frames.columns import COLUMNS
from autofuse.views.frames.compare import Timed, compare_times


def timed(us: float, seed: int, *, series: str = "s", trusted: bool = True, count: int = 11) -> Timed:
    noise = np.random.default_rng(seed).normal(1.0, 0.005, count) * np.linspace(1.0, 1.5, count)
    return Timed(us, trusted, tuple(Block((us * value,), 1.0) for value in noise), series)


def test_pairs_show_what_drift_hides() -> None:
    paired = compare_times(timed(103.0, 1), timed(100.0, 2))
    assert paired.verdict == "faster" and 1.02 < paired.lo <= paired.value <= paired.hi < 1.04
    apart = compare_times(timed(103.0, 1, series="a"), timed(100.0, 2, series="b"))
    assert apart.verdict == "no difference" and apart.lo < 1 < apart.hi


@pytest.mark.parametrize(("old", "new", "verdict"), [(150.0, 100.0, "faster"), (100.0, 150.0, "slower")])
def test_the_verdict_is_on_the_new_time(old: float, new: float, verdict: str) -> None:
    ratio = compare_times(timed(old, 1), timed(new, 2))
    assert ratio.verdict == verdict and ratio.value == pytest.approx(old / new, rel=0.02)


@pytest.mark.parametrize("untrusted", [0, 1])
def test_an_untrusted_time_earns_no_verdict(untrusted: int) -> None:
    ratio = compare_times(timed(200.0, 1, trusted=untrusted != 0), timed(100.0, 2, trusted=untrusted != 1))
    assert (ratio.verdict, ratio.trusted) == ("no difference", False) and ratio.value > 1.9


def test_few_blocks_or_none_earn_no_verdict() -> None:
    assert compare_times(timed(200.0, 1, count=4), timed(100.0, 2, count=4)).verdict == "no difference"
    bare = compare_times(Timed(200.0, True, ()), Timed(100.0, True, ()))
    assert (bare.value, bare.verdict) == (2.0, "no difference") and bare.lo != bare.lo


def test_flagged_blocks_do_not_count_in_pairs_or_apart() -> None:
    def spoiled(time: Timed) -> Timed:
        return Timed(time.median_us, True, (Block((9999.0,), 0.3, True), *time.blocks[1:]), time.series)

    good = compare_times(timed(110.0, 1), timed(100.0, 2))
    assert compare_times(spoiled(timed(110.0, 1)), timed(100.0, 2)).hi < good.hi * 1.05
    apart = compare_times(spoiled(timed(110.0, 1, series="")), timed(100.0, 2, series=""))
    assert apart.hi < 2


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
        assert not row["trusted"] and row["verdict"] == "no difference"
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
