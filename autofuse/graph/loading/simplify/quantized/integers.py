"""Zero points of constant weights, taken off when a model is read.

MatMulInteger(x, w, zx, zw)   becomes   MatMulInteger(x, w - zw, zx)   where w - zw fits signed bytes, and so does
ConvInteger. Where it does not, [zeros] of one row of columns become [zeros] of columns, for which there are kernels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.quantized.levels import BYTES, fits_signed
from autofuse.graph.model import Operator

_PLACE = 3
"""Where the zero point of weights stands among the inputs."""


def centre_weights(draft: Draft) -> bool:
    """Takes zero points off constant weights; True when the draft changed."""
    made: dict[tuple[str, str], str] = {}
    result = [_centred(draft, operator, made) for operator in draft.operators]
    changed = any(one is not other for one, other in zip(result, draft.operators, strict=True))
    draft.operators = result
    return changed


def _centred(draft: Draft, operator: Operator, made: dict[tuple[str, str], str]) -> Operator:
    """An integer product without the zero point of its weights, or with one for each column; `made`: weights so far."""
    if operator.op_type not in ("MatMulInteger", "ConvInteger") or operator.domain or len(operator.inputs) <= _PLACE:
        return operator
    x, w, x_zero, w_zero = operator.inputs
    weights, zeros = draft.constants.get(w), draft.constants.get(w_zero)
    if weights is None or zeros is None or {weights.dtype.name, zeros.dtype.name} - BYTES:
        return operator
    place = (w, w_zero)
    if place not in made:
        centred = weights.astype(np.int16) - _beside(zeros, weights.ndim, operator.op_type == "ConvInteger")
        made[place] = draft.add_constant(f"{w}/centred", centred.astype(np.int8)) if fits_signed(centred) else ""
    if made[place]:
        return replace(operator, inputs=(x, made[place], x_zero) if x_zero else (x, made[place]))
    if zeros.ndim == 2 and zeros.shape[0] == 1 and weights.ndim == 2:
        flat = draft.add_constant(f"{w_zero}/columns", zeros.reshape(-1))
        return replace(operator, inputs=(x, w, x_zero, flat))
    return operator


def _beside(zeros: NDArray[np.generic], rank: int, is_convolution: bool) -> NDArray[np.int16]:
    """Zero points as they broadcast over weights of that rank."""
    wide = zeros.astype(np.int16)
    if is_convolution:
        return wide.reshape(-1, *(1 for _ in range(rank - 1)))
    return wide.reshape(()) if wide.size == 1 else wide
