"""Einsum of two operands as a matrix product, whose kernels are ours."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autofuse.graph.model import Operator
from autofuse.rewrite.declare import rule
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.rule import Default, Kind, Rule
from autofuse.rewrite.work import Work


@rule(
    Kind.FISSION, ("Einsum",), default=Default.ALWAYS,
    guard="two operands without `...`, an index stands once in each, one that is summed stands in both",
)  # fmt: skip
def einsum_as_product(work: Work, operator: Operator, maker: Maker) -> bool:
    """Einsum(A, B) -> Transpose(Reshape(MatMul(Reshape(Transpose(A)), Reshape(Transpose(B)))))"""
    terms = _terms(str(operator.attributes.get("equation", "")))
    if terms is None or len(operator.inputs) != 2:
        return False
    left, right, result = terms
    sizes = dict(zip(left, work.shape(operator.inputs[0]), strict=True))
    if any(sizes.get(i, size) != size for i, size in zip(right, work.shape(operator.inputs[1]), strict=True)):
        return False  # a dimension of length 1 is stretched
    sizes |= dict(zip(right, work.shape(operator.inputs[1]), strict=True))
    batch = [i for i in result if i in left and i in right]
    rows, columns = ([i for i in result if i in term and i not in batch] for term in (left, right))
    summed = [i for i in left if i not in result]
    lead = [sizes[i] for i in batch]
    a = _arranged(maker, operator.inputs[0], left, (batch, rows, summed), sizes, len(lead))
    b = _arranged(maker, operator.inputs[1], right, (batch, summed, columns), sizes, len(lead))
    product = maker.op("MatMul", a, b)
    made = [*batch, *rows, *columns]
    product = _reshaped(maker, product, [sizes[i] for i in made])
    maker.become(operator.outputs[0], _transposed(maker, product, made, result))
    return True


def _terms(equation: str) -> tuple[str, str, str] | None:
    """The indices of both operands and of the result; None where they are not those of a matrix product."""
    given, arrow, result = equation.replace(" ", "").partition("->")
    left, comma, right = given.partition(",")
    if not arrow:
        result = "".join(sorted(i for i in set(left + right) if (left + right).count(i) == 1))
    repeated = any(len(set(term)) < len(term) for term in (left, right, result))
    known = set(left) | set(right)
    alone = {i for i in known - set(result) if i not in left or i not in right}
    if not comma or not (left + right + result).isalpha() or repeated or alone or not set(result) <= known:
        return None
    return left, right, result


def _arranged(
    maker: Maker, operand: str, term: str, groups: Sequence[Sequence[str]], sizes: dict[str, int], lead: int
) -> str:
    """An operand as [*batch, first group, second group]."""
    order = [i for group in groups for i in group]
    turned = _transposed(maker, operand, term, order)
    shape = [*(sizes[i] for i in order[:lead]), *(prod(sizes[i] for i in group) for group in groups[1:])]
    return _reshaped(maker, turned, shape)


def _transposed(maker: Maker, tensor: str, before: Sequence[str], after: Sequence[str]) -> str:
    perm = tuple(before.index(i) for i in after)
    if perm == tuple(range(len(perm))):
        return tensor
    shape = [maker.shape(tensor)[axis] for axis in perm]
    if _known(maker, tensor):
        return maker.weight(
            "turned", [tensor, perm], shape, maker.dtype(tensor), lambda: maker.values(tensor).transpose(perm)
        )
    return maker.op("Transpose", tensor, shape=shape, perm=perm)


def _reshaped(maker: Maker, tensor: str, shape: Sequence[int]) -> str:
    if tuple(shape) == maker.shape(tensor):
        return tensor
    if _known(maker, tensor):
        return maker.weight("shaped", [tensor, shape], shape, maker.dtype(tensor), lambda: maker.values(tensor))
    return maker.op("Reshape", tensor, maker.integers("shape", shape), shape=shape)


def _known(maker: Maker, tensor: str) -> bool:
    return tensor in maker.made or maker.work.is_constant(tensor)


EINSUMS: tuple[Rule, ...] = (einsum_as_product,)
