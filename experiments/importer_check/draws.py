"""Applications of one operator to be checked: those of ONNX's node cases, and random ones of what networks use."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from autofuse.errors import AutofuseError
from autofuse.graph.loading.load import from_model
from autofuse.graph.mapping import names
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import Workload, bind_workload

Array = NDArray[Any]
FLOATS = ("float16", "float32", "float64")
NUMBERS = (*FLOATS, "int8", "int32", "int64", "uint8")
UNARY = sorted(
    names(
        """Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid
        HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin
        Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"""
    )
)
BINARY = sorted(
    names(
        """Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean
        Min Mod Mul Or PRelu Pow Sub Sum Xor"""
    )
)
REDUCTIONS = sorted(
    names(
        """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
        ReduceSumSquare"""
    )
)
ROWS = ("Softmax", "LogSoftmax", "Hardmax")


@dataclass(frozen=True)
class Application:
    """One operator of a model with the shapes and attributes that it has there; `weights`: inputs that are known."""

    op_type: str
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any]
    weights: tuple[int, ...] = ()
    opset: int = 21
    outputs: int = 1


def workloads_of(model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]]) -> Iterator[Workload]:
    """What TVM's importer would be asked for: one workload for each operator without a kernel of ours."""
    try:
        graph = from_model(model, "case", shapes)
    except AutofuseError:
        return
    for operator in graph.operators:
        workload = bind_workload(graph, [operator.name], {}).workload
        if not is_free_reshape(workload):
            yield workload


def of_node_cases() -> Iterator[Workload]:
    """The operators of ONNX's node cases, with small integer inputs known and not."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = sorted(load_model_tests(kind="node"), key=lambda case: str(case.name))
    for case in cases:
        assert case.data_sets is not None and case.model is not None
        arrays = [numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else a for a in case.data_sets[0][0]]
        inputs = [value.name for value in case.model.graph.input]
        if len(inputs) != len(arrays) or not all(isinstance(array, np.ndarray) for array in arrays):
            continue
        feeds = dict(zip(inputs, arrays, strict=True))
        small = {n for n, a in feeds.items() if a.dtype.kind in "iu" and a.ndim <= 1}
        for known in {frozenset(small), frozenset()}:
            yield from (w for w in workloads_of(*_bound(case.model, feeds, known)) if not is_own(w))


def _bound(
    model: onnx.ModelProto, feeds: dict[str, Array], known: frozenset[str]
) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    del bound.graph.input[:]
    bound.graph.input.extend(value for value in model.graph.input if value.name not in known)
    bound.graph.initializer.extend(numpy_helper.from_array(feeds[name], name) for name in sorted(known))
    return bound, {value.name: feeds[value.name].shape for value in bound.graph.input}


def random_workload(chance: np.random.Generator) -> Iterator[Workload]:
    """The workloads of one random application, of any operator that is drawn here."""
    drawers = (_elementwise, _binary, _reduction, _row, _extreme, _product, _window, _image, _movement, _known_axis)
    yield from applied(drawers[chance.integers(len(drawers))](chance))


def applied(item: Application) -> Iterator[Workload]:
    """The workloads of one application."""
    labels = [f"i{place}" if array is not None else "" for place, array in enumerate(item.inputs)]
    results = [f"o{place}" for place in range(item.outputs)]
    node = helper.make_node(item.op_type, labels, results, **item.attributes)
    given = {name: array for name, array in zip(labels, item.inputs, strict=True) if array is not None}
    weights = {labels[place] for place in item.weights}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
        if name not in weights
    ]
    held = [numpy_helper.from_array(given[name], name) for name in sorted(weights)]
    graph = helper.make_graph([node], "draw", infos, [onnx.ValueInfoProto(name=name) for name in results], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", item.opset)], ir_version=10)
    yield from workloads_of(model, {})


def _shape(chance: np.random.Generator, low: int = 1, high: int = 5) -> tuple[int, ...]:
    return tuple(int(size) for size in chance.integers(2, 6, chance.integers(low, high)))


def some(chance: np.random.Generator, dtype: str, *shape: int) -> Array:
    """An array of that type; its values do not matter here, but for weights."""
    if dtype == "bool":
        return chance.integers(0, 2, shape).astype(bool)
    return chance.integers(1, 5, shape).astype(dtype)


def _pick(chance: np.random.Generator, *choices: Any) -> Any:
    return choices[chance.integers(len(choices))]


def _dtype_for(chance: np.random.Generator, name: str) -> str:
    if name in ("And", "Or", "Xor", "Not"):
        return "bool"
    if name.startswith("Bit"):
        return str(_pick(chance, "int32", "int64", "uint8") if name != "BitShift" else _pick(chance, "uint8", "uint32"))
    return str(_pick(chance, *NUMBERS))


def _elementwise(chance: np.random.Generator) -> Application:
    name = _pick(chance, *UNARY)
    return Application(name, (some(chance, _dtype_for(chance, name), *_shape(chance)),), {}, opset=24)


def _binary(chance: np.random.Generator) -> Application:
    name = _pick(chance, *BINARY)
    dtype, shape = _dtype_for(chance, name), _shape(chance)
    attributes = {"Mod": {"fmod": 1}, "BitShift": {"direction": _pick(chance, "LEFT", "RIGHT")}}.get(name, {})
    if name == "Mod" and dtype.startswith("int"):
        attributes = {"fmod": int(chance.integers(2))}
    second = some(chance, dtype, *_pick(chance, shape, shape[-1:], ()))
    weights = (1,) if chance.random() < 0.5 else ()
    return Application(name, (some(chance, dtype, *shape), second), attributes, weights)


def _reduction(chance: np.random.Generator) -> Application:
    shape = _shape(chance)
    axes = np.sort(chance.permutation(len(shape))[: chance.integers(1, len(shape) + 1)]).astype(np.int64)
    data = some(chance, _pick(chance, *NUMBERS), *shape)
    return Application(_pick(chance, *REDUCTIONS), (data, axes), {"keepdims": int(chance.integers(2))}, (1,))


def _row(chance: np.random.Generator) -> Application:
    shape = _shape(chance)
    data = some(chance, _pick(chance, *FLOATS), *shape)
    return Application(_pick(chance, *ROWS), (data,), {"axis": int(chance.integers(len(shape)))})


def _extreme(chance: np.random.Generator) -> Application:
    shape = _shape(chance)
    axis = int(chance.integers(len(shape)))
    data = some(chance, _pick(chance, *NUMBERS), *shape)
    if chance.random() < 0.3:
        attributes = {"axis": axis, "largest": int(chance.integers(2))}
        return Application("TopK", (data, np.array([2])), attributes, (1,), outputs=2)
    flags = {"keepdims": int(chance.integers(2)), "select_last_index": int(chance.integers(2))}
    return Application(_pick(chance, "ArgMax", "ArgMin"), (data,), {"axis": axis} | flags)


def _product(chance: np.random.Generator) -> Application:
    dtype = _pick(chance, *FLOATS, "int32", "int64")
    rows, depth, columns = (int(size) for size in chance.integers(2, 9, 3))
    weights = (1,) if chance.random() < 0.5 else ()
    if chance.random() < 0.3:
        second = some(chance, _pick(chance, "int8", "uint8"), depth, columns)
        return Application("MatMulInteger", (some(chance, _pick(chance, "int8", "uint8"), rows, depth), second), {})
    if chance.random() < 0.4:
        flip = int(chance.integers(2))
        second = some(chance, dtype, columns, depth) if flip else some(chance, dtype, depth, columns)
        attributes = {"transB": flip, "alpha": float(_pick(chance, 1.0, 0.5)), "beta": float(_pick(chance, 1.0, 0.5))}
        third = some(chance, dtype, columns)
        return Application("Gemm", (some(chance, dtype, rows, depth), second, third), attributes, weights)
    batch = _pick(chance, (), (2,), (2, 3))
    first = some(chance, dtype, *batch, rows, depth)
    return Application("MatMul", (first, some(chance, dtype, *_pick(chance, batch, ()), depth, columns)), {}, weights)


def _window(chance: np.random.Generator) -> Application:
    dtype, rank = _pick(chance, *FLOATS), int(chance.integers(1, 3))
    shape = (1, 4, *(int(size) for size in chance.integers(7, 11, rank)))
    pads = [int(size) for size in _pick(chance, [0] * 2 * rank, [1] * 2 * rank, [0] * rank + [1] * rank)]
    attributes: dict[str, Any] = {"strides": [int(chance.integers(1, 3))] * rank, "pads": pads}
    kind = _pick(
        chance, "Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"
    )
    data = some(chance, dtype, *shape)
    if kind.startswith("Global"):
        return Application(kind, (data,), {})
    if "Pool" in kind:
        extra = {"MaxPool": {}, "AveragePool": {"count_include_pad": int(chance.integers(2))}, "LpPool": {"p": 2}}[kind]
        return Application(kind, (data,), {"kernel_shape": [int(chance.integers(2, 4))] * rank} | attributes | extra)
    group = int(_pick(chance, 1, 2, 4))
    channels = (4, 4 // group)
    weight = some(chance, dtype, *channels, *(int(chance.integers(2, 4)),) * rank)
    return Application(kind, (data, weight), {"group": group} | attributes, (1,) if chance.random() < 0.8 else ())


def _image(chance: np.random.Generator) -> Application:
    dtype = _pick(chance, *FLOATS)
    data = some(chance, dtype, 2, 4, 6, 7)
    norms = ("InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization", "LayerNormalization")
    kind = _pick(chance, *norms, "BatchNormalization", "LRN", "GridSample", "RoiAlign")
    channel = some(chance, dtype, 4)
    if kind in ("InstanceNormalization", "GroupNormalization"):
        groups = {"num_groups": 2} if kind == "GroupNormalization" else {}
        return Application(kind, (data, channel, channel), groups, _pick(chance, (), (1, 2)))
    if kind == "BatchNormalization":
        return Application(kind, (data, channel, channel, channel, channel), {}, (1, 2, 3, 4))
    if kind == "LayerNormalization":
        return Application(kind, (data, some(chance, dtype, 7), some(chance, dtype, 7)), {"axis": -1})
    if kind == "LRN":
        return Application(kind, (data,), {"size": int(_pick(chance, 3, 5)), "bias": 1.0})
    if kind == "GridSample":
        modes = {"mode": _pick(chance, "linear", "nearest"), "align_corners": int(chance.integers(2)),
                 "padding_mode": _pick(chance, "zeros", "border", "reflection")}  # fmt: skip
        return Application(kind, (data, some(chance, dtype, 2, 3, 3, 2)), modes)
    if kind == "RoiAlign":
        modes = {"coordinate_transformation_mode": _pick(chance, "half_pixel", "output_half_pixel"),
                 "sampling_ratio": int(chance.integers(3)), "spatial_scale": float(_pick(chance, 1.0, 0.5)),
                 "mode": _pick(chance, "avg", "max"), "output_height": 2, "output_width": 2}  # fmt: skip
        return Application(kind, (data, some(chance, dtype, 3, 4), np.array([0, 1, 1])), modes, _pick(chance, (), (2,)))
    return Application(kind, (data,), {})


def _movement(chance: np.random.Generator) -> Application:
    dtype, shape = _pick(chance, *NUMBERS), _shape(chance, 2, 4)
    data, axis = some(chance, dtype, *shape), int(chance.integers(len(shape)))
    kind = _pick(chance, "GatherND", "ScatterElements", "ScatterND", "OneHot", "Trilu", "CumSum", "EyeLike")
    if kind == "GatherND":
        return Application(kind, (data, np.zeros((3, int(chance.integers(1, len(shape) + 1))), np.int64)), {})
    if kind == "ScatterElements":
        return Application(kind, (data, np.zeros(shape, np.int64), data), {"axis": axis})
    if kind == "ScatterND":
        return Application(kind, (data, np.zeros((2, 1), np.int64), some(chance, dtype, 2, *shape[1:])), {})
    if kind == "OneHot":
        values = np.array([0, 1], _pick(chance, "float32", "int64", "float64"))
        return Application(kind, (np.zeros(shape, np.int64), np.array(5), values), {}, (1, 2))
    if kind == "Trilu":
        return Application(kind, (data,), {"upper": int(chance.integers(2))})
    if kind == "CumSum":
        flags = {"exclusive": int(chance.integers(2)), "reverse": int(chance.integers(2))}
        return Application(kind, (data, np.array(axis)), flags, (1,))
    return Application(kind, (some(chance, dtype, 4, 5),), {})


def _known_axis(chance: np.random.Generator) -> Application:
    """Quantization, with one scale or one a channel."""
    small, shape = _pick(chance, "int8", "uint8"), _shape(chance, 2, 5)
    size = _pick(chance, (), (shape[1],))
    scale, zero = np.full(size, 0.25, np.float32), np.full(size, 3, small)
    weights = (1, 2) if chance.random() < 0.7 else ()
    if chance.random() < 0.5:
        return Application("QuantizeLinear", (some(chance, "float32", *shape), scale, zero), {}, weights)
    return Application("DequantizeLinear", (some(chance, small, *shape), scale, zero), {}, weights)
