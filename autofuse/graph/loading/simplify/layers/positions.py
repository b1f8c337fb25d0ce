"""Positions that a model counts from a shape: a Range, or a part of a table, that begins where a shape says.

The loader folds all that follows from shapes. Where a size stays open and such positions follow it, they are left as
they are, so that what is made of them is computed when the library runs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autofuse.graph.mapping import names
from autofuse.graph.model import Operator

_HANDED_ON = names("Add Cast Concat Gather Identity Max Min Mul Reshape Slice Squeeze Sub Unsqueeze Where")
"""Operators that make a number of those that a shape has."""


def counted_positions(operators: Sequence[Operator], constants: Collection[str]) -> frozenset[str]:
    """The results of Range, and of Slice of constants, that begin where the shape of an activation says. `operators` in
    an order in which they can run."""
    numbers: set[str] = set()
    found: set[str] = set()
    for operator in operators:
        if operator.domain or not operator.outputs:
            continue
        if operator.op_type in ("Shape", "Size"):
            numbers.update(name for name in operator.outputs if operator.inputs[0] not in constants)
        elif operator.op_type in _HANDED_ON and not numbers.isdisjoint(operator.inputs):
            if operator.op_type == "Slice" and operator.inputs[0] in constants:
                found.update(operator.outputs if operator.inputs[1] in numbers else ())
            else:
                numbers.update(operator.outputs)
        elif operator.op_type == "Range" and operator.inputs[0] in numbers:
            found.update(operator.outputs)
    return frozenset(found)
