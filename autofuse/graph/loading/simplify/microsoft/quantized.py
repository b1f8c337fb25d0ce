"""Operators of ONNX Runtime on quantised tensors: their inputs dequantised, the operator on real numbers, its result
quantised again, which is what they compute.

y = QLinearAdd(a, sa, za, b, sb, zb, sy, zy)   becomes
y = QuantizeLinear(DequantizeLinear(a, sa, za) + DequantizeLinear(b, sb, zb), sy, zy).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.graph.loading.simplify.writer import NotCoveredError, Writer


def quantize_linear(write: Writer) -> bool:
    """QuantizeLinear and DequantizeLinear of this domain   become   those of ONNX."""
    attributes: dict[str, Any] = {"axis": 1, **write.operator.attributes}
    inputs = write.given(3)
    write.op(write.operator.op_type, "", *inputs, output=write.result(0), **attributes)
    return True


def add(write: Writer) -> bool:
    """QLinearAdd(a, b)   becomes   a + b."""
    return _both(write, "Add")


def multiply(write: Writer) -> bool:
    """QLinearMul(a, b)   becomes   a * b."""
    return _both(write, "Mul")


def _both(write: Writer, op_type: str) -> bool:
    operands = [_real(write, label, place) for label, place in (("a", 0), ("b", 3))]
    _quantised(write, write.op(op_type, "real", *operands), 6)
    return True


def where(write: Writer) -> bool:
    """QLinearWhere(c, x, y)   becomes   Where(c, x, y)."""
    operands = [_real(write, label, place) for label, place in (("x", 1), ("y", 4))]
    _quantised(write, write.op("Where", "real", write.input(0), *operands), 7)
    return True


def sigmoid(write: Writer) -> bool:
    """QLinearSigmoid(x)   becomes   Sigmoid(x)."""
    _quantised(write, write.op("Sigmoid", "real", _real(write, "x", 0)), 3)
    return True


def leaky_relu(write: Writer) -> bool:
    """QLinearLeakyRelu(x)   becomes   LeakyRelu(x)."""
    real = write.op("LeakyRelu", "real", _real(write, "x", 0), alpha=write.number_of("alpha", 0.01))
    _quantised(write, real, 3)
    return True


def softmax(write: Writer) -> bool:
    """QLinearSoftmax(x)   becomes   Softmax(x)."""
    axis = write.operator.attributes.get("axis", -1)
    assert isinstance(axis, int)
    if write.number_of("opset", 13) < 13 and axis not in (-1,):
        raise NotCoveredError("the axes of an opset before 13")
    _quantised(write, write.op("Softmax", "real", _real(write, "x", 0), axis=axis), 3)
    return True


def concat(write: Writer) -> bool:
    """QLinearConcat(sy, zy, x, sx, zx, ...)   becomes   Concat(x, ...)."""
    places = range(2, len(write.operator.inputs), 3)
    operands = [_real(write, f"x{number}", place) for number, place in enumerate(places)]
    _quantised(write, write.op("Concat", "real", *operands, axis=int(write.number_of("axis", 0))), 0)
    return True


def average_pool(write: Writer) -> bool:
    """QLinearAveragePool(x)   becomes   AveragePool(x)."""
    kept: dict[str, Any] = {name: value for name, value in write.operator.attributes.items() if name != "channels_last"}
    return _pooled(write, "AveragePool", kept)


def global_average_pool(write: Writer) -> bool:
    """QLinearGlobalAveragePool(x)   becomes   GlobalAveragePool(x)."""
    return _pooled(write, "GlobalAveragePool", {})


def _pooled(write: Writer, op_type: str, attributes: dict[str, Any]) -> bool:
    if write.flag("channels_last"):
        raise NotCoveredError("channels behind the pixels")
    _quantised(write, write.op(op_type, "real", _real(write, "x", 0), **attributes), 3)
    return True


def gemm(write: Writer) -> bool:
    """QGemm(a, sa, za, b, sb, zb, c, sy, zy)   becomes   a @ b + c, quantised where sy is there.

    c: in steps of alpha * sa * sb.
    """
    draft = write.draft
    if write.number_of("alpha", 1.0) != 1.0:
        raise NotCoveredError("a factor alpha")
    operands = [_real(write, "a", 0), _real(write, "b", 3, axis=0 if write.flag("transB") else 1)]
    if write.input(6):
        scales = [draft.constants.get(write.input(place)) for place in (1, 4)]
        if scales[0] is None or scales[1] is None:
            raise NotCoveredError("computed scales")
        left, right = (np.asarray(scale, np.float32).reshape(-1) for scale in scales)
        scale = np.asarray(left * right, np.float32)
        name = draft.add_constant(f"{write.operator.name}/c/scale", scale if scale.size > 1 else scale.reshape(()))
        operands.append(write.op("DequantizeLinear", "c", write.input(6), name, axis=0))
    turned: dict[str, Any] = {name: int(write.flag(name)) for name in ("transA", "transB")}
    if not write.input(7):
        write.op("Gemm", "", *operands, output=write.result(0), **turned)
        return True
    _quantised(write, write.op("Gemm", "real", *operands, **turned), 7)
    return True


def matmul_to_float(write: Writer) -> bool:
    """MatMulIntegerToFloat(a, b, sa, sb, za, zb, bias)   becomes   a @ b + bias."""
    operands = [
        _dequantised(write, label, write.input(place), write.input(place + 2), write.input(place + 4), axis=-1)
        for label, place in (("a", 0), ("b", 1))
    ]
    product = write.op("MatMul", "product" if write.input(6) else "", *operands,
                       output="" if write.input(6) else write.result(0))  # fmt: skip
    if write.input(6):
        write.op("Add", "", product, write.input(6), output=write.result(0))
    return True


def dynamic_matmul(write: Writer) -> bool:
    """DynamicQuantizeMatMul(a, b, sb, zb, bias)   becomes   DynamicQuantizeLinear(a), MatMulInteger, its scale."""
    name, bias = write.operator.name, write.input(4)
    integers, scale, zero = (write.draft.fresh(f"{name}/{part}") for part in ("bytes", "scale", "zero"))
    write.several("DynamicQuantizeLinear", "quantised", [write.input(0)], [integers, scale, zero])
    zeros = [zero, write.input(3)] if write.input(3) else [zero]
    sums = write.op("MatMulInteger", "sums", integers, write.input(1), *zeros)
    real = write.op("Cast", "cast", sums, to=1)
    both = write.op("Mul", "scales", scale, write.input(2))
    last = write.op("Mul", "scaled" if bias else "", real, both, output="" if bias else write.result(0))
    if bias:
        write.op("Add", "", last, bias, output=write.result(0))
    return True


def _real(write: Writer, label: str, place: int, **attributes: Any) -> str:
    """The real numbers of three inputs: integers, scale, zero point."""
    return _dequantised(write, label, *(write.input(place + step) for step in range(3)), **attributes)


def _dequantised(write: Writer, label: str, x: str, scale: str, zero: str, **attributes: Any) -> str:
    parameters = [_plain(write, f"{label}/{part}", name) for part, name in (("scale", scale), ("zero", zero)) if name]
    return write.op("DequantizeLinear", label, x, *parameters, **attributes)


def _quantised(write: Writer, real: str, place: int) -> None:
    """The result, by the scale and the zero point from an input on."""
    names = [("scale", write.input(place)), ("zero", write.input(place + 1))]
    parameters = [_plain(write, f"y/{part}", name) for part, name in names if name]
    write.op("QuantizeLinear", "", real, *parameters, output=write.result(0))


def _plain(write: Writer, label: str, name: str) -> str:
    """A scale or zero point without a dimension, where there is one number."""
    array = write.draft.constants.get(name)
    if array is not None:
        plain = array.size == 1 and array.ndim > 0
        return write.draft.add_constant(f"{write.operator.name}/{label}", array.reshape(())) if plain else name
    known = write.draft.tensors.get(name)
    if known is not None and known.shape == (1,):
        return write.op("Reshape", label, name, write.integers(f"{label}/shape", []))
    return name
