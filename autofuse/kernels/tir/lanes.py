"""What TVM cannot take: vector loops and names.

Which vector loops it cannot vectorize: it splits them statement by statement, and then loses names.

`x = if_then_else(lane < 3, a, b); y[lane] = x` becomes a scalar loop over the first statement alone, so that the
second reads one x for all lanes, and wrong ones. Such a loop has to stay a scalar loop as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.tirx.analysis import undefined_vars
from tvm_ffi import VisitInterrupt, structural_walk

GUARD = "prim.if_then_else"
VECTORIZED = frozenset({"tirx.reinterpret"})
"""Calls that TVM vectorizes though it does not mark them so."""
_KNOWN: dict[type[object], tuple[str, ...]] = {}
"""See `_fields`: of kinds that were met. Asking each object what it is takes ten times as long."""


def must_stay_scalar(loop: Any) -> bool:
    """Whether a loop names values, and computes one that differs by lane in a way that TVM cannot vectorize."""
    statements = list(loop.body.seq) if isinstance(loop.body, tirx.SeqStmt) else [loop.body]
    if not any(isinstance(statement, tirx.Bind) for statement in statements):
        return False
    guarded = any(isinstance(statement, tirx.IfThenElse) for statement in statements)
    if not guarded and not _holds_call(loop.body):
        return False
    varying = [loop.loop_var]
    for statement in statements:
        if isinstance(statement, tirx.IfThenElse):
            if _reads(statement.condition, varying) or _is_split(getattr(statement.then_case, "value", 0), varying):
                return True
            continue
        if _is_split(statement.value, varying):
            return True
        if isinstance(statement, tirx.Bind) and _reads(statement.value, varying):
            varying.append(statement.var)
    return False


def _holds_call(body: Any) -> bool:
    """Whether anything is called in statements: nothing else is computed lane by lane, and asking so is cheap."""
    return structural_walk(body, (Call, lambda _call: VisitInterrupt())) is not None


def _reads(expression: Any, variables: list[Any]) -> bool:
    free = undefined_vars(expression, [])
    return any(variable.same_as(other) for variable in free for other in variables)


def _is_split(expression: Any, varying: list[Any]) -> bool:
    """Whether TVM computes an expression lane by lane; names that it makes itself join `varying` where they vary."""
    if isinstance(expression, tirx.Let):
        if _is_split(expression.value, varying):
            return True
        if _reads(expression.value, varying):
            varying.append(expression.var)
        return _is_split(expression.body, varying)
    if isinstance(expression, Call) and not _is_vectorized(expression, varying):
        return True
    return any(_is_split(operand, varying) for operand in _operands(expression))


def _is_vectorized(call: Any, varying: list[Any]) -> bool:
    name = getattr(call.op, "name", "")
    if name == GUARD:
        return not _reads(call.args[0], varying)
    known = name in VECTORIZED or (name and call.op.get_attr("TVectorizable"))
    return bool(known) or not any(_reads(argument, varying) for argument in call.args)


def _operands(expression: Any) -> tuple[Any, ...]:
    kind = type(expression)
    if kind not in _KNOWN:
        _KNOWN[kind] = _fields(kind)
    names = _KNOWN[kind]
    if names in (("args",), ("indices",)):
        return tuple(getattr(expression, names[0]))
    return tuple(getattr(expression, name) for name in names)


def _fields(kind: type[object]) -> tuple[str, ...]:
    """Fields of a kind of expression that hold its operands."""
    known = (
        (Call, ("args",)),
        (TensorLoad, ("indices",)),
        (tirx.Select, ("condition", "true_value", "false_value")),
        (tirx.Cast, ("value",)),
        (tirx.Let, ("value", "body")),
    )
    default = tuple(name for name in ("a", "b") if hasattr(kind, name))
    return next((names for one, names in known if issubclass(kind, one)), default)


def _within(expression: Any) -> Iterator[Any]:
    yield expression
    for operand in _operands(expression):
        yield from _within(operand)


def holds_let(expression: Any) -> bool:
    """Whether a name is defined somewhere inside an expression."""
    return any(isinstance(inner, tirx.Let) for inner in _within(expression))


def selects_floats(expression: Any) -> bool:
    """Whether a floating value is chosen somewhere inside.

    TVM's interval analysis, which sees through names, fails on the product of a name and such a choice ("IntImm
    supports only int or uint or bool type, but float32 was supplied").
    """
    chosen = (inner for inner in _within(expression) if isinstance(inner, tirx.Select))
    return any(str(inner.ty.dtype).startswith(("float", "bfloat")) for inner in chosen)
