"""A kernel for any group that no family of ours covers: TVM's importer, one function, a generic schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.device.target import Target
from autofuse.kernels.importer.generic_schedule import schedule_function
from autofuse.kernels.importer.halves import over_halves
from autofuse.kernels.importer.mended import mended_workload
from autofuse.kernels.importer.refusals import importer_refusal
from autofuse.kernels.importer.relax_import import ImportedFunction, UnsupportedOperatorError, import_workload
from autofuse.kernels.workload.onnx_model import workload_model
from autofuse.kernels.workload.workload import Workload

NOT_BARE = "its kernel calls TVM's own runtime, which is not there"
_BY_NAME = (".call_packed(", ".call_cpacked(", ".tvm_call_packed(")
"""As TVM prints them."""

Packing = Callable[[Sequence[NDArray[np.generic]]], list[NDArray[np.generic]]]


def fallback_function(workload: Workload, target: Target) -> tuple[Any, Packing]:
    """(TIR function, packing) of a workload none of whose inputs and outputs lies in blocks.

    The function's arguments are the inputs, then what the packing makes of the constants, then the
    outputs. UnsupportedOperatorError when TVM has no converter, is known to compute the operator
    wrongly, or cannot make a single kernel of it.
    """
    blocked = any(value.block for value in workload.values)
    reason = "layouts of blocks cannot be lowered by TVM's importer" if blocked else importer_refusal(workload)
    if reason is not None:
        raise UnsupportedOperatorError(workload, reason)
    function, pack = imported_function(workload, target)
    return over_halves(function, workload), pack


def imported_function(workload: Workload, target: Target) -> tuple[Any, Packing]:
    """As `fallback_function`, of what nobody checked: only for who checks it."""
    imported = _imported(workload)
    extra = list(imported.extra)

    def pack(constants: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        return [*(np.asarray(constant, order="C") for constant in constants), *extra]

    return schedule_function(imported.function, target), pack


def _imported(workload: Workload) -> ImportedFunction:
    mended = mended_workload(workload)
    return import_workload(mended, workload_model(mended))


def check_importable(workload: Workload, bare: bool = False) -> str:
    """Why no function can be made of `workload` by TVM's importer; empty when one can (nothing is scheduled).

    `bare`: nor one that runs without TVM's own runtime.
    """
    reason = importer_refusal(workload)
    if reason is not None:
        return reason
    try:
        imported = _imported(workload)
    except UnsupportedOperatorError as error:
        return error.reason
    return NOT_BARE if bare and _calls_tvm(imported.function) else ""


def _calls_tvm(function: Any) -> bool:
    """Whether a function calls one of TVM's by its name, such as that which sorts."""
    text = function.script()
    return any(call in text for call in _BY_NAME)
