"""ONNX nodes to operators and back: plain attribute values, subgraphs with the tensors they capture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper, numpy_helper

from autofuse.graph.model import AttributeValue, Operator, Tensor
from autofuse.graph.own.bfloat16 import bfloat16_nodes, is_of_bfloat16
from autofuse.graph.own.byte_lookup import byte_lookup_nodes, is_byte_lookup
from autofuse.graph.own.exact_sums import exact_sum_nodes, is_exact_sum
from autofuse.graph.own.joined_places import join_nodes, joins_places
from autofuse.graph.own.names import FLOAT16
from autofuse.graph.own.recurrence import is_recurrence, recurrence_nodes
from autofuse.graph.own.weight_only import is_weight_only, weight_only_nodes

CAPTURES = "autofuse_captures"
"""Attribute of an operator with subgraphs: what its bodies call the last inputs, which they capture."""

MAX_MODEL_BYTES = 2**31 - 1
SUPPORTED_DTYPES = frozenset(
    ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
)


def dtype_name(element_type: int) -> str:
    """numpy name of an ONNX element type; the ONNX name in lower case for those that numpy lacks."""
    if element_type in (onnx.TensorProto.STRING, onnx.TensorProto.UNDEFINED):
        return str(onnx.TensorProto.DataType.Name(element_type)).lower()
    try:
        return str(np.dtype(helper.tensor_dtype_to_np_dtype(element_type)).name)
    except KeyError:
        return f"element type {element_type}"


def element_type(dtype: str) -> int:
    """ONNX element type of a numpy dtype name."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


@cache
def schema_of(op_type: str, opset: int, domain: str = "") -> onnx.defs.OpSchema | None:
    """The schema of an operator in an opset; None when there is none."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


@cache
def first_opset(op_type: str, opset: int, domain: str = "") -> int | None:
    """The first opset from `opset` on that has an operator; None when there is none."""
    newest = onnx.defs.onnx_opset_version()
    return next((n for n in range(opset, newest + 1) if schema_of(op_type, n, domain) is not None), None)


def subgraphs_of(node: NodeProto) -> tuple[GraphProto, ...]:
    """Graphs among the attributes of a node (bodies of If, Loop, Scan)."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found.append(attribute.g)
        found.extend(attribute.graphs)
    return tuple(found)


def captured_names(node: NodeProto) -> tuple[str, ...]:
    """Tensors of the enclosing graph that the node's subgraphs read, in order of first use."""
    found: dict[str, None] = {}
    for body in subgraphs_of(node):
        known = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        for inner in body.node:
            found.update((name, None) for name in (*inner.input, *captured_names(inner)) if name and name not in known)
            known.update(inner.output)
        found.update((value.name, None) for value in body.output if value.name not in known)
    return tuple(found)


def give_names(nodes: Iterable[NodeProto]) -> None:
    """Unique names: nameless or repeated ones become `Conv_12`."""
    seen: set[str] = set()
    listed = list(nodes)
    given = {node.name for node in listed}
    for index, node in enumerate(listed):
        if not node.name or node.name in seen:
            base = name = f"{node.op_type}_{index}"
            count = 0
            while name in seen or name in given:
                count += 1
                name = f"{base}_{count}"
            node.name = name
        seen.add(node.name)


def operator_of(node: NodeProto) -> Operator:
    """The operator that a node describes; tensors captured by its subgraphs become trailing inputs."""
    attributes = {attribute.name: _value(attribute) for attribute in node.attribute}
    inputs = list(node.input)
    while inputs and not inputs[-1]:
        inputs.pop()
    outputs = list(node.output)
    while outputs and not outputs[-1]:
        outputs.pop()
    captured = captured_names(node)
    if captured:
        attributes[CAPTURES] = captured
    domain = "" if node.domain == "ai.onnx" else node.domain
    return Operator(node.name, node.op_type, (*inputs, *captured), tuple(outputs), attributes, domain)


def _value(attribute: AttributeProto) -> AttributeValue:
    match attribute.type:
        case AttributeProto.INT:
            return int(attribute.i)
        case AttributeProto.FLOAT:
            return float(attribute.f)
        case AttributeProto.INTS:
            return tuple(int(item) for item in attribute.ints)
        case AttributeProto.FLOATS:
            return tuple(float(item) for item in attribute.floats)
        case AttributeProto.STRING | AttributeProto.STRINGS:
            try:
                texts = tuple(item.decode() for item in (attribute.strings or [attribute.s]))
            except UnicodeDecodeError:
                return bytes(attribute.SerializeToString(deterministic=True))
            return texts[0] if attribute.type == AttributeProto.STRING else texts
    plain = AttributeProto()
    plain.CopyFrom(attribute)
    plain.doc_string = ""
    if plain.type == AttributeProto.TENSOR:  # equal values shall have equal bytes
        plain.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t)))
    return bytes(plain.SerializeToString(deterministic=True))


def attribute_proto(value: bytes) -> AttributeProto:
    """The AttributeProto behind a bytes attribute: a tensor, a subgraph or a text that is not UTF-8."""
    proto = AttributeProto()
    proto.ParseFromString(value)
    return proto


def nodes_of(operator: Operator, opset: int) -> list[NodeProto]:
    """The ONNX node of an operator, after the Identity nodes that give captured tensors their inner names.

    A recurrence, an exact sum, a lookup of bytes, joined places and what rounds to bfloat16 become standard nodes that
    compute it, a weight-only product ONNX Runtime's node.
    """
    if is_of_bfloat16(operator):
        return bfloat16_nodes(operator)
    if is_recurrence(operator):
        return recurrence_nodes(operator)
    if is_weight_only(operator):
        return weight_only_nodes(operator)
    if is_byte_lookup(operator):
        return byte_lookup_nodes(operator)
    if joins_places(operator):
        return join_nodes(operator)
    if is_exact_sum(operator):
        return exact_sum_nodes(operator, opset)
    captured = operator.attributes.get(CAPTURES, ())
    assert isinstance(captured, tuple)
    split = len(operator.inputs) - len(captured)
    nodes = [
        helper.make_node("Identity", [actual], [str(inner)], f"{operator.name}/capture{index}")
        for index, (actual, inner) in enumerate(zip(operator.inputs[split:], captured, strict=True))
        if actual != inner
    ]
    node = helper.make_node(
        operator.op_type, operator.inputs[:split], operator.outputs, operator.name, domain=operator.domain
    )
    schema = schema_of(operator.op_type, opset, operator.domain)
    for name, value in operator.attributes.items():
        if name in (CAPTURES, FLOAT16):
            continue
        if isinstance(value, bytes):
            node.attribute.append(attribute_proto(value))
            continue
        declared = schema.attributes.get(name) if schema else None
        kind = None if declared is None else int(declared.type.value)  # type: ignore[attr-defined]
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    return [*nodes, node]


def make_model(
    name: str,
    operators: Iterable[Operator],
    inputs: Iterable[Tensor],
    outputs: Iterable[Tensor | str],
    constants: Mapping[str, NDArray[np.generic]],
    opset: int,
    inner: Sequence[Tensor] = (),
) -> ModelProto:
    """An ONNX model of operators that stand in topological order.

    `outputs` given by name only carry no type; `inner` tensors become value_info. Where an operator came with
    a later opset (a rewrite may put one in), the model speaks that opset.
    """
    operators = tuple(operators)
    opset = max((opset, *(first_opset(op.op_type, opset) or opset for op in operators if not op.domain)))
    nodes = [node for operator in operators for node in nodes_of(operator, opset)]
    results = [_value_info(item) if isinstance(item, Tensor) else onnx.ValueInfoProto(name=item) for item in outputs]
    graph = helper.make_graph(
        nodes,
        name or "graph",
        [_value_info(tensor) for tensor in inputs],
        results,
        [
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), key)
            for key, array in constants.items()
        ],
        value_info=[_value_info(tensor) for tensor in inner],
    )
    imports = [helper.make_opsetid("", opset)]
    version = max(8, helper.find_min_ir_version_for(imports))
    imports += [helper.make_opsetid(domain, 1) for domain in sorted({node.domain for node in nodes} - {""})]
    return helper.make_model(graph, opset_imports=imports, ir_version=version, producer_name="autofuse")


def _value_info(tensor: Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, element_type(tensor.dtype), tensor.shape)
