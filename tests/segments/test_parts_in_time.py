"""What a budget is spent on in the search of a model in parts: its end is kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.parted.in_time import FINALE_SHARE, LATE, LATE_S, LEAST_SEGMENT_S, UNSURE, Ending
from autofuse.parted.together import LEAST_WHOLE_S, NO_RACE, result_of_all
from autofuse.search.budget.budget import now
from autofuse.search.progress import TuneResult


def piece(work_us: float, operators: int = 30) -> Any:
    return SimpleNamespace(work_us=work_us, nodes=(None,) * operators)


def result(compile_s: float) -> TuneResult:
    return TuneResult(
        "net-segment0", "", 1, "no.db", "local", 1, "finished", 1.0, 1, 0, 0, 0, "default", "", 3, compile_s=compile_s
    )


PIECES = [piece(400.0), piece(100.0), piece(100.0)]


def test_a_long_budget_is_shared_by_work_after_what_whole_models_need() -> None:
    ending = Ending(PIECES, 600.0, now())
    searched = [(PIECES[0], result(10.0))]
    assert ending.whole_s(searched) == pytest.approx(UNSURE * 30.0, abs=10.0), "the others are as long to compile"
    left_s = ending.searching(searched)
    assert left_s == pytest.approx(600.0 - ending.race_s - ending.whole_s(searched), abs=1.0)
    assert ending.segment_s(PIECES[1:], searched) == pytest.approx(left_s / 2, abs=1.0)
    assert ending.race(searched) is not None


def test_a_tiny_budget_searches_the_weightiest_segments_and_leaves_the_race_out() -> None:
    many = [piece(100.0)] * 6
    ending = Ending(many, 20.0, now(), crowding=2.0)
    assert ending.whole_s(()) > FINALE_SHARE * 20.0 + LATE * 20.0 + LATE_S
    assert ending.kept_s(()) == 0.0, "they would not be raced in half of the budget: all of it is for the search"
    first_s = ending.segment_s(many, ())
    assert first_s == pytest.approx(2.0 * LEAST_SEGMENT_S, abs=0.5), "more than its sixth: less would say nothing"
    few = Ending(PIECES[:1], 20.0, now())
    assert few.kept_s(()) == FINALE_SHARE * 20.0, "half, where a race a little late fits in"
    late = Ending(many, 20.0, now() - 21.0, crowding=2.0)
    searched = [(many[0], result(12.0))]
    assert late.segment_s(many[1:], searched) == 0.0
    assert late.segment_s(many, ()) == 1.0, "the first is searched in any case"
    assert late.race(searched) is None, "six segments of 12 s each"


def test_whole_models_are_raced_a_little_late_and_no_later() -> None:
    searched = [(one, result(1.0)) for one in PIECES]
    needed_s = Ending(PIECES, 20.0, now()).whole_s(searched) + LEAST_WHOLE_S
    latest_s = (1.0 + LATE) * 20.0 + LATE_S - needed_s
    in_time = Ending(PIECES, 20.0, now() - latest_s + 1.0).race(searched)
    assert in_time is not None and in_time.left() == pytest.approx(needed_s + 1.0, abs=0.5)
    assert Ending(PIECES, 20.0, now() - latest_s - 1.0).race(searched) is None
    assert Ending(PIECES, None, now()).race(searched) is not None


def test_what_was_left_out_is_told() -> None:
    found = result_of_all("net", [result(1.0)], {}, 5.0, ["net-segment1"])
    assert found.chosen == "segments" and not found.plans
    assert NO_RACE in found.warning and "net-segment1" in found.warning and "net-segment1" in found.left_out[0]
