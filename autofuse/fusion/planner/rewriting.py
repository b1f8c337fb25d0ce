"""Plans that rewrite first: which matches of the rules in `autofuse.rewrite` are rewritten is decided like all else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.planner import Decision, Planner
from autofuse.fusion.planner.questions import FUSE, KEEP
from autofuse.fusion.planner.sites import RewriteSite
from autofuse.fusion.space import FusionSpace
from autofuse.graph.model import Graph
from autofuse.rewrite.driver import Rewritten, rewrite
from autofuse.rewrite.rule import Default, Kind, Match, Step
from autofuse.rewrite.rules.catalogue import BY_NAME

REWRITE, APPLY = "rewrite", "apply"
"""The kind of these decisions, and the answer that rewrites (the other is "keep")."""
ALL = f"{REWRITE} all"
"""The decision whether anything is rewritten where no answer of its own says so."""
REMEMBERED = 6
"""Rewritten graphs kept at a time."""


@dataclass(frozen=True)
class _Variant:
    """One rewritten graph with its planner; `fused`: decisions on edges that a merge only pays with."""

    rewritten: Rewritten
    planner: Planner
    fused: Mapping[str, str]


class RewritingPlanner:
    """A planner of one graph within one space that rewrites the graph before it plans.

    Answers to decisions of the kind "rewrite" say which matches are rewritten: all that look the same share one.
    The defaults are the greedy choice; simplifications go with it. Matches that only other answers bring about, and the
    questions of a graph that other answers make, take their defaults. `preferred`: answers that are the defaults in
    place of the greedy ones.
    """

    def __init__(
        self, graph: Graph, space: FusionSpace | None = None, preferred: Mapping[str, str] | None = None
    ) -> None:
        self.model = graph
        self.space = space or FusionSpace()
        self.preferred = dict(preferred or {})
        self._constants: dict[str, NDArray[np.generic]] = {}
        self._variants: dict[tuple[tuple[str, str], ...], _Variant] = {}
        self._refused: list[Collection[str]] = []

    @property
    def graph(self) -> Graph:
        """The graph as the defaults rewrite it: decisions name operators of this one."""
        return self._variant(self.preferred).rewritten.graph

    @property
    def matches(self) -> tuple[Match, ...]:
        """Every match met while the graph is rewritten greedily, those that are left alone too."""
        return self._variant({}).rewritten.asked

    @property
    def met(self) -> tuple[Match, ...]:
        """Every match met while the graph is rewritten as the defaults have it."""
        return self._variant(self.preferred).rewritten.asked

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Rewrites first, then the decisions of `Planner` on the graph as the defaults rewrite it."""
        variant = self._variant(self.preferred)
        preferred = {**variant.fused, **self.preferred}
        return tuple(_preferring(one, preferred) for one in (*self._rewrites, *variant.planner.decisions))

    @cached_property
    def _rewrites(self) -> tuple[Decision, ...]:
        if REWRITE not in self.space.decide:
            return ()
        found: dict[str, tuple[Match, list[RewriteSite]]] = {}
        for one in self.matches:
            if one.rule.kind != Kind.SIMPLIFICATION and (one.pays or one.rule.default == Default.NEVER):
                found.setdefault(decision_name(one), (one, []))[1].append(RewriteSite(one.root))
        made = [
            Decision(name, REWRITE, (APPLY, KEEP) if one.pays else (KEEP, APPLY), tuple(sites))
            for name, (one, sites) in found.items()
        ]
        whole = [Decision(ALL, REWRITE, (APPLY, KEEP))] if self._variant({}).rewritten.applied else []
        return (*whole, *made)

    def plan(self, answers: Mapping[str, str]) -> FusionPlan:
        """The plan that the answers make; see `autofuse.fusion.planner.planner.plan_from`."""
        answers = {**self.preferred, **answers}
        for decision in self._rewrites:
            answer = answers.get(decision.name, decision.default)
            if answer not in decision.choices:
                allowed = ", ".join(decision.choices)
                raise InputError(f"decision {decision.name!r}: {answer!r} is no choice; allowed: {allowed}")
        variant = self._variant(answers)
        plan = variant.planner.plan({**variant.fused, **answers})
        return replace(plan, rewrites=variant.rewritten.steps)

    def refuse(self, operators: Collection[str]) -> None:
        """Never make this group again: see `Planner.refuse`."""
        self._refused.append(operators)
        for variant in self._variants.values():
            variant.planner.refuse(operators)

    def _variant(self, answers: Mapping[str, str]) -> _Variant:
        """The graph rewritten as the answers say."""
        given = {name: answer for name, answer in answers.items() if name.startswith(f"{REWRITE} ")}
        asked = {decision.name: decision.default for decision in self._rewrites} if given else {}
        key = tuple(sorted((n, a) for n, a in given.items() if a != asked.get(n, a) or n not in asked))
        if key not in self._variants:
            if len(self._variants) >= REMEMBERED:
                del self._variants[next(name for name in self._variants if name)]
            self._variants[key] = self._made(dict(key))
        return self._variants[key]

    def _made(self, answers: Mapping[str, str]) -> _Variant:
        greedy = answers.get(ALL, APPLY) == APPLY

        def choose(found: Match) -> bool:
            answer = answers.get(decision_name(found))
            return found.pays and greedy if answer is None else answer == APPLY

        rewritten = rewrite(self.model, choose, self.space.exact, self._constants)
        planner = Planner(rewritten.graph, self.space)
        for operators in self._refused:
            planner.refuse(operators)
        return _Variant(rewritten, planner, _fused(rewritten, planner))


def decision_name(found: Match) -> str:
    """Name of the decision that governs a match: derived from content, so that equal ones share it."""
    return f"{REWRITE} {found.rule.name} {found.group}"


def is_exact(plan: FusionPlan) -> bool:
    """Whether nothing that a plan does before its kernels run changes rounding."""
    rules = (BY_NAME.get(Step.of(step).rule) for step in plan.rewrites)
    return not plan.folds and all(rule is not None and rule.exact for rule in rules)


def _fused(rewritten: Rewritten, planner: Planner) -> dict[str, str]:
    """Answers that put the Split behind merged siblings into their kernel, where that is a question."""
    merges = (one.change.added for one in rewritten.applied if one.rule.kind == Kind.MERGE)
    splits = {operator.name for added in merges for operator in added if operator.op_type == "Split"}
    return {
        decision.name: FUSE
        for decision in planner.decisions
        if decision.default == KEEP
        and FUSE in decision.choices
        and any(site.operators[-1] in splits for site in decision.sites if site.operators)
    }


def _preferring(decision: Decision, answers: Mapping[str, str]) -> Decision:
    """A decision whose default is what `answers` say."""
    first = answers.get(decision.name)
    if first is None:
        return decision
    others = tuple(choice for choice in decision.choices if choice != first)
    return replace(decision, choices=(first, *others))
