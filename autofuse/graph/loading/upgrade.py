"""Old opsets to one form: every graph speaks opset 18 or later, so nobody downstream knows older ones.

onnx.version_converter is not used: it drops functions, does not enter subgraphs, copies every weight
several times and lacks adapters (Upsample, Scatter, ...). Each rule below is one line of ONNX's change log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, helper, numpy_helper

from autofuse.errors import UncoveredError
from autofuse.graph.model import Tensor
from autofuse.graph.nodes import subgraphs_of

FORM = 18
"""Lowest opset of a loaded graph."""
OLDEST = 7
"""Before it, elementwise operators broadcast by attributes that no tool writes any more."""

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")


@dataclass
class _Context:
    source: str
    opset: int
    tensors: Mapping[str, Tensor]
    graph: GraphProto
    known: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def constant(self, base: str, array: NDArray[np.generic]) -> str:
        """Name of a new initializer."""
        name, count = base, 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        self.known[name] = array
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, node: NodeProto, base: str, values: object) -> str:
        """Name of a new int64 vector."""
        return self.constant(f"{node.name or node.output[0]}/{base}", np.asarray(values, dtype=np.int64).reshape(-1))

    def refuse(self, node: NodeProto, why: str) -> UncoveredError:
        """The error for a node whose old meaning has no new form."""
        return UncoveredError(
            f"{self.source}: operator {node.name!r} ({node.op_type}, opset {self.opset}): {why}; "
            f"export the model again with opset {FORM} or later"
        )


Rule = Callable[[NodeProto, _Context], Sequence[NodeProto]]


def upgrade(
    graph: GraphProto,
    opset: int,
    tensors: Mapping[str, Tensor],
    constants: Mapping[str, NDArray[np.generic]],
    source: str,
) -> int:
    """Rewrite the nodes of `graph` (and of its subgraphs) from `opset` to the form of opset 18, in place.

    `tensors`: what is known of shapes and dtypes. `constants`: values of initializers. Returns the new
    opset; UncoveredError for opsets before 7 and for the few meanings that opset 18 cannot express.
    """
    if opset >= FORM:
        return opset
    if opset < OLDEST:
        raise UncoveredError(
            f"{source}: opset {opset} is too old (at least {OLDEST}); export the model again with opset {FORM}"
        )
    context = _Context(source, opset, tensors, graph, dict(constants))
    context.taken = {name for node in graph.node for name in (*node.input, *node.output)}
    context.taken |= {item.name for item in (*graph.initializer, *graph.input)} | set(constants)
    rewritten: list[NodeProto] = []
    for node in graph.node:
        for body in subgraphs_of(node):
            upgrade(body, opset, tensors, constants, source)
        if node.op_type == "Constant":
            context.known.update(_constant_value(node))
        rewritten.extend(_upgraded(node, context))
    del graph.node[:]
    graph.node.extend(rewritten)
    return FORM


def _upgraded(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    nodes: Sequence[NodeProto] = [node]
    for before, rule in _RULES.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ():
        if context.opset < before:
            nodes = [*nodes[:-1], *rule(nodes[-1], context)]
    return nodes


def _constant_value(node: NodeProto) -> dict[str, NDArray[np.generic]]:
    values = {item.name: item for item in node.attribute}
    return {node.output[0]: numpy_helper.to_array(values["value"].t)} if "value" in values else {}


def _take(node: NodeProto, name: str, default: object = None) -> object:
    """Value of an attribute, which leaves the node."""
    for index, attribute in enumerate(node.attribute):
        if attribute.name == name:
            value: object = helper.get_attribute_value(attribute)
            del node.attribute[index]
            return value
    return default


def _set_input(node: NodeProto, index: int, name: str) -> None:
    node.input.extend([""] * (index + 1 - len(node.input)))
    node.input[index] = name


def _axes_to_input(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    """Squeeze, Unsqueeze, Reduce*: attribute `axes`   becomes   input 1."""
    axes = _take(node, "axes")
    if axes is not None:
        _set_input(node, 1, context.integers(node, "axes", axes))
    return [node]


def _split(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    sizes = _take(node, "split")
    if sizes is not None:
        _set_input(node, 1, context.integers(node, "split", sizes))
    elif len(node.input) < 2 or not node.input[1]:
        node.attribute.append(helper.make_attribute("num_outputs", len(node.output)))
    return [node]


def _softmax(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    """Softmax over the axes from `axis` on   becomes   Flatten, Softmax, Reshape, or one Softmax of the last axis."""
    axis = _take(node, "axis", 1)
    assert isinstance(axis, int)
    known = context.tensors.get(node.input[0])
    if axis == -1 or (known is not None and _is_last(axis, known.shape)):
        node.attribute.append(helper.make_attribute("axis", len(known.shape) - 1 if known and axis >= 0 else -1))
        return [node]
    base, data, result = node.name or node.output[0], node.input[0], node.output[0]
    names = [f"{result}/{part}" for part in ("flat", "rows", "shape")]
    node.attribute.append(helper.make_attribute("axis", -1))
    node.input[0], node.output[0] = names[0], names[1]
    return [
        helper.make_node("Flatten", [data], [names[0]], f"{base}/flatten", axis=axis),
        node,
        helper.make_node("Shape", [data], [names[2]], f"{base}/shape"),
        helper.make_node("Reshape", [names[1], names[2]], [result], f"{base}/reshape"),
    ]


def _is_last(axis: int, shape: tuple[int, ...]) -> bool:
    position = axis % max(len(shape), 1)
    return all(dim == 1 for dim in shape[position + 1 :])


def _clip(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    known = context.tensors.get(node.input[0])
    dtype = np.dtype(known.dtype if known else "float32")
    for index, name in ((1, "min"), (2, "max")):
        bound = _take(node, name)
        if bound is not None and abs(float(bound)) < 3.4e38:  # type: ignore[arg-type]  # the old defaults: no bound
            _set_input(node, index, context.constant(f"{node.name or node.output[0]}/{name}", np.asarray(bound, dtype)))
    return [node]


def _pad(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    known = context.tensors.get(node.input[0])
    _set_input(node, 1, context.integers(node, "pads", _take(node, "pads")))
    value = _take(node, "value", 0.0)
    if value:
        array = np.asarray(value, np.dtype(known.dtype if known else "float32"))
        _set_input(node, 2, context.constant(f"{node.name or node.output[0]}/value", array))
    return [node]


def _slice(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    for index, name in ((1, "starts"), (2, "ends"), (3, "axes")):
        values = _take(node, name)
        if values is not None:
            _set_input(node, index, context.integers(node, name, values))
    return [node]


def _top_k(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    _set_input(node, 1, context.integers(node, "k", _take(node, "k")))
    return [node]


def _dropout(node: NodeProto, _: _Context) -> Sequence[NodeProto]:
    _take(node, "ratio")
    return [node]


def _upsample(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    """Upsample(X, scales)   becomes   Resize(X, "", scales), asymmetric."""
    scales = _take(node, "scales")
    if scales is not None:
        array = np.asarray(scales, np.float32)
        _set_input(node, 1, context.constant(f"{node.name or node.output[0]}/scales", array))
    node.op_type = "Resize"
    return _resize(node, context)


def _resize(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    scales = context.known.get(node.input[1])
    down = scales is not None and bool(np.any(np.asarray(scales) < 1))
    if down and bool(np.any(np.asarray(scales) > 1)):
        raise context.refuse(node, "it enlarges one axis and shrinks another")
    data, factors = node.input[0], node.input[1]
    node.ClearField("input")
    node.input.extend([data, "", factors])
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil" if down else "floor"}
    node.attribute.extend(helper.make_attribute(key, value) for key, value in modes.items())
    return [node]


def _resize_mode(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    values = {item.name: item for item in node.attribute}
    mode = values.get("coordinate_transformation_mode")
    if mode is not None and mode.s == b"tf_half_pixel_for_nn":
        raise context.refuse(node, "coordinate_transformation_mode tf_half_pixel_for_nn was removed from ONNX")
    return [node]


def _scatter(node: NodeProto, _: _Context) -> Sequence[NodeProto]:
    node.op_type = "ScatterElements"
    return [node]


def _batch_normalization(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    """Several outputs meant training   becomes   training_mode=1."""
    if not _take(node, "spatial", 1):
        raise context.refuse(node, "spatial=0 was removed from ONNX")
    used = [name for name in node.output if name]
    if len(used) > 3:
        read = {name for other in context.graph.node for name in other.input} | {v.name for v in context.graph.output}
        if any(name in read for name in node.output[3:]):
            raise context.refuse(node, "its outputs saved_mean and saved_var were removed from ONNX")
    if len(used) > 1:
        del node.output[3:]
        labels = ("", "mean", "variance")
        for index in range(1, 3):
            if index == len(node.output):
                node.output.append("")
            node.output[index] = node.output[index] or f"{node.output[0]}/{labels[index]}"
        node.attribute.append(helper.make_attribute("training_mode", 1))
    return [node]


def _roi_align(node: NodeProto, _: _Context) -> Sequence[NodeProto]:
    node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "output_half_pixel"))
    return [node]


def _refuse_scan(node: NodeProto, context: _Context) -> Sequence[NodeProto]:
    raise context.refuse(node, "the batched Scan of opset 8 was removed from ONNX")


_RULES: Mapping[str, Sequence[tuple[int, Rule]]] = {
    **{f"Reduce{kind}": ((18, _axes_to_input),) for kind in _REDUCTIONS},
    "ReduceSum": ((13, _axes_to_input),),
    "Squeeze": ((13, _axes_to_input),),
    "Unsqueeze": ((13, _axes_to_input),),
    "Split": ((18, _split),),
    "Softmax": ((13, _softmax),),
    "LogSoftmax": ((13, _softmax),),
    "Hardmax": ((13, _softmax),),
    "Clip": ((11, _clip),),
    "Pad": ((11, _pad),),
    "Slice": ((10, _slice),),
    "TopK": ((10, _top_k),),
    "Dropout": ((12, _dropout),),
    "Upsample": ((10, _upsample),),
    "Resize": ((11, _resize), (13, _resize_mode)),
    "Scatter": ((11, _scatter),),
    "BatchNormalization": ((14, _batch_normalization),),
    "RoiAlign": ((16, _roi_align),),
    "Scan": ((9, _refuse_scan),),
}
