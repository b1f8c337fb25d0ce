"""How a job's time is shared: slices of search while time is left, then each winner's confirmation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.database.job_records import CONFIRM, DONE, FAILED, RUNNING, SEARCH, TaskInfo
from autofuse.job.settings import JobSettings

CONFIRM_SHARE = 0.08
"""Part of the budget that is kept for measuring the finalists whole, beyond the least that they need."""
MOST_CONFIRMED = 0.5
"""Part of the budget that building and measuring the finalists of all models may take at most."""
LEAST_CONFIRM_S, MOST_CONFIRM_S, UNBOUNDED_CONFIRM_S = 25.0, 300.0, 40.0
FIRST_BUILD_S = 15.0
"""Guess of the seconds that building and checking the finalists takes, before a search has told."""
MOST_CHECKED = 0.8
"""The same for one finalist of each: a plan that was checked as a whole is worth more than a longer search."""
ROUNDS = 6
"""Slices into which each model's equal share of the time is cut: more share better, fewer cost less."""
LEAST_SLICE_S, MOST_SLICE_S = 20.0, 900.0
OPEN_SESSIONS, LEAST_REOPENED_S = 4, 120.0
"""Models whose search a worker keeps ready, and the shortest slice where there are more: opening one again takes up to
20 s (the graph, its reference results, the plans lowered anew)."""
UNBOUNDED_SLICE_S = 60.0
UNBOUNDED_CONFIRMATION_S = 24 * 3600.0
"""Seconds for one model's finalists where the job has no end: as many as they need."""
WATCHED_SLICE_S = 300.0
"""Longest slice under `--early-stopping`, whose rule is applied between slices."""
HOUR_S = 3600.0

Least = Mapping[int, float]
"""Seconds that building, checking and timing one finalist takes, by the task's id, of those that a search has told."""
NOTHING_SEEN: Least = {}


@dataclass(frozen=True)
class Turn:
    """The next turn of a worker: `phase` with any task of its device, for `seconds`, with at most `trials` new
    candidates (None: any number), on a task that promises more than `least_gain` an hour. `race_s`: of these seconds,
    those for measuring the finalists in turn."""

    phase: str
    seconds: float
    trials: int | None = None
    least_gain: float = 0.0
    race_s: float = 0.0


def confirm_seconds(budget_s: float | None, tasks: int, workers: int) -> float:
    """Seconds kept for measuring one task's finalists whole, without building them."""
    if budget_s is None:
        return UNBOUNDED_CONFIRM_S
    least = min(LEAST_CONFIRM_S, budget_s / 3)
    return max(least, min(MOST_CONFIRM_S, CONFIRM_SHARE * budget_s * workers / max(1, tasks)))


def next_turn(
    tasks: Sequence[TaskInfo],
    workers: int,
    settings: JobSettings,
    budget_s: float | None,
    left_s: float,
    least_s: Least = NOTHING_SEEN,
) -> Turn | None:
    """The turn of one worker; None when its device has nothing left to do.

    `tasks`: all of the worker's device. `workers`: those alive that share them. `left_s`: seconds of the job (infinite
    where it has no end). What the confirmations will take is kept back from the search. Every model is opened, and its
    default plan gets its first times, before any is confirmed: only then it is known what the others need. A
    confirmation may take all that is left: `for_task` says how much of it one model gets.
    """
    open_tasks = [task for task in tasks if task.state not in (DONE, FAILED)]
    waiting = [task for task in open_tasks if task.state != RUNNING]
    if not waiting:
        return None
    each_s = confirm_seconds(budget_s, len(tasks), workers)
    unconfirmed = [task for task in tasks if _unconfirmed(task)]
    reserve_s = finals_s(unconfirmed, budget_s, workers, each_s)
    if budget_s is not None:
        checked_s = sum(_least_of(task, tasks, least_s) for task in unconfirmed) / workers
        reserve_s = max(reserve_s, min(checked_s, MOST_CHECKED * budget_s))
    search_s = left_s - reserve_s
    least = settings.early_stopping or 0.0
    promising = [task for task in open_tasks if task.phase == SEARCH and worth_a_slice(task, least)]
    unbegun = [task for task in promising if not begun(task)]
    trials = _trials(tasks, settings)
    searched = promising if trials != 0 else unbegun  # what is begun has at least the first times of its default plan
    if [task for task in searched if task in waiting] and search_s > 0:
        fair_s = search_s * workers / max(1, len(unbegun))
        seconds = min(fair_s, _slice_seconds(search_s, len(promising), workers, settings))
        return Turn(SEARCH, seconds, _share(trials, len(promising), workers), least)
    return Turn(CONFIRM, UNBOUNDED_CONFIRMATION_S if budget_s is None else max(0.0, left_s), race_s=each_s)


def for_task(
    turn: Turn,
    task: TaskInfo,
    tasks: Sequence[TaskInfo],
    workers: int,
    left_s: float,
    least_s: Least = NOTHING_SEEN,
) -> Turn:
    """`turn` with the seconds that are for `task`, which was claimed for it; the others: see `next_turn`.

    A confirmation leaves to the other models what one finalist of theirs needs at least, by what was seen of them. What
    is left beyond that is shared by what more each needs, and then equally. Time that one does not use goes to those
    after it. Where the time does not suffice for all, the first ones get what they need.
    """
    if turn.phase != CONFIRM or turn.seconds <= 0 or math.isinf(left_s):
        return turn
    unconfirmed = [task, *(one for one in tasks if one.id != task.id and _unconfirmed(one))]
    least = [_least_of(one, tasks, least_s) for one in unconfirmed]
    more = [max(0.0, turn.race_s + builds_s(one) - own) for one, own in zip(unconfirmed, least, strict=True)]
    free_s = max(0.0, left_s * min(workers, len(least)) - sum(least))
    equal_s = max(0.0, free_s - sum(more)) / len(least)
    part = min(1.0, free_s / sum(more)) if sum(more) else 0.0
    return replace(turn, seconds=max(0.0, min(left_s, least[0] + part * more[0] + equal_s)))


def _least_of(task: TaskInfo, tasks: Sequence[TaskInfo], least_s: Least) -> float:
    """Seconds that building and checking one finalist of `task` takes; of one that is not known as the dearest."""
    seen = [least_s[one.id] for one in tasks if one.id in least_s]
    return least_s.get(task.id, max(seen, default=FIRST_BUILD_S))


def _unconfirmed(task: TaskInfo) -> bool:
    """Whether its finalists are still to be measured, and nobody is about to."""
    return task.state not in (DONE, FAILED) and (task.phase == SEARCH or task.state != RUNNING)


def begun(task: TaskInfo) -> bool:
    """Whether a search ever took it up."""
    return task.spent_s > 0 or task.measured > 0


def finals_s(tasks: Sequence[TaskInfo], budget_s: float | None, workers: int, each_s: float | None = None) -> float:
    """Seconds that building and measuring the finalists of those tasks that have not ended may take.

    `each_s`: of measuring those of one (None: as `confirm_seconds` has it for these tasks).
    """
    each_s = confirm_seconds(budget_s, len(tasks), workers) if each_s is None else each_s
    needed_s = sum(each_s + builds_s(task) for task in tasks if task.state not in (DONE, FAILED)) / workers
    return needed_s if budget_s is None else min(needed_s, MOST_CONFIRMED * budget_s)


def worth_a_slice(task: TaskInfo, least_gain: float) -> bool:
    """Whether more search may pay: it has not begun, or promises more than `least_gain` of its time in an hour."""
    return task.gain is None or task.gain > least_gain


def builds_s(task: TaskInfo) -> float:
    """Seconds that building and checking the task's finalists will take."""
    return FIRST_BUILD_S if task.reserve_s is None else task.reserve_s


def _trials(tasks: Sequence[TaskInfo], settings: JobSettings) -> int | None:
    if settings.trials is None:
        return None
    return max(0, settings.trials - sum(task.measured for task in tasks))


def _share(trials: int | None, promising: int, workers: int) -> int | None:
    """New candidates of one slice, of `trials` that are left in all (None: no limit)."""
    if trials is None:
        return None
    share = max(8, math.ceil(trials / (promising * ROUNDS))) if promising > 1 else max(1, math.ceil(trials / workers))
    return min(trials, share)


def _slice_seconds(search_s: float, promising: int, workers: int, settings: JobSettings) -> float:
    if math.isinf(search_s):
        return UNBOUNDED_SLICE_S
    if promising <= workers:
        longest = WATCHED_SLICE_S if settings.early_stopping is not None else math.inf
        return min(search_s, longest)
    share = search_s * workers / (promising * ROUNDS)
    least = LEAST_SLICE_S if promising <= OPEN_SESSIONS * workers else LEAST_REOPENED_S
    return min(search_s, max(least, min(MOST_SLICE_S, share)))
