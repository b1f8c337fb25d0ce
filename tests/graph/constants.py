"""Constant inputs of operators, for tests."""

from __future__ import annotations

from autofuse.graph.model import Graph, Operator


def constant_ints(graph: Graph, operator: Operator, index: int) -> tuple[int, ...] | None:
    """Integers in a constant input; None when the input is absent or computed at run time."""
    name = operator.inputs[index] if index < len(operator.inputs) else ""
    array = graph.constants.get(name)
    return None if array is None else tuple(int(item) for item in array.reshape(-1))
