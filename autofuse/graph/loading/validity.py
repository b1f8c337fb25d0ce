"""What makes a model impossible although it is well-formed: types and shapes that do not fit, indices out of range.

ONNX's strict shape inference knows most rules; what it does not look at stands here, one rule an operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import onnx
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.graph.loading.draft import Draft, infer_model
from autofuse.graph.model import Operator
from autofuse.graph.nodes import element_type

Shape = tuple[int, ...]


def check_types(model: onnx.ModelProto, source: str) -> None:
    """InputError unless the types of all inputs and the shapes of all operators fit, by ONNX's schemas.

    `model` is changed: the body that ONNX gives MeanVarianceNormalization is not valid by its own rules.
    """
    for node in model.graph.node:
        if node.op_type == "MeanVarianceNormalization" and not node.domain:
            node.op_type = "Identity"
            node.ClearField("attribute")
    try:
        infer_model(model, strict=True, check_type=True)
    except Exception as error:  # onnx raises several unrelated classes here
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise InputError(f"{source}: types or shapes do not fit: {' '.join(lines[:3])[:400]}") from error


def check_graph_lists(graph: onnx.GraphProto, source: str) -> None:
    """InputError for an input or weight that is listed twice, and for negative sizes."""
    for kind, names in (
        ("input", [value.name for value in graph.input]),
        ("weight", [tensor.name for tensor in graph.initializer]),
    ):
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise InputError(f"{source}: {kind} {twice!r} is listed twice; export the model again")
    for value in (*graph.input, *graph.output, *graph.value_info):
        dims = value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ()
        if any(dim.HasField("dim_value") and dim.dim_value < 0 for dim in dims):
            raise InputError(f"{source}: tensor {value.name!r} has a negative dimension; export the model again")


def check_declared_types(graph: onnx.GraphProto, draft: Draft) -> None:
    """InputError where the file gives a tensor another element type than its operator makes."""
    for value in (*graph.output, *graph.value_info):
        found, declared = draft.tensors.get(value.name), value.type.tensor_type.elem_type
        if found is None or not declared:
            continue
        try:
            made = element_type(found.dtype)
        except (KeyError, TypeError, ValueError):  # a type that is refused by name later
            continue
        if made != declared:
            names = onnx.TensorProto.DataType.Name
            raise InputError(
                f"{draft.source}: tensor {value.name!r} is declared as {names(declared).lower()}, but its operator "
                f"makes {names(made).lower()}; export the model again"
            )


def check_operators(draft: Draft) -> None:
    """InputError for the first operator that cannot be computed: groups of 0, channels that do not fit, ..."""
    for operator in draft.operators:
        rule = _RULES.get(operator.op_type)
        if rule is None or operator.domain or any(name and draft.shape(name) is None for name in operator.inputs):
            continue
        reason = rule(_Facts(draft, operator))
        if reason:
            raise InputError(
                f"{draft.source}: operator {operator.name!r} ({operator.op_type}) is impossible: {reason}; "
                "export the model again"
            )


class _Facts:
    """The facts of one operator: what is known of its inputs."""

    def __init__(self, draft: Draft, operator: Operator) -> None:
        self._draft, self._operator = draft, operator
        self.inputs = operator.inputs

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and bool(self.inputs[index])

    def shape(self, index: int) -> Shape:
        """Shape of an input that is there."""
        return self._draft.tensors[self.inputs[index]].shape

    def number(self, name: str, default: int) -> int:
        value = self._operator.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def numbers(self, name: str) -> Shape | None:
        value = self._operator.attributes.get(name)
        return tuple(int(v) for v in value) if isinstance(value, tuple) else None

    def constant(self, index: int) -> NDArray[Any] | None:
        """Value of a constant input."""
        return self._draft.constants.get(self.inputs[index]) if self.has(index) else None

    def axis(self, default: int) -> int:
        return self.number("axis", default) % max(len(self.shape(0)), 1)


def _windows(facts: _Facts, kernel: Shape | None) -> str:
    rank = len(facts.shape(0)) - 2
    if rank < 1:
        return f"its input has {rank + 2} dimensions, at least 3 are needed"
    given = facts.numbers("kernel_shape")
    if kernel is not None and given is not None and given != kernel:
        return f"kernel_shape is {list(given)}, the weight's {list(kernel)}"
    for name, length in (("kernel_shape", rank), ("strides", rank), ("dilations", rank), ("pads", 2 * rank)):
        values = facts.numbers(name)
        if values is None:
            continue
        if len(values) != length:
            return f"{name} has {len(values)} values, {length} are needed"
        if min(values) < (0 if name == "pads" else 1):
            return f"{name} is {list(values)}"
    return ""


def _conv(facts: _Facts) -> str:
    data, weight, group = facts.shape(0), facts.shape(1), facts.number("group", 1)
    if len(weight) != len(data):
        return f"its input has {len(data)} dimensions, its weight {len(weight)}"
    if group < 1:
        return f"group is {group}"
    if data[1] != weight[1] * group or weight[0] % group:
        return f"{data[1]} channels in {group} groups do not fit a weight of shape {list(weight)}"
    return _bias(facts, weight[0]) or _windows(facts, weight[2:])


def _conv_transpose(facts: _Facts) -> str:
    data, weight, group = facts.shape(0), facts.shape(1), facts.number("group", 1)
    if len(weight) != len(data):
        return f"its input has {len(data)} dimensions, its weight {len(weight)}"
    if group < 1:
        return f"group is {group}"
    if data[1] != weight[0] or data[1] % group:
        return f"{data[1]} channels in {group} groups do not fit a weight of shape {list(weight)}"
    return _bias(facts, weight[1] * group) or _windows(facts, weight[2:])


def _bias(facts: _Facts, channels: int) -> str:
    if facts.has(2) and facts.shape(2) != (channels,):
        return f"a bias of shape {list(facts.shape(2))} does not fit {channels} channels"
    return ""


def _pool(facts: _Facts) -> str:
    reason = _windows(facts, None)
    kernel, pads = facts.numbers("kernel_shape"), facts.numbers("pads")
    if reason or not kernel or not pads or facts.numbers("dilations") is not None:
        return reason
    beyond = any(pad >= size for pad, size in zip(pads, kernel * 2, strict=True))
    return f"pads {list(pads)} are not smaller than the window {list(kernel)}" if beyond else ""


def _per_channel(facts: _Facts, places: Iterable[int], channels: int) -> str:
    for index in places:
        if facts.has(index) and facts.shape(index) != (channels,):
            return f"input {index} of shape {list(facts.shape(index))} does not fit {channels} channels"
    return ""


def _batch_norm(facts: _Facts) -> str:
    data = facts.shape(0)
    return _per_channel(facts, (1, 2, 3, 4), data[1] if len(data) > 1 else 1)


def _instance_norm(facts: _Facts) -> str:
    return _per_channel(facts, (1, 2), facts.shape(0)[1])


def _group_norm(facts: _Facts) -> str:
    groups, channels = facts.number("num_groups", 1), facts.shape(0)[1]
    if groups < 1 or channels % groups:
        return f"{channels} channels do not fit {groups} groups"
    return ""


def _lookup(facts: _Facts, index: int, extent: int) -> str:
    found = facts.constant(index)
    if found is None or not found.size:
        return ""
    outside = found[(found < -extent) | (found >= extent)]
    return f"index {int(outside.reshape(-1)[0])} is outside of an axis of {extent}" if outside.size else ""


def _gather(facts: _Facts) -> str:
    return _lookup(facts, 1, facts.shape(0)[facts.axis(0)]) if facts.shape(0) else ""


def _gather_nd(facts: _Facts) -> str:
    indices, shape, batch = facts.constant(1), facts.shape(0), facts.number("batch_dims", 0)
    if indices is None or not indices.ndim:
        return ""
    return _each(indices, shape[batch : batch + indices.shape[-1]])


def _scatter_nd(facts: _Facts) -> str:
    indices = facts.constant(1)
    return "" if indices is None or not indices.ndim else _each(indices, facts.shape(0)[: indices.shape[-1]])


def _each(indices: NDArray[Any], extents: Shape) -> str:
    for place, extent in enumerate(extents):
        column = indices[..., place]
        outside = column[(column < -extent) | (column >= extent)]
        if outside.size:
            return f"index {int(outside.reshape(-1)[0])} is outside of an axis of {extent}"
    return ""


def _blocks(facts: _Facts) -> str:
    block, shape = facts.number("blocksize", 0), facts.shape(0)
    if block < 1:
        return f"blocksize is {block}"
    extents = shape[1:2] if len(shape) == 4 else ()
    return f"{shape[1]} channels do not fit blocks of {block}" if extents and shape[1] % block**2 else ""


def _to_depth(facts: _Facts) -> str:
    block, shape = facts.number("blocksize", 0), facts.shape(0)
    if block < 1:
        return f"blocksize is {block}"
    return f"{list(shape[2:])} does not fit blocks of {block}" if any(size % block for size in shape[2:]) else ""


def _top_k(facts: _Facts) -> str:
    k, shape = facts.constant(1), facts.shape(0)
    if k is None or k.size != 1 or not shape:
        return ""
    wanted, extent = int(k.reshape(-1)[0]), shape[facts.axis(-1)]
    return "" if 0 <= wanted <= extent else f"k is {wanted} on an axis of {extent}"


def _slice(facts: _Facts) -> str:
    steps = facts.constant(4)
    return "a step is 0" if steps is not None and not steps.all() else ""


def _resize(facts: _Facts) -> str:
    scales = facts.constant(2)
    return "a scale is not above 0" if scales is not None and not (scales > 0).all() else ""


def _roi_align(facts: _Facts) -> str:
    rois, images = facts.shape(1), facts.constant(2)
    if len(facts.shape(0)) != 4 or len(rois) != 2 or rois[1] != 4 or facts.shape(2) != rois[:1]:
        return f"regions of shape {list(rois)} and images of shape {list(facts.shape(2))} do not fit"
    extent = facts.shape(0)[0]
    if images is not None and images.size and not (int(images.min()) >= 0 and int(images.max()) < extent):
        return f"a region lies outside of a batch of {extent}"
    return ""


def _reshape(facts: _Facts) -> str:
    wanted, known = facts.constant(1), facts.shape(0)
    if wanted is None:
        return ""
    sizes = [int(size) for size in wanted.reshape(-1)]
    if not facts.number("allowzero", 0):
        sizes = [known[i] if size == 0 and i < len(known) else size for i, size in enumerate(sizes)]
    rest, elements = math.prod(size for size in sizes if size != -1), math.prod(known)
    fits = rest == elements if -1 not in sizes else (rest and elements % rest == 0)
    return "" if fits else f"{list(known)} has {elements} elements, which do not fit {sizes}"


def _broadcast_onto(facts: _Facts, places: Iterable[int], target: Shape) -> str:
    for index in places:
        if facts.has(index):
            shape = facts.shape(index)
            pairs = zip(reversed(shape), reversed(target), strict=False)
            if len(shape) > len(target) or any(size not in (1, extent) for size, extent in pairs):
                return f"input {index} of shape {list(shape)} does not fit {list(target)}"
    return ""


def _layer_norm(facts: _Facts) -> str:
    return _broadcast_onto(facts, (1, 2), facts.shape(0))


def _prelu(facts: _Facts) -> str:
    return _broadcast_onto(facts, (1,), facts.shape(0))


def _pad(facts: _Facts) -> str:
    pads, shape, axes = facts.constant(1), facts.shape(0), facts.constant(3)
    if pads is None:
        return ""
    chosen = range(len(shape)) if axes is None else [int(axis) % len(shape) for axis in axes.reshape(-1)]
    if pads.size != 2 * len(chosen):
        return f"{pads.size} pads do not fit {len(chosen)} axes"
    for place, axis in enumerate(chosen):
        cropped = -min(0, int(pads[place])) - min(0, int(pads[place + len(chosen)]))
        if cropped > shape[axis]:
            return f"{cropped} elements are cropped from an axis of {shape[axis]}"
    return ""


def _running(facts: _Facts) -> str:
    axis, rank = facts.constant(1), len(facts.shape(0))
    return "" if axis is None or -rank <= int(axis.reshape(-1)[0]) < rank else f"axis {axis} of {rank} dimensions"


def _quantized(facts: _Facts) -> str:
    data, scale = facts.shape(0), facts.shape(1)
    if facts.has(2) and facts.shape(2) != scale and not {facts.shape(2), scale} <= {(), (1,)}:
        return f"zero points of shape {list(facts.shape(2))} do not fit scales of shape {list(scale)}"
    if len(scale) == 1 and scale != (1,) and not facts.number("block_size", 0):
        axis = facts.number("axis", 1)
        if not -len(data) <= axis < len(data) or data[axis] != scale[0]:
            return f"{scale[0]} scales do not fit axis {axis} of {list(data)}"
    return ""


def _lrn(facts: _Facts) -> str:
    size = facts.number("size", 0)
    return "" if size >= 1 else f"size is {size}"


_RULES: Mapping[str, Callable[[_Facts], str]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    **dict.fromkeys(("Gather", "GatherElements", "ScatterElements"), _gather),
    "GatherND": _gather_nd,
    "ScatterND": _scatter_nd,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _to_depth,
    "TopK": _top_k,
    "Slice": _slice,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "LRN": _lrn,
    "Reshape": _reshape,
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _layer_norm),
    "PRelu": _prelu,
    "Pad": _pad,
    **dict.fromkeys(("CumSum", "CumProd"), _running),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantized),
}
