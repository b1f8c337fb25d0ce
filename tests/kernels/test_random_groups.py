"""Whatever supported operators are grouped, and however they are scheduled: one kernel equals ONNX Runtime."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from onnx import NodeProto, helper

from autofuse.kernels.families.registry import is_own, knobs
from tests.kernels.conftest import Array, Bench, Small, real

MAX_ELEMENTS = 3000
UNARY = ("Relu", "Sigmoid", "Neg", "Abs", "Tanh", "HardSwish", "LeakyRelu", "Softsign", "Erf")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSum", "ReduceL2")
KINDS = (
    "unary",
    "unary",
    "binary",
    "binary",
    "parameter",
    "parameter",
    "activation",
    "reshape",
    "transpose",
    "slice",
    "pad",
    "concat",
    "split",
    "reduce",
    "softmax",
    "norm",
    "conv",
    "conv",
    "square",
    "transposed",
    "pool",
    "matmul",
    "product",
    "where",
    "gather",
    "expand",
)


class Growing:
    """A model that grows operator by operator; `pool`: its float tensors with their shapes."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.nodes: list[NodeProto] = []
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.pool: dict[str, tuple[int, ...]] = {}
        self.used: set[str] = set()

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def input(self, shape: tuple[int, ...]) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = real(*shape, seed=len(self.inputs))
        self.pool[name] = shape
        return name

    def constant(self, array: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(real(*shape, seed=len(self.constants) + 50))

    def op(self, op_type: str, inputs: list[str], shape: tuple[int, ...], results: int = 1, **attributes: Any) -> str:
        names = [f"v{len(self.nodes)}_{number}" for number in range(results)]
        self.nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        self.used.update(inputs)
        for name in names:
            self.pool[name] = shape
        return names[0]

    def grow(self, kind: str) -> None:
        """Adds an operator of a kind to some tensor of the pool, where it fits."""
        x = self.pick(*self.pool)
        getattr(self, kind)(x, self.pool[x])

    def unary(self, x: str, shape: tuple[int, ...]) -> None:
        self.op(self.pick(*UNARY), [x], shape)

    def binary(self, x: str, shape: tuple[int, ...]) -> None:
        other = self.pick(*(name for name, its in self.pool.items() if its == shape))
        self.op(self.pick(*BINARY), self.draw(st.permutations([x, other])), shape)

    def smaller(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`."""
        cut = shape[self.number(0, len(shape)) :]
        return tuple(extent if self.draw(st.booleans()) else 1 for extent in cut)

    def parameter(self, x: str, shape: tuple[int, ...]) -> None:
        self.op(self.pick(*BINARY, "PRelu"), [x, self.weights(*self.smaller(shape))], shape)

    def activation(self, x: str, shape: tuple[int, ...]) -> None:
        self.op(self.pick(*BINARY), [x, self.input(self.smaller(shape))], shape)

    def reshape(self, x: str, shape: tuple[int, ...]) -> None:
        target = list(shape)
        if len(target) > 1 and self.draw(st.booleans()):
            place = self.number(0, len(target) - 2)
            target[place : place + 2] = [target[place] * target[place + 1]]
        elif target:
            place = self.number(0, len(target) - 1)
            factor = self.pick(*(f for f in range(1, target[place] + 1) if target[place] % f == 0))
            target[place : place + 1] = [factor, target[place] // factor]
        self.op("Reshape", [x, self.constant(np.array(target, "int64"))], tuple(target))

    def transpose(self, x: str, shape: tuple[int, ...]) -> None:
        if not shape:
            return
        perm = self.draw(st.permutations(range(len(shape))))
        self.op("Transpose", [x], tuple(shape[axis] for axis in perm), perm=perm)

    def axis(self, shape: tuple[int, ...]) -> int:
        return self.number(0, len(shape) - 1)

    def slice(self, x: str, shape: tuple[int, ...]) -> None:
        if not shape:
            return
        axis = self.axis(shape)
        step = self.pick(1, 2, -1)
        start = self.number(0, shape[axis] - 1)
        taken = range(shape[axis])[start::step]
        ends = np.iinfo("int64").max if step > 0 else np.iinfo("int64").min + 1
        arguments = [self.constant(np.array([value], "int64")) for value in (start, ends, axis, step)]
        self.op("Slice", [x, *arguments], (*shape[:axis], len(taken), *shape[axis + 1 :]))

    def pad(self, x: str, shape: tuple[int, ...]) -> None:
        if not shape:
            return
        axis, before, after = self.axis(shape), self.number(0, 2), self.number(0, 2)
        pads = np.zeros(2 * len(shape), "int64")
        pads[axis], pads[axis + len(shape)] = before, after
        result = (*shape[:axis], shape[axis] + before + after, *shape[axis + 1 :])
        self.op("Pad", [x, self.constant(pads)], result, mode=self.pick("constant", "edge"))

    def concat(self, x: str, shape: tuple[int, ...]) -> None:
        if not shape:
            return
        axis = self.axis(shape)
        rest = (*shape[:axis], *shape[axis + 1 :])
        others = [
            name
            for name, its in self.pool.items()
            if len(its) == len(shape) and (*its[:axis], *its[axis + 1 :]) == rest
        ]
        chosen = [x, *self.draw(st.lists(st.sampled_from(others), min_size=1, max_size=2))]
        total = sum(self.pool[name][axis] for name in chosen)
        self.op("Concat", chosen, (*shape[:axis], total, *shape[axis + 1 :]), axis=axis)

    def split(self, x: str, shape: tuple[int, ...]) -> None:
        halves = [axis for axis, extent in enumerate(shape) if extent % 2 == 0]
        if halves:
            axis = self.pick(*halves)
            half = shape[axis] // 2
            self.op(
                "Split",
                [x, self.constant(np.array([half, half]))],
                (*shape[:axis], half, *shape[axis + 1 :]),
                2,
                axis=axis,
            )

    def reduce(self, x: str, shape: tuple[int, ...]) -> None:
        if not shape:
            return
        axes = sorted(self.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
        keep = self.number(0, 1)
        result = tuple(1 if a in axes else e for a, e in enumerate(shape) if keep or a not in axes)
        self.op(self.pick(*REDUCTIONS), [x, self.constant(np.array(axes, "int64"))], result, keepdims=keep)

    def softmax(self, x: str, shape: tuple[int, ...]) -> None:
        if shape:
            self.op(self.pick("Softmax", "LogSoftmax"), [x], shape, axis=self.pick(-1, self.axis(shape)))

    def norm(self, x: str, shape: tuple[int, ...]) -> None:
        if not shape:
            return
        axis = self.axis(shape)
        scales = [self.weights(*shape[axis:]) for _ in range(self.number(1, 2))]
        self.op("LayerNormalization", [x, *scales], shape, axis=axis, epsilon=0.1)

    def conv(self, x: str, shape: tuple[int, ...]) -> None:
        if len(shape) not in (3, 4):
            return
        rank, channels = len(shape) - 2, shape[1]
        groups = self.pick(1, 1, channels, *(g for g in (2, 4) if channels % g == 0))
        columns = groups * self.pick(1, 2, max(1, 8 // groups), max(1, 16 // groups))
        taps = [self.pick(1, 1, 2, 3) for _ in range(rank)]
        strides, dilations = [self.pick(1, 1, 2) for _ in range(rank)], [self.pick(1, 1, 2) for _ in range(rank)]
        pads = [self.number(0, d * (t - 1)) for t, d in zip(taps, dilations, strict=True)] * 2
        reach = [e + 2 * p - d * (t - 1) - 1 for e, p, d, t in zip(shape[2:], pads, dilations, taps, strict=False)]
        if min(reach) < 0:
            return
        result = (shape[0], columns, *(r // s + 1 for r, s in zip(reach, strides, strict=True)))
        parameters = [self.weights(columns, channels // groups, *taps)]
        if self.draw(st.booleans()):
            parameters.append(self.weights(columns))
        self.op(
            "Conv",
            [x, *parameters],
            result,
            group=groups,
            strides=strides,
            dilations=dilations,
            pads=pads,
            kernel_shape=taps,
        )

    def square(self, x: str, shape: tuple[int, ...]) -> None:
        """A convolution that has a Winograd form, where the channels allow one."""
        if len(shape) == 4 and shape[1] % 4 == 0:
            columns = self.pick(8, 16)
            weights = self.weights(columns, shape[1], 3, 3)
            self.op("Conv", [x, weights], (shape[0], columns, *shape[2:]), pads=[1, 1, 1, 1])

    def transposed(self, x: str, shape: tuple[int, ...]) -> None:
        if len(shape) not in (3, 4):
            return
        rank, channels = len(shape) - 2, shape[1]
        groups = self.pick(1, channels, *(g for g in (2, 4) if channels % g == 0))
        columns = self.pick(1, 2, max(1, 8 // groups))
        taps, strides = [self.pick(1, 2, 3) for _ in range(rank)], [self.pick(1, 2, 3) for _ in range(rank)]
        reach = [(extent - 1) * s + t for extent, s, t in zip(shape[2:], strides, taps, strict=True)]
        pads = [self.number(0, (extent - 1) // 2) for extent in reach]
        result = (shape[0], columns * groups, *(r - 2 * p for r, p in zip(reach, pads, strict=True)))
        weights = self.weights(channels, columns, *taps)
        self.op("ConvTranspose", [x, weights], result, group=groups, strides=strides, pads=pads * 2)

    def pool_of(self, x: str, shape: tuple[int, ...]) -> None:
        if len(shape) not in (3, 4):
            return
        rank = len(shape) - 2
        taps = [self.pick(1, 2, 3) for _ in range(rank)]
        pads = [self.number(0, tap // 2) for tap in taps] * 2
        reach = [e + 2 * p - t for e, p, t in zip(shape[2:], pads, taps, strict=False)]
        if min(reach) >= 0:
            strides = [self.pick(1, 2) for _ in range(rank)]
            result = (*shape[:2], *(r // s + 1 for r, s in zip(reach, strides, strict=True)))
            self.op(self.pick("MaxPool", "AveragePool"), [x], result, kernel_shape=taps, pads=pads, strides=strides)

    def matmul(self, x: str, shape: tuple[int, ...]) -> None:
        if len(shape) > 1:
            columns = self.pick(1, 5, 8, 12)
            self.op("MatMul", [x, self.weights(shape[-1], columns)], (*shape[:-1], columns))

    def product(self, x: str, shape: tuple[int, ...]) -> None:
        """A tensor times (another of its shape) transposed."""
        if len(shape) > 1:
            other = self.pick(*(name for name, its in self.pool.items() if its == shape))
            perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            turned = self.op("Transpose", [other], (*shape[:-2], shape[-1], shape[-2]), perm=perm)
            self.op("MatMul", [x, turned], (*shape[:-1], shape[-2]))

    def where(self, x: str, shape: tuple[int, ...]) -> None:
        source = self.input(shape)
        flag = self.op("Greater", [source, self.constant(np.array(0.1, "float32"))], shape)
        del self.pool[flag]
        other = self.pick(*(name for name, its in self.pool.items() if its == shape))
        self.op("Where", [flag, x, other], shape)

    def gather(self, x: str, shape: tuple[int, ...]) -> None:
        if not shape:
            return
        axis = self.axis(shape)
        picked = self.draw(st.lists(st.integers(-shape[axis], shape[axis] - 1), min_size=1, max_size=4))
        self.op(
            "Gather", [x, self.constant(np.array(picked))], (*shape[:axis], len(picked), *shape[axis + 1 :]), axis=axis
        )

    def expand(self, x: str, shape: tuple[int, ...]) -> None:
        result = (self.pick(1, 2), *(self.pick(2, 3) if extent == 1 else extent for extent in shape))
        self.op("Expand", [x, self.constant(np.array(result, "int64"))], result)


SHAPES = (
    (1, 8, 4, 5),
    (2, 8, 3, 3),
    (1, 16, 5, 1),
    (1, 12, 4, 4),
    (1, 3, 6, 7),
    (1, 8, 9),
    (2, 5, 6),
    (4, 8),
    (3, 13),
    (7,),
    (2, 1, 4, 6),
)


@st.composite
def models(draw: Any) -> Small:
    """A model of one to eight operators, or a few more where an operator brings another."""
    growing = Growing(draw)
    growing.input(draw(st.sampled_from(SHAPES)))
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=8)):
        growing.grow("pool_of" if kind == "pool" else kind)
        if max(prod(shape) for shape in growing.pool.values()) > MAX_ELEMENTS:
            break
    if not growing.nodes:
        growing.unary("x0", growing.pool["x0"])
    made = [name for node in growing.nodes for name in node.output if name in growing.pool]
    wanted = [name for name in made if name not in growing.used or draw(st.sampled_from((False, False, False, True)))]
    read = {name for node in growing.nodes for name in node.input}
    inputs = {name: array for name, array in growing.inputs.items() if name in read}
    return Small(growing.nodes, inputs, wanted, growing.constants, opset=18)


@st.composite
def schedules(draw: Any) -> dict[str, int | str]:
    """Any values of any knobs."""
    return {
        f"{family}.{knob}": draw(st.sampled_from(declared.values))
        for family, declared_knobs in knobs().items()
        for knob, declared in declared_knobs.items()
    }


@pytest.mark.long
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(
    models(),
    schedules(),
    st.lists(st.sampled_from(("", "c8", "c4", "c16")), min_size=20, max_size=20),
    st.sampled_from((8, 4, 16)),
)
def test_a_random_group_is_one_right_kernel(
    bench: Bench, small: Small, schedule: dict[str, int | str], layouts: list[str], lanes: int
) -> None:
    shapes = {name: array.shape for name, array in (small.inputs | small.reference()).items()}
    blocked = {
        name: layout
        for (name, shape), layout in zip(shapes.items(), layouts, strict=False)
        if layout and len(shape) > 2 and shape[1] % int(layout[1:]) == 0
    }
    assume(is_own(bench.bind(small).workload))  # a window may lie in the padding
    bench.check(small, blocked, schedule, lanes, limit=1e-4)
