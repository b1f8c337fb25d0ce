"""Reading an operator's parameters in the one form that loading leaves (see `canonical`)."""

from __future__ import annotations

from autofuse.graph.model import Graph, Operator


def constant_ints(graph: Graph, operator: Operator, index: int) -> tuple[int, ...] | None:
    """Integers in a constant input; None when the input is absent or computed at run time."""
    name = operator.inputs[index] if index < len(operator.inputs) else ""
    array = graph.constants.get(name)
    return None if array is None else tuple(int(item) for item in array.reshape(-1))


def axes_of(graph: Graph, operator: Operator) -> tuple[int, ...] | None:
    """Axes an operator works along: not negative, ascending; None when they are known at run time only.

    Reduce*, Squeeze, Unsqueeze: their constant input (for Unsqueeze, axes of the result). Softmax and
    its kin, Concat, Split, Gather, ArgMax, TopK: the attribute `axis`. Layer and RMS normalisation:
    from `axis` to the last. Global pooling, instance and batch normalisation: none stand in the
    operator, InputError is not raised; the result is ().
    """
    rank = len(graph.tensors[operator.inputs[0]].shape)
    if operator.op_type.startswith("Reduce") or operator.op_type in ("Squeeze", "Unsqueeze"):
        present = len(operator.inputs) > 1 and bool(operator.inputs[1])
        return constant_ints(graph, operator, 1) if present else ()
    if operator.op_type in ("CumSum", "CumProd"):
        found = constant_ints(graph, operator, 1)
        return None if found is None else tuple(axis % rank for axis in found)
    axis = operator.attributes.get("axis")
    if not isinstance(axis, int):
        return ()
    if operator.op_type in ("LayerNormalization", "RMSNormalization"):
        return tuple(range(axis, rank))
    return (axis,)
