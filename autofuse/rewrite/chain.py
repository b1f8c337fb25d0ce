"""Chains of one associative operator seen as a whole: the factors of a product, the terms of a sum."""

from __future__ import annotations

from collections.abc import Iterable

from autofuse.graph.model import Operator
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.work import Work

MAX_PARTS = 12


def chain(work: Work, operator: Operator) -> tuple[str, ...]:
    """Operands of an Add, Mul, Max or Min whose own operands are private results of the same operator, flattened.

    Of a longer chain `MAX_PARTS` and one more: its own end, and what is left of it as it stands.
    """
    parts: list[str] = []
    waiting = [*reversed(operator.inputs)]
    while waiting:
        name = waiting.pop()
        below = work.producer(name, operator.op_type)
        room = len(parts) + len(waiting) < MAX_PARTS
        if below is not None and room and work.private(name) and len(below.inputs) == 2:
            waiting += reversed(below.inputs)
        else:
            parts.append(name)
    return tuple(parts)


def is_chain_end(work: Work, operator: Operator) -> bool:
    """Whether no operator of the same type takes the result in as its private operand."""
    (result,) = operator.outputs
    return not (work.private(result) and work.users(result)[0].op_type == operator.op_type)


def joined(maker: Maker, op_type: str, parts: Iterable[str]) -> str:
    """The product or sum of some tensors, small ones first."""
    ordered = sorted(parts, key=lambda name: maker._tensor(name).elements)
    result = ordered[0]
    for other in ordered[1:]:
        result = maker.op(op_type, result, other)
    return result
