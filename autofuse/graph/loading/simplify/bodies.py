"""Operators written out by the function that ONNX's schema gives them, where they have no kernel of their own.

Y = RotaryEmbedding(X, cos, sin)   becomes   the operators of its body, on the shapes and types that are known here.

What a body computes from shapes is folded afterwards. Operators of a kernel family stay whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto, helper, numpy_helper

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.inline import inlined, passed_on
from autofuse.graph.loading.upgrade import upgrade
from autofuse.graph.mapping import names
from autofuse.graph.model import Operator
from autofuse.graph.nodes import element_type, first_opset, nodes_of, schema_of, subgraphs_of

WRITTEN_OUT = names(
    """Attention BlackmanWindow CastLike CausalConvWithState CenterCropPad HammingWindow HannWindow LinearAttention
    NegativeLogLikelihoodLoss RotaryEmbedding SoftmaxCrossEntropyLoss SwiGLU"""
)
"""Operators whose body is used."""


def write_out_bodies(draft: Draft) -> bool:
    """Puts bodies in place of operators whose input types are known; True when the draft changed."""
    result: list[Operator] = []
    changed = False
    for operator in draft.operators:
        body = _body(draft, operator) if operator.op_type in WRITTEN_OUT and not operator.domain else None
        result += [operator] if body is None else _written_out(draft, operator, body)
        changed |= body is not None
    draft.operators = result
    return changed


def _body(draft: Draft, operator: Operator) -> FunctionProto | None:
    """The function of an operator, its attributes set; None where there is none for these types."""
    known = [draft.tensors.get(name) for name in operator.inputs if name]
    opset = first_opset(operator.op_type, draft.opset)
    schema: Any = schema_of(operator.op_type, opset) if opset else None  # onnx's type stubs lack functions
    if schema is None or None in known:
        return None
    node = nodes_of(operator, draft.opset)[-1]
    given = {attribute.name for attribute in node.attribute}
    defaults = ((name, declared.default_value) for name, declared in schema.attributes.items() if name not in given)
    node.attribute.extend(value for _, value in defaults if value.name)
    if schema.has_context_dependent_function:
        types = [_type(draft, name).SerializeToString() for name in operator.inputs]
        content = schema.get_context_dependent_function(node.SerializeToString(), types)
        body = FunctionProto.FromString(content) if content else None
    else:
        body = schema.function_body if schema.has_function else None
    if body is None or not _makes(body, operator):
        return None
    bound = FunctionProto()
    bound.CopyFrom(body)
    _bind(bound.node, {attribute.name: attribute for attribute in node.attribute})
    return bound


def _makes(body: FunctionProto, operator: Operator) -> bool:
    """Whether a body makes every result of the operator that has a name."""
    written = {name for node in body.node for name in node.output}
    return all(made in written for made, name in zip(body.output, operator.outputs, strict=False) if name)


def _type(draft: Draft, name: str) -> TypeProto:
    if not name:
        return TypeProto()
    tensor = draft.tensors[name]
    return helper.make_tensor_type_proto(element_type(tensor.dtype), tensor.shape)


def _bind(nodes: Iterable[NodeProto], given: Mapping[str, AttributeProto]) -> None:
    """Gives attributes that name one of the operator's its value, in place; those that it lacks are left out."""
    for node in nodes:
        bound = []
        for attribute in node.attribute:
            meant = attribute.ref_attr_name
            value = AttributeProto()
            value.CopyFrom(given.get(meant, AttributeProto()) if meant else attribute)
            value.name = attribute.name
            if value.type:
                bound.append(value)
        del node.attribute[:]
        node.attribute.extend(bound)
        for body in subgraphs_of(node):
            _bind(body.node, given)


def _written_out(draft: Draft, operator: Operator, body: FunctionProto) -> list[Operator]:
    graph = GraphProto(node=body.node)
    upgrade(graph, min(item.version for item in body.opset_import), {}, {}, draft.source)
    inputs = [*operator.inputs, *("" for _ in body.input[len(operator.inputs) :])]
    called = dict(zip(body.input, inputs, strict=True))
    for item in graph.initializer:
        called[item.name] = draft.add_constant(f"{operator.name}/{item.name}", numpy_helper.to_array(item))
    made = inlined(draft, operator.name, graph.node, called)
    return [*made, *passed_on(operator, (called.get(name, "") for name in body.output))]
