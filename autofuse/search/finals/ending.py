"""The end of a search: finalists are measured whole, the choice is recorded, then raced against ONNX Runtime alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from autofuse.errors import WrongResultError
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import SECONDS_AGAIN
from autofuse.search.finals.alone import AloneRace
from autofuse.search.finals.finale import schedules_of, wishes
from autofuse.search.finals.finals import Finals, measured_whole
from autofuse.search.finals.numerical_gate import right_as_a_whole
from autofuse.search.finals.recording import record_choice
from autofuse.search.finals.verdict import Verdict
from autofuse.values.names import UNTUNED

GoOn = Callable[[Verdict, float], bool]
"""Searches on after a verdict that took so many seconds; whether anything came of it that another one may tell."""


def conclude(finals: Finals, budget: Budget, go_on: GoOn) -> Verdict | None:
    """Measures as many finalists whole as the budget has time for, records them and the choice; None when stopped.

    Once more after each time that the search could `go_on`, which it may where the finalists were soon decided: what
    was chosen stays where it has no time then. At the very end the choice is raced against ONNX Runtime alone, for
    which a little time is kept.
    Libraries are built, run and checked in child processes only. Where there is no time for even one, the choice is
    the plan of an earlier run, or the best by the times of its kernels, or the default: said so, and nothing is thrown.
    """
    before_alone = budget.before(finals.estimates.alone_race_s)
    chosen: Verdict | None = None
    while True:
        started = budget.now()
        verdict = _decided(finals, before_alone)
        if verdict is None or (chosen is not None and not _raced_again(finals, chosen, verdict)):
            return chosen if not budget.stopped() else None
        alone = AloneRace.of(finals, verdict)
        _measure_taken(finals, verdict, before_alone)
        record_choice(finals.lab, verdict)
        chosen = verdict
        if not go_on(verdict, budget.now() - started):
            return verdict if alone is None else replace(verdict, alone=alone.run(budget))


def _measure_taken(finals: Finals, verdict: Verdict, budget: Budget) -> None:
    """A plan may have won with schedules that no candidate has tried: `compile` wants to find just these measured."""
    lab, evidence = finals.lab, finals.evidence
    taken = schedules_of(evidence, verdict.name, verdict.plan)
    missing = [(search, taken[search.key]) for search in evidence.missing(verdict.plan)]
    if missing and not budget.spent():
        lab.remeasure(missing, budget)
    lab.measure_first(evidence.missing(verdict.plan), budget)


def _raced_again(finals: Finals, chosen: Verdict, verdict: Verdict) -> bool:
    """Whether a later race timed what was chosen before it."""
    name = UNTUNED if chosen.name == UNTUNED else finals.standing.previous
    return name in verdict.times and verdict.times[name].median_us is not None


def _decided(finals: Finals, budget: Budget) -> Verdict | None:
    """The verdict on the plans that are worth measuring whole now; None when somebody asked for a stop."""
    wished = wishes(finals.standing)
    finale = finals.estimates.finale(wished, budget.left())
    # Where none is expected to fit in, the first is tried all the same, and needs what is left.
    need_s = finale.seconds if finale.names else budget.left()
    finals.standing.phase, finals.standing.ends_at = "confirming", budget.now() + need_s
    finals.lab.tell("")
    spare_s = budget.left() - need_s
    most = int(finals.estimates.race_s / SECONDS_AGAIN)
    finals.lab.assure(list(wished.values()), most, budget.part(spare_s))
    try:
        verdict = right_as_a_whole(finals.lab, wished, partial(measured_whole, finals, budget=budget), budget)
    except WrongResultError:
        if not budget.stopped():
            raise
        return None
    return None if budget.stopped() else verdict
