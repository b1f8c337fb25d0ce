"""Bodies of If, Loop and Scan: each as a model of its own, whose parts can be taken, and put back into its node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from autofuse.graph.nodes import captured_names, element_type
from autofuse.graph.parts.contexts import DOMAIN
from autofuse.graph.parts.source import Infer, Node, Source, ValueType

_ROUNDS = 4
"""How often sizes of carried values are left open because the body makes others."""
_FIRST_SCAN = 9
"""The opset from which a Scan has no batch dimension."""

Sizes = tuple[int | str | None, ...] | None


@dataclass(frozen=True, eq=False)
class Body:
    """The body `attribute` of a `node`; inputs of `source`: its own, then those of `outer` that are no constants.

    `outer`: what it reads of the graph around it.
    """

    node: Node
    attribute: str
    source: Source
    outer: tuple[str, ...]


def bodies_of(source: Source, node: Node, infer: Infer) -> list[Body]:
    """The bodies of a node of `source`; none where it is unknown what they are given.

    A value that a loop carries has the sizes that all of its rounds have: those that the body changes are open.
    InputError when ONNX Runtime refuses a body as a model.
    """
    proto = source.proto(node)
    ports = _ports(source, proto)
    if ports is None:
        return []
    found = []
    for attribute in proto.attribute:
        if attribute.type == AttributeProto.GRAPH and not attribute.g.sparse_initializer:
            outer = captured_names(NodeProto(attribute=[attribute]))
            made = _steady(source, attribute.g, outer, *ports, infer)
            found += [Body(node, attribute.name, made, outer)] if made else []
    return found


def put_back(model: ModelProto, bodies: Iterable[tuple[Body, ModelProto]]) -> None:
    """Give nodes of `model` the bodies that were made of theirs; weights that nobody reads any more go."""
    writer = {name: node for node in model.graph.node for name in node.output if name}
    for body, made in bodies:
        node = writer[body.node.writes[0]]
        graph = next(attribute.g for attribute in node.attribute if attribute.name == body.attribute)
        weights = [tensor for tensor in made.graph.initializer if tensor.name not in body.outer]
        del graph.node[:], graph.initializer[:], graph.value_info[:]
        graph.node.extend(made.graph.node)
        graph.initializer.extend(weights)
        graph.value_info.extend(made.graph.value_info)
    _drop_unread(model.graph)
    if not any(item.domain == DOMAIN for item in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))


def _drop_unread(graph: GraphProto) -> None:
    read = {name for node in graph.node for name in (*node.input, *captured_names(node))}
    read |= {value.name for value in (*graph.output, *graph.input)}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _ports(source: Source, proto: NodeProto) -> tuple[list[ValueType | None], dict[int, int]] | None:
    """The types of what a body is given (None: as it declares), and which output becomes which input in the next round.

    None where the operator or its version is another.
    """
    types = [_type(source, name) for name in proto.input]
    if proto.domain not in ("", "ai.onnx"):
        return None
    if proto.op_type == "If":
        return None if source.is_constant(proto.input[0]) else ([], {})
    if proto.op_type == "Loop":
        carried = types[2:]
        return [None, None, *carried], {place + 2: place + 1 for place in range(len(carried))}
    if proto.op_type != "Scan" or source.opset < _FIRST_SCAN:
        return None
    numbers = {one.name: tuple(one.ints) for one in proto.attribute}
    count = next(one.i for one in proto.attribute if one.name == "num_scan_inputs")
    axes = numbers.get("scan_input_axes") or (0,) * count
    states, scanned = types[: len(types) - count], types[len(types) - count :]
    slices = [_slice(one, axis) for one, axis in zip(scanned, axes, strict=True)]
    return [*states, *slices], {place: place for place in range(len(states))}


def _type(source: Source, name: str) -> ValueType:
    """The type of a value, also of one that is constant."""
    tensor = source.tensor_of(name)
    return source.type_of(name) if tensor is None else ValueType("", tensor.dtype, tensor.shape)


def _slice(whole: ValueType, axis: int) -> ValueType:
    """The type of what a Scan gives its body of an input."""
    sizes = whole.shape
    if not sizes:
        return ValueType(whole.text, whole.dtype)
    place = axis % len(sizes)
    return ValueType(whole.text, whole.dtype, (*sizes[:place], *sizes[place + 1 :]))


def _steady(
    source: Source, graph: GraphProto, outer: Sequence[str], given: Sequence[ValueType | None],
    carried: Mapping[int, int], infer: Infer,
) -> Source | None:  # fmt: skip
    """The body with sizes that hold in every round; None where none are found, and where its inputs are others."""
    if len(given) != len(graph.input) or any(place >= len(graph.output) for place in carried.values()):
        return None
    types = list(given)
    for _ in range(_ROUNDS):
        made = Source(f"{source.name}, a body", _model(source, graph, outer, types), {}, infer, open_sizes=True)
        changed = False
        for place, result in carried.items():
            before = types[place]
            assert before is not None
            sizes = _common(before.shape, _type(made, graph.output[result].name).shape)
            if sizes != before.shape:
                changed, types[place] = True, ValueType(before.text, before.dtype, sizes)
        if not changed:
            return made
    return None


def _common(before: Sizes, after: Sizes) -> Sizes:
    """The sizes that a value keeps."""
    if before is None or after is None or len(before) != len(after):
        return None
    return tuple(
        one if isinstance(one, int) and one == other else None for one, other in zip(before, after, strict=True)
    )


def _model(source: Source, graph: GraphProto, outer: Sequence[str], types: Sequence[ValueType | None]) -> ModelProto:
    """A body as a model: what it reads of the graph around it are inputs, and weights where that is a constant."""
    model = source.frame()
    model.graph.Clear()
    made = model.graph
    made.name = graph.name or "body"
    made.node.extend(graph.node)
    made.initializer.extend(graph.initializer)
    made.output.extend(graph.output)
    made.input.extend(_typed(value, given) for value, given in zip(graph.input, types, strict=True))
    for name in outer:
        numbers = source.numbers(name)
        if name in source.constants:
            made.initializer.append(source.constants[name])
        elif numbers is not None:
            made.initializer.append(numpy_helper.from_array(numbers, name))
        else:
            made.input.append(source.value_info(name))
    return model


def _typed(value: ValueInfoProto, given: ValueType | None) -> ValueInfoProto:
    """An input of a body with the type that it is given."""
    if given is None or not given.dtype:
        return value
    return helper.make_tensor_value_info(value.name, element_type(given.dtype), given.shape)
