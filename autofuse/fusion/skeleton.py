"""The operators that a plan's groups are made of: rewritten, folded, copied, without computing any weight."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from autofuse.errors import PlanError
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.copies import with_copies
from autofuse.graph.transform.fold import folds_forward
from autofuse.rewrite.driver import apply


def realise(graph: Graph, plan: FusionPlan) -> Graph:
    """The graph whose operators `plan.groups` name; for planning only, see `skeleton`."""
    graph, plan = settled(graph, plan)
    return with_copies(skeleton(graph, plan.folds), plan.copies)


def settled(graph: Graph, plan: FusionPlan) -> tuple[Graph, FusionPlan]:
    """The graph after the plan's rewrites, and the plan as one of that graph, with nothing left to rewrite.

    PlanError when a rewrite does not apply where the plan says.
    """
    return (apply(graph, plan.rewrites), replace(plan, rewrites=())) if plan.rewrites else (graph, plan)


def folded_into(graph: Graph, folds: Collection[str]) -> Mapping[str, str]:
    """Folded operator -> operator that computes its result; PlanError when a fold is impossible.

    What may be folded is `autofuse.graph.transform.fold.fold_sites`' to say; here only the wiring is checked.
    """
    owners: dict[str, str] = {}
    for name in sorted(folds, key=lambda name: graph.position.get(name, -1)):
        operator = graph.by_name.get(name)
        if operator is None:
            raise PlanError(f"plan folds {name!r}, which is no operator of {graph.name or 'the graph'}")
        if folds_forward(graph, name):
            owners[name] = graph.consumers[operator.outputs[0]][0].name
            continue
        producer = graph.producers.get(operator.inputs[0]) if operator.inputs else None
        if producer is None or len(graph.consumers[operator.inputs[0]]) != 1:
            raise PlanError(f"plan folds {name!r}, whose input is not the private result of an operator before it")
        owners[name] = owners.get(producer.name, producer.name)
    return owners


def skeleton(graph: Graph, folds: Collection[str]) -> Graph:
    """The graph in which `Conv -> BatchNormalization   becomes   Conv` at each fold (or the other way round).

    Only the wiring changes: the convolution takes over the output tensor (folded forward, the input) and keeps its
    old constants, so the result is right for planning and wrong for computing (`graph.transform.fold.fold` computes).
    """
    if not folds:
        return graph
    owners = folded_into(graph, folds)
    changed: dict[str, Operator] = {}
    for name in sorted(owners, key=graph.position.__getitem__):
        norm, owner = graph.by_name[name], owners[name]
        now = changed.get(owner, graph.by_name[owner])
        if graph.position[owner] > graph.position[name]:
            changed[owner] = replace(now, inputs=(norm.inputs[0], *now.inputs[1:]))
        else:
            changed[owner] = replace(now, outputs=(norm.outputs[0],))
    operators = [changed.get(operator.name, operator) for operator in graph.operators if operator.name not in owners]
    return replace(graph, operators=tuple(operators))
