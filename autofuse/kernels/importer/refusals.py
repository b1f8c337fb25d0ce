"""What TVM 0.27's ONNX importer accepts and computes wrongly: such operators get no kernel rather than a wrong one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator

NUMERIC = frozenset(
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
)


def importer_refusal(workload: Workload) -> str | None:
    """Why the importer's kernel of `workload` could be wrong; None when nothing speaks against it."""
    for value in workload.values:
        if value.dtype not in NUMERIC:
            return f"tensors of type {value.dtype} are not supported"
    for operator in workload.operators:
        rule = _RULES.get(operator.op_type)
        reason = rule(workload, operator) if rule else None
        if reason is None and operator.op_type.startswith("Reduce"):
            reason = _empty_reduction(workload, operator)
        if reason is not None:
            return f"{operator.op_type}: {reason}"
    return None


def _value(workload: Workload, operator: WorkloadOperator, position: int) -> Value | None:
    """The value at an input position; None when it is absent."""
    index = operator.inputs[position] if position < len(operator.inputs) else -1
    return workload.values[index] if index >= 0 else None


def _resize(workload: Workload, operator: WorkloadOperator) -> str | None:
    mode = operator.attribute("mode", "nearest")
    if operator.attribute("antialias", 0):
        return "antialias is not what TVM computes"
    if mode == "cubic":
        return "cubic interpolation differs from ONNX's in TVM"
    before, after = workload.values[operator.inputs[0]].shape, workload.values[operator.outputs[0]].shape
    if mode == "linear" and any(new < old for old, new in zip(before, after, strict=True)):
        return "linear downsampling differs from ONNX's in TVM"
    return None


def _is_inf(workload: Workload, operator: WorkloadOperator) -> str | None:
    del workload
    both = operator.attribute("detect_negative", 1) and operator.attribute("detect_positive", 1)
    return None if both else "TVM ignores detect_negative and detect_positive"


def _mod(workload: Workload, operator: WorkloadOperator) -> str | None:
    divisor = _value(workload, operator, 1)
    if not operator.attribute("fmod", 0):
        return None
    if divisor is not None and divisor.kind == "literal" and np.all(divisor.literal_array() != 0):
        return None
    return "fmod by a divisor that may be zero is no NaN in TVM"


def _bit_shift(workload: Workload, operator: WorkloadOperator) -> str | None:
    amount = _value(workload, operator, 1)
    if amount is not None and amount.kind == "literal":
        bits = np.dtype(amount.dtype).itemsize * 8
        if np.all(amount.literal_array().astype(np.int64) < bits):
            return None
    return "a shift that may reach the width of the type is undefined in TVM"


def _roi_align(workload: Workload, operator: WorkloadOperator) -> str | None:
    del workload
    return "mode 'max' differs from ONNX's in TVM" if operator.attribute("mode", "avg") == "max" else None


def _space_to_depth(workload: Workload, operator: WorkloadOperator) -> str | None:
    del workload
    return "mode 'CRD' is ignored by TVM" if operator.attribute("mode", "DCR") == "CRD" else None


def _dropout(workload: Workload, operator: WorkloadOperator) -> str | None:
    training = _value(workload, operator, 2)
    if training is None or (training.kind == "literal" and not training.literal_array().any()):
        return None
    return "training mode"


def _batch_norm(workload: Workload, operator: WorkloadOperator) -> str | None:
    del workload
    return "training mode" if operator.attribute("training_mode", 0) or len(operator.outputs) > 1 else None


def _empty_reduction(workload: Workload, operator: WorkloadOperator) -> str | None:
    empty = 0 in workload.values[operator.inputs[0]].shape
    return "the reduction of an empty set differs from ONNX's in TVM" if empty else None


_RULES: dict[str, Callable[[Workload, WorkloadOperator], str | None]] = {
    "Resize": _resize,
    "Upsample": _resize,
    "IsInf": _is_inf,
    "Mod": _mod,
    "BitShift": _bit_shift,
    "RoiAlign": _roi_align,
    "SpaceToDepth": _space_to_depth,
    "Dropout": _dropout,
    "BatchNormalization": _batch_norm,
}
