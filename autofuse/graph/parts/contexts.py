"""A model some of whose parts are compiled: nodes EPContext, which an execution provider of ONNX Runtime runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from autofuse.graph.model import Tensor
from autofuse.graph.nodes import element_type
from autofuse.graph.parts.source import Source

DOMAIN, OPERATOR = "com.microsoft", "EPContext"


@dataclass(frozen=True)
class ContextNode:
    """A part that is compiled. `inputs`: values of the model. `outputs`: in the order in which its code makes them.

    `attributes`: numbers, texts and bytes, by name.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, int | str | bytes] = field(default_factory=dict)


def with_contexts(source: Source, order: Sequence[Sequence[int] | ContextNode], notes: Mapping[str, str]) -> ModelProto:
    """The model as parts in the `order` in which they can run: nodes (by place) as they are, and compiled ones.

    `notes`: what its metadata say besides. ONNX's limit of 2 GB is not looked at.
    """
    members = [place for part in order if not isinstance(part, ContextNode) for place in part]
    compiled = {tensor.name: tensor for part in order if isinstance(part, ContextNode) for tensor in part.outputs}
    constants = [name for name in source.outputs if source.is_constant(name) and name not in compiled]
    rest = source.part(members, constants, "rest")
    protos = dict(zip(sorted(members), rest.graph.node, strict=True))
    model = source.frame()
    for value in model.graph.output:
        if value.name in compiled and not value.type.tensor_type.elem_type:  # ONNX Runtime infers none of EPContext
            value.CopyFrom(_described(compiled[value.name]))
    names = _Names(source, {name for proto in protos.values() for name in (*proto.input, *proto.output)})
    for part in order:
        if isinstance(part, ContextNode):
            model.graph.node.append(names.node(part))
        else:
            model.graph.node.extend(protos[place] for place in part)
    model.graph.initializer.extend(rest.graph.initializer)
    model.graph.value_info.extend(names.described)
    if not any(item.domain == DOMAIN for item in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    for key, value in notes.items():
        model.metadata_props.add(key=key, value=value)
    return model


def with_shapes(model: ModelProto, shapes: Mapping[str, tuple[str, Sequence[int | str]]]) -> ModelProto:
    """A model whose inputs and outputs have these types of elements and shapes, by name; names stand for open sizes.

    Other values say no shape: theirs would be of one size.
    """
    for value in (*model.graph.input, *model.graph.output):
        if value.name in shapes:
            dtype, shape = shapes[value.name]
            value.CopyFrom(helper.make_tensor_value_info(value.name, element_type(dtype), shape))
    del model.graph.value_info[:]
    return model


class _Names:
    """Names of what compiled nodes make: the model's own, or fresh ones where nobody may write.

    `described`: types of the values that are no outputs of the model.
    """

    def __init__(self, source: Source, taken: set[str]) -> None:
        self._outputs = set(source.outputs)
        self._taken = {*taken, *source.inputs, *source.outputs}
        self._written = set(source.inputs)
        self.described: list[ValueInfoProto] = []

    def node(self, part: ContextNode) -> NodeProto:
        """The node of a part."""
        made = [self._written_once(tensor) for tensor in part.outputs]
        node = helper.make_node(OPERATOR, part.inputs, made, part.name, domain=DOMAIN)
        node.attribute.extend(helper.make_attribute(name, value) for name, value in sorted(part.attributes.items()))
        return node

    def _written_once(self, tensor: Tensor) -> str:
        """The name of a result; another one for a result that is an input of the model, or that stands twice."""
        name, number = tensor.name, 0
        if name in self._written:
            while name in self._taken:
                number += 1
                name = f"{tensor.name}_again{number}"
        self._taken.add(name)
        self._written.add(name)
        if name not in self._outputs:
            self.described.append(_described(tensor, name))
        return name


def _described(tensor: Tensor, name: str = "") -> ValueInfoProto:
    """A tensor with its type, under another `name` where there is one."""
    return helper.make_tensor_value_info(name or tensor.name, element_type(tensor.dtype), tensor.shape)
