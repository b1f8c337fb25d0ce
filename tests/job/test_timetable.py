"""How time is shared: slices while time is left, the confirmations' share kept back, candidates counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from autofuse.database.job_records import CONFIRM, SEARCH, TaskInfo
from autofuse.job.searcher import gain_in_an_hour
from autofuse.job.settings import JobSettings
from autofuse.job.timetable import MOST_CONFIRMED, confirm_seconds, for_task, next_turn
from autofuse.search.schedules.prospects import Prospect, expected_saving

HOURS = 3600.0
NIGHT = JobSettings(budget_s=8 * HOURS)
TASK = TaskInfo(
    id=1, job_id=1, position=0, model="m", model_sha256="s", device="local", phase=SEARCH, state="queued", attempts=0,
    spent_s=0.0, reserve_s=10.0, gain=0.2, measured=0, failed=0, best_us=None, baseline_us=None, run_id=None,
    failure=None, result=None,
)  # fmt: skip


def tasks(count: int, **changes: object) -> list[TaskInfo]:
    return [replace(TASK, id=number, **changes) for number in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("models", "workers"), [(1, 1), (3, 1), (10, 1), (10, 4), (40, 2)])
def test_between_5_and_15_percent_of_a_night_are_kept_for_confirmation(models: int, workers: int) -> None:
    kept = confirm_seconds(8 * HOURS, models, workers) * models / workers
    assert kept >= min(0.05 * 8 * HOURS, 300 * models / workers)
    assert kept <= 0.15 * 8 * HOURS


@pytest.mark.parametrize("left_s", [60.0, 200.0, 1000.0, 10 * HOURS])
@pytest.mark.parametrize("models", [1, 2, 7])
def test_a_slice_never_takes_the_time_of_the_confirmations(models: int, left_s: float) -> None:
    turn = next_turn(tasks(models), 1, JobSettings(budget_s=left_s), left_s, left_s)
    assert turn is not None
    reserve = min(models * (confirm_seconds(left_s, models, 1) + 10.0), MOST_CONFIRMED * left_s)
    if turn.phase == SEARCH:
        assert turn.seconds <= left_s - reserve + 1e-6
    else:
        assert left_s <= reserve


def test_one_model_gets_all_its_time_in_one_slice() -> None:
    turn = next_turn(tasks(1), 1, NIGHT, 8 * HOURS, 8 * HOURS)
    assert turn is not None
    assert turn.seconds > 7 * HOURS


def test_many_models_get_slices_that_allow_several_rounds() -> None:
    turn = next_turn(tasks(10), 1, NIGHT, 8 * HOURS, 8 * HOURS)
    assert turn is not None
    assert 120 < turn.seconds <= 8 * HOURS / 10 / 5


def test_without_gain_above_the_least_there_is_only_confirmation() -> None:
    settings = replace(NIGHT, early_stopping=0.3)
    turn = next_turn(tasks(3), 1, settings, 8 * HOURS, 8 * HOURS)
    assert turn is not None
    assert turn.phase == CONFIRM
    turn = next_turn(tasks(3, gain=None), 1, settings, 8 * HOURS, 8 * HOURS)
    assert turn is not None
    assert turn.phase == SEARCH, "what has not begun is begun"


def test_candidates_are_counted_over_all_models() -> None:
    settings = JobSettings(budget_s=None, trials=100)
    turn = next_turn(tasks(1, measured=40), 1, settings, None, math.inf)
    assert turn is not None
    assert turn.trials == 60
    turn = next_turn(tasks(2, measured=50), 1, settings, None, math.inf)
    assert turn is not None
    assert turn.phase == CONFIRM


def test_nothing_is_left_when_all_is_done_or_in_other_hands() -> None:
    assert next_turn(tasks(2, state="done"), 1, NIGHT, 8 * HOURS, 100.0) is None
    assert next_turn(tasks(2, state="running"), 1, NIGHT, 8 * HOURS, 100.0) is None


def test_past_its_end_a_job_still_concludes_what_it_began_but_takes_no_time_for_it() -> None:
    turn = next_turn(tasks(2, spent_s=40.0), 1, NIGHT, 8 * HOURS, -50.0)
    assert turn is not None
    assert (turn.phase, turn.seconds) == (CONFIRM, 0.0)


@pytest.mark.parametrize("models", [1, 3, 10, 40])
def test_confirmations_share_what_is_left_whatever_they_would_need(models: int) -> None:
    waiting = tasks(models, spent_s=40.0, gain=0.0, reserve_s=500.0)
    left_s, settings = 300.0, JobSettings(budget_s=600.0, early_stopping=0.1)
    while waiting:
        turn = next_turn(waiting, 1, settings, 600.0, left_s)
        assert turn is not None and turn.phase == CONFIRM
        left_s, waiting = left_s - for_task(turn, waiting[0], waiting, 1, left_s).seconds, waiting[1:]
    assert left_s >= -1e-6


def confirmed(waiting: list[TaskInfo], left_s: float, least_s: Sequence[float], used: float = 1.0) -> list[float]:
    """Seconds that the models get for their finalists, one after the other; each uses such a part of them."""
    found, least = [], {task.id: seconds for task, seconds in zip(waiting, least_s, strict=True)}
    for number in range(len(waiting)):
        turn = next_turn(waiting[number:], 1, JobSettings(120.0, trials=0), 120.0, left_s, least)
        assert turn is not None and turn.phase == CONFIRM
        found.append(for_task(turn, waiting[number], waiting[number:], 1, left_s, least).seconds)
        left_s -= used * found[-1]
    return found


def test_a_confirmation_leaves_the_others_what_they_need() -> None:
    """A small model and a large one: 25 s of measuring, and 10 s or 40 s of building; for one finalist 15 s or 30 s."""
    small, large = tasks(2, spent_s=20.0)
    large = replace(large, reserve_s=40.0)
    assert confirmed([small, large], 100.0, [15.0, 30.0]) == pytest.approx([35.0, 65.0])
    assert confirmed([large, small], 100.0, [30.0, 15.0]) == pytest.approx([65.0, 35.0])
    first, second = confirmed([small, large], 60.0, [15.0, 30.0])
    assert 15.0 <= first < 35.0 and 30.0 <= second < 65.0, "each has its one finalist, and shares what is left"
    assert confirmed([small, large], 40.0, [15.0, 30.0]) == [15.0, 25.0], "too little: the first has what it needs"
    first, second = confirmed([small, large], 120.0, [15.0, 30.0], used=0.5)
    assert (first, second) == pytest.approx((45.0, 97.5)), "what one does not use is there for the next"


def test_one_finalist_of_each_model_is_kept_from_the_search() -> None:
    """Even where that is more than half of the budget."""
    waiting = tasks(2, spent_s=20.0)
    turn = next_turn(waiting, 1, JobSettings(120.0), 120.0, 75.0, {0: 38.0, 1: 38.0})
    assert turn is not None and turn.phase == CONFIRM
    turn = next_turn(waiting, 1, JobSettings(120.0), 120.0, 75.0, {0: 20.0, 1: 20.0})
    assert turn is not None and turn.phase == SEARCH


def test_a_model_that_was_not_begun_is_expected_to_need_as_much_as_the_dearest() -> None:
    seen, fresh = replace(TASK, id=1, spent_s=20.0, reserve_s=45.0), replace(TASK, id=2, reserve_s=None, gain=None)
    turn = next_turn([seen, fresh], 1, JobSettings(120.0), 120.0, 60.0, {1: 30.0})
    assert turn is not None and turn.phase == CONFIRM, "no time is left to search"
    assert for_task(turn, seen, [seen, fresh], 1, 60.0, {1: 30.0}).seconds == pytest.approx(30.0)


@pytest.mark.parametrize("trials", [0, 8])
def test_every_model_is_begun_before_any_is_confirmed_when_one_uses_up_all_candidates(trials: int) -> None:
    """The default plan of each has its first times, and what its finalists need is known."""
    waiting, settings, left_s = tasks(3, gain=None, reserve_s=None), JobSettings(120.0, trials=trials), 120.0
    for number in range(3):
        turn = next_turn(waiting, 1, settings, 120.0, left_s)
        assert turn is not None and turn.phase == SEARCH and turn.seconds > 0
        assert turn.trials == (trials if number == 0 else 0)
        left_s -= turn.seconds
        waiting[number] = replace(waiting[number], spent_s=turn.seconds, gain=0.1, measured=8 if number == 0 else 0)
    turn = next_turn(waiting, 1, settings, 120.0, left_s)
    assert turn is not None and turn.phase == CONFIRM


@pytest.mark.parametrize("models", [2, 7, 40])
def test_every_model_is_begun_before_the_search_has_used_up_its_time(models: int) -> None:
    waiting, left_s, settings = tasks(models, gain=None, reserve_s=None), 600.0, JobSettings(budget_s=600.0)
    for number in range(models):
        turn = next_turn(waiting, 1, settings, 600.0, left_s)
        assert turn is not None and turn.phase == SEARCH and turn.seconds > 0
        left_s -= turn.seconds
        waiting[number] = replace(waiting[number], spent_s=turn.seconds, gain=0.1)


def test_more_candidates_save_more_and_never_all() -> None:
    ahead = (Prospect(0.7, 5, 43), Prospect(0.2, 10, 38))
    savings = [expected_saving(ahead, count) for count in (0, 1, 10, 100, 10_000)]
    assert savings == sorted(savings)
    assert (savings[0], savings[-1] < 0.9) == (0.0, True)


def test_what_is_searched_less_or_weighs_more_promises_more() -> None:
    assert expected_saving((Prospect(0.9, 5, 40),), 10) > expected_saving((Prospect(0.1, 5, 40),), 10)
    assert expected_saving((Prospect(0.9, 2, 40),), 10) > expected_saving((Prospect(0.9, 40, 40),), 10)
    assert expected_saving((), 10) == 0.0


def test_a_slice_that_saved_more_than_foreseen_raises_the_forecast() -> None:
    ahead, before = (Prospect(1.0, 20, 28),), (Prospect(1.0, 10, 38),)
    plain = gain_in_an_hour(ahead, before, 10, 60.0, None)
    foreseen = expected_saving(before, 10)
    assert gain_in_an_hour(ahead, before, 10, 60.0, foreseen) == pytest.approx(plain)
    assert gain_in_an_hour(ahead, before, 10, 60.0, 2 * foreseen) > plain
    assert gain_in_an_hour(ahead, before, 10, 60.0, 0.0) == pytest.approx(plain / 2)
    assert gain_in_an_hour((), before, 10, 60.0, 0.5) == 0.0
