"""What TVM's ONNX importer is not asked for: such operators get no kernel rather than a wrong one."""

from __future__ import annotations

from autofuse.kernels.importer.checked import unchecked
from autofuse.kernels.workload.workload import Workload

NUMERIC = frozenset(
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
)


def importer_refusal(workload: Workload) -> str | None:
    """Why the importer's kernel of `workload` could be wrong; None when it was checked."""
    for value in workload.values:
        if value.dtype not in NUMERIC:
            return f"tensors of type {value.dtype} are not supported"
        if 0 in value.shape:
            return f"{workload.operators[0].op_type}: TVM's importer was not checked on tensors without elements"
    return unchecked(workload)
