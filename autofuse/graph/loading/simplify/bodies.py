"""Operators written out by the function that ONNX's schema gives them, where they have no kernel of their own.

Y = RotaryEmbedding(X, cos, sin)   becomes   the operators of its body, on the shapes and types that are known here.

What a body computes from shapes is folded afterwards. Operators of a kernel family stay whole.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto, helper, numpy_helper

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.inline import inlined, passed_on
from autofuse.graph.loading.simplify.writer import Writer
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
        own = operator.op_type in WRITTEN_OUT and not operator.domain
        before, plain = _scaled_ahead(draft, operator) if own and operator.op_type == "Attention" else ([], operator)
        body = _body(draft, plain) if own else None
        result += [operator] if body is None else [*before, *_written_out(draft, plain, body)]
        changed |= body is not None
    draft.operators = result
    return _choose_after_products(draft) or changed


def _scaled_ahead(draft: Draft, operator: Operator) -> tuple[list[Operator], Operator]:
    """Attention(q, k, v, scale=s)   becomes   Attention(q * s, k, v, scale=1): its body scales keys, too."""
    query = draft.tensors.get(operator.inputs[0])
    if query is None or not query.dtype.startswith("float"):
        return [], operator
    heads = operator.attributes.get("q_num_heads", 1) if len(query.shape) == 3 else 1
    scale = operator.attributes.get("scale", math.sqrt(heads / query.shape[-1]))  # type: ignore[operator]
    write = Writer(draft, operator)
    scaled = write.op("Mul", "scaled", operator.inputs[0], write.number("scale", scale))  # type: ignore[arg-type]
    draft.tensors[scaled] = replace(query, name=scaled)
    plain = replace(operator, inputs=(scaled, *operator.inputs[1:]), attributes={**operator.attributes, "scale": 1.0})
    return write.made, plain


def _choose_after_products(draft: Draft) -> bool:
    """MatMul(Where(rows, 0, x), y)   becomes   Where(rows, 0, MatMul(x, y)), so that nothing stands behind a softmax.

    Only of whole rows: `rows` has one column. True when the draft changed.
    """
    choices = {op.outputs[0]: op for op in draft.operators if op.op_type == "Where" and _chooses_rows(draft, op)}
    readers = Counter(name for operator in draft.operators for name in operator.inputs)
    result: list[Operator] = []
    changed = False
    for operator in draft.operators:
        choice = choices.get(operator.inputs[0]) if operator.op_type == "MatMul" else None
        known = draft.tensors.get(operator.outputs[0])
        if choice is None or known is None or readers[choice.outputs[0]] > 1 or choice.outputs[0] in draft.returned:
            result.append(operator)
            continue
        product = draft.fresh(f"{operator.outputs[0]}/all_rows")
        draft.tensors[product] = replace(known, name=product)
        result.append(replace(operator, inputs=(choice.inputs[2], operator.inputs[1]), outputs=(product,)))
        result.append(replace(choice, inputs=(*choice.inputs[:2], product), outputs=operator.outputs))
        changed = True
    draft.operators = result
    return changed


def _chooses_rows(draft: Draft, operator: Operator) -> bool:
    known = [draft.tensors.get(name) for name in (operator.inputs[0], operator.inputs[2], operator.outputs[0])]
    none = draft.constants.get(operator.inputs[1])
    if None in known or none is None or none.size != 1 or none.any():
        return False
    rows, kept, result = (tensor.shape for tensor in known if tensor is not None)
    return kept == result and 1 <= len(rows) <= len(result) and rows[-1] == 1


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
