"""The policies that are replayed: what decides what is measured next. All but the control are the product's code."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass

from autofuse.environment.named_plans import named_plan
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import LITTLE_FUSION, PAPER
from autofuse.search.phases.phases import measure_baselines, search_all
from autofuse.search.phases.questions import Search, plan_search, questions

FIRST_SHARE, PLANS_SHARE, LITTLE_SHARE = 0.35, 0.3, 0.4
"""Parts of a budget that phases had before questions were weighed against each other: schedules of the default plan,
plans, and (of what is left then) the plans that fuse little."""
ALL = 1 << 20
SEED = 0


@dataclass(frozen=True)
class Policy:
    """A policy. `run`: spends a budget; `guided`: it asks a trained model that saw nothing of the network."""

    name: str
    run: Callable[[Search, Budget], None]
    guided: bool = False


def one_at_a_time(search: Search, budget: Budget) -> None:
    """What `tune` does: one question at a time, the one that promises most for its seconds."""
    search_all(search, budget, budget)


def in_phases(search: Search, budget: Budget) -> None:
    """The former order: phases with fixed shares of the budget, each asking its own kind of question."""
    measure_baselines(search, budget, budget)
    left_s = budget.left()
    _ask(search, budget.part(left_s * FIRST_SHARE), ("schedules",))
    _ask(search, budget.part(left_s * PLANS_SHARE), ("plans", "combinations"))
    _ask(search, budget.part(budget.left() * LITTLE_SHARE), ("fixed plans",))
    _ask(search, budget, ("compositions",))
    _ask(search, budget, ("schedules",))


def _ask(search: Search, budget: Budget, kinds: Collection[str]) -> None:
    """Asks the product's questions of these kinds, as they come, until none is offered."""
    while not budget.spent():
        offered = [one for one in questions(search, budget) if one.kind in kinds]
        if not offered:
            return
        before = search.evidence.counts.measured, search.standing.plan_trials, search.standing.composed_trials
        offered[0].ask(budget)
        if before == (search.evidence.counts.measured, search.standing.plan_trials, search.standing.composed_trials):
            return


def at_random(search: Search, budget: Budget) -> None:
    """The control: any candidate of any group of the fixed plans and of every changed decision, drawn by chance."""
    planned = [named_plan(search.evidence.graph, name) for name in (*LITTLE_FUSION, PAPER)]
    planned += [flip.plan for flip in plan_search(search, budget).flips(ALL)]
    for plan in planned:
        search.evidence.admit(plan)
    choose = random.Random(SEED)
    while not budget.spent():
        waiting = [one for one in search.evidence.searches.values() if not one.complete]
        if not waiting:
            return
        search.lab.measure([choose.choice(waiting)], budget)


POLICIES = (
    Policy("phases", in_phases),
    Policy("questions", one_at_a_time),
    Policy("questions, model", one_at_a_time, guided=True),
    Policy("random", at_random),
)
