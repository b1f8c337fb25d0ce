"""Images whose channels are innermost, as ONNX Runtime's optimiser has those of integers, in ONNX's layout again.

A value of that layout is a turned one; it is turned back where an operator reads it that knows of neither. Between two
operators that do, nothing is turned: y = QLinearConv(x), NhwcMaxPool(x), ... become ONNX's own, and what works on
each element alone, or joins, works on the values as they are.
"""

from __future__ import annotations

from itertools import count

from onnx import ModelProto, NodeProto, helper

from autofuse.graph.nodes import captured_names, subgraphs_of

MICROSOFT = "com.microsoft"
_PLAIN = {"NhwcMaxPool": ("MaxPool", ""), "QLinearConv": ("QLinearConv", "")}
"""What an operator over such images is called in ONNX; the others keep their names, and lose `channels_last`."""
_ALONE = frozenset(("Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Identity",
                    "Add", "Sub", "Mul", "Div", "Max", "Min", "Abs", "Neg", "Exp", "Sqrt", "QuantizeLinear",
                    "DequantizeLinear", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu"))  # fmt: skip
_JOINS = ("Concat", "QLinearConcat")
_FROM_LAST, _TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
_AXES = (0, 2, 3, 1)
"""Where an axis of an image whose channels are innermost stands in ONNX's layout."""


def with_channels_first(model: ModelProto) -> ModelProto:
    """The model in ONNX's layout; itself where no operator has another."""
    if not any(_is_last(node) for node in model.graph.node):
        return model
    made = ModelProto()
    made.CopyFrom(model)
    nodes = _Turner(model).nodes()
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


class _Turner:
    """A model of which the nodes are written anew; `first`: what a value is in ONNX's layout."""

    def __init__(self, model: ModelProto) -> None:
        graph = self.graph = model.graph
        self.first: dict[str, str] = {}
        self.made: list[NodeProto] = []
        self.there = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        self.numbers = {tensor.name for tensor in graph.initializer if all(size == 1 for size in tensor.dims)}
        self.taken = {name for node in graph.node for name in (*node.input, *node.output)} | self.there

    def nodes(self) -> list[NodeProto]:
        """See the class."""
        for node in self.graph.node:
            self._write(node)
        for value in self.graph.output:
            self._as_it_is(value.name)
        return self.made

    def _write(self, node: NodeProto) -> None:
        perm = [axis for one in node.attribute if one.name == "perm" for axis in one.ints]
        images = [name for name in node.input if name in self.first]
        if _is_last(node):
            self._plain(node)
        elif node.op_type == "Transpose" and perm == _TO_LAST:
            self.first[node.output[0]] = node.input[0]
        elif node.op_type == "Transpose" and perm == _FROM_LAST and images:
            self.made.append(helper.make_node("Identity", [self.first[images[0]]], node.output, node.name))
        elif images and len(node.output) == 1 and self._works_on(node):
            self._moved(node)
        else:
            for name in (*node.input, *(captured_names(node) if subgraphs_of(node) else ())):
                self._as_it_is(name)
            self._keep(node)

    def _keep(self, node: NodeProto) -> None:
        self.made.append(node)
        self.there |= set(node.output)

    def _plain(self, node: NodeProto) -> None:
        """An operator over images in ONNX's layout."""
        copy = NodeProto()
        copy.CopyFrom(node)
        if node.input[0] not in self.first:
            turned = self._name(f"{node.input[0]}/first")
            self.made.append(helper.make_node("Transpose", [node.input[0]], [turned], turned, perm=_FROM_LAST))
            self.first[node.input[0]] = turned
        copy.input[0] = self.first[node.input[0]]
        copy.op_type, copy.domain = _PLAIN.get(node.op_type, (node.op_type, node.domain))
        kept = [one for one in node.attribute if one.name != "channels_last"]
        del copy.attribute[:]
        copy.attribute.extend(kept)
        self._result(copy)

    def _works_on(self, node: NodeProto) -> bool:
        """Whether a node computes the same from images in ONNX's layout."""
        joins = node.op_type in _JOINS
        others = [name for name in node.input if name and name not in self.first]
        return (joins or node.op_type in _ALONE) and all(name in self.numbers for name in others)

    def _moved(self, node: NodeProto) -> None:
        copy = NodeProto()
        copy.CopyFrom(node)
        for place, name in enumerate(node.input):
            copy.input[place] = self.first.get(name, name)
        if node.op_type in _JOINS:
            for one in copy.attribute:
                if one.name == "axis":
                    one.i = _AXES[one.i]
        self._result(copy)

    def _result(self, copy: NodeProto) -> None:
        name = copy.output[0]
        copy.output[0] = self.first[name] = self._name(f"{name}/first")
        self.made.append(copy)

    def _as_it_is(self, name: str) -> None:
        """Have the value itself, for what knows of no other layout."""
        if name in self.first and name not in self.there:
            self.made.append(helper.make_node("Transpose", [self.first[name]], [name], perm=_TO_LAST))
            self.there.add(name)

    def _name(self, wanted: str) -> str:
        found = next(one for number in count() if (one := f"{wanted}{number or ''}") not in self.taken)
        self.taken.add(found)
        return found


def _is_last(node: NodeProto) -> bool:
    """Whether a node reads images of two dimensions whose channels are innermost."""
    if node.domain != MICROSOFT:
        return False
    attributes = {one.name: one for one in node.attribute}
    kernel = attributes.get("kernel_shape")
    if kernel is not None and len(kernel.ints) != 2:
        return False
    if node.op_type == "NhwcMaxPool":
        return True
    named = node.op_type in ("QLinearConv", "QLinearAveragePool", "QLinearGlobalAveragePool")
    return named and "channels_last" in attributes and bool(attributes["channels_last"].i)
