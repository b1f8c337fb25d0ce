"""Simplifications that keep every operator's meaning: what does nothing, what repeats, what has a shorter name."""

from __future__ import annotations

from math import prod

import numpy as np

from autofuse.graph.mapping import POINTWISE, names
from autofuse.graph.model import Operator
from autofuse.rewrite.declare import pattern, rule
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.pattern import same_parameters
from autofuse.rewrite.rule import Default, Kind, Rule
from autofuse.rewrite.work import Work

_S = Kind.SIMPLIFICATION

SIGNS: tuple[Rule, ...] = (
    pattern("negated_twice", _S, "-(-A) -> A", exact=True, any_type=True),
    pattern("negated_difference", _S, "-(A - B) -> B - A", exact=True),
    pattern("minus_negated", _S, "A - (-B) -> A + B", exact=True),
    pattern("plus_negated", _S, "A + (-B) -> A - B", exact=True),
    pattern("negated_quotient", _S, "(-A) / (-B) -> A / B", exact=True),
    pattern("magnitude_twice", _S, "Abs(Abs(A)) -> Abs(A)", exact=True, any_type=True),
    pattern("magnitude_of_negated", _S, "Abs(-A) -> Abs(A)", exact=True),
    pattern("square_of_negated", _S, "Square(-A) -> Square(A)", exact=True),
    pattern("not_twice", _S, "Not(Not(A)) -> A", exact=True, any_type=True),
    pattern("choice_of_not", _S, "Where(Not(C), A, B) -> Where(C, B, A)", exact=True, any_type=True),
    pattern("choice_of_equals", _S, "Where(C, A, A) -> A", exact=True, any_type=True),
    pattern("cosine_of_negated", _S, "Cos(-A) -> Cos(A)", exact=True),
    *(
        pattern(f"{name.lower()}_of_itself", _S, f"{name}(A, A) -> A", exact=True, any_type=True)
        for name in ("Max", "Min", "And", "Or")
    ),
    *(
        pattern(f"{name.lower()}_twice", _S, f"{name}({name}(A)) -> {name}(A)", exact=True)
        for name in ("Relu", "Ceil", "Floor", "Round", "Sign")
    ),
    *(
        pattern(f"{name.lower()}_{other.lower()}", _S, f"{name}({other}(A)) -> {other}(A)", exact=True)
        for name in ("Relu", "Abs")
        for other in ("Sigmoid", "Exp", "Sqrt", "Softplus", "Softmax")
        if other != "Softmax"
    ),
    *(
        pattern(f"{odd.lower()}_between_signs", _S, f"-{odd}(-A) -> {odd}(A)", exact=True)
        for odd in ("Tanh", "Erf", "Sin", "Atan", "Asinh", "Softsign")
    ),
)  # fmt: skip

NEUTRAL: tuple[Rule, ...] = (
    pattern("times_one", _S, "A * 1 -> A", exact=True, any_type=True),
    pattern("plus_zero", _S, "A + 0 -> A", exact=True, any_type=True),
    pattern("minus_zero", _S, "A - 0 -> A", exact=True, any_type=True),
    pattern("divided_by_one", _S, "A / 1 -> A", exact=True, any_type=True),
    pattern("power_of_one", _S, "A ** 1 -> A", exact=True),
    pattern("times_minus_one", _S, "A * -1 -> -A", exact=True),
    pattern("zero_minus", _S, "0 - A -> -A", exact=True),
    pattern("one_over", _S, "1 / A -> Reciprocal(A)", exact=True),
    pattern("square", _S, "A ** 2 -> A * A", exact=True),
    pattern("root", _S, "A ** 0.5 -> Sqrt(A)"),
    pattern("reciprocal_power", _S, "A ** -1 -> Reciprocal(A)", exact=True),
    pattern("relu_from_maximum", _S, "Max(A, 0) -> Relu(A)", exact=True),
)
"""Some keep the FLOPs: they name an operator whose kernel is shorter, or one that other rules know."""


@rule(_S, ("Transpose",), exact=True)
def transposes_joined(work: Work, operator: Operator, maker: Maker) -> bool:
    """Transpose(Transpose(A)) -> Transpose(A), or A"""
    inner = work.producer(operator.inputs[0], "Transpose")
    if inner is None:
        return False
    first, second = inner.attributes["perm"], operator.attributes["perm"]
    assert isinstance(first, tuple) and isinstance(second, tuple)
    perm = tuple(int(first[int(axis)]) for axis in second)
    source, result = inner.inputs[0], operator.outputs[0]
    if perm == tuple(range(len(perm))):
        maker.become(result, source)
    else:
        maker.become(result, maker.op("Transpose", source, shape=work.shape(result), perm=perm))
    return True


_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


@rule(_S, _RESHAPES, exact=True)
def reshapes_joined(work: Work, operator: Operator, maker: Maker) -> bool:
    """Reshape(Reshape(A)) -> Reshape(A), or A; also Flatten, Squeeze and Unsqueeze"""
    inner = work.producer(operator.inputs[0], *_RESHAPES)
    if inner is None:
        return False
    return _reshaped(work, operator, maker, inner.inputs[0])


@rule(_S, _RESHAPES, exact=True)
def reshape_to_same(work: Work, operator: Operator, maker: Maker) -> bool:
    """Reshape(A) -> A, where the shape stays"""
    return work.shape(operator.inputs[0]) == work.shape(operator.outputs[0]) and _reshaped(
        work, operator, maker, operator.inputs[0]
    )


@rule(_S, ("Transpose",), exact=True, guard="only axes of length 1 move", default=Default.ALWAYS)
def transpose_as_reshape(work: Work, operator: Operator, maker: Maker) -> bool:
    """Transpose(A) -> Reshape(A)"""
    perm = operator.attributes["perm"]
    assert isinstance(perm, tuple)
    shape = work.shape(operator.inputs[0])
    moved = [int(axis) for axis in perm if shape[int(axis)] != 1]
    return moved == sorted(moved) and _reshaped(work, operator, maker, operator.inputs[0])


def _reshaped(work: Work, operator: Operator, maker: Maker, source: str) -> bool:
    """`source` in the shape of the operator's result."""
    result = operator.outputs[0]
    shape = work.shape(result)
    if shape == work.shape(source):
        maker.become(result, source)
    else:
        maker.become(result, maker.op("Reshape", source, maker.integers("shape", shape), shape=shape))
    return True


_WIDER = {
    "bool": ("int32", "int64", "float32", "float64"),
    "float16": ("float32", "float64"),
    "float32": ("float64",),
    "int8": ("int16", "int32", "int64"),
    "int32": ("int64", "float64"),
    "uint8": ("int32", "int64"),
}


@rule(_S, ("Cast",), exact=True, guard="the type between holds every value of the first")
def casts_joined(work: Work, operator: Operator, maker: Maker) -> bool:
    """Cast(Cast(A)) -> Cast(A), or A"""
    inner = work.producer(operator.inputs[0], "Cast")
    if inner is None:
        return False
    source, result = inner.inputs[0], operator.outputs[0]
    first, between, last = (work.tensors[n].dtype for n in (source, inner.outputs[0], result))
    if between not in _WIDER.get(first, ()):
        return False
    if first == last:
        maker.become(result, source)
    else:
        new = maker.op("Cast", source, shape=work.shape(result), dtype=last, given=operator.attributes)
        maker.become(result, new)
    return True


@rule(_S, ("Sum",), exact=True, default=Default.ALWAYS)
def sum_as_additions(_: Work, operator: Operator, maker: Maker) -> bool:
    """Sum(A, B, C) -> (A + B) + C"""
    if len(operator.inputs) < 2:
        return False
    result = operator.inputs[0]
    for other in operator.inputs[1:]:
        result = maker.op("Add", result, other)
    maker.become(operator.outputs[0], result)
    return True


@rule(_S, ("Clip", "Min", "Max", "Relu"), exact=True, guard="constant bounds")
def bounds_joined(work: Work, operator: Operator, maker: Maker) -> bool:
    """Clip(Clip(A, a, b), c, d) -> Clip(A, max(a, c), min(max(b, c), d)); Relu, Max and Min count as Clip"""
    outer = _bounds(work, operator)
    inner = None if outer is None else work.producer(outer[0], "Clip", "Min", "Max", "Relu")
    inside = None if inner is None else _bounds(work, inner)
    if outer is None or inside is None:
        return False
    source, low, high = inside
    low, high = max(low, outer[1]), min(max(high, outer[1]), outer[2])
    low = min(low, high)
    if low == 0 and high == np.inf:
        maker.become(operator.outputs[0], maker.op("Relu", source))
        return True
    bounds = ["" if np.isinf(value) else maker.number(value, source) for value in (low, high)]
    while bounds and not bounds[-1]:
        bounds.pop()
    maker.become(operator.outputs[0], maker.op("Clip", source, *bounds, shape=work.shape(source)))
    return True


def _bounds(work: Work, operator: Operator) -> tuple[str, float, float] | None:
    """(operand, lower, upper bound) of an operator that cuts values off at numbers; None for others."""
    result = operator.outputs[0]
    if len(operator.outputs) != 1 or not work.is_float(result):
        return None
    kind, inputs = operator.op_type, operator.inputs
    if kind == "Relu":
        return inputs[0], 0.0, np.inf
    if kind == "Clip":
        numbers = [
            work.scalar(name) if name else default
            for name, default in zip((*inputs[1:], "", "")[:2], (-np.inf, np.inf), strict=True)
        ]
        return None if None in numbers else (inputs[0], float(numbers[0] or 0.0), float(numbers[1] or 0.0))
    if len(inputs) != 2:
        return None
    number = work.scalar(inputs[1])
    if number is None or work.shape(inputs[0]) != work.shape(result) or not np.isfinite(number):
        return None
    return (inputs[0], number, np.inf) if kind == "Max" else (inputs[0], -np.inf, number)


_REDUCED_TWICE = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd")


@rule(_S, _REDUCED_TWICE, guard="both keep the reduced axes, or neither")
def reductions_joined(work: Work, operator: Operator, maker: Maker) -> bool:
    """ReduceSum(ReduceSum(A)) -> ReduceSum(A) over both axes; also Max, Min, Mean and Prod"""
    inner = work.producer(operator.inputs[0], operator.op_type)
    if inner is None or len(inner.inputs) < 2 or len(operator.inputs) < 2:
        return False
    first, second = work.integers(inner.inputs[1]), work.integers(operator.inputs[1])
    keeps = [op.attributes.get("keepdims", 1) for op in (inner, operator)]
    if not first or not second or keeps[0] != keeps[1]:
        return False
    rank = len(work.shape(inner.inputs[0]))
    left = list(range(rank)) if keeps[0] else [axis for axis in range(rank) if axis not in first]
    axes = sorted({*first, *(left[axis] for axis in second)})
    attributes = dict(operator.attributes)
    new = maker.op(
        operator.op_type,
        inner.inputs[0],
        maker.integers("axes", axes),
        shape=work.shape(operator.outputs[0]),
        given=attributes,
    )
    maker.become(operator.outputs[0], new)
    return True


@rule(
    _S,
    ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd"),
    exact=True,
    guard="the reduced axes have length 1",
)
def reduction_of_one(work: Work, operator: Operator, maker: Maker) -> bool:
    """ReduceSum(A) -> Reshape(A)"""
    before, after = work.tensors[operator.inputs[0]], work.tensors[operator.outputs[0]]
    if before.elements != after.elements:
        return False
    return _reshaped(work, operator, maker, operator.inputs[0])


_REPEATABLE = POINTWISE | names(
    """Conv Expand Flatten Gather Gemm LayerNormalization MatMul Pad Reshape Slice Softmax Squeeze Transpose Unsqueeze
    ReduceMax ReduceMean ReduceMin ReduceSum"""
)


@rule(_S, _REPEATABLE, exact=True)
def computed_once(work: Work, operator: Operator, maker: Maker) -> bool:
    """F(A), F(A) -> F(A): one operator instead of two that compute the same"""
    if len(operator.outputs) != 1 or not operator.inputs or not operator.inputs[0]:
        return False
    for other in work.siblings(operator.inputs[0]):
        if work.order[other.name] >= work.order[operator.name]:
            return False
        if other.op_type == operator.op_type and len(other.outputs) == 1 and same_parameters(work, other, operator, 0):
            maker.become(operator.outputs[0], other.outputs[0])
            return True
    return False


@rule(_S, ("ScatterElements",), exact=True, guard="axis 0, one index for all of a row", default=Default.ALWAYS)
def scatter_of_rows(work: Work, operator: Operator, maker: Maker) -> bool:
    """ScatterElements(A, Expand(i), B) -> ScatterND(A, Reshape(i), B)"""
    data, index, updates = operator.inputs
    whole, shape, spread = work.shape(data), work.shape(index), work.producer(index, "Expand")
    rank = len(shape)
    if rank > 1 and spread is None:
        return False
    rows = index if spread is None or rank == 1 else spread.inputs[0]
    given = (1,) * (rank - len(work.shape(rows))) + tuple(work.shape(rows))
    alike = given[0] == shape[0] and prod(given) == shape[0] and shape[1:] == whole[1:] and work.shape(updates) == shape
    axis = operator.attributes.get("axis", 0)
    if axis not in (0, -rank) or not alike or work.tensors[rows].dtype != "int64":
        return False
    column = (shape[0], 1)
    rows = maker.op("Reshape", rows, maker.integers("column", column), shape=column)
    how = {name: value for name, value in operator.attributes.items() if name == "reduction"}
    maker.become(operator.outputs[0], maker.op("ScatterND", data, rows, updates, shape=whole, given=how))
    return True


SIMPLIFICATIONS: tuple[Rule, ...] = (
    *SIGNS, *NEUTRAL, transposes_joined, reshapes_joined, reshape_to_same, transpose_as_reshape, casts_joined,
    sum_as_additions, bounds_joined, reductions_joined, reduction_of_one,
    computed_once, scatter_of_rows,
)  # fmt: skip
