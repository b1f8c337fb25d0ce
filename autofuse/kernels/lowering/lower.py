"""From a plan to workloads: rewrites, folds, copies, layouts, one bound workload a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autofuse.device.target import Target
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.graph.model import Graph
from autofuse.graph.transform.copies import Copy, with_copies
from autofuse.graph.transform.filled import filled
from autofuse.graph.transform.fold import fold
from autofuse.kernels.families.narrow.float16.instructions import float16_multipliers
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.lowering.layout import assign_layouts
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import PLAIN, BoundWorkload, bind_workload
from autofuse.rewrite.driver import apply

Realisation = tuple[tuple[str, ...], tuple[str, ...], tuple[Copy, ...]]
"""Rewrites, folds and copies: what makes the operators of a plan's groups."""

FULL_BLOCK = 8
"""Channels that a block has at least for kernels to be at their limit; wider ones would cost more zeros than they save.
"""


@dataclass(frozen=True)
class Lowered:
    """`graph`: what the plan's rewrites, folds and copies leave; `groups`: its workloads, in the plan's order."""

    graph: Graph
    groups: tuple[BoundWorkload, ...]

    @cached_property
    def kernels(self) -> tuple[BoundWorkload, ...]:
        """The groups that cost a kernel (a pure view of memory costs none)."""
        return tuple(group for group in self.groups if not is_free_reshape(group.workload))


class Lowering:
    """Lowers many plans of one graph: what two plans share is bound once. `like`: the graph of the same model at
    another size, whose plans they are."""

    def __init__(self, graph: Graph, target: Target, like: Graph | None = None) -> None:
        self.graph, self.target, self.like = graph, target, like
        self._constants: dict[str, NDArray[np.generic]] = {}
        self._folded: dict[Realisation, Graph] = {}
        self._weighted: dict[tuple[tuple[str, ...], tuple[str, ...]], Graph] = {}
        self._own: dict[tuple[Realisation, tuple[str, ...]], bool] = {}
        self._bound: dict[tuple[object, ...], BoundWorkload] = {}
        self._float16 = bool(graph.float16) and bool(float16_multipliers(target))

    def lower(self, plan: FusionPlan) -> Lowered:
        """The workloads of `plan`, whose groups stand in an order in which they can run."""
        folds = plan.rewrites, plan.folds, plan.copies
        folded = self.realised(plan)
        order = [group.operators for group in plan.groups]
        own = {number: self._is_own(folded, folds, group) for number, group in enumerate(order)}
        layouts = assign_layouts(folded, order, own, self.target)
        return Lowered(folded, tuple(self._bind(folded, folds, group, layouts) for group in order))

    def realised(self, plan: FusionPlan) -> Graph:
        """What the plan's rewrites, folds and copies leave of the graph."""
        folds = plan.rewrites, plan.folds, plan.copies
        if folds not in self._folded:
            self._folded[folds] = with_copies(self._filled(plan.rewrites, plan.folds), plan.copies)
        return self._folded[folds]

    def _filled(self, rewrites: tuple[str, ...], folds: tuple[str, ...]) -> Graph:
        """What `_weights` makes, with maps whose channels fill blocks; plans share it, whatever they copy."""
        key = rewrites, folds, ()
        if key not in self._folded:
            self._folded[key] = filled(self._weights(rewrites, folds), min(FULL_BLOCK, self.target.lanes))
        return self._folded[key]

    def _weights(self, rewrites: tuple[str, ...], folds: tuple[str, ...]) -> Graph:
        """The graph with rewritten and folded weights."""
        if (rewrites, folds) not in self._weighted:
            if folds:
                found = fold(self._weights(rewrites, ()), folds)
            else:
                found = apply(self.graph, rewrites, self._constants, self.like) if rewrites else self.graph
            self._weighted[rewrites, folds] = found
        return self._weighted[rewrites, folds]

    def _is_own(self, folded: Graph, folds: Realisation, group: tuple[str, ...]) -> bool:
        if (folds, group) not in self._own:
            self._own[folds, group] = is_own(bind_workload(folded, group, {}).workload)
        return self._own[folds, group]

    def _bind(
        self, folded: Graph, folds: Realisation, group: tuple[str, ...], layouts: dict[str, str]
    ) -> BoundWorkload:
        reads, writes = folded.boundary(group)
        key = folds, group, *(layouts.get(name, PLAIN) for name in (*reads, *writes))
        if key not in self._bound:
            self._bound[key] = bind_workload(folded, group, layouts, self._float16)
        return self._bound[key]


def lower(graph: Graph, plan: FusionPlan, target: Target, order: Sequence[Sequence[str]]) -> Lowered:
    """The workloads of `plan` on `target`.

    `order`: the plan's groups in an order in which they can run (fusion.legality.ordered_groups).
    """
    ordered = replace(plan, groups=tuple(Group(tuple(operators)) for operators in order))
    return Lowering(graph, target).lower(ordered)
