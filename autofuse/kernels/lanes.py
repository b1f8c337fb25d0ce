"""Which vector loops TVM cannot vectorize: it splits them statement by statement, and then loses names.

`x = if_then_else(lane < 3, a, b); y[lane] = x` becomes a scalar loop over the first statement alone, so that the
second reads one x for all lanes. Such a loop has to stay a scalar loop as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.tirx.analysis import undefined_vars

GUARD = "prim.if_then_else"


def must_stay_scalar(loop: Any) -> bool:
    """Whether a loop names a value and, depending on its own variable, guards one."""
    statements = list(loop.body.seq) if isinstance(loop.body, tirx.SeqStmt) else [loop.body]
    if not any(isinstance(statement, tirx.Bind) for statement in statements):
        return False
    varying = [loop.loop_var]
    for statement in statements:
        value = statement.value
        if any(_reads(condition, varying) for condition in _conditions(value, varying)):
            return True
        if isinstance(statement, tirx.Bind) and _reads(value, varying):
            varying.append(statement.var)
    return False


def _reads(expression: Any, variables: list[Any]) -> bool:
    free = undefined_vars(expression, [])
    return any(variable.same_as(other) for variable in free for other in variables)


def _conditions(expression: Any, varying: list[Any]) -> Iterator[Any]:
    """Conditions of the guards in an expression; names that it makes itself join `varying` where they vary."""
    if isinstance(expression, tirx.Let):
        yield from _conditions(expression.value, varying)
        if _reads(expression.value, varying):
            varying.append(expression.var)
        yield from _conditions(expression.body, varying)
        return
    if isinstance(expression, Call) and getattr(expression.op, "name", "") == GUARD:
        yield expression.args[0]
    for operand in _operands(expression):
        yield from _conditions(operand, varying)


def _operands(expression: Any) -> tuple[Any, ...]:
    if isinstance(expression, Call):
        return tuple(expression.args)
    if isinstance(expression, TensorLoad):
        return tuple(expression.indices)
    if isinstance(expression, tirx.Select):
        return (expression.condition, expression.true_value, expression.false_value)
    if isinstance(expression, tirx.Cast):
        return (expression.value,)
    return tuple(getattr(expression, name) for name in ("a", "b") if hasattr(expression, name))
