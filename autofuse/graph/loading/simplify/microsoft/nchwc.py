"""The layout of ONNX Runtime's optimiser undone: channels in blocks, as its domain com.microsoft.nchwc has them.

Its values have blocks of 8 or 16 channels innermost, filled up with zeros; its filters are ordered alike. Here filters
come back into ONNX's order, and each operator becomes ONNX's own, for channels that somebody reads:

ReorderInput(x)   becomes   x,     Conv(x, w, b, z)   becomes   activation(Conv(x, w', b') + z),
ReorderOutput(x)   becomes   x,    pools become pools, Upsample becomes Resize.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from autofuse.graph.loading.draft import infer_model
from autofuse.graph.loading.simplify.microsoft.channels import Channels, MisfitError
from autofuse.graph.loading.simplify.microsoft.channels_last import with_channels_first

DOMAIN, OTHERS = "com.microsoft.nchwc", "com.microsoft"
WIDE, NARROW = 16, 8
"""Channels of a block: with vectors of 512 bits (and on ARM), else."""
_POOLS = ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")
_FROM_LAST, _TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def with_plain_layout(model: ModelProto) -> ModelProto:
    """The model in ONNX's layout; itself where it has no other, or one that is not understood."""
    model = with_channels_first(model)
    if not any(node.domain == DOMAIN for node in model.graph.node):
        return model
    try:
        return _Undone(model).made()
    except MisfitError:
        return model


@dataclass(eq=False)
class _Undone:
    """A model whose layout is undone; MisfitError for what ONNX Runtime's optimiser does not write.

    `fresh`: constants that are written.
    """

    model: ModelProto
    fresh: dict[str, NDArray] = field(default_factory=dict)  # type: ignore[type-arg]

    def made(self) -> ModelProto:
        """See `with_plain_layout`."""
        graph = self.model.graph
        nodes = [made for node in graph.node for made in (self._plain(node) if node.domain == DOMAIN else [node])]
        read = {name for node in nodes for name in node.input} | {value.name for value in graph.output}
        kept = [tensor for tensor in graph.initializer if tensor.name in read or tensor.name not in self._filters]
        made = ModelProto()
        made.CopyFrom(_shell(self.model))
        made.graph.node.extend(nodes)
        made.graph.initializer.extend(kept)
        made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in self.fresh.items())
        if OTHERS not in {item.domain for item in made.opset_import}:
            made.opset_import.append(helper.make_opsetid(OTHERS, 1))
        return made

    @cached_property
    def _filters(self) -> dict[str, NDArray]:  # type: ignore[type-arg]
        """Filters and biases as the file has them."""
        convs = [node for node in self.model.graph.node if node.domain == DOMAIN and node.op_type == "Conv"]
        named = {name for node in convs for name in node.input[1:3] if name}
        tensors = {tensor.name: tensor for tensor in self.model.graph.initializer}
        if not named <= set(tensors):
            raise MisfitError
        return {name: numpy_helper.to_array(tensors[name]) for name in named}

    @cached_property
    def _block(self) -> int:
        """Channels of a block, as far as the file shows it; else those of this machine."""
        convs = [node for node in self.model.graph.node if node.domain == DOMAIN and node.op_type == "Conv"]
        made = {node.output[0]: len(self._filters[node.input[1]]) for node in convs}
        left = {
            node.input[0]: _integer(node, "channels") for node in self.model.graph.node if _is(node, "ReorderOutput")
        }
        fits = [
            block
            for block in (WIDE, NARROW)
            if not any(rows % block for rows in made.values())
            and all(made[name] == -(-channels // block) * block for name, channels in left.items() if name in made)
        ]
        if not fits:
            raise MisfitError
        here = _block_here()
        return here if here in fits else fits[0]

    @cached_property
    def _channels(self) -> Channels:
        entries = {node.input[0] for node in self.model.graph.node if _is(node, "ReorderInput")}
        plain = {name: self._ordered(node) for node in self.model.graph.node if _is(node, "Conv")
                 for name in [node.output[0]]}  # fmt: skip
        last = {node.input[0] for node in self.model.graph.node if _is(node, "ReorderInput") and _last(node)}
        return Channels(self.model.graph.node, plain, self._entering(entries, last))

    def _entering(self, names: Iterable[str], last: Iterable[str]) -> dict[str, int]:
        """Channels of values that are turned into blocks; those of `last` have their channels innermost.

        ONNX infers them from a model whose operators are ONNX's own, and whose filters have all their rows.
        """
        light = ModelProto()
        light.CopyFrom(_shell(self.model))
        light.graph.node.extend(one for node in self.model.graph.node for one in _stand_in(node, self._opset))
        for tensor in self.model.graph.initializer:
            value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            small = int(np.prod(tensor.dims, dtype=np.int64)) <= 64
            (light.graph.initializer if small else light.graph.input).append(tensor if small else value)
        del light.graph.output[:]
        light.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
        try:
            inferred = infer_model(light)
        except Exception as error:  # onnx raises several unrelated classes here
            raise MisfitError from error
        values = (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output)
        dims = {value.name: value.type.tensor_type.shape.dim for value in values}
        innermost = set(last)
        return {
            name: dims[name][3 if name in innermost else 1].dim_value
            for name in names
            if name in dims and len(dims[name]) == 4
        }

    def _ordered(self, node: NodeProto) -> NDArray:  # type: ignore[type-arg]
        """The filter of a convolution in ONNX's order, all its rows and columns."""
        array, block = self._filters[node.input[1]], self._block
        if array.ndim != 4 or array.shape[0] % block:
            raise MisfitError
        rows, columns, high, wide = array.shape
        if columns == 1 or columns < block:  # the values that it reads are not in blocks, or it is depthwise
            return (
                array.reshape(rows // block, columns, high, wide, block).transpose(0, 4, 1, 2, 3).reshape(array.shape)
            )
        if columns % block:
            raise MisfitError
        inner = array.reshape(rows // block, columns // block, high, wide, block, block)
        return inner.transpose(0, 5, 1, 4, 2, 3).reshape(array.shape)

    def _plain(self, node: NodeProto) -> list[NodeProto]:
        if node.op_type == "Conv":
            return [self._convolution(node)]
        if node.op_type in _POOLS:
            made = NodeProto()
            made.CopyFrom(node)
            made.domain = ""
            return [made]
        if node.op_type == "Upsample":
            return _resize(node, self._opset)
        if node.op_type == "ReorderInput":
            return [_turned(node, node.input[0], _FROM_LAST)]
        if node.op_type == "ReorderOutput":
            return self._left(node)
        raise MisfitError

    @property
    def _opset(self) -> int:
        return next((item.version for item in self.model.opset_import if item.domain in ("", "ai.onnx")), 1)

    def _convolution(self, node: NodeProto) -> NodeProto:
        """A Conv of ONNX, or with an activation or a value that is added a FusedConv."""
        channels, (x, weights, *more) = self._channels, node.input
        rows = channels.of(node.output[0])
        ordered = channels.filters[node.output[0]]
        depthwise = channels.is_depthwise(node)
        columns = ordered.shape[1] if depthwise or not channels.is_blocked(x) or _groups(node) > 1 else channels.of(x)
        kept = ordered[:rows, :columns]
        if columns > ordered.shape[1] or ordered[:rows, columns:].any() or (_groups(node) > 1 and len(kept) < rows):
            raise MisfitError
        inputs = [x, self._constant(weights, kept)]
        if more and more[0]:
            inputs.append(self._constant(more[0], self._filters[more[0]][:rows]))
        made = NodeProto()
        made.CopyFrom(node)
        fused = len(more) > 1 or any(one.name == "activation" and one.s for one in node.attribute)
        made.op_type, made.domain = ("FusedConv", OTHERS) if fused else ("Conv", "")
        del made.input[:]
        made.input.extend([*inputs, *([""] * (3 - len(inputs)) + [more[1]] if len(more) > 1 else [])])
        for attribute in made.attribute:
            if attribute.name == "group" and depthwise:
                attribute.i = rows
        return made

    def _left(self, node: NodeProto) -> list[NodeProto]:
        """x[:, :channels], with its channels innermost where that is asked for."""
        x, channels = node.input[0], _integer(node, "channels")
        given = self._channels.of(x)
        if given < channels:
            raise MisfitError
        if given == channels:
            return [_turned(node, x, _TO_LAST)]
        cut = self._name(f"{node.output[0]}/channels")
        bounds = [self._constant(f"{cut}/{what}", np.array([value])) for what, value in
                  (("first", 0), ("end", channels), ("axis", 1))]  # fmt: skip
        return [
            helper.make_node("Slice", [x, *bounds], [cut], node.name and f"{node.name}/channels"),
            _turned(node, cut, _TO_LAST),
        ]

    def _constant(self, name: str, array: NDArray) -> str:  # type: ignore[type-arg]
        made = self._name(f"{name}/plain")
        self.fresh[made] = np.ascontiguousarray(array)
        return made

    def _name(self, wanted: str) -> str:
        found = next(one for number in count() if (one := f"{wanted}{number or ''}") not in self._taken)
        self._taken.add(found)
        return found

    @cached_property
    def _taken(self) -> set[str]:
        graph = self.model.graph
        names = {name for node in graph.node for name in (*node.input, *node.output)}
        return names | {tensor.name for tensor in graph.initializer}


def _block_here() -> int:
    """Channels of a block on this machine."""
    if platform.machine() in ("aarch64", "arm64"):
        return WIDE
    try:
        return WIDE if " avx512f " in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace") else NARROW
    except OSError:
        return NARROW


def _shell(model: ModelProto) -> ModelProto:
    """A model without nodes and weights."""
    made = ModelProto()
    made.CopyFrom(ModelProto(ir_version=model.ir_version))
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if model.HasField(name):
            setattr(made, name, getattr(model, name))
    made.opset_import.extend(item for item in model.opset_import if item.domain != DOMAIN)
    made.metadata_props.extend(model.metadata_props)
    made.functions.extend(model.functions)
    made.graph.CopyFrom(GraphProto(name=model.graph.name, doc_string=model.graph.doc_string))
    made.graph.input.extend(model.graph.input)
    made.graph.output.extend(model.graph.output)
    made.graph.sparse_initializer.extend(model.graph.sparse_initializer)
    return made


def _stand_in(node: NodeProto, opset: int) -> list[NodeProto]:
    """What has the shape of a node's result, its channels filled up perhaps."""
    if node.domain != DOMAIN:
        return [node]
    made = NodeProto()
    made.CopyFrom(node)
    made.domain = ""
    if node.op_type == "ReorderInput":
        return [_turned(node, node.input[0], _FROM_LAST)]
    if node.op_type == "ReorderOutput":
        return _cut_to(node)
    if node.op_type == "Upsample":
        return _resize(node, opset)
    if node.op_type == "Conv":
        del made.input[3:]
        kept = [one for one in made.attribute if not one.name.startswith("activation")]
        del made.attribute[:]
        made.attribute.extend(kept)
    return [made]


def _cut_to(node: NodeProto) -> list[NodeProto]:
    """A convolution to the channels that a ReorderOutput leaves, for their number alone."""
    channels = _integer(node, "channels")
    label = f"{node.output[0]}/stand_in"
    shape = helper.make_tensor("shape", 7, [4], [channels, 1, 1, 1])
    filters = helper.make_node("ConstantOfShape", [f"{label}/shape"], [f"{label}/filter"])
    constant = helper.make_node("Constant", [], [f"{label}/shape"], value=shape)
    conv = helper.make_node("Conv", [node.input[0], f"{label}/filter"], [f"{label}/cut"], kernel_shape=[1, 1])
    return [constant, filters, conv, _turned(node, f"{label}/cut", _TO_LAST)]


def _resize(node: NodeProto, opset: int) -> list[NodeProto]:
    """Upsample(x) by whole numbers   becomes   Resize(x)."""
    given: Mapping[str, object] = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    mode, scales = _text(given.get("mode", b"nearest")), np.array(given.get("scales", ()), np.float32)
    if len(scales) != 4 or opset < 11:
        raise MisfitError
    how = _text(given.get("coordinate_transformation_mode", b"asymmetric"))
    roi, factors = (f"{node.output[0]}/{what}" for what in ("roi", "scales"))
    none = numpy_helper.from_array(np.zeros(0, np.float32))
    more = {"nearest_mode": "floor"} if mode == "nearest" else {}
    how = "asymmetric" if mode == "nearest" else how
    return [
        helper.make_node("Constant", [], [roi], value=none),
        helper.make_node("Constant", [], [factors], value=numpy_helper.from_array(scales)),
        helper.make_node("Resize", [node.input[0], roi, factors], list(node.output), node.name, mode=mode,
                         coordinate_transformation_mode=how, **more),
    ]  # fmt: skip


def _turned(node: NodeProto, x: str, perm: tuple[int, ...]) -> NodeProto:
    """Where a node of layouts has channels innermost, a Transpose; else an Identity."""
    if _last(node):
        return helper.make_node("Transpose", [x], node.output, node.name, perm=perm)
    return helper.make_node("Identity", [x], node.output, node.name)


def _last(node: NodeProto) -> bool:
    return bool(_integer(node, "channels_last"))


def _is(node: NodeProto, op_type: str) -> bool:
    return (node.domain, node.op_type) == (DOMAIN, op_type)


def _groups(node: NodeProto) -> int:
    return _integer(node, "group", 1)


def _integer(node: NodeProto, name: str, default: int = 0) -> int:
    return next((int(one.i) for one in node.attribute if one.name == name), default)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
