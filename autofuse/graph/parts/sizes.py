"""Sizes of a model's values that follow from sizes which it computes as it runs."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ValueInfoProto, shape_inference

from autofuse.graph.parts.source import Source

Sizes = tuple[int | None, ...]


def followed_sizes(source: Source) -> dict[str, Sizes]:
    """The sizes of values, None for each that is open, as ONNX finds them by following the elements of shapes.

    They may differ from what a call makes, where a file says what is not so: whoever uses them looks at each call.
    None of them where ONNX finds something wrong.
    """
    try:
        inferred = shape_inference.infer_shapes(source.light_model(), data_prop=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError):
        return {}
    found: dict[str, Sizes] = {}
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        kind = value.type.tensor_type
        if value.type.WhichOneof("value") == "tensor_type" and kind.HasField("shape"):
            found[value.name] = tuple(size.dim_value if size.HasField("dim_value") else None for size in kind.shape.dim)
    return found


def set_sizes(value: ValueInfoProto, sizes: Sequence[int | str | None]) -> None:
    """Describes the sizes of a value: numbers, and names of open ones."""
    described = value.type.tensor_type.shape
    del described.dim[:]
    for size in sizes:
        axis = described.dim.add()
        if isinstance(size, int):
            axis.dim_value = size
        elif size is not None:
            axis.dim_param = size
