"""Axis "models": random legal models of odd operators and shapes, compiled and compared with ONNX Runtime."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from experiments.attack.stage import Broken, in_time, model_file, room_of

Shape = tuple[int, ...]
OPSETS = (5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)
DTYPES = ("float32", "float32", "float32", "int64", "int32", "float64", "float16", "uint8", "int8", "bool")
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17)
CLOSE = {"float16": 5e-3, "float32": 2e-4, "float64": 1e-9}


class Odd:
    """A model that grows by one operator at a time; `last`: the tensor that the next one reads."""

    def __init__(self, seed: int) -> None:
        self.dice, self.values = random.Random(seed), np.random.default_rng(seed)
        self.opset = self.dice.choice(OPSETS)
        self.nodes: list[Any] = []
        self.constants: list[TensorProto] = []
        self.inputs: dict[str, tuple[Shape, str]] = {}
        self.pool: dict[str, tuple[Shape, str]] = {}
        rank = self.dice.choice((0, 1, 1, 2, 2, 3, 4, 4, 5))
        self.last = self.input(tuple(self.dice.choice(SIZES) for _ in range(rank)), self.dice.choice(DTYPES))

    @property
    def shape(self) -> Shape:
        return self.pool[self.last][0]

    @property
    def dtype(self) -> str:
        return self.pool[self.last][1]

    def input(self, shape: Shape, dtype: str) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.pool[name] = (shape, dtype)
        return name

    def constant(self, value: Any, dtype: str | None = None) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(
        self, kind: str, inputs: Sequence[str], shape: Sequence[int], dtype: str | None = None, **named: Any
    ) -> None:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], f"n{len(self.nodes)}", **named))
        self.pool[name] = (tuple(shape), dtype or self.dtype)
        self.last = name

    def listed(self, kind: str, what: str, values: list[int], shape: Sequence[int], since: int, **named: Any) -> None:
        """An operator whose list became an input in opset `since`."""
        if self.opset >= since:
            self.add(kind, [self.last, self.constant(values, "int64")], shape, **named)
        else:
            named[what] = values
            self.add(kind, [self.last], shape, **named)


def model(seed: int) -> ModelProto:
    """The model of a seed, always the same one."""
    made = Odd(seed)
    for _ in range(made.dice.choice((1, 1, 2, 3, 5, 8))):
        made.dice.choice(STEPS)(made)
    return finished(made)


def finished(made: Odd) -> ModelProto:
    """The model that grew, whose outputs are its last tensor and sometimes others."""
    names = [made.last]
    if made.dice.random() < 0.3:
        names.append(made.dice.choice([name for name in made.pool if name not in names] or names))
    if made.dice.random() < 0.1:
        name = made.last
        made.add("Identity", [name], made.shape)
        names.append(made.last)
    names = list(dict.fromkeys(names))
    info = helper.make_tensor_value_info

    def typed(name: str) -> int:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(made.pool[name][1])))

    graph = helper.make_graph(
        made.nodes, "odd", [info(name, typed(name), made.inputs[name][0]) for name in made.inputs],
        [info(name, typed(name), None) for name in names], made.constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", made.opset)], ir_version=8)


def unary(m: Odd) -> None:
    if m.dtype == "bool":
        m.add("Not", [m.last], m.shape)
    elif m.dtype.startswith("float"):
        kinds = (
            "Abs Ceil Exp Floor Neg Reciprocal Relu Sigmoid Sqrt Tanh Elu LeakyRelu Selu Softplus Softsign HardSigmoid"
        )
        kinds += " Log" * (m.dice.random() < 0.2)
        kinds += " Sin Cos Atan" * (m.opset >= 7) + " Erf Sign Sinh" * (m.opset >= 9) + " Round" * (m.opset >= 11)
        kinds += " HardSwish" * (m.opset >= 14) + " Gelu" * (m.opset >= 20)
        m.add(m.dice.choice(kinds.split()), [m.last], m.shape)
    else:
        m.add(m.dice.choice(("Abs", "Neg")) if m.dtype.startswith("int") else "Identity", [m.last], m.shape)


def binary(m: Odd) -> None:
    if m.opset < 7:
        unary(m)
        return
    other = m.input(_smaller(m), m.dtype) if m.dice.random() < 0.5 else m.constant(_array(m, _smaller(m), m.dtype))
    pair = [m.last, other]
    m.dice.shuffle(pair)
    if m.dtype == "bool":
        m.add(m.dice.choice(("And", "Or", "Xor", "Equal")), pair, m.shape)
    elif m.dice.random() < 0.2 and m.dtype in ("float32", "int64", "int32"):
        kinds = ("Less", "Greater", "Equal") if m.opset >= 11 else ("Less", "Greater") if m.opset >= 9 else ("Equal",)
        kind = m.dice.choice(kinds)
        if kind != "Equal" or m.dtype != "float32" or m.opset >= 11:
            m.add(kind, pair, m.shape, "bool")
    else:
        m.add(m.dice.choice(("Add", "Sub", "Mul")), pair, m.shape)


def _smaller(m: Odd) -> Shape:
    cut = m.shape[m.dice.randint(0, len(m.shape)) :]
    return tuple(size if m.dice.random() < 0.6 else 1 for size in cut)


def reduction(m: Odd) -> None:
    if m.dtype not in ("float32", "int32", "float64"):
        cast(m)
        return
    axes = sorted(m.dice.sample(range(len(m.shape)), m.dice.randint(0, len(m.shape))))
    kind = m.dice.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"))
    if kind != "ReduceSum" and 0 in m.shape:
        kind = "ReduceSum"
    keep = m.dice.randrange(2)
    over = axes or range(len(m.shape))
    shape = [1 if i in over else size for i, size in enumerate(m.shape) if keep or i not in over]
    signed = [axis - len(m.shape) if m.opset >= 11 and m.dice.random() < 0.5 else axis for axis in axes]
    if not axes:
        m.add(kind, [m.last], shape, keepdims=keep)
    else:
        m.listed(kind, "axes", signed, shape, 13 if kind == "ReduceSum" else 18, keepdims=keep)


def transpose(m: Odd) -> None:
    order = m.dice.sample(range(len(m.shape)), len(m.shape))
    if order:
        m.add("Transpose", [m.last], [m.shape[i] for i in order], perm=order)


def reshape(m: Odd) -> None:
    size = prod(m.shape)
    wanted = m.dice.choice([[size], [1, size, 1], [size, 1], *([[-1, 1]] if size else []), [*m.shape, 1]])
    shape = [size if dim == -1 else dim for dim in wanted]
    if 0 in shape:  # zero copies a size of the input
        shape = wanted = list(m.shape)
    m.add("Reshape", [m.last, m.constant(wanted, "int64")], shape)


def flatten(m: Odd) -> None:
    if m.shape and (m.opset >= 9 or m.dtype == "float32"):
        axis = m.dice.randint(0, len(m.shape))
        m.add("Flatten", [m.last], [prod(m.shape[:axis]), prod(m.shape[axis:])], axis=axis)


def squeeze(m: Odd) -> None:
    ones = [i for i, size in enumerate(m.shape) if size == 1]
    if ones and m.dice.random() < 0.5:
        axes = m.dice.sample(ones, m.dice.randint(1, len(ones)))
        m.listed("Squeeze", "axes", sorted(axes), [s for i, s in enumerate(m.shape) if i not in axes], 13)
    elif len(m.shape) < 6:
        axis = m.dice.randint(0, len(m.shape))
        m.listed("Unsqueeze", "axes", [axis], [*m.shape[:axis], 1, *m.shape[axis:]], 13)


def concat(m: Odd) -> None:
    if m.shape:
        axis = m.dice.randrange(len(m.shape))
        parts, size = [m.last], m.shape[axis]
        for _ in range(m.dice.randint(0, 2)):
            own = m.dice.choice(SIZES)
            shape = (*m.shape[:axis], own, *m.shape[axis + 1 :])
            alike = [m.last] if own == m.shape[axis] else []
            parts.append(m.dice.choice([*alike, m.constant(_array(m, shape, m.dtype))]))
            size += own
        m.add("Concat", parts, (*m.shape[:axis], size, *m.shape[axis + 1 :]), axis=axis)


def slice_(m: Odd) -> None:
    if not m.shape:
        return
    axis = m.dice.randrange(len(m.shape))
    size = m.shape[axis]
    start, end = m.dice.randint(-size - 2, size + 2), m.dice.choice((m.dice.randint(-size - 2, size + 2), 2**31 - 1))
    if m.opset < 10:
        taken = len(range(size)[start:end])
        m.add(
            "Slice", [m.last], (*m.shape[:axis], taken, *m.shape[axis + 1 :]), starts=[start], ends=[end], axes=[axis]
        )
        return
    step = m.dice.choice((1, 1, 2, 3, -1, -2))
    if step < 0:
        start, end = size - 1, -(2**31)
    taken = len(range(size)[start : None if step < 0 else end : step])
    lists = [m.constant([value], "int64") for value in (start, end, axis, step)]
    m.add("Slice", [m.last, *lists], (*m.shape[:axis], taken, *m.shape[axis + 1 :]))


def gather(m: Odd) -> None:
    axis = m.dice.randrange(len(m.shape)) if m.shape else -1
    if axis >= 0 and m.shape[axis]:
        lowest = -m.shape[axis] if m.opset >= 11 else 0
        places = m.values.integers(lowest, m.shape[axis], m.dice.choice(((), (1,), (3,), (2, 2), (0,))))
        shape = (*m.shape[:axis], *places.shape, *m.shape[axis + 1 :])
        m.add("Gather", [m.last, m.constant(places, m.dice.choice(("int64", "int32")))], shape, axis=axis)


def cast(m: Odd) -> None:
    wanted = m.dice.choice(("float32", "int32", "int64", "float64", "bool"))
    if m.dtype.startswith("float") and wanted.startswith("int"):
        wanted = "float32"  # beyond its range, C leaves the result open
    if m.opset >= 6:
        m.add("Cast", [m.last], m.shape, wanted, to=int(helper.np_dtype_to_tensor_dtype(np.dtype(wanted))))


def pad(m: Odd) -> None:
    if not m.shape or m.opset < 11 or m.dtype not in ("float32", "float64", "int32", "int64"):
        return
    mode = m.dice.choice(("constant", "constant", "edge", "reflect"))
    most = 2 if mode != "reflect" else max(0, min(m.shape) - 1)
    if mode != "constant" and 0 in m.shape:
        return
    least = -1 if mode == "constant" and min(m.shape) > 2 else 0
    pads = [m.dice.randint(least, min(2, most)) for _ in range(2 * len(m.shape))]
    rank = len(m.shape)
    shape = [size + pads[i] + pads[i + rank] for i, size in enumerate(m.shape)]
    m.add("Pad", [m.last, m.constant(pads, "int64"), m.constant(2, m.dtype)], shape, mode=mode)


def softmax(m: Odd) -> None:
    if m.shape and m.dtype == "float32":
        kind = m.dice.choice(("Softmax", "LogSoftmax", "Hardmax"))
        axis = m.dice.randrange(len(m.shape))
        m.add(kind, [m.last], m.shape, axis=axis - len(m.shape) if m.opset >= 11 and m.dice.random() < 0.5 else axis)


def matmul(m: Odd) -> None:
    if m.shape and m.dtype in ("float32", "float64"):
        inner = m.shape[-1]
        columns = m.dice.choice(SIZES)
        if m.dice.random() < 0.3:
            m.add("MatMul", [m.last, m.constant(_array(m, (inner,), m.dtype))], m.shape[:-1])
        else:
            weights = m.constant(_array(m, (inner, columns), m.dtype))
            m.add("MatMul", [m.last, weights], (*m.shape[:-1], columns))


def windowed(m: Odd) -> None:
    if not 3 <= len(m.shape) <= 4 or m.dtype != "float32" or min(m.shape) < 1:
        return
    rank = len(m.shape) - 2
    kernel = [m.dice.choice((1, 2, 3)) for _ in range(rank)]
    strides = [m.dice.choice((1, 1, 2, 3)) for _ in range(rank)]
    pads = [m.dice.randint(0, k - 1) for k in kernel * 2]
    room = [size + pads[i] + pads[i + rank] - kernel[i] for i, size in enumerate(m.shape[2:])]
    if min(room) < 0:
        return
    sizes = [left // stride + 1 for left, stride in zip(room, strides, strict=True)]
    common: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    kind = m.dice.choice(("Conv", "Conv", "MaxPool", "AveragePool", "LpPool"))
    if kind == "Conv":
        group = m.dice.choice([g for g in range(1, m.shape[1] + 1) if m.shape[1] % g == 0])
        out = group * m.dice.choice((1, 2, 3))
        weights = m.constant(_array(m, (out, m.shape[1] // group, *kernel), "float32"))
        m.add("Conv", [m.last, weights], (m.shape[0], out, *sizes), group=group, **common)
        return
    if kind == "AveragePool" and m.opset >= 7:
        common["count_include_pad"] = m.dice.randrange(2)
    m.add(kind, [m.last], (*m.shape[:2], *sizes), **common)


def rare(m: Odd) -> None:
    rank = len(m.shape)
    choice = m.dice.randrange(6)
    if choice == 0 and m.opset >= 11 and m.dtype == "float32" and rank:
        axis = m.dice.randrange(rank)
        exclusive, reverse = m.dice.randrange(2), m.dice.randrange(2)
        m.add("CumSum", [m.last, m.constant(axis, "int64")], m.shape, exclusive=exclusive, reverse=reverse)
    elif choice == 1 and m.opset >= 8:
        shape = (m.dice.choice((1, 2)), *m.shape)
        m.add("Expand", [m.last, m.constant(shape, "int64")], shape)
    elif choice == 2 and m.dtype == "float32" and rank and min(m.shape) > 0:
        axis, keep = m.dice.randrange(rank), m.dice.randrange(2)
        shape = tuple(1 if i == axis else size for i, size in enumerate(m.shape) if keep or i != axis)
        m.add(m.dice.choice(("ArgMax", "ArgMin")), [m.last], shape, "int64", axis=axis, keepdims=keep)
    elif choice == 3 and m.opset >= 9 and m.dtype in ("float32", "int64"):
        where = m.constant(m.values.integers(0, 2, _smaller(m)), "bool")
        m.add("Where", [where, m.last, m.constant(_array(m, _smaller(m), m.dtype))], m.shape)
    elif choice == 4 and m.opset >= 12 and m.dtype == "float32":
        m.add("Clip", [m.last, m.constant(-0.5, "float32"), m.constant(0.5, "float32")], m.shape)
    elif choice == 5 and m.opset >= 6 and rank:
        times = [m.dice.choice((0, 1, 1, 2)) for _ in m.shape]
        shape = tuple(size * count for size, count in zip(m.shape, times, strict=True))
        m.add("Tile", [m.last, m.constant(times, "int64")], shape)


STEPS: tuple[Callable[[Odd], None], ...] = (
    unary, unary, binary, binary, reduction, reduction, transpose, reshape, flatten, squeeze, concat, slice_, slice_,
    gather, cast, pad, softmax, matmul, windowed, windowed, rare, rare, rare,
)  # fmt: skip


def _array(m: Odd, shape: Shape, dtype: str) -> Any:
    return fed(m.values, shape, dtype)


def fed(values: np.random.Generator, shape: Shape, dtype: str) -> Any:
    """Random values of a type; integers are small, so that nothing overflows."""
    if dtype == "bool":
        return values.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        return values.standard_normal(shape).astype(dtype)
    return values.integers(0 if dtype.startswith("u") else -3, 4, shape).astype(dtype)


def attempt(folder: Path, seed: int) -> str:
    """The model of a seed: see `compared`."""
    return compared(folder, seed, model(seed))


def compared(folder: Path, seed: int, made: ModelProto) -> str:
    """Compile it and run it: the results are ONNX Runtime's, or it is refused with the reason."""
    import onnxruntime

    from autofuse import api

    room = room_of(folder)
    path = model_file(room / "odd.onnx", made)
    quiet = onnxruntime.SessionOptions()
    quiet.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    quiet.intra_op_num_threads = quiet.inter_op_num_threads = 1
    quiet.log_severity_level = 4
    feeds = {
        value.name: fed(
            np.random.default_rng(seed), tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim),
            str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
        )
        for value in made.graph.input
    }  # fmt: skip
    try:
        expected = onnxruntime.InferenceSession(path, quiet, providers=["CPUExecutionProvider"]).run(None, feeds)
    except Exception:  # noqa: BLE001 ONNX Runtime's errors share no base
        expected = None
    with in_time():
        api.compile(path, room / "odd.so", database=str(room / "none.db"), threads=1)
        results = api.load(room / "odd.so")(feeds)
    if expected is None:
        return "ONNX Runtime has no such kernel"
    for value, got, wanted in zip(made.graph.output, results, expected, strict=True):
        _require_equal(value.name, got, np.asarray(wanted), [node.op_type for node in made.graph.node])
    return "equal"


def _require_equal(name: str, got: Any, wanted: Any, kinds: list[str]) -> None:
    where = f"{name} of {' '.join(kinds)}"
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        raise Broken(f"wrong result: {where}: {got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}")
    limit = CLOSE.get(str(wanted.dtype))
    if limit is None:
        same = bool(np.array_equal(got, wanted))
    else:
        finite = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
        same = bool(np.allclose(got, wanted, rtol=limit, atol=limit * float(finite), equal_nan=True))
    if not same:
        raise Broken(f"wrong result: {where}: {got.ravel()[:6]}, not {wanted.ravel()[:6]}")
