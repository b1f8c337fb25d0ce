"""The operators that a choice of BatchNorm folds leaves behind, without touching any weight."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from autofuse.errors import PlanError
from autofuse.graph.model import Graph, Operator


def folded_into(graph: Graph, folds: Collection[str]) -> Mapping[str, str]:
    """Folded operator -> operator that computes its result; PlanError when a fold is impossible.

    What may be folded is `autofuse.graph.fold.fold_sites`' to say; here only the wiring is checked.
    """
    owners: dict[str, str] = {}
    for name in sorted(folds, key=lambda name: graph.position.get(name, -1)):
        operator = graph.by_name.get(name)
        if operator is None:
            raise PlanError(f"plan folds {name!r}, which is no operator of {graph.name or 'the graph'}")
        producer = graph.producers.get(operator.inputs[0]) if operator.inputs else None
        if producer is None or len(graph.consumers[operator.inputs[0]]) != 1:
            raise PlanError(f"plan folds {name!r}, whose input is not the private result of an operator before it")
        owners[name] = owners.get(producer.name, producer.name)
    return owners


def skeleton(graph: Graph, folds: Collection[str]) -> Graph:
    """The graph in which `Conv -> BatchNormalization   becomes   Conv` at each fold.

    Only the wiring changes: the convolution takes over the output tensor and keeps its old constants, so
    the result is right for planning and wrong for computing (`autofuse.graph.fold.fold` computes).
    """
    if not folds:
        return graph
    owners = folded_into(graph, folds)
    outputs: dict[str, tuple[str, ...]] = {}
    for name in sorted(owners, key=graph.position.__getitem__):
        outputs[owners[name]] = (graph.by_name[name].outputs[0],)
    operators: list[Operator] = [
        replace(operator, outputs=outputs.get(operator.name, operator.outputs))
        for operator in graph.operators
        if operator.name not in owners
    ]
    return replace(graph, operators=tuple(operators))
