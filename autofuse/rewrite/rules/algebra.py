"""Associative, distributive and commutative rules, among them every row of the paper's Table 4.

A, B, C: any tensors; lower-case names: constants; `r`: parameters of a reduction or pooling. FLOP and byte changes
are computed at every site from the shapes; for tensors of n elements the typical change stands behind each rule.
"""

from __future__ import annotations

import numpy as np

from autofuse.graph.model import Operator
from autofuse.rewrite.chain import chain, is_chain_end, joined
from autofuse.rewrite.declare import pattern, rule
from autofuse.rewrite.facts import MONOTONE, above_zero, no_larger, not_negative, scalars
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.pattern import Guard
from autofuse.rewrite.rule import Default, Kind, Rule
from autofuse.rewrite.work import Work

_A, _D, _C = Kind.ASSOCIATIVE, Kind.DISTRIBUTIVE, Kind.COMMUTATIVE
_NUMBER = scalars("c")

PRODUCTS: tuple[Rule, ...] = (
    pattern("reciprocal_of_product", _A, "Reciprocal(A) * Reciprocal(A * B) -> Square(Reciprocal(A)) * Reciprocal(B)"),
    pattern("root_times_root", _A, "Sqrt(B) * Sqrt(B) -> B", not_negative("B")),
    pattern("roots_joined", _A, "Sqrt(A) * Sqrt(B) -> Sqrt(A * B)", not_negative("A", "B")),
    pattern("magnitudes_joined", _A, "Abs(A) * Abs(C) -> Abs(A * C)", exact=True),
    pattern("reciprocals_joined", _A, "Reciprocal(A) * Reciprocal(B) -> Reciprocal(A * B)"),
    pattern("exponentials_joined", _A, "Exp(A) * Exp(B) -> Exp(A + B)"),
    pattern("sign_times_magnitude", _A, "Sign(A) * Abs(A) -> A", exact=True),
    pattern("times_reciprocal", _A, "A * Reciprocal(B) -> A / B"),
    pattern("signs_cancel", _A, "(-A) * (-B) -> A * B", exact=True),
    pattern("sign_into_constant", _A, "(-A) * c -> A * (-c)", exact=True),
    pattern("factors_joined", _A, "A * c * d -> A * (c * d)", no_larger("c", "d")),
    pattern("terms_joined", _A, "A + c + d -> A + (c + d)", no_larger("c", "d")),
    pattern("logarithms_joined", _A, "Log(A) + Log(B) -> Log(A * B)", above_zero("A", "B")),
    pattern("exponential_quotient", _A, "Exp(A) / Exp(B) -> Exp(A - B)"),
    pattern("magnitude_quotient", _A, "Abs(A) / Abs(B) -> Abs(A / B)", exact=True),
    pattern("root_quotient", _A, "Sqrt(A) / Sqrt(B) -> Sqrt(A / B)", not_negative("A"), above_zero("B")),
    pattern("logarithm_difference", _A, "Log(A) - Log(B) -> Log(A / B)", above_zero("A", "B")),
    pattern("quotient_of_quotient", _A, "(A / b) / c -> A / (b * c)", no_larger("b", "c")),
    pattern("quotient_of_product", _A, "(A * b) / c -> A * (b / c)", no_larger("b", "c")),
    pattern("maxima_joined", _A, "Max(Max(A, c), d) -> Max(A, Max(c, d))", no_larger("c", "d"), exact=True),
    pattern("minima_joined", _A, "Min(Min(A, c), d) -> Min(A, Min(c, d))", no_larger("c", "d"), exact=True),
    pattern("powers_joined", _A, "(A ** c) ** d -> A ** (c * d)", scalars("c", "d"), not_negative("A")),
    pattern("logarithm_of_exponential", _A, "Log(Exp(A)) -> A"),
    pattern("exponential_of_logarithm", _A, "Exp(Log(A)) -> A", above_zero("A")),
    pattern("root_of_square", _A, "Sqrt(Square(A)) -> Abs(A)"),
    pattern("square_of_root", _A, "Sqrt(A) ** 2 -> A", not_negative("A")),
    pattern("square_of_magnitude", _A, "Square(Abs(A)) -> Square(A)", exact=True),
    pattern("reciprocal_twice", _A, "Reciprocal(Reciprocal(A)) -> A"),
    pattern("reciprocal_of_quotient", _A, "Reciprocal(A / B) -> B / A"),
)  # fmt: skip

SUMS: tuple[Rule, ...] = (
    pattern("square_minus_product", _D, "Square(A + B) - (A + B) * C -> (A + B) * (A + B - C)"),
    pattern(
        "centred_and_scaled", _D, "(A - B) * C + D -> A * C + (D - B * C)",
        Guard("B, C, D smaller than A", lambda at: all(at.elements(name) < at.elements("A") for name in "BCD")),
    ),
    pattern("quotients_added", _D, "A / C + B / C -> (A + B) / C"),
    pattern("quotients_subtracted", _D, "A / C - B / C -> (A - B) / C"),
    pattern("matmul_of_sum", _D, "MatMul(A, C) + MatMul(B, C) -> MatMul(A + B, C)"),
    pattern("matmul_of_difference", _D, "MatMul(A, C) - MatMul(B, C) -> MatMul(A - B, C)"),
    pattern("matmul_by_sum", _D, "MatMul(A, B) + MatMul(A, C) -> MatMul(A, B + C)"),
    pattern("matmul_by_difference", _D, "MatMul(A, B) - MatMul(A, C) -> MatMul(A, B - C)"),
    pattern("maximum_of_sums", _D, "Max(A + C, B + C) -> Max(A, B) + C", exact=True),
    pattern("minimum_of_sums", _D, "Min(A + C, B + C) -> Min(A, B) + C", exact=True),
    pattern("maximum_of_products", _D, "Max(A * c, B * c) -> Max(A, B) * c", not_negative("c"), exact=True),
    pattern("minimum_of_products", _D, "Min(A * c, B * c) -> Min(A, B) * c", not_negative("c"), exact=True),
    *(
        pattern(f"choice_of_{f.lower()}", _D, f"Where(C, {f}(A), {f}(B)) -> {f}(Where(C, A, B))", exact=True)
        for f in ("Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Sqrt", "Erf")
    ),
)  # fmt: skip

REDUCTIONS: tuple[Rule, ...] = (
    pattern(
        "sum_of_shifted", _C, "ReduceSum[r](BitShift(A, s, direction='LEFT')) -> "
        "BitShift(ReduceSum[r](A), s, direction='LEFT')", scalars("s"), exact=True, any_type=True,
    ),
    pattern("product_of_exponentials", _C, "ReduceProd[r](Exp(A)) -> Exp(ReduceSum[r](A))"),
    *(
        pattern(f"{name.lower()}_of_scaled", _C, f"{name}[r](A * c) -> {name}[r](A) * c", _NUMBER)
        for name in ("ReduceSum", "ReduceMean", "GlobalAveragePool")
    ),
    *(
        pattern(f"{name.lower()}_of_divided", _C, f"{name}[r](A / c) -> {name}[r](A) / c", _NUMBER)
        for name in ("ReduceSum", "ReduceMean", "GlobalAveragePool")
    ),
    *(
        pattern(f"{name.lower()}_of_negated", _C, f"{name}[r](-A) -> -{name}[r](A)", exact=True)
        for name in ("ReduceSum", "ReduceMean")
    ),
    *(
        pattern(f"{name.lower()}_of_shifted", _C, f"{name}[r](A + c) -> {name}[r](A) + c", _NUMBER, exact=exact)
        for name, exact in (("ReduceMean", False), ("ReduceMax", True), ("ReduceMin", True))
    ),
    *(
        pattern(
            f"{name.lower()}_of_scaled", _C, f"{name}[r](A * c) -> {name}[r](A) * c", _NUMBER, not_negative("c"),
            exact=True,
        )
        for name in ("ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool")
    ),
    pattern("maximum_of_negated", _C, "ReduceMax[r](-A) -> -ReduceMin[r](A)", exact=True),
    pattern("minimum_of_negated", _C, "ReduceMin[r](-A) -> -ReduceMax[r](A)", exact=True),
    pattern("norm_of_scaled", _C, "ReduceL2[r](A * c) -> ReduceL2[r](A) * Abs(c)", _NUMBER),
    pattern("magnitudes_of_scaled", _C, "ReduceL1[r](A * c) -> ReduceL1[r](A) * Abs(c)", _NUMBER),
    pattern("squares_of_scaled", _C, "ReduceSumSquare[r](A * c) -> ReduceSumSquare[r](A) * (c * c)", _NUMBER),
    *(
        pattern(
            f"{kind.lower()}_of_{name.lower()}", _C, f"{kind}[r]({name}(A)) -> {name}({kind}[r](A))",
            exact=name in ("Relu", "Ceil", "Floor"),
        )
        for kind in ("ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool")
        for name in MONOTONE
    ),
    pattern("matmul_of_scaled", _C, "MatMul(A * c, B) -> MatMul(A, B) * c", _NUMBER),
    pattern("matmul_by_scaled", _C, "MatMul(A, B * c) -> MatMul(A, B) * c", _NUMBER),
    pattern("scaled_matmul_left", _C, "MatMul(A, B) * c -> MatMul(A * c, B)", _NUMBER),
    pattern("scaled_matmul_right", _C, "MatMul(A, B) * c -> MatMul(A, B * c)", _NUMBER),
    pattern("divided_matmul_left", _C, "MatMul(A, B) / c -> MatMul(A / c, B)", _NUMBER),
    pattern("divided_matmul_right", _C, "MatMul(A, B) / c -> MatMul(A, B / c)", _NUMBER),
)  # fmt: skip


@rule(_A, ("Mul",), guard="R has fewer elements than the product, and is used in it alone")
def repeated_factor(work: Work, operator: Operator, maker: Maker) -> bool:
    """(A * R) * (R * C) -> A * Square(R) * C"""
    parts = chain(work, operator)
    size = work.tensors[operator.outputs[0]].elements
    twice = next((p for p in parts if parts.count(p) > 1 and work.tensors[p].elements < size), None)
    if twice is None or len(parts) < 3 or not is_chain_end(work, operator):
        return False
    rest = [part for part in parts if part != twice]
    squares = [maker.op("Mul", twice, twice)] * (parts.count(twice) // 2) + [twice] * (parts.count(twice) % 2)
    maker.become(operator.outputs[0], joined(maker, "Mul", [*rest, *squares]))
    return True


@rule(_A, ("Mul", "Add"), guard="a chain in which an operand is smaller than the result")
def small_operands_first(work: Work, operator: Operator, maker: Maker) -> bool:
    """(A * r) * s -> A * (r * s), and (A + r) + s -> A + (r + s), where r and s are smaller than A"""
    parts = chain(work, operator)
    if len(parts) < 3 or not work.is_float(operator.outputs[0]) or not is_chain_end(work, operator):
        return False
    sizes = sorted(work.tensors[part].elements for part in parts)
    if sizes[1] == sizes[-1]:
        return False
    maker.become(operator.outputs[0], joined(maker, operator.op_type, parts))
    return True


@rule(_D, ("Add", "Sub"))
def common_factor(work: Work, operator: Operator, maker: Maker) -> bool:
    """A * C + A * B -> A * (B + C); A + A * B -> A * (B + 1); likewise with minus"""
    result = operator.outputs[0]
    if not work.is_float(result):
        return False
    left, right = (_factors(work, name) for name in operator.inputs)
    shared = next((f for f in left if f in right and not work.is_constant(f)), None)
    if shared is None or operator.inputs[0] == operator.inputs[1]:
        return False
    rests = []
    for factors in (left, right):
        rest = list(factors)
        rest.remove(shared)
        rests.append(joined(maker, "Mul", rest) if rest else maker.number(1.0, shared))
    maker.become(result, maker.op("Mul", shared, maker.op(operator.op_type, *rests)))
    return True


def _factors(work: Work, tensor: str) -> tuple[str, ...]:
    """Factors of a private product; a tensor that is none is its own factor."""
    product = work.producer(tensor, "Mul")
    return chain(work, product) if product is not None and work.private(tensor) else (tensor,)


@rule(_A, ("MatMul",), guard="matrices, or stacks of the same shape")
def matmul_order(work: Work, operator: Operator, maker: Maker) -> bool:
    """MatMul(MatMul(A, B), C) -> MatMul(A, MatMul(B, C)), or the other way, where that takes fewer FLOPs"""
    for place in (0, 1):
        inner = work.producer(operator.inputs[place], "MatMul")
        if inner is None or not work.private(operator.inputs[place]):
            continue
        a, b = inner.inputs
        c = operator.inputs[1 - place]
        triple = (a, b, c) if place == 0 else (c, a, b)
        shapes = [work.shape(name) for name in triple]
        if any(len(shape) < 2 for shape in shapes):
            continue
        first, second = (triple[1:], shapes[1:]) if place == 0 else (triple[:2], shapes[:2])
        batch = np.broadcast_shapes(second[0][:-2], second[1][:-2])
        both = maker.op("MatMul", *first, shape=(*batch, second[0][-2], second[1][-1]))
        pair = (triple[0], both) if place == 0 else (both, triple[2])
        maker.become(operator.outputs[0], maker.op("MatMul", *pair, shape=work.shape(operator.outputs[0])))
        return True
    return False


@rule(_C, ("MatMul",), exact=True, guard="each matrix of B serves some neighbours of A", default=Default.SMALL)
def product_with_repeated(work: Work, operator: Operator, maker: Maker) -> bool:
    """MatMul(A, Reshape(Expand(B))) -> Reshape(MatMul(Reshape(A), B)): heads that share keys are more rows of one
    product; also where B is transposed and scaled on its way"""
    left, current = operator.inputs
    between: list[Operator] = []
    while (joined := work.producer(current, "Reshape")) is None:
        step = work.producer(current, "Transpose", "Mul", "Div")
        if step is None or not _keeps_matrices(work, step):
            return False
        between, current = [step, *between], step.inputs[0]
    repeated = work.producer(joined.inputs[0], "Expand")
    if repeated is None:
        return False
    one, many, all_rows = (work.shape(name) for name in (repeated.inputs[0], repeated.outputs[0], left))
    matrices = (*many[:-3], *one[-2:])
    batch = (*many[:-4], many[-4] * many[-3]) if len(many) > 3 else ()
    if (
        (*many[:-3], 1, *many[-2:]) != one
        or not batch
        or work.shape(current) != (*batch, *many[-2:])
        or all_rows[:-2] != batch
    ):
        return False
    right = maker.op("Reshape", repeated.inputs[0], maker.integers("matrices", matrices), shape=matrices)
    for step in between:
        matrices = (*matrices[:-2], *work.shape(step.outputs[0])[-2:])
        right = maker.op(step.op_type, right, *step.inputs[1:], shape=matrices, given=step.attributes)
    rows = (*many[:-3], many[-3] * all_rows[-2], all_rows[-1])
    product = maker.op("MatMul", maker.op("Reshape", left, maker.integers("rows", rows), shape=rows), right)
    result = work.shape(operator.outputs[0])
    made = maker.op("Reshape", product, maker.integers("apart", result), shape=result)
    maker.become(operator.outputs[0], made)
    return True


def _keeps_matrices(work: Work, step: Operator) -> bool:
    """Whether an operator turns each matrix of a stack, or multiplies all by one constant number."""
    if step.op_type != "Transpose":
        return work.scalar(step.inputs[1]) is not None
    rank = len(work.shape(step.outputs[0]))
    return step.attributes["perm"] == (*range(rank - 2), rank - 1, rank - 2)


ALGEBRA: tuple[Rule, ...] = (
    *PRODUCTS, repeated_factor, small_operands_first, matmul_order, product_with_repeated, *SUMS, common_factor,
    *REDUCTIONS,
)  # fmt: skip
