"""Random models: up to 30 operators with fan-out, several outputs, broadcasts, movement of data, and every anchor.

A seed makes a model, always the same one. Shapes are small (a tensor has at most a few thousand elements), operators
are drawn so that late tensors are likelier to be read: chains grow, fork and join again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import ModelProto, TensorProto, helper, numpy_helper

MOST_OPERATORS = 30
MOST_ELEMENTS = 4000
UNARY = ("Relu", "Sigmoid", "Neg", "Abs", "Tanh", "HardSwish", "LeakyRelu", "Softsign", "Erf", "Softplus", "Identity")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2")
SHAPES = ((1, 8, 6, 6), (2, 4, 5, 7), (1, 16, 4, 4), (1, 8, 9), (3, 8, 8), (1, 4, 6, 8), (12, 16), (2, 1, 5, 6))

Shape = tuple[int, ...]


class Growing:
    """A model that grows operator by operator; `pool`: its float tensors with their shapes, oldest first."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.inputs: dict[str, Shape] = {}
        self.constants: list[TensorProto] = []
        self.pool: dict[str, Shape] = {}
        self.used: set[str] = set()

    def input(self, shape: Shape) -> str:
        """A new input of the model."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.pool[name] = shape
        return name

    def constant(self, value: ArrayLike, dtype: str = "float32") -> str:
        """A weight, or a parameter."""
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        """Random weights around zero, so scaled that a product keeps the scale of what it reads."""
        scale = 1 / np.sqrt(max(1, prod(shape[1:])))
        return self.constant(self.values.standard_normal(shape) * scale)

    def add(self, op_type: str, inputs: list[str], *shapes: Shape, **attributes: Any) -> str:
        """An operator; the name of its first result."""
        names = [f"t{len(self.nodes)}_{number}" for number in range(len(shapes))]
        self.nodes.append(helper.make_node(op_type, inputs, names, f"op{len(self.nodes)}", **attributes))
        self.used.update(inputs)
        self.pool.update(zip(names, shapes, strict=True))
        return names[0]

    def late(self) -> tuple[str, Shape]:
        """A tensor of the pool, mostly one of the last."""
        names = list(self.pool)
        near = names[-4:] if self.chance.random() < 0.7 else names
        name = self.chance.choice(near)
        return name, self.pool[name]

    def alike(self, shape: Shape) -> str:
        """A tensor of that shape: there is one."""
        return self.chance.choice([name for name, its in self.pool.items() if its == shape])

    def smaller(self, shape: Shape) -> Shape:
        """A shape that broadcasts to `shape`."""
        cut = shape[self.chance.randint(0, len(shape)) :]
        return tuple(size if self.chance.random() < 0.5 else 1 for size in cut)


Step = Callable[[Growing, str, Shape], object]


def unary(g: Growing, x: str, shape: Shape) -> object:
    return g.add(g.chance.choice(UNARY), [x], shape)


def binary(g: Growing, x: str, shape: Shape) -> object:
    pair = [x, g.alike(shape)]
    g.chance.shuffle(pair)
    return g.add(g.chance.choice(BINARY), pair, shape)


def parameter(g: Growing, x: str, shape: Shape) -> object:
    return g.add(g.chance.choice(BINARY), [x, g.weights(*g.smaller(shape))], shape)


def broadcast(g: Growing, x: str, shape: Shape) -> object:
    """Two activations, one of which is repeated over the other."""
    fitting = [name for name, its in g.pool.items() if _broadcasts(its, shape)]
    other = g.chance.choice(fitting) if fitting and g.chance.random() < 0.8 else g.input(g.smaller(shape))
    return g.add(g.chance.choice(BINARY), [x, other], shape)


def _broadcasts(small: Shape, large: Shape) -> bool:
    if len(small) > len(large) or small == large:
        return False
    return all(s in (1, size) for s, size in zip(reversed(small), reversed(large), strict=False))


def reshape(g: Growing, x: str, shape: Shape) -> object:
    target = list(shape)
    if len(target) > 1 and g.chance.random() < 0.5:
        place = g.chance.randrange(len(target) - 1)
        target[place : place + 2] = [target[place] * target[place + 1]]
    elif target and len(target) < 5:
        place = g.chance.randrange(len(target))
        factor = g.chance.choice([f for f in range(1, target[place] + 1) if target[place] % f == 0])
        target[place : place + 1] = [factor, target[place] // factor]
    return g.add("Reshape", [x, g.constant(target, "int64")], tuple(target))


def transpose(g: Growing, x: str, shape: Shape) -> object:
    perm = g.chance.sample(range(len(shape)), len(shape))
    return g.add("Transpose", [x], tuple(shape[axis] for axis in perm), perm=perm) if shape else None


def slice_(g: Growing, x: str, shape: Shape) -> object:
    if not shape:
        return None
    axis = g.chance.randrange(len(shape))
    start = g.chance.randrange(shape[axis])
    step = g.chance.choice((1, 1, 2))
    taken = len(range(start, shape[axis], step))
    parameters = [g.constant([value], "int64") for value in (start, shape[axis], axis, step)]
    return g.add("Slice", [x, *parameters], (*shape[:axis], taken, *shape[axis + 1 :]))


def pad(g: Growing, x: str, shape: Shape) -> object:
    if not shape:
        return None
    axis = g.chance.randrange(len(shape))
    pads = [0] * (2 * len(shape))
    pads[axis], pads[axis + len(shape)] = g.chance.randint(0, 2), g.chance.randint(0, 1)
    result = (*shape[:axis], shape[axis] + pads[axis] + pads[axis + len(shape)], *shape[axis + 1 :])
    return g.add("Pad", [x, g.constant(pads, "int64")], result)


def concat(g: Growing, x: str, shape: Shape) -> object:
    if not shape:
        return None
    axis = g.chance.randrange(len(shape))
    rest = (*shape[:axis], *shape[axis + 1 :])
    fitting = [
        name for name, its in g.pool.items() if len(its) == len(shape) and (*its[:axis], *its[axis + 1 :]) == rest
    ]
    chosen = [x, *g.chance.choices(fitting, k=g.chance.randint(1, 2))]
    total = sum(g.pool[name][axis] for name in chosen)
    return g.add("Concat", chosen, (*shape[:axis], total, *shape[axis + 1 :]), axis=axis)


def split(g: Growing, x: str, shape: Shape) -> object:
    even = [axis for axis, size in enumerate(shape) if size % 2 == 0]
    if not even:
        return None
    axis = g.chance.choice(even)
    half = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
    return g.add("Split", [x, g.constant([shape[axis] // 2] * 2, "int64")], half, half, axis=axis)


def reduce(g: Growing, x: str, shape: Shape) -> object:
    if not shape:
        return None
    axes = sorted(g.chance.sample(range(len(shape)), g.chance.randint(1, len(shape))))
    keep = g.chance.randint(0, 1)
    result = tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)
    return g.add(g.chance.choice(REDUCTIONS), [x, g.constant(axes, "int64")], result, keepdims=keep)


def mean_back(g: Growing, x: str, shape: Shape) -> object:
    """A reduction whose result is taken off again: what a normalisation written out begins with."""
    if not shape:
        return None
    kept = (*shape[:-1], 1)
    mean = g.add("ReduceMean", [x, g.constant([len(shape) - 1], "int64")], kept, keepdims=1)
    return g.add("Sub", [x, mean], shape)


def softmax(g: Growing, x: str, shape: Shape) -> object:
    return g.add("Softmax", [x], shape, axis=-1) if shape else None


def norm(g: Growing, x: str, shape: Shape) -> object:
    if not shape:
        return None
    scales = [g.weights(shape[-1]) for _ in range(2)]
    return g.add("LayerNormalization", [x, *scales], shape, axis=-1, epsilon=0.1)


def batch_norm(g: Growing, x: str, shape: Shape) -> object:
    if len(shape) not in (3, 4):
        return None
    draw = g.values
    parts = [draw.uniform(0.5, 1.5, shape[1]), draw.normal(0, 0.3, shape[1]), draw.normal(0, 0.3, shape[1])]
    names = [g.constant(part) for part in (*parts, draw.uniform(0.5, 1.5, shape[1]))]
    return g.add("BatchNormalization", [x, *names], shape, epsilon=0.01)


def conv(g: Growing, x: str, shape: Shape) -> object:
    if len(shape) not in (3, 4):
        return None
    rank, channels = len(shape) - 2, shape[1]
    groups = g.chance.choice([1, 1, 1, channels, *(n for n in (2, 4) if channels % n == 0)])
    columns = groups * g.chance.choice([1, max(1, 8 // groups)])
    taps = [g.chance.choice((1, 1, 3))] * rank
    strides = [g.chance.choice((1, 1, 2))] * rank
    pads = [g.chance.randint(0, tap // 2) for tap in taps] * 2
    reach = [size + 2 * p - tap for size, p, tap in zip(shape[2:], pads, taps, strict=False)]
    if min(reach) < 0:
        return None
    result = (shape[0], columns, *(r // s + 1 for r, s in zip(reach, strides, strict=True)))
    parameters = [g.weights(columns, channels // groups, *taps)]
    if g.chance.random() < 0.5:
        parameters.append(g.weights(columns))
    return g.add("Conv", [x, *parameters], result, group=groups, strides=strides, pads=pads, kernel_shape=taps)


def pool(g: Growing, x: str, shape: Shape) -> object:
    if len(shape) != 4 or min(shape[2:]) < 2:
        return None
    result = (*shape[:2], *((size - 2) // 2 + 1 for size in shape[2:]))
    kind = g.chance.choice(("MaxPool", "AveragePool"))
    return g.add(kind, [x], result, kernel_shape=[2, 2], strides=[2, 2])


def matmul(g: Growing, x: str, shape: Shape) -> object:
    if len(shape) < 2:
        return None
    columns = g.chance.choice((1, 5, 8, 12))
    return g.add("MatMul", [x, g.weights(shape[-1], columns)], (*shape[:-1], columns))


def attention(g: Growing, x: str, shape: Shape) -> object:
    """A tensor times another of its shape transposed, softmax, and back: three anchors in a row."""
    if len(shape) < 2:
        return None
    perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = g.add("Transpose", [g.alike(shape)], (*shape[:-2], shape[-1], shape[-2]), perm=perm)
    scores = g.add("MatMul", [x, turned], (*shape[:-1], shape[-2]))
    if g.chance.random() < 0.5:
        return scores
    weights = g.add("Softmax", [scores], (*shape[:-1], shape[-2]), axis=-1)
    return g.add("MatMul", [weights, g.alike(shape)], shape)


def gather(g: Growing, x: str, shape: Shape) -> object:
    if not shape:
        return None
    axis = g.chance.randrange(len(shape))
    picked = [g.chance.randrange(shape[axis]) for _ in range(g.chance.randint(1, 4))]
    result = (*shape[:axis], len(picked), *shape[axis + 1 :])
    return g.add("Gather", [x, g.constant(picked, "int64")], result, axis=axis)


def expand(g: Growing, x: str, shape: Shape) -> object:
    result = tuple(g.chance.choice((2, 3)) if size == 1 else size for size in shape)
    return g.add("Expand", [x, g.constant(result, "int64")], result) if shape else None


def where(g: Growing, x: str, shape: Shape) -> object:
    flag = g.add("Greater", [x, g.constant(0.1)], shape)
    del g.pool[flag]
    return g.add("Where", [flag, g.alike(shape), x], shape)


def top(g: Growing, x: str, shape: Shape) -> object:
    """Something that never fuses."""
    if not shape:
        return None
    count = min(3, shape[-1])
    result = (*shape[:-1], count)
    values = g.add("TopK", [x, g.constant([count], "int64")], result, result, axis=-1)
    del g.pool[values.replace("_0", "_1")]
    return values


STEPS: tuple[Step, ...] = (
    unary, unary, unary, binary, binary, binary, parameter, parameter, broadcast, broadcast, reshape, reshape,
    transpose, transpose, slice_, pad, concat, split, reduce, reduce, mean_back, softmax, norm, batch_norm, batch_norm,
    conv, conv, conv, pool, matmul, matmul, attention, gather, expand, where, top,
)  # fmt: skip


def model(seed: int, most_operators: int = MOST_OPERATORS) -> ModelProto:
    """The model of a seed: 2 to `most_operators` operators; what nobody reads (and some more) is an output."""
    growing = Growing(seed)
    growing.input(growing.chance.choice(SHAPES))
    wanted = growing.chance.randint(2, most_operators)
    for _ in range(20 * wanted):
        if len(growing.nodes) >= wanted:
            break
        before = len(growing.nodes), dict(growing.pool), set(growing.used), dict(growing.inputs)
        growing.chance.choice(STEPS)(growing, *growing.late())
        sizes = [prod(shape) for shape in growing.pool.values()]
        if max(sizes) > MOST_ELEMENTS or min(sizes) < 1 or len(growing.nodes) > most_operators:
            del growing.nodes[before[0] :]
            growing.pool, growing.used, growing.inputs = before[1], before[2], before[3]
    return _model(growing, seed)


def _model(growing: Growing, seed: int) -> ModelProto:
    if not growing.nodes:
        unary(growing, "x0", growing.pool["x0"])
    made = [name for node in growing.nodes for name in node.output if name in growing.pool]
    outputs = [name for name in made if name not in growing.used or growing.chance.random() < 0.08]
    read = {name for node in growing.nodes for name in node.input}
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        growing.nodes,
        f"random_{seed}",
        [value(name, TensorProto.FLOAT, shape) for name, shape in growing.inputs.items() if name in read],
        [value(name, TensorProto.FLOAT, growing.pool[name]) for name in outputs],
        [tensor for tensor in growing.constants if tensor.name in read],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
