"""Shapes of operators that a rewrite moves past each other."""

from __future__ import annotations

from autofuse.graph.model import Operator
from autofuse.rewrite.maker import Maker, Refused


def reduced_axes(maker: Maker, operator: Operator, rank: int) -> tuple[int, ...]:
    """Axes of a Reduce*, ascending; Refused when they are not known."""
    if len(operator.inputs) < 2 or not operator.inputs[1]:
        if operator.attributes.get("noop_with_empty_axes", 0):
            raise Refused
        return tuple(range(rank))
    axes = maker.work.integers(operator.inputs[1])
    if axes is None:
        raise Refused
    return tuple(sorted(axis % rank for axis in axes))


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """Shape of a reduction's result."""
    kept = ((1 if axis in axes else size) for axis, size in enumerate(shape) if keepdims or axis not in axes)
    return tuple(kept)


def parameter_shape(maker: Maker, op_type: str, like: Operator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the result of `op_type` on a tensor of `shape` with the parameters of `like`."""
    if op_type.startswith("Reduce"):
        keep = bool(like.attributes.get("keepdims", 1))
        return reduced_shape(shape, reduced_axes(maker, like, len(shape)), keep)
    if op_type.startswith("Global"):
        return (*shape[:2], *(1 for _ in shape[2:]))
    if op_type == "Transpose":
        perm = like.attributes["perm"]
        assert isinstance(perm, tuple)
        return tuple(shape[int(axis)] for axis in perm)
    if op_type in ("Softmax", "LogSoftmax", "CumSum"):
        return shape
    before, after = maker.work.shape(like.inputs[0]), maker.work.shape(like.outputs[0])
    if before != shape:
        raise Refused
    return after
