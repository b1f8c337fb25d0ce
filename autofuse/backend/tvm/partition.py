"""The partition that TVM's own FuseOps makes of a graph, as a plan whose operators keep their ONNX names.

FuseOps reads three things of a function: its calls, the class (`op_pattern`) of each callee, who reads
whom. So a module of empty functions, one an operator, each with the class that TVM itself gives the
operator, is partitioned as the real one, in milliseconds. The classes come from TVM: each distinct
operator is imported alone, legalised and annotated; of several functions the most complex class counts.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.fusion.legality import Legality, ordered_groups
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.model import Graph, Operator
from autofuse.graph.submodel import submodel
from autofuse.kernels.importer.tvm_log import without_warnings
from autofuse.kernels.workload.workload import MAX_LITERAL_ELEMENTS, bind_workload

INJECTIVE = 2
OPAQUE = 8
"""Classes of `tvm.tirx` operators (OpPatternKind): 0 elementwise, 1 broadcast, 2 injective, 3 reduction,
4 output fusable, 8 opaque."""

_LOG = logging.getLogger(__name__)


def tvm_plan(graph: Graph) -> FusionPlan:
    """What `relax.transform.FuseOps` makes of `graph`.

    Nothing is folded: TVM's default pipeline decomposes BatchNormalization to elementwise operators, which
    FuseOps then fuses with the convolution before them. An operator that TVM cannot import runs alone.
    A group that this project's legality refuses is split at its operators and logged.
    """
    classes = operator_classes(graph)
    groups = _fused(graph, classes)
    legality = Legality(graph)
    kept: list[tuple[str, ...]] = []
    for group in groups:
        refused = legality.refusal(group)
        if refused is None:
            kept.append(group)
        else:
            _LOG.warning("split a group of TVM's FuseOps: %s", refused.message)
            kept.extend((name,) for name in group)
    return FusionPlan(ordered_groups(graph, kept))


def operator_classes(graph: Graph) -> Mapping[str, int]:
    """TVM's class of each operator by name; equal operators are imported once."""
    known: dict[str, int] = {}
    found: dict[str, int] = {}
    for operator in graph.operators:
        key = bind_workload(graph, [operator.name], {}).workload.key
        if key not in known:
            known[key] = _operator_class(graph, operator)
        found[operator.name] = known[key]
    return found


def _operator_class(graph: Graph, operator: Operator) -> int:
    """TVM's class of one operator; opaque when its importer or its legalization refuses it."""
    from tvm.relax import transform
    from tvm.relax.frontend.onnx import from_onnx

    large = [name for name in operator.inputs if name in graph.constants and _large(graph, name)]
    try:
        with without_warnings(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = from_onnx(submodel(graph, [operator.name], constants_as_inputs=large))
            module = transform.CanonicalizeBindings()(transform.DecomposeOpsForInference()(module))
            module = transform.AnnotateTIROpPattern()(transform.LegalizeOps()(module))
    except Exception as error:  # noqa: BLE001  # TVM's converters and passes raise whatever they like
        _LOG.info("TVM cannot import %s (%s): %s", operator.name, operator.op_type, error)
        return OPAQUE
    return _class_of(module, len(dict.fromkeys(graph.activations(operator))))


def _class_of(module: Any, activations: int) -> int:
    """The most complex class among the functions that `main` calls on data that is new in each run.

    `activations`: how many leading parameters of `main` are such data. What is computed from constants
    alone (BatchNormalization's scale and shift) is not part of the kernel.
    """
    from tvm import relax

    fresh = set(module["main"].params[:activations])
    classes = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if not any(variable in fresh for variable in relax.analysis.free_vars(value)):
                continue
            fresh.add(binding.var)
            if not isinstance(value, relax.Call) or isinstance(value.ty, relax.ShapeType):
                continue
            if getattr(value.op, "name", "") != "relax.call_tir":
                return OPAQUE
            classes.append(int(module[value.args[0]].attrs["op_pattern"]))
    return max(classes, default=INJECTIVE)


def _large(graph: Graph, name: str) -> bool:
    return graph.tensors[name].elements > MAX_LITERAL_ELEMENTS


def _fused(graph: Graph, classes: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Operator names of each kernel after FuseOps."""
    from tvm import relax
    from tvm.relax import transform

    module = transform.FuseOps(fuse_opt_level=2)(_module(graph, classes))
    names = {f"op{index}": operator.name for index, operator in enumerate(graph.operators)}
    groups = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                group = _callees(module, binding.value)
                if group:
                    groups.append(tuple(sorted((names[name] for name in group), key=graph.position.__getitem__)))
    return groups


def _callees(module: Any, call: Any) -> list[str]:
    """Names of the operator functions that a call reaches, directly or through a fused function."""
    from tvm import relax

    if getattr(call.op, "name", "") == "relax.call_tir":
        return [call.args[0].name_hint]
    body = module[call.op].body
    inner = [binding.value for block in body.blocks for binding in block.bindings]
    return [value.args[0].name_hint for value in inner if isinstance(value, relax.Call)]


def _module(graph: Graph, classes: Mapping[str, int]) -> Any:
    """A Relax module that calls one empty function an operator, in the graph's wiring."""
    from tvm import relax

    builder = relax.BlockBuilder()
    types = {name: relax.TensorType(tensor.shape, tensor.dtype) for name, tensor in graph.tensors.items()}
    read = [name for operator in graph.operators for name in operator.inputs if name]
    given = [name for name in (*graph.inputs, *read, *graph.outputs) if name not in graph.producers]
    values: dict[str, Any] = {
        name: relax.Var(f"arg{index}", types[name]) for index, name in enumerate(dict.fromkeys(given))
    }
    with builder.function("main", list(values.values())):
        with builder.dataflow():
            for index, operator in enumerate(graph.operators):
                arguments = [name for name in operator.inputs if name]
                results = [name for name in operator.outputs if name]
                function = _empty_function(graph, [*arguments, *results], f"op{index}", classes[operator.name])
                callee = builder.add_func(function, f"op{index}")
                made = relax.call_tir(callee, [values[name] for name in arguments], [types[name] for name in results])
                value = builder.emit(made)
                for place, name in enumerate(results):
                    single = len(results) == 1
                    values[name] = value if single else builder.emit(relax.TupleGetItem(value, place))
            result = builder.emit_output(relax.Tuple([values[name] for name in graph.outputs]))
        builder.emit_func_output(result)
    return builder.get()


def _empty_function(graph: Graph, tensors: Sequence[str], name: str, pattern: int) -> Any:
    from tvm import tirx

    buffers = [
        tirx.decl_buffer(graph.tensors[tensor].shape, graph.tensors[tensor].dtype, f"b{index}")
        for index, tensor in enumerate(tensors)
    ]
    return tirx.PrimFunc(buffers, tirx.Evaluate(0)).with_attr({"global_symbol": name, "op_pattern": pattern})
