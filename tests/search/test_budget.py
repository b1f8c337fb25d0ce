"""A budget: what is left of it, inside others, with what is kept, when somebody asks for a stop."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from autofuse.search.budget.budget import MOST_CROWDED, Budget, crowding


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock: one number that only a test and a pause move."""
    time = [100.0]

    def sleep(seconds: float) -> None:
        time[0] += seconds

    monkeypatch.setattr("autofuse.search.budget.budget.time", SimpleNamespace(monotonic=lambda: time[0], sleep=sleep))
    return time


def test_it_runs_out_and_stays_so(now: list[float]) -> None:
    budget = Budget.lasting(60.0)
    assert (budget.left(), budget.spent()) == (60.0, False)
    now[0] += 61.0
    assert (budget.left(), budget.spent()) == (0.0, True)


def test_one_without_an_end_never_does(now: list[float]) -> None:
    budget = Budget.lasting(None)
    now[0] += 1e9
    assert budget.left() == math.inf


def test_it_may_have_begun_before(now: list[float]) -> None:
    assert Budget.lasting(60.0, since=90.0).left() == 50.0


def test_a_part_ends_by_itself_and_never_after_the_whole(now: list[float]) -> None:
    whole = Budget.lasting(60.0)
    assert whole.part(20.0).left() == 20.0
    assert whole.part(200.0).left() == 60.0
    part = whole.part(20.0)
    now[0] += 25.0
    assert (part.left(), whole.left()) == (0.0, 35.0)


def test_what_is_kept_may_change_and_counts_in_every_part(now: list[float]) -> None:
    kept = [10.0]
    search = Budget.lasting(60.0).keeping(lambda: kept[0])
    part = search.part(55.0)
    assert (search.left(), part.left()) == (50.0, 50.0)
    kept[0] = 45.0
    assert (search.left(), part.left()) == (15.0, 15.0)
    kept[0] = 100.0
    assert part.spent()
    assert Budget.lasting(60.0).before(45.0).left() == 15.0


def test_a_stop_ends_every_part_at_once_and_is_known_as_one(now: list[float]) -> None:
    asked = [False]
    whole = Budget.lasting(60.0, lambda: asked[0])
    part = whole.before(5.0).part(10.0).until(lambda: False)
    assert not part.spent()
    asked[0] = True
    assert whole.spent() and part.spent()
    assert whole.stopped() and part.stopped()


def test_what_else_is_used_up_ends_it_and_is_no_stop(now: list[float]) -> None:
    measured = [0]
    counted = Budget.lasting(60.0).until(lambda: measured[0] >= 3)
    assert counted.left() == 60.0
    measured[0] = 3
    assert counted.spent() and not counted.stopped()


def test_a_pause_ends_with_the_budget_or_when_somebody_asks(now: list[float]) -> None:
    told: list[float] = []
    Budget.lasting(2.0).pause(30.0, told.append)
    assert now[0] == pytest.approx(102.0)
    assert told == sorted(told, reverse=True) and told[0] == pytest.approx(2.0)
    Budget.lasting(60.0, lambda: now[0] >= 103.0).pause(30.0, told.append)
    assert now[0] == pytest.approx(103.0)


@pytest.mark.parametrize(
    ("wall_s", "worked_s", "times"),
    [(2.0, 2.0, 1.0), (5.8, 1.8, 3.0), (1.9, 2.0, 1.0), (60.0, 2.0, MOST_CROWDED), (0.04, 0.01, 24 / 21)],
)
def test_how_crowded_a_machine_is_follows_from_the_time_that_work_took(
    wall_s: float, worked_s: float, times: float
) -> None:
    assert crowding(wall_s, worked_s) == pytest.approx(times)
