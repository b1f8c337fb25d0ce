"""Every way of using an operator that networks know, where drawing at random would miss some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from autofuse.kernels.workload.workload import Workload
from experiments.importer_check.draws import FLOATS, NUMBERS, Application, Array, applied, some

WHOLE = ("int8", "int32", "int64", "uint8")
INDICES = (np.int32, np.int64)
REDUCTIONS = ("none", "add", "mul", "max", "min")
EQUATIONS = {
    "ij->i": ((3, 4),),
    "ij->ji": ((3, 4),),
    "ii->i": ((4, 4),),
    "...ij->...ji": ((2, 3, 4),),
    "...ii->...i": ((2, 4, 4),),
    "ij": ((3, 4),),
    "ij,jk->ik": ((3, 4), (4, 5)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "bhid,bhjd->bhij": ((2, 2, 3, 4), (2, 2, 5, 4)),
    "bij,jk": ((2, 3, 4), (4, 5)),
    "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)),
    "i,j->ij": ((3,), (4,)),
    "ij,jk,kl->il": ((3, 4), (4, 5), (5, 2)),
    "ii,ij->j": ((4, 4), (4, 5)),
}


def of_ways() -> Iterator[Workload]:
    """One workload or a few for each."""
    chance = np.random.default_rng(0)
    kinds = (_regions, _places, _chosen, _scattered, _equations, _pooled, _convolved, _quantized, _cast, _normalized)
    for kind in (*kinds, _reduced, _multiplied, _bits):
        for item in kind(chance):
            yield from applied(item)


def _regions(chance: np.random.Generator) -> Iterator[Application]:
    """Every way of RoiAlign that detectors use."""
    ways = product(FLOATS, ("half_pixel", "output_half_pixel"), (0, 1, 2), (1.0, 0.5), ((), (2,)))
    for dtype, transform, ratio, scale, weights in ways:
        attributes = {"coordinate_transformation_mode": transform, "sampling_ratio": ratio, "spatial_scale": scale}
        inputs = some(chance, dtype, 2, 3, 6, 7), some(chance, dtype, 3, 4), np.array([0, 1, 1])
        sizes = {"output_height": 2, "output_width": 3}
        yield Application("RoiAlign", inputs, attributes | sizes, weights)


def _places(chance: np.random.Generator) -> Iterator[Application]:
    """What reads axes, places and depths, in both types of integers that they may have."""
    for dtype, index, axis in product(NUMBERS, INDICES, (0, 1, 2)):
        data = some(chance, dtype, 3, 4, 5)
        for exclusive, reverse in product((0, 1), (0, 1)):
            flags = {"exclusive": exclusive, "reverse": reverse}
            yield Application("CumSum", (data, np.array(axis, index)), flags, (1,))
        yield Application("Trilu", (data, np.array(axis - 1, np.int64)), {"upper": axis % 2}, (1,))
        for depth in INDICES:
            levels = np.array([0, 1], dtype)
            inputs = (some(chance, np.dtype(index).name, 3, 4), np.array(5, depth), levels)
            yield Application("OneHot", inputs, {"axis": axis}, (1, 2))
    for dtype, shift in product(NUMBERS, (-1, 0, 1, 2)):
        yield Application("EyeLike", (some(chance, dtype, 4, 5),), {"k": shift})
        for given in ("float32", "int64"):
            attributes = {"k": shift, "dtype": _onnx_type(given)}
            yield Application("EyeLike", (some(chance, dtype, 4, 5),), attributes)


def _chosen(chance: np.random.Generator) -> Iterator[Application]:
    """The largest and the smallest, along each axis, sorted or not; what GatherND reads."""
    for dtype, axis, largest in product(NUMBERS, (0, 1, -1), (0, 1)):
        data = some(chance, dtype, 3, 4, 5)
        for order in ({}, {"sorted": 0}):
            attributes = {"axis": axis, "largest": largest} | order
            yield Application("TopK", (data, np.array([2])), attributes, (1,), outputs=2)
        for kind, keep, last in product(("ArgMax", "ArgMin"), (0, 1), (0, 1)):
            attributes = {"axis": axis, "keepdims": keep, "select_last_index": last}
            yield Application(kind, (data,), attributes)
    for dtype, batch in product((*NUMBERS, "bool"), (0, 1, 2)):
        data = some(chance, dtype, 2, 3, 4, 5)
        places = np.zeros((*data.shape[:batch], 2, 1), np.int64)
        yield Application("GatherND", (data, places), {"batch_dims": batch})
        yield Application("GatherND", (data, places), {"batch_dims": batch}, (1,))


def _scattered(chance: np.random.Generator) -> Iterator[Application]:
    for dtype, reduction in product(NUMBERS, REDUCTIONS):
        data, how = some(chance, dtype, 3, 4, 5), {} if reduction == "none" else {"reduction": reduction}
        for index, axis in product(INDICES, (0, 1, 2)):
            places = np.zeros((3, 4, 5), index)
            yield Application("ScatterElements", (data, places, data), {"axis": axis} | how)
        for weights in ((), (1,)):
            inputs = (data, np.array([[0], [2]]), some(chance, dtype, 2, 4, 5))
            yield Application("ScatterND", inputs, how, weights)


def _equations(chance: np.random.Generator) -> Iterator[Application]:
    for (equation, shapes), dtype in product(EQUATIONS.items(), (*FLOATS, "int32", "int64")):
        inputs = tuple(some(chance, dtype, *shape) for shape in shapes)
        for weights in ((), (1,)) if len(shapes) > 1 else ((),):
            yield Application("Einsum", inputs, {"equation": equation}, weights, opset=28)


def _pooled(chance: np.random.Generator) -> Iterator[Application]:
    """Pools of one to three dimensions, with what is rarer: dilations, ceilings, indices, every power."""
    for dtype, rank, stride, pad in product(FLOATS, (1, 2, 3), (1, 2), (0, 1)):
        if dtype != "float32" and rank != 2:
            continue
        data = some(chance, dtype, 1, 4, *(8,) * rank)
        window: dict[str, Any] = {"kernel_shape": [3] * rank, "strides": [stride] * rank, "pads": [pad] * 2 * rank}
        for ceiling, spread in product((0, 1), (1, 2)) if dtype == "float32" else ((0, 1), (1, 1)):
            rare = window | {"ceil_mode": ceiling, "dilations": [spread] * rank}
            yield Application("MaxPool", (data,), rare)
            yield Application("AveragePool", (data,), rare)
            yield Application("AveragePool", (data,), rare | {"count_include_pad": 1})
            for power in (1, 2, 3):
                yield Application("LpPool", (data,), rare | {"p": power})
        yield Application("MaxPool", (data,), window, outputs=2)
    for dtype, rank, kind in product(FLOATS, (1, 2, 3), ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")):
        powers: tuple[dict[str, Any], ...] = ({"p": 1}, {"p": 2}, {"p": 3}) if kind == "GlobalLpPool" else ({},)
        for attributes in powers:
            yield Application(kind, (some(chance, dtype, 1, 4, *(5,) * rank),), attributes)
    for dtype in ("int8", "uint8"):
        for stride, pad in product((1, 2), (0, 1)):
            window = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [pad] * 4}
            yield Application("MaxPool", (some(chance, dtype, 1, 4, 8, 8),), window)


def _convolved(chance: np.random.Generator) -> Iterator[Application]:
    """Convolutions of one to three dimensions, with dilations, groups, a bias, and what a transposed one adds."""
    ways = product(FLOATS, (1, 2, 3), (1, 2), ((0, 0), (1, 1), (0, 1)), (1, 2), (1, 2), (False, True))
    for dtype, rank, stride, (before, after), spread, group, bias in ways:
        rare = (rank != 2) + (before != after) + (spread == 2) + (group == 2) + 2 * (dtype != "float32")
        if rare > (1 if bias else 2):
            continue
        data = some(chance, dtype, 1, 4, *(7,) * rank)
        weight = some(chance, dtype, 4, 4 // group, *(3,) * rank)
        more = (some(chance, dtype, 4),) if bias else ()
        common: dict[str, Any] = {"strides": [stride] * rank, "pads": [before] * rank + [after] * rank}
        common |= {"dilations": [spread] * rank, "group": group}
        weights: tuple[int, ...] = (1, 2) if bias else (1,)
        yield Application("Conv", (data, weight, *more), common, weights)
        more = (some(chance, dtype, 4 // group * group),) if bias else ()
        yield Application("ConvTranspose", (data, weight, *more), common, weights)
        if stride > 1:
            extra = {"output_padding": [1] * rank}
            yield Application("ConvTranspose", (data, weight, *more), common | extra, weights)


def _quantized(chance: np.random.Generator) -> Iterator[Application]:
    for small, size, axis, weights in product(("int8", "uint8"), ((), (4,)), (1, 0), ((), (1,))):
        shape = (3, 4, 5) if axis else (4, 3, 5)
        scale, zero = np.full(size, 0.25, np.float32), np.full(size, 3, small)
        where = {"axis": axis} if size else {}
        known = (*weights, 2) if weights else ()
        for source in ("float32", "int32"):
            yield Application("QuantizeLinear", (some(chance, source, *shape), scale, zero), where, known)
        yield Application("QuantizeLinear", (some(chance, "float32", *shape), scale), where, weights)
        yield Application("DequantizeLinear", (some(chance, small, *shape), scale, zero), where, known)
        yield Application("DequantizeLinear", (some(chance, small, *shape), scale), where, weights)
        yield Application("DequantizeLinear", (some(chance, "int32", *shape), scale), where, weights)
    for first, second in product(("int8", "uint8"), ("int8", "uint8")):
        a, b = some(chance, first, 3, 4), some(chance, second, 4, 5)
        zeros = (np.array(2, first), np.array(1, second))
        for weights in ((), (1,), (1, 2, 3), (2, 3)):
            yield Application("MatMulInteger", (a, b, *zeros), {}, weights)
        yield Application("MatMulInteger", (a, b, zeros[0]), {}, (2,))


def _cast(chance: np.random.Generator) -> Iterator[Application]:
    kinds = (*NUMBERS, "bool")
    for before, after in product(kinds, kinds):
        if before != after:
            yield Application("CastLike", (some(chance, before, 3, 4), some(chance, after, 2)), {})


def _normalized(chance: np.random.Generator) -> Iterator[Application]:
    for dtype, rank in product(FLOATS, (1, 2, 3)):
        data, channel = some(chance, dtype, 2, 4, *(5,) * rank), some(chance, dtype, 4)
        for weights in ((), (1, 2)):
            yield Application("InstanceNormalization", (data, channel, channel), {}, weights)
            for groups in (1, 2, 4):
                yield Application("GroupNormalization", (data, channel, channel), {"num_groups": groups}, weights)
        yield Application("BatchNormalization", (data, *(channel,) * 4), {}, (1, 2, 3, 4))
        for axes in ([0, 2], [1], [2], [0, 1, 2]):
            yield Application("MeanVarianceNormalization", (data,), {"axes": axes})
    for dtype, axis in product(FLOATS, (1, 2, -1)):
        data = some(chance, dtype, 2, 3, 4)
        scale = some(chance, dtype, *data.shape[axis:])
        biases: tuple[tuple[Array, ...], ...] = ((), (scale,))
        for more in biases:
            held = (1, 2) if more else (1,)
            yield Application("LayerNormalization", (data, scale, *more), {"axis": axis}, held)
            yield Application("LayerNormalization", (data, scale, *more), {"axis": axis})
        yield Application("RMSNormalization", (data, scale), {"axis": axis}, (1,), opset=23)
        for kind in ("Softmax", "LogSoftmax", "Hardmax"):
            yield Application(kind, (data,), {"axis": axis})
        yield Application("LpNormalization", (data,), {"axis": axis, "p": 1})
        yield Application("LpNormalization", (data,), {"axis": axis, "p": 2})
    for dtype, size in product(FLOATS, (3, 5)):
        data = some(chance, dtype, 1, 8, 5, 5)
        yield Application("LRN", (data,), {"size": size, "alpha": 1e-4, "beta": 0.75, "bias": 2.0})
        yield Application("LRN", (data,), {"size": size})


def _reduced(chance: np.random.Generator) -> Iterator[Application]:
    """Reductions over all axes, because none are named, and those that then do nothing."""
    kinds = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    for kind, dtype, keep in product(kinds, NUMBERS, (0, 1)):
        data = some(chance, dtype, 3, 4)
        yield Application(f"Reduce{kind}", (data,), {"keepdims": keep})
        yield Application(f"Reduce{kind}", (data,), {"keepdims": keep, "noop_with_empty_axes": 1})
        yield Application(f"Reduce{kind}", (data, np.array([-1])), {"keepdims": keep}, (1,))


def _multiplied(chance: np.random.Generator) -> Iterator[Application]:
    for dtype, flip_a, flip_b in product((*FLOATS, "int32", "int64"), (0, 1), (0, 1)):
        a = some(chance, dtype, *((4, 3) if flip_a else (3, 4)))
        b = some(chance, dtype, *((5, 4) if flip_b else (4, 5)))
        for c, weights in product((None, (), (5,), (3, 1), (3, 5)), ((), (1,))):
            more = () if c is None else (some(chance, dtype, *c),)
            known = (*weights, 2) if weights and more else weights
            yield Application("Gemm", (a, b, *more), {"transA": flip_a, "transB": flip_b}, known)


def _bits(chance: np.random.Generator) -> Iterator[Application]:
    """Elementwise operators over integers of every width."""
    widths = ("int16", "uint16", "uint32", "uint64", *WHOLE)
    kinds: Mapping[str, dict[str, Any]] = {
        "Add": {}, "Sub": {}, "Mul": {}, "Div": {}, "Max": {}, "Min": {}, "Mod": {}, "Equal": {}, "Less": {},
        "Greater": {}, "LessOrEqual": {}, "GreaterOrEqual": {}, "BitwiseAnd": {}, "BitwiseOr": {}, "BitwiseXor": {},
        "Pow": {},
    }  # fmt: skip
    for (kind, attributes), dtype, weights in product(kinds.items(), widths, ((), (1,))):
        yield Application(kind, (some(chance, dtype, 3, 4), some(chance, dtype, 4)), attributes, weights)
    for kind, dtype in product(("Abs", "Neg", "Sign", "BitwiseNot"), widths):
        yield Application(kind, (some(chance, dtype, 3, 4),), {})
    for base, exponent in product((*FLOATS, "int32", "int64"), ("float32", "float64", "int32", "int64")):
        yield Application("Pow", (some(chance, base, 3, 4), some(chance, exponent, 4)), {})


def _onnx_type(name: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(name)))
