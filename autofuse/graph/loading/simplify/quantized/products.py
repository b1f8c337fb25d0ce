"""Products and convolutions of dequantised operands, as products of their integers.

y = Conv(DequantizeLinear(x, sx, zx), DequantizeLinear(w, sw, zw), b)   becomes
y = DequantizeLinear(ConvInteger(x, w - zw, zx) + round(b / (sx sw)), sx sw), and so do MatMul and Gemm.

y = QuantizeLinear(DequantizeLinear(sums, s), sy, zy)   becomes   QuantizeLinear(DequantizeLinear(sums, s / sy), 1, zy),
which is how ONNX Runtime's fused kernels round: once, half to even, after one multiplication by s / sy.

A convolution of few channels in each group, of which there are several, and whose sums are below 2^24, becomes one of
the same integers in float32: they are exact there, in whatever order they are added. Depthwise ones stay integers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.quantized.levels import BYTES, Known, Levels, fits_signed
from autofuse.graph.loading.simplify.writer import Writer
from autofuse.graph.model import Operator

EXACT = 1 << 24
"""Integers up to here are exact in float32."""
NARROW_GROUP = 8
"""Results of a group below which integer vectors would be mostly empty."""
MOST_STRIDE, MOST_TAPS = 2, 64
"""Stride, and taps of a window, up to which depthwise convolutions have kernels on bytes."""
SAME_SCALE = 1e-4
"""How far the scale of a bias may be from that of the sums, which it is meant to be."""
_PRODUCTS = frozenset({"Conv", "MatMul", "Gemm"})


def multiply_integers(draft: Draft) -> bool:
    """Rewrites all products whose operands are dequantised bytes; True when the draft changed."""
    known = Known(draft)
    result: list[Operator] = []
    changed = False
    for operator in draft.operators:
        product = _product(known, operator)
        result += [operator] if product is None else _Product(draft, operator, product).written()
        changed |= product is not None
    draft.operators = result
    return changed


def scale_once(draft: Draft) -> bool:
    """Joins the scale of sums with that of the QuantizeLinear behind them; True when the draft changed."""
    known = Known(draft)
    result: list[Operator] = []
    joined: dict[str, Operator] = {}
    for operator in draft.operators:
        sums = _scaled_sums(known, operator)
        if sums is not None:
            joined[sums.name], operator = _joined(known, sums, operator)
        result.append(operator)
    draft.operators = [joined.get(operator.name, operator) for operator in result]
    return bool(joined)


def _scaled_sums(known: Known, operator: Operator) -> Operator | None:
    """The DequantizeLinear of computed int32 that a QuantizeLinear alone reads, where their scales can be joined."""
    if operator.op_type != "QuantizeLinear" or operator.domain:
        return None
    sums = known.made_by(operator.inputs[0], "DequantizeLinear")
    if sums is None or not known.only_read_here(operator.inputs[0]) or len(sums.inputs) > 2:
        return None
    source = known.producers.get(sums.inputs[0])
    levels, own = known.levels(operator, operator.outputs[0]), known.draft.constants.get(sums.inputs[1])
    if source is None or source.op_type not in ("Add", "Cast", "MatMulInteger", "ConvInteger"):
        return None
    if levels is None or own is None or not levels.per_tensor or float(levels.scale[0]) == 1.0:
        return None
    return sums


def _joined(known: Known, sums: Operator, operator: Operator) -> tuple[Operator, Operator]:
    draft = known.draft
    own, out = (np.asarray(draft.constants[name], np.float32) for name in (sums.inputs[1], operator.inputs[1]))
    scale = draft.add_constant(f"{operator.name}/scale", np.asarray(own / out.reshape(()), np.float32))
    one = draft.add_constant(f"{operator.name}/one", np.ones(out.shape, np.float32))
    return (
        replace(sums, inputs=(sums.inputs[0], scale)),
        replace(operator, inputs=(operator.inputs[0], one, *operator.inputs[2:])),
    )


@dataclass(frozen=True)
class _Operands:
    """The operands of a product that can be rewritten.

    `weights`: constant ones as int32, less their zero points, in the order of ONNX's MatMul or Conv; None where they
    are computed. `bias`: constant, or None.
    """

    x: Levels
    w: Levels
    weights: NDArray[np.int32] | None
    bias: NDArray[Any] | None

    @property
    def scale(self) -> NDArray[np.float32]:
        """Of the sums: one number, or one for each column."""
        return np.asarray(self.x.scale * self.w.scale, np.float32)


def _product(known: Known, operator: Operator) -> _Operands | None:
    """The operands of a product of dequantised bytes, or None."""
    if operator.op_type not in _PRODUCTS or operator.domain:
        return None
    x, w = (known.dequantized(name) for name in operator.inputs[:2])
    if x is None or w is None or not x.per_tensor or {x.dtype, w.dtype} - BYTES:
        return None
    fits, bias = _bias(known, operator, x, w)
    if not fits or not _plain(operator):
        return None
    if w.name not in known.draft.constants:
        computed = operator.op_type == "MatMul" and w.per_tensor and x.name not in known.draft.constants
        return _Operands(x, w, None, bias) if computed else None
    weights = _centred(operator, known.draft.constants[w.name], w)
    if weights is None:
        return None
    able = fits_signed(weights) or np.all(w.zero == w.zero[0])  # ONNX Runtime wants one zero point
    return _Operands(x, w, weights, bias) if able else None


def _plain(operator: Operator) -> bool:
    """Whether a Gemm is x times w plus its bias."""
    if operator.op_type != "Gemm":
        return True
    factors = [operator.attributes.get(name, 1.0) for name in ("alpha", "beta")]
    return factors == [1.0, 1.0] and not operator.attributes.get("transA", 0)


def _centred(operator: Operator, array: NDArray[Any], levels: Levels) -> NDArray[np.int32] | None:
    """Constant weights less their zero points, those of a Gemm as a MatMul has them."""
    turned = operator.op_type == "Gemm" and bool(operator.attributes.get("transB", 0))
    columns = 0 if operator.op_type == "Conv" or turned else array.ndim - 1
    if array.ndim < 2 or (not levels.per_tensor and levels.axis % array.ndim != columns):
        return None
    shape = [1] * array.ndim
    shape[columns] = levels.zero.size
    centred = array.astype(np.int32) - levels.zero.astype(np.int32).reshape(shape)
    return np.ascontiguousarray(centred.T) if turned else centred


def _bias(known: Known, operator: Operator, x: Levels, w: Levels) -> tuple[bool, NDArray[Any] | None]:
    """(whether the bias can be added to the sums or behind them, its constant): int32, or real numbers."""
    name = operator.inputs[2] if len(operator.inputs) > 2 else ""
    if not name:
        return True, None
    if name in known.draft.constants:
        return True, known.draft.constants[name]
    levels = known.dequantized(name)
    array = known.draft.constants.get(levels.name) if levels is not None else None
    if levels is None or array is None:
        return False, None
    scale = np.asarray(x.scale * w.scale, np.float32)
    same = array.dtype == np.int32 and not levels.zero.any() and levels.scale.size in (1, scale.size)
    if same and np.allclose(levels.scale, scale, rtol=SAME_SCALE, atol=0):
        return True, array
    if not levels.per_tensor and array.ndim != 1:
        return False, None
    return True, ((array.astype(np.int64) - levels.zero.astype(np.int64)) * levels.scale).astype(np.float32)


class _Product:
    """Writes the operators in place of one product."""

    def __init__(self, draft: Draft, operator: Operator, operands: _Operands) -> None:
        self.draft, self.operator, self.of = draft, operator, operands
        self.write = Writer(draft, operator)
        self.attributes: dict[str, Any] = dict(operator.attributes) if operator.op_type == "Conv" else {}
        self.spatial = 0 if operands.weights is None or operator.op_type != "Conv" else operands.weights.ndim - 2

    def written(self) -> list[Operator]:
        """The product of integers, its bias and its scale."""
        bias = self.of.bias
        sums = self.exact() if self.is_narrow() else self.integers()
        if bias is not None and bias.dtype == np.int32:
            sums, bias = self.write.op("Add", "with_bias", sums, self.constant("bias", self.along(bias))), None
        last = "" if bias is None else self.draft.fresh(f"{self.operator.name}/real")
        real = self.scaled(sums, last or self.operator.outputs[0])
        if bias is not None:
            addend = self.constant("bias", self.along(bias))
            self.write.op("Add", "biased", real, addend, output=self.operator.outputs[0])
        return self.write.made

    def constant(self, label: str, array: NDArray[Any]) -> str:
        return self.draft.add_constant(f"{self.operator.name}/{label}", np.asarray(array, order="C"))

    def along(self, bias: NDArray[Any]) -> NDArray[Any]:
        """A bias as it broadcasts over the results; that of a convolution is one number a channel."""
        return bias.reshape(-1, *(1 for _ in range(self.spatial))) if self.spatial else bias

    def is_narrow(self) -> bool:
        """Whether a convolution has few results in each group, and its sums are exact in float32."""
        weights = self.of.weights
        groups = int(self.attributes.get("group", 1))
        if weights is None or groups == 1 or weights.shape[0] // groups >= NARROW_GROUP or self.is_depthwise():
            return False
        return prod(weights.shape[1:]) * int(np.abs(weights).max()) * 255 < EXACT

    def is_depthwise(self) -> bool:
        """Whether a convolution of maps has one channel a group, in and out, for which there are kernels on bytes."""
        weights = self.of.weights
        if weights is None or weights.ndim != 4 or not fits_signed(weights) or prod(weights.shape[2:]) > MOST_TAPS:
            return False
        moved = [self.attributes.get(name, (1, 1)) for name in ("dilations", "strides")]
        near = moved[0] == (1, 1) and max(moved[1]) <= MOST_STRIDE and min(weights.shape[2:]) >= max(moved[1])
        channels = weights.shape[0] == int(self.attributes.get("group", 1)) and weights.shape[1] == 1
        return bool(near and channels)

    def exact(self) -> str:
        """The sums, by float32."""
        assert self.of.weights is not None
        x = self.of.x
        one = self.constant("unit", np.ones((), np.float32))
        zero = self.constant("x_zero", x.zero.reshape(()))
        real = self.write.op("DequantizeLinear", "levels", x.name, one, zero)
        weights = self.constant("weights", self.of.weights.astype(np.float32))
        sums = self.write.op("Conv", "exact", real, weights, **self.attributes)
        return self.write.op("Cast", "sums", sums, to=6)

    def integers(self) -> str:
        """The sums, by MatMulInteger or ConvInteger; signed bytes without a zero point for constant weights."""
        x, w = self.of.x, self.of.w
        inputs = [x.name, w.name]
        zeros = [self.constant("x_zero", x.zero.reshape(())) if x.zero.any() else "", ""]
        if self.of.weights is None:
            zeros[1] = self.constant("w_zero", w.zero.reshape(())) if w.zero.any() else ""
        else:
            inputs[1], zeros[1] = self.signed_weights()
        while zeros and not zeros[-1]:
            zeros.pop()
        op_type = "ConvInteger" if self.operator.op_type == "Conv" else "MatMulInteger"
        return self.write.op(op_type, "sums", *inputs, *zeros, **self.attributes)

    def signed_weights(self) -> tuple[str, str]:
        """(constant weights, their zero points): none where the difference fits a signed byte."""
        weights, w = self.of.weights, self.of.w
        assert weights is not None
        if fits_signed(weights):
            return self.constant("weights", weights.astype(np.int8)), ""
        zero = w.zero[0]
        return self.constant("weights", (weights + int(zero)).astype(w.dtype)), self.constant("w_zero", zero)

    def scaled(self, sums: str, output: str) -> str:
        """The real numbers behind the sums: one scale for each column, however many the model has."""
        scale, axis = self.of.scale, 1 if self.operator.op_type == "Conv" else -1
        if self.of.weights is not None:
            columns = self.of.weights.shape[0 if self.operator.op_type == "Conv" else -1]
            scale = np.broadcast_to(scale, (columns,))
        else:
            scale = scale.reshape(())
        return self.write.op("DequantizeLinear", "", sums, self.constant("scale", scale), output=output, axis=axis)
