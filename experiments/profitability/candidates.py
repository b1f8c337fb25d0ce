"""Which plans of a network are worth measuring to learn from: each operator alone, fixed rules, pairs, random plans.

All but `none` and `tvm` (which fold nothing) are plans of the network with every BatchNormalization folded, so that
their groups are made of each other's parts: a group that was fused can be held against the same operators apart.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autofuse.environment.named_plans import named_plan
from autofuse.errors import AutofuseError
from autofuse.fusion.legality import Legality, ordered_groups
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.planner import Planner
from autofuse.fusion.skeleton import skeleton
from autofuse.fusion.space import FusionSpace
from autofuse.graph.model import Graph
from autofuse.graph.transform.fold import fold_sites

APART, PAIRS = "apart", "pairs"
BASIS = (APART, PAIRS)
"""Plans that hold each operator alone, and each pair of neighbours in one kernel."""
FIXED = ("default", "tvm", "dnnfusion")
RANDOM = 24
MOST_OPERATORS = 6
"""Of a group that chance made: beyond it kernels seldom build."""
CHANCES = (0.25, 0.5, 0.8)
GROUPING = ("depend", "break", "recompute", "prologue", "join", "seed")
"""Decisions that only group: no folds, copies or rewrites, so that all plans have the same operators."""

Named = tuple[str, FusionPlan]


def plans(graph: Graph, seed: int) -> Iterator[Named]:
    """(origin, plan), each plan once, the most instructive first; what cannot be planned is left out."""
    seen: set[str] = set()
    for origin, plan in _all(graph, seed):
        if plan.key not in seen:
            seen.add(plan.key)
            yield origin, plan


def _all(graph: Graph, seed: int) -> Iterator[Named]:
    folded, planner = Folded.of(graph), Planner(graph, FusionSpace(GROUPING))
    yield APART, folded.plan(())
    for plan in pair_plans(folded):
        yield PAIRS, plan
    for name in FIXED:
        yield from _fixed(graph, name)
    for number in range(RANDOM):
        choose = random.Random(f"{seed}.{number}")
        yield "random", answered_plan(planner, choose) if number % 2 else random_plan(folded, choose)
        if number == 1:
            yield from _fixed(graph, "none")
    yield from _fixed(graph, "always")


def _fixed(graph: Graph, name: str) -> Iterator[Named]:
    try:
        yield name, named_plan(graph, name)
    except AutofuseError:
        return  # TVM may be unable to say how it would fuse


@dataclass(frozen=True)
class Folded:
    """A network with every BatchNormalization folded that can be; `graph`: what is left, for planning only."""

    folds: tuple[str, ...]
    graph: Graph

    @classmethod
    def of(cls, graph: Graph) -> Folded:
        """The folded form of a network as it was loaded."""
        folds = tuple(sorted(fold_sites(graph)))
        return cls(folds, skeleton(graph, folds))

    @property
    def edges(self) -> list[tuple[str, str]]:
        """(producer, consumer) of each pair of neighbours."""
        return [(op.name, user.name) for op in self.graph.operators for user in self.graph.successors(op)]

    def plan(self, groups: Iterable[tuple[str, ...]]) -> FusionPlan:
        """The plan with these groups, every other operator alone."""
        made = list(groups)
        inside = {name for group in made for name in group}
        alone = [(operator.name,) for operator in self.graph.operators if operator.name not in inside]
        return FusionPlan(ordered_groups(self.graph, [*made, *alone]), self.folds)


def pair_plans(folded: Folded) -> Iterator[FusionPlan]:
    """As few plans as it takes to have each legal pair of neighbours in one kernel, once."""
    legality = Legality(folded.graph)
    left = [pair for pair in folded.edges if legality.refusal(pair) is None]
    while left:
        taken = _matching(folded.graph, left)
        yield folded.plan(taken)
        left = [pair for pair in left if pair not in taken]


def _matching(graph: Graph, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs without a common operator whose groups can run one after another; at least the first."""
    legality = Legality(graph)
    used: set[str] = set()
    taken = []
    for pair in pairs:
        if used.isdisjoint(pair) and legality.may_merge(*(legality.reach.mask((name,)) for name in pair)):
            legality.settle(legality.reach.mask(pair))
            used |= set(pair)
            taken.append(pair)
    return taken


def random_plan(folded: Folded, choose: random.Random) -> FusionPlan:
    """Neighbours joined by chance, wherever that is legal."""
    chance = choose.choice(CHANCES)
    legality = Legality(folded.graph, MOST_OPERATORS)
    groups: dict[str, tuple[str, ...]] = {operator.name: (operator.name,) for operator in folded.graph.operators}
    edges = folded.edges
    choose.shuffle(edges)
    for producer, consumer in edges:
        above, below = groups[producer], groups[consumer]
        if above == below or choose.random() > chance:
            continue
        if legality.may_merge(legality.reach.mask(above), legality.reach.mask(below)):
            joined = above + below
            groups.update(dict.fromkeys(joined, joined))
            legality.settle(legality.reach.mask(joined))
    return folded.plan(dict.fromkeys(group for group in groups.values() if len(group) > 1))


def answered_plan(planner: Planner, choose: random.Random) -> FusionPlan:
    """What the product's planner makes of answers given by chance."""
    chance = choose.choice(CHANCES)
    open_ones = [decision for decision in planner.decisions if choose.random() < chance]
    return planner.plan({decision.name: choose.choice(decision.choices[1:]) for decision in open_ones})
