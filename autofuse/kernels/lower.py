"""From a plan to workloads: folds, layouts, one bound workload a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.device.target import Target
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.fold import fold
from autofuse.graph.model import Graph
from autofuse.kernels.families import is_own
from autofuse.kernels.layout import assign_layouts
from autofuse.kernels.view import is_view
from autofuse.kernels.workload import BoundWorkload, bind_workload


@dataclass(frozen=True)
class Lowered:
    """`graph`: what the plan's folds leave; `groups`: its workloads, in the plan's order of execution."""

    graph: Graph
    groups: tuple[BoundWorkload, ...]

    @property
    def kernels(self) -> tuple[BoundWorkload, ...]:
        """The groups that cost a kernel (a pure view of memory costs none)."""
        return tuple(group for group in self.groups if not is_view(group.workload))


def lower(graph: Graph, plan: FusionPlan, target: Target, order: Sequence[Sequence[str]]) -> Lowered:
    """The workloads of `plan` on `target`.

    `order`: the plan's groups in an order in which they can run (fusion.legality.ordered_groups).
    """
    folded = fold(graph, plan.folds)
    own = {number: is_own(bind_workload(folded, group, {}).workload) for number, group in enumerate(order)}
    layouts = assign_layouts(folded, order, own, target)
    return Lowered(folded, tuple(bind_workload(folded, group, layouts) for group in order))
