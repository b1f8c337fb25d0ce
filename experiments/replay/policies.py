"""The policies that are replayed: what decides what is measured next."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from autofuse.environment.named_plans import named_plan
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import FIXED, LITTLE_FUSION
from autofuse.search.phases.phases import search_all
from autofuse.search.phases.questions import Search, plan_search
from experiments.replay.former import in_phases

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


def at_random(search: Search, budget: Budget) -> None:
    """The control: any candidate of any group of the fixed plans and of every changed decision, drawn by chance."""
    planned = [named_plan(search.evidence.graph, name) for name in (*LITTLE_FUSION, *FIXED)]
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
