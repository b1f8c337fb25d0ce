"""What a product or convolution of narrow numbers computes: the form of contractions, with zero points."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from autofuse.kernels.families.contraction.form import Contraction, contraction_form
from autofuse.kernels.families.narrow.instructions import BYTES, SIGN
from autofuse.kernels.workload.workload import Workload, WorkloadOperator


@dataclass(frozen=True)
class NarrowContraction:
    """out = sum over taps and depth of (x - its zero point) * (w - its zero point); padding holds the zero point of x.

    `x_zero`, `w_zero`: value indices (-1: 0); that of w is one number, or one for each column.
    """

    form: Contraction
    x_zero: int
    w_zero: int

    def left_signed(self, workload: Workload) -> bool:
        """Whether x has signed bytes."""
        return workload.values[self.form.x].dtype == "int8"

    def right_is_centred(self, workload: Workload) -> bool:
        """Whether w less its zero point always fits a signed byte: known from the types and from literals."""
        signed = workload.values[self.form.w].dtype == "int8"
        if self.w_zero < 0:
            return signed
        zero = workload.values[self.w_zero]
        return zero.kind == "literal" and bool((zero.literal_array() == (0 if signed else SIGN)).all())

    def right_is_constant(self, workload: Workload) -> bool:
        """Whether w and its zero point are known when a kernel is built."""
        values = [workload.values[value] for value in (self.w_zero, self.form.w) if value >= 0]
        return all(value.kind in ("constant", "literal") for value in values)

    def zero_of_columns(self, zero: np.ndarray) -> np.ndarray:
        """A zero point of w as int32 [batch or 1, columns or 1, 1, 1], beside weights [batch, column, depth, tap]."""
        wide = zero.astype(np.int32)
        if wide.size == 1:
            return wide.reshape(1, 1, 1, 1)
        return wide.reshape(-1, self.form.columns, 1, 1)


def integer_form(workload: Workload, operator: WorkloadOperator, split: int = 1) -> NarrowContraction:
    """The form of a MatMulInteger or ConvInteger; `split`: see `contraction_form`."""
    zeros = (*operator.inputs[2:], -1, -1)
    return NarrowContraction(contraction_form(workload, operator, split), *zeros[:2])


def integer_refusal(workload: Workload, operator: WorkloadOperator) -> str | None:
    """Why a MatMulInteger or ConvInteger has no definition here (None: it has)."""
    kind = operator.op_type
    values = [workload.values[value] if value >= 0 else None for value in (*operator.inputs, -1, -1)][:4]
    x, w, x_zero, w_zero = values
    assert x is not None and w is not None
    if {x.dtype, w.dtype} - BYTES:
        return f"{kind} on {x.dtype} and {w.dtype} has no definition here"
    if kind == "ConvInteger" and len(x.shape) < 3:
        return f"{kind} of rank {len(x.shape)} has no definition here"
    if x_zero is not None and prod(x_zero.shape) != 1:
        return f"{kind} with a zero point for each row has no definition here"
    columns = w.shape[0] if kind == "ConvInteger" else w.shape[-1] if len(w.shape) > 1 else 1
    known = w_zero is not None and {w.kind, w_zero.kind} <= {"constant", "literal"}
    able = {(columns,), (*w.shape[:-2], 1, columns)} if known and kind == "MatMulInteger" else {(columns,)}
    if w_zero is not None and prod(w_zero.shape) != 1 and w_zero.shape not in able:
        return f"{kind} with a zero point of shape {w_zero.shape} has no definition here"
    return None
