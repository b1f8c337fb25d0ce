"""Which kernel family an operator belongs to, and whether its variant has a definition of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autofuse.kernels.families.contraction.direct import ContractionEmitter
from autofuse.kernels.families.contraction.dot import DotEmitter, dot_refusal
from autofuse.kernels.families.contraction.form import (
    CONVOLUTIONS,
    Contraction,
    Convolution,
    contraction_form,
    convolution_windows,
    pixel_lanes,
    pixel_lanes_refusal,
)
from autofuse.kernels.families.contraction.k_blocking import PassesEmitter
from autofuse.kernels.families.contraction.split_k import PartedEmitter
from autofuse.kernels.families.contraction.winograd import WinogradEmitter, winograd_refusal
from autofuse.kernels.families.elementwise import ElementwiseEmitter
from autofuse.kernels.families.reduction import REDUCE, ReductionEmitter, reduced_axes
from autofuse.kernels.families.softmax.inner_axis import ColumnEmitter
from autofuse.kernels.families.softmax.last_axis import RowEmitter, row_axis
from autofuse.kernels.families.windowed.direct import AveragePoolEmitter, DepthwiseEmitter, MaxPoolEmitter
from autofuse.kernels.families.windowed.pixel_lanes import DepthwiseRowsEmitter, rows_refusal
from autofuse.kernels.nest import index, scalar
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

Knobs = Mapping[str, int | str]


WINOGRAD = {"winograd2": 2, "winograd4": 4}
MOST_PHASES = 4096
"""Strides of a transposed convolution: as many plain convolutions are looked at."""
WHOLE_SUMS = ("dot", "pixel_lanes")
"""Algorithms of a contraction that take each sum in one go."""


@dataclass(frozen=True)
class Family:
    """How a nest is emitted: `emit(scope, nest, knobs)`."""

    emit: Callable[[Scope, Nest, Knobs], None]


def _contraction(scope: Scope, nest: Nest, knobs: Knobs) -> None:
    assert nest.anchor is not None
    if knobs["algorithm"] in WHOLE_SUMS:
        knobs = {**knobs, "parts": 1, "passes": 1}
    split = int(knobs["split"]) if int(knobs["parts"]) == 1 else 1
    form: Contraction = contraction_form(scope.workload, nest.anchor, split)
    m = WINOGRAD.get(str(knobs["algorithm"]), 0)
    if m and isinstance(form, Convolution):
        reason = winograd_refusal(scope.workload, nest.anchor, form, scope.emitter.lanes)
        if reason is None:
            WinogradEmitter(scope, nest, form, knobs, m).emit()
            return
    if knobs["algorithm"] == "dot" and dot_refusal(scope.workload, form, scope.emitter.lanes, scope.in_rows) is None:
        DotEmitter(scope, nest, form, knobs).emit()
        return
    if knobs["algorithm"] == "pixel_lanes" and pixel_lanes_refusal(scope.workload, form, scope.in_rows) is None:
        form = pixel_lanes(scope.workload, nest.anchor, split)
    plain = ContractionEmitter(scope, nest, form, knobs)
    kind = PartedEmitter if plain.parts > 1 else PassesEmitter if plain.passes > 1 else ContractionEmitter
    kind(scope, nest, form, knobs).emit()


def _depthwise(scope: Scope, nest: Nest, knobs: Knobs) -> None:
    assert nest.anchor is not None
    in_rows = knobs["algorithm"] == "pixel_lanes" and rows_refusal(scope.workload, nest.anchor) is None
    (DepthwiseRowsEmitter if in_rows else DepthwiseEmitter)(scope, nest, knobs).emit()


FAMILIES: Mapping[str, Family] = {
    "contraction": Family(_contraction),
    "depthwise": Family(_depthwise),
    "max_pool": Family(lambda scope, nest, knobs: MaxPoolEmitter(scope, nest, knobs).emit()),
    "average_pool": Family(lambda scope, nest, knobs: AveragePoolEmitter(scope, nest, knobs).emit()),
    "reduction": Family(lambda scope, nest, knobs: ReductionEmitter(scope, nest, knobs).emit()),
    "column": Family(lambda scope, nest, knobs: ColumnEmitter(scope, nest, knobs).emit()),
    "row": Family(lambda scope, nest, knobs: RowEmitter(scope, nest, knobs).emit()),
    "elementwise": Family(lambda scope, nest, knobs: ElementwiseEmitter(scope, nest, knobs).emit()),
}

# emitting family -> the family whose knobs it reads (absent: it has none)
KNOB_FAMILY: Mapping[str, str] = {
    "contraction": "contraction",
    "depthwise": "windowed",
    "max_pool": "windowed",
    "average_pool": "windowed",
    "row": "row",
    "elementwise": "elementwise",
}

_SOFTMAX = frozenset({"Softmax", "LogSoftmax"})
_ROW = _SOFTMAX | {"LayerNormalization", "RMSNormalization"}
_POOL = {"MaxPool": "max_pool", "AveragePool": "average_pool"}


def anchor_types() -> frozenset[str]:
    """Operators that own a loop nest."""
    return frozenset({*CONVOLUTIONS, "MatMul", "Gemm", *_POOL, *REDUCE}) | _ROW


def family_of(workload: Workload, anchor: WorkloadOperator | None) -> str:
    """Name of the family that emits a nest with this anchor."""
    if anchor is None:
        return "elementwise"
    if anchor.op_type in CONVOLUTIONS:
        return "depthwise" if _is_depthwise(workload, anchor) else "contraction"
    if anchor.op_type in ("MatMul", "Gemm"):
        return "contraction"
    if anchor.op_type in _SOFTMAX:
        rank = len(workload.values[anchor.inputs[0]].shape)
        return "row" if row_axis(anchor, rank) == rank - 1 else "column"
    return "row" if anchor.op_type in _ROW else _POOL.get(anchor.op_type, "reduction")


def _is_depthwise(workload: Workload, operator: WorkloadOperator) -> bool:
    channels, groups = workload.values[operator.inputs[0]].shape[1], operator.attribute("group", 1)
    return groups == channels and channels > 1 and workload.values[operator.inputs[1]].kind == "constant"


def refusal(workload: Workload, operator: WorkloadOperator) -> str | None:
    """Why no family of ours emits this operator (None: one does)."""
    if operator.domain not in ("", "ai.onnx"):
        return f"{operator.op_type}: domain {operator.domain} has no definition here"
    if operator.op_type in scalar.SCALAR:
        return scalar.supported(operator, workload)
    if operator.op_type == "Concat":
        return None
    if operator.op_type in index.READ:
        return index.supported(operator, workload)
    if operator.op_type not in anchor_types():
        return f"{operator.op_type} has no definition here"
    if len([v for v in operator.outputs if v >= 0]) > 1:
        return f"{operator.op_type} with several outputs has no definition here"
    values = [workload.values[v] for v in (*operator.inputs[:1], *operator.outputs) if v >= 0]
    if any(value.dtype != "float32" for value in values):
        return f"{operator.op_type} on {values[0].dtype} has no definition here"
    return _anchor_refusal(workload, operator)


def _anchor_refusal(workload: Workload, operator: WorkloadOperator) -> str | None:
    kind, shape = operator.op_type, workload.values[operator.inputs[0]].shape
    if kind in (*CONVOLUTIONS, *_POOL):
        if len(shape) < 3:
            return f"{kind} of rank {len(shape)} has no definition here"
        return _window_refusal(workload, operator)
    if kind in REDUCE and not reduced_axes(workload, operator):
        return f"{kind} over no axis has no definition here"
    return None


def _window_refusal(workload: Workload, operator: WorkloadOperator) -> str | None:
    if operator.op_type == "MaxPool" and operator.attribute("storage_order", 0):
        return "MaxPool with storage_order has no definition here"
    windows = convolution_windows(workload, operator)
    if operator.op_type in CONVOLUTIONS:
        if operator.op_type == "ConvTranspose" and any(window.stride > MOST_PHASES for window in windows):
            return f"{operator.op_type} with strides above {MOST_PHASES} has no definition here"
        blind = any(window.all_blind for window in windows)
        return f"{operator.op_type} of nothing but padding has no definition here" if blind else None
    if any(window.some_blind for window in windows):
        return f"{operator.op_type} with windows that lie in the padding has no definition here"
    return None


def is_own(workload: Workload) -> bool:
    """Whether every operator of a workload has a definition of ours."""
    return all(refusal(workload, operator) is None for operator in workload.operators)
