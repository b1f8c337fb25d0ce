"""A trained model guides a search: it names a plan to begin with, and which changes of it to try first, or never.

Changes that are likely to lose are left out, but for a share that is measured all the same: what comes of them is
recorded beside what was expected, so that one sees where the model is wrong. What is legal is not the model's to say.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import median

from autofuse.database.records import Json
from autofuse.environment.environment import Environment
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.planner import Planner
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.fusion.space import FusionSpace
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowering
from autofuse.learning.advice import Adviser, Change, PlanAdviser, advise
from autofuse.learning.stored import find_model, load_model

EXPLORED = 10
"""One in so many changes that are likely to lose is measured."""
ASKING_S = 20.0
"""Seconds for asking the model about single changes; what it was not asked about stays in the search's own order."""
ADVICE_S = 15.0
REAL = 0.005
"""Share of the default plan's time beyond which a change was worth something."""

Answers = Mapping[str, str]


@dataclass(frozen=True)
class Expectation:
    """An expectation: what a change of answers was expected to save, and what it did save (microseconds; None: not
    measured).

    `likely`: "pays", "open", "loses", or "unsure" where the model abstained.
    """

    answers: Answers
    likely: str
    expected_us: float
    measured_us: float | None = None


@dataclass
class Guide:
    """A trained model that guides a plan search. `source`: its file. `skipped`: changes that were left out;
    `expected`: of the others, by plan."""

    adviser: PlanAdviser
    source: str
    seed: int
    skipped: int = 0
    explored: int = 0
    expected: dict[str, Expectation] = field(default_factory=dict)
    default_us: float | None = None
    advised: str = ""

    def first_plan(self, graph: Graph, space: FusionSpace, seconds: float = ADVICE_S) -> FusionPlan | None:
        """The plan that the model would choose; None where it abstains, and then it is asked nothing more."""
        found = advise(graph, RewritingPlanner(graph, space), self.adviser, seconds)
        self.advised = found.abstains or f"{len(found.answers)} changes"
        return found.plan

    def arrange(
        self, queue: list[dict[str, str]], planner: Planner | RewritingPlanner, seconds: float = ASKING_S
    ) -> list[dict[str, str]]:
        """The changes of a queue that are worth measuring, the most promising first.

        Behind those that are likely to pay come those of which nothing is known, then those that look the same, then
        the few that are tried although they look bad.
        """
        default = planner.plan({})
        end = time.monotonic() + seconds
        ranked: list[tuple[int, float, int, dict[str, str]]] = []
        for number, answers in enumerate(queue):
            if not answers:
                ranked.append((-1, 0.0, number, answers))
                continue
            if time.monotonic() > end:
                ranked.append((1, 0.0, number, answers))
                continue
            plan = planner.plan(answers)
            change = self.adviser.change(default, plan)
            likely = _likely(change)
            if likely == "loses" and not self._explores():
                self.skipped += 1
                continue
            self.explored += likely == "loses"
            self.expected.setdefault(plan.key, Expectation(answers, likely, change.saved_us))
            ranked.append((_ORDER[likely], -change.saved_us if likely != "unsure" else 0.0, number, answers))
        return [answers for *_, answers in sorted(ranked, key=lambda one: one[:3])]

    def _explores(self) -> bool:
        """Whether the next change that looks bad is tried: one in `EXPLORED`, and which one depends on the seed."""
        return (self.skipped + self.explored) % EXPLORED == self.seed % EXPLORED

    def observe(self, answers: Answers, plan: FusionPlan, composed_us: float | None) -> None:
        """Takes in what a plan came to."""
        if not answers:
            self.default_us = composed_us
        known = self.expected.get(plan.key)
        if known is not None and composed_us is not None and self.default_us is not None:
            saved = self.default_us - composed_us
            self.expected[plan.key] = Expectation(known.answers, known.likely, known.expected_us, saved)

    def summary(self) -> dict[str, Json]:
        """The model's hits and misses, for the run's summary.

        `right`: share of the changes that paid or lost for real whose sign was expected. `explored_paid`: of those
        that were tried although they looked bad, how many paid. `error`: median of how far off savings were, as a
        share of the default plan's time.
        """
        seen = [one for one in self.expected.values() if one.measured_us is not None]
        default_us = self.default_us or float("inf")
        real = [one for one in seen if abs(one.measured_us or 0.0) > REAL * default_us]
        sure = [one for one in real if one.likely in ("pays", "loses")]
        right = sum((one.measured_us or 0.0) * one.expected_us > 0 for one in sure)
        off = [abs((one.measured_us or 0.0) - one.expected_us) / default_us for one in seen]
        return {
            "file": self.source,
            "first_plan": self.advised,
            "skipped": self.skipped,
            "explored": self.explored,
            "explored_paid": sum(one.likely == "loses" and (one.measured_us or 0.0) > 0 for one in real),
            "sure": len(sure),
            "right": right / len(sure) if sure else None,
            "error": median(off) if off else None,
            "changes": [asdict(one) for one in seen],
        }


_ORDER = {"pays": 0, "unsure": 1, "open": 2, "loses": 3}


def _likely(change: Change) -> str:
    if change.unsure:
        return "unsure"
    return "pays" if change.pays else "loses" if change.hopeless else "open"


def guide_for(asked: str | None, environment: Environment, lowering: Lowering, seed: int) -> Guide | None:
    """The guide that `--model` means, a file or the name of a shipped one; None where none was asked for.

    InputError for a file that is no model.
    """
    path = find_model(asked) if asked is not None else None
    if path is None:
        return None
    facts = environment.device.fingerprint.facts
    adviser = Adviser(load_model(path), environment.target, facts, environment.setting.threads)
    return Guide(PlanAdviser(adviser, lowering), path.name, seed)
