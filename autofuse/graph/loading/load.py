"""Loading an ONNX model: it is checked, gets static shapes and one form an operator, and its constants are folded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, inliner, numpy_helper

from autofuse.errors import InputError, UncoveredError
from autofuse.graph.loading.canonical import canonicalise
from autofuse.graph.loading.constants import fold_constants
from autofuse.graph.loading.draft import Draft, as_constants, check_weight_dtype
from autofuse.graph.loading.files import origin_of, read_model, refuse_external_data
from autofuse.graph.loading.given.constants import bind_constants, shapes_of
from autofuse.graph.loading.given.parameters import Parameters, plain_operators, types_of_inputs
from autofuse.graph.loading.given.shapes import NamedShape, OpenInputsError, bind_shapes
from autofuse.graph.loading.limits import (
    MAX_OUTPUTS,
    check_inputs,
    check_live,
    check_operator_count,
    check_tensor,
    rounds_for,
)
from autofuse.graph.loading.order import sort_nodes
from autofuse.graph.loading.simplify.bfloat16 import widen_bfloat16
from autofuse.graph.loading.simplify.bodies import write_out_bodies
from autofuse.graph.loading.simplify.broadcasts import simplify_copies
from autofuse.graph.loading.simplify.classical import write_scalers
from autofuse.graph.loading.simplify.clean import (
    inline_decided_branches,
    know_empty_inputs,
    remove_dead,
    remove_noops,
    split_sums,
)
from autofuse.graph.loading.simplify.halves import widen_halves
from autofuse.graph.loading.simplify.inline import constant_value
from autofuse.graph.loading.simplify.layers.attention import write_attention
from autofuse.graph.loading.simplify.layers.positions import counted_positions
from autofuse.graph.loading.simplify.layers.recurrent import leave_zero_states, split_recurrent
from autofuse.graph.loading.simplify.layers.scattered import write_slices
from autofuse.graph.loading.simplify.layers.spectral import name_sides, write_transforms
from autofuse.graph.loading.simplify.layers.statistics import split_statistics
from autofuse.graph.loading.simplify.layers.training import split_training
from autofuse.graph.loading.simplify.microsoft.nchwc import with_plain_layout
from autofuse.graph.loading.simplify.microsoft.rules import declare, is_replaced, replace_microsoft
from autofuse.graph.loading.simplify.quantized.bfloat16 import join_bfloat16
from autofuse.graph.loading.simplify.quantized.blocks import nibbles
from autofuse.graph.loading.simplify.quantized.lookups import look_up_bytes
from autofuse.graph.loading.simplify.quantized.rules import join_quantized
from autofuse.graph.loading.upgrade import FORM, upgrade
from autofuse.graph.loading.validity import check_declared_types, check_graph_lists, check_operators, check_types
from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.nodes import (
    MAX_MODEL_BYTES,
    SUPPORTED_DTYPES,
    dtype_name,
    give_names,
    make_model,
    operator_of,
    schema_of,
    subgraphs_of,
)
from autofuse.values.arguments import Given, Shapes, file_title

_LIGHT_ELEMENTS = 4096
_WIDE = (onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64, onnx.TensorProto.UINT64)


def load(path: Path, given: Given | None = None, *, counted: bool = False) -> Graph:
    """The graph of an ONNX file.

    `given`: static shape of each input that the file leaves open, and values of inputs, which become constants.
    External weights must lie in the file's folder. `counted`: positions that begin where a shape says are left as they
    are. InputError names the file and what to change. See `from_model`.
    """
    source = str(path)
    model = with_plain_layout(read_model(Path(path)))
    try:
        bind_constants(model, given, source)
        return _graph_of(model, file_title(Path(path)), source, shapes_of(given), counted)
    except UnicodeDecodeError as error:
        raise _damaged(source) from error
    except (UncoveredError, OpenInputsError) as error:
        hint = _hint(model.graph)
        if not hint:
            raise
        raise type(error)(f"{error}; {hint}") from error


def _hint(graph: GraphProto) -> str:
    """Which inputs of the model to give a value; "" where that would not help."""
    weights = [tensor.name for tensor in graph.initializer]
    return Parameters(plain_operators(graph), types_of_inputs(graph.input), weights).hint_of_all()


def from_model(model: ModelProto, name: str, shapes: Shapes | None = None) -> Graph:
    """The graph of a model in memory, which stays as it was; `name` stands for it in messages.

    Functions are inlined, old opsets rewritten to opset 18, shapes inferred and constants folded until
    nothing changes; see `canonical` for the form of each operator. Graph inputs and outputs keep their
    names, operators theirs; nameless or doubly used names become `Conv_12` (12: place in the model).
    """
    if not model.HasField("graph"):
        raise InputError(f"{name}: not an ONNX model: it holds no graph")
    try:
        refuse_external_data(model, name)
        return _graph_of(model, name, name, shapes)
    except UnicodeDecodeError as error:
        raise _damaged(name) from error


def _damaged(source: str) -> InputError:
    return InputError(f"{source}: the model is damaged: a name in it is no UTF-8 text; export or download it again")


def _graph_of(model: ModelProto, name: str, source: str, shapes: Shapes | None, counted: bool = False) -> Graph:
    _check_texts(model.graph, source)
    check_graph_lists(model.graph, source)
    check_operator_count(model, source)
    constants = _weights(model.graph, source)
    light = _inlined(_without_weights(model, constants), source)
    opset = _opset(light, source)
    nodes = light.graph.node
    declare(light.graph)
    write_scalers(light.graph)
    name_sides(light.graph)
    _check_operators(light.graph, opset, source)
    give_names(nodes)
    sort_nodes(light.graph, constants, source)
    inputs = bind_shapes([value for value in model.graph.input if value.name not in constants], shapes, source)
    outputs = tuple(value.name for value in model.graph.output)
    _check_outputs(outputs, inputs, source)
    check_inputs(inputs.values(), source)
    opened = any(isinstance(shape, NamedShape) for shape in (shapes or {}).values())
    draft = Draft(source, inputs, outputs, _operators(nodes, source), constants, opset, open_sizes=opened)
    _check_model(draft)
    if opset < FORM:
        draft.infer()
        draft.opset = upgrade(light.graph, opset, draft.tensors, constants, source)
        added = {item.name: numpy_helper.to_array(item) for item in light.graph.initializer}
        constants.update(as_constants({k: v for k, v in added.items() if k not in constants}, source))
        draft = Draft(source, inputs, outputs, _operators(nodes, source), constants, draft.opset, open_sizes=opened)
    if counted:
        draft.unfolded = counted_positions(draft.operators, constants)
    _simplify(draft, model.graph)
    return replace(_finished(draft, name), origin=origin_of(model))


def _operators(nodes: Iterable[NodeProto], source: str) -> list[Operator]:
    made: list[Operator] = []
    for node in nodes:
        try:
            made.append(operator_of(node))
        except Exception as error:  # a tensor attribute that onnx cannot decode: TypeError, ValueError, ...
            raise InputError(f"{source}: an attribute of operator {node.name!r} is damaged: {error}") from error
    return made


def _check_texts(graph: GraphProto, source: str) -> None:
    """Protobuf hands out names that are no UTF-8 as bytes."""
    texts = [graph.name, *(value.name for value in (*graph.input, *graph.output, *graph.initializer))]
    for node in graph.node:
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
        texts += [attribute.name for attribute in node.attribute]
    if not all(isinstance(text, str) for text in texts):
        raise _damaged(source)
    for node in graph.node:
        for body in subgraphs_of(node):
            _check_texts(body, source)


def _weights(graph: GraphProto, source: str) -> dict[str, NDArray[np.generic]]:
    if graph.sparse_initializer:
        raise UncoveredError(f"{source}: sparse weights are not supported; export the model with dense weights")
    total = sum(math.prod(tensor.dims) * (8 if tensor.data_type in _WIDE else 4) for tensor in graph.initializer)
    if total > MAX_MODEL_BYTES:
        raise InputError(f"{source}: {total / 1e9:.1f} GB of weights; autofuse takes models up to 2 GB")
    arrays: dict[str, NDArray[np.generic]] = {}
    widened = dict.fromkeys(nibbles(graph), np.int8)
    for tensor in graph.initializer:
        if tensor.name not in widened:
            check_weight_dtype(tensor.name, dtype_name(tensor.data_type), source)
        try:
            array = numpy_helper.to_array(tensor)
            arrays[tensor.name] = array.astype(widened.get(tensor.name, array.dtype), copy=False)
        except Exception as error:  # onnx raises ValueError, TypeError, KeyError, struct.error
            raise InputError(f"{source}: weight {tensor.name!r} is damaged: {error}") from error
    return as_constants(arrays, source)


def _without_weights(model: ModelProto, constants: Mapping[str, NDArray[np.generic]]) -> ModelProto:
    """A copy without large weights, whose nodes may be changed."""
    light = ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = model.graph.name or "graph"
    light.graph.node.extend(model.graph.node)
    light.graph.output.extend(model.graph.output)
    light.graph.input.extend(value for value in model.graph.input if value.name not in constants)
    for tensor in model.graph.initializer:
        if constants[tensor.name].size <= _LIGHT_ELEMENTS:
            light.graph.initializer.append(tensor)
        else:
            shape = constants[tensor.name].shape
            light.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))
    return light


def _inlined(light: ModelProto, source: str) -> ModelProto:
    if not light.functions:
        return light
    try:
        return inliner.inline_local_functions(light)
    except Exception as error:
        raise InputError(f"{source}: the model's functions cannot be inlined: {error}") from error


def _opset(model: ModelProto, source: str) -> int:
    versions = [item.version for item in model.opset_import if item.domain in ("", "ai.onnx")]
    if not versions:
        raise UncoveredError(f"{source}: the model names no ONNX opset; export it again")
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= versions[0] <= newest:
        raise InputError(
            f"{source}: opset {versions[0]} is unknown to the installed onnx package (at most {newest}); "
            "export the model with an older opset, or update onnx"
        )
    return int(versions[0])


def _check_operators(graph: GraphProto, opset: int, source: str) -> None:
    for node in graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        schema = schema_of(node.op_type, opset, domain) if not domain else None
        if (schema is None or schema.deprecated) and not is_replaced(node.op_type, domain):
            where = f" of domain {domain!r}" if domain else f" in opset {opset}"
            raise UncoveredError(
                f"{source}: unknown operator {node.op_type!r}{where} (node {node.name or node.output[:1]!r}); "
                "export the model with standard ONNX operators only"
            )
        for body in subgraphs_of(node):
            _check_operators(body, opset, source)


def _check_outputs(outputs: tuple[str, ...], inputs: Mapping[str, object], source: str) -> None:
    if not outputs:
        raise InputError(f"{source}: the model has no outputs; export it again")
    if len(outputs) > MAX_OUTPUTS:
        raise InputError(
            f"{source}: the model has {len(outputs):,} outputs, at most {MAX_OUTPUTS:,} are allowed; export it with "
            "those that are needed"
        )
    for name, count in Counter(outputs).items():
        if name in inputs:
            raise UncoveredError(
                f"{source}: output {name!r} is an input; remove it from the outputs, or pass it through Identity"
            )
        if count > 1:
            raise UncoveredError(f"{source}: output {name!r} is listed twice; export the model again")


def _check_model(draft: Draft) -> None:
    """Attributes and numbers of inputs, by ONNX's checker on a model without large weights."""
    large = [array for array in draft.constants.items() if array[1].size > _LIGHT_ELEMENTS]
    small = {name: array for name, array in draft.constants.items() if array.size <= _LIGHT_ELEMENTS}
    stand_ins = [Tensor(name, array.shape, array.dtype.name) for name, array in large]
    try:
        model = make_model("check", draft.operators, [*draft.inputs.values(), *stand_ins], (), small, draft.opset)
        onnx.checker.check_model(model)
    except Exception as error:  # ValidationError, and errors of building the nodes
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise InputError(f"{draft.source}: not a valid ONNX model: {' '.join(lines[:3])[:400]}") from error
    check_types(model, draft.source)


_STEPS = (
    inline_decided_branches, replace_microsoft, join_quantized, join_bfloat16, split_training, split_recurrent,
    split_statistics, write_transforms, write_attention, write_out_bodies, write_slices, fold_constants, canonicalise,
    leave_zero_states, simplify_copies, remove_noops, remove_dead,
)  # fmt: skip
"""What a round of simplification does, in turn; each says whether it changed anything."""


def _simplify(draft: Draft, given: GraphProto) -> None:
    """Clean until nothing changes; each round starts from freshly inferred shapes. `given`: as the file has it."""
    _lift_constants(draft)
    know_empty_inputs(draft)
    split_sums(draft)
    remove_dead(draft)
    for number in range(rounds_for(len(draft.operators))):
        draft.infer()
        if not number:
            check_declared_types(given, draft)
        if widen_bfloat16(draft):
            draft.infer()
        check_operators(draft)
        if not sum(step(draft) for step in _STEPS) and not widen_halves(draft) and not look_up_bytes(draft):
            return


def _lift_constants(draft: Draft) -> None:
    """Constant operators become constants; an output of the graph stays behind an Identity."""
    kept: list[Operator] = []
    for operator in draft.operators:
        if operator.op_type != "Constant":
            kept.append(operator)
            continue
        try:
            value = as_constants(constant_value(operator), draft.source)
        except (TypeError, ValueError) as error:
            raise InputError(f"{draft.source}: Constant {operator.name!r} holds no usable tensor: {error}") from error
        for name, array in value.items():
            target = draft.fresh(f"{name}/value") if name in draft.returned else name
            draft.set_constant(target, array)
            if target != name:
                kept.append(replace(operator, op_type="Identity", inputs=(target,), attributes={}))
    renamed = {name: draft.fresh(f"{name}/value") for name in draft.outputs if name in draft.constants}
    for name, value_name in renamed.items():
        draft.set_constant(value_name, draft.constants.pop(name))
    draft.operators = [
        *(replace(op, inputs=tuple(renamed.get(n, n) for n in op.inputs)) for op in kept),
        *(Operator(f"Identity_{name}", "Identity", (made,), (name,)) for name, made in renamed.items()),
    ]


def _finished(draft: Draft, name: str) -> Graph:
    for operator in draft.operators:
        for result in (result for result in operator.outputs if result):
            _check_result(draft, operator, result)
    used = list(draft.inputs)
    used += [n for operator in draft.operators for n in (*operator.inputs, *operator.outputs) if n]
    tensors = {key: draft.tensors[key] for key in dict.fromkeys(used)}
    constants = {key: draft.constants[key] for key in tensors if key in draft.constants}
    check_live(draft.operators, tensors, constants, draft.outputs, draft.source)
    return Graph(
        name, tuple(draft.inputs), draft.outputs, tuple(draft.operators), tensors, constants, draft.opset,
        halves=draft.halves, widened=draft.widened, float16=draft.float16.intersection(tensors),
    )  # fmt: skip


def _check_result(draft: Draft, operator: Operator, result: str) -> None:
    tensor = draft.tensors.get(result)
    where = f"{draft.source}: result {result!r} of operator {operator.name!r} ({operator.op_type})"
    if tensor is None:
        reason = ""
        try:
            draft.infer(strict=True)
        except InputError as error:
            reason = f" ({str(error).removeprefix(draft.source).lstrip(': ')})"
        raise UncoveredError(
            f"{where} has no static shape: it depends on data, or the shapes do not fit{reason}; "
            "export a static variant, or give other --shape values"
        )
    if tensor.dtype not in SUPPORTED_DTYPES:
        raise UncoveredError(
            f"{where} has element type {tensor.dtype}, which is not supported "
            f"(supported: {', '.join(sorted(SUPPORTED_DTYPES))}); convert the model, e.g. to float32"
        )
    check_tensor(tensor, operator, draft.source)
    if not tensor.elements:
        shape = ",".join(map(str, tensor.shape))
        empty = next((tensor for tensor in draft.inputs.values() if not tensor.elements), None)
        ones = "" if empty is None else ",".join(str(max(1, size)) for size in empty.shape)
        more = "" if empty is None else f", e.g. --shape {empty.name}={ones}"
        raise UncoveredError(
            f"{where} is empty (shape {shape}): nothing to compute; use larger inputs{more}, or remove the operator"
        )
