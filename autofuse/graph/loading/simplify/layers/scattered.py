"""ScatterND at places that are known and make up a box: what an assignment to a slice is exported as.

y = ScatterND(x, [[2], [3], [4]], u)   becomes   y = Concat(x[:2], u, x[5:]), along each axis that is not filled.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.writer import Writer
from autofuse.graph.model import Operator

MOST_PLACES = 1 << 24
"""Places that are looked at one by one, at most."""


def write_slices(draft: Draft) -> bool:
    """Puts slices and joins in place of every ScatterND that writes a box in order; True when the draft changed.

    Where a size stays open only one that writes all that there is: others may write elsewhere at another size.
    """
    if not any(operator.op_type == "ScatterND" for operator in draft.operators):
        return False
    makers = {name: operator for operator in draft.operators for name in operator.outputs}
    result: list[Operator] = []
    for operator in draft.operators:
        result += _in_slices(Writer(draft, operator), makers) or [operator]
    changed = any(new is not old for new, old in zip(result, draft.operators, strict=False))
    draft.operators = result
    return changed


def _in_slices(write: Writer, makers: dict[str, Operator]) -> list[Operator] | None:
    operator = write.operator
    plain = operator.op_type == "ScatterND" and not operator.domain
    if not plain or operator.attributes.get("reduction", "none") not in ("none", b"none") or not _all_known(write):
        return None
    data, indices, updates = (write.shape(place) for place in range(3))
    if not indices or indices[-1] != len(indices) - 1 or updates[: indices[-1]] != indices[:-1] or 0 in indices:
        return None
    starts = _starts(write.draft, makers, operator.inputs[1], indices)
    if starts is None:
        return None
    starts = [start + (extent if start < 0 else 0) for start, extent in zip(starts, data, strict=False)]
    box = [range(start, start + count) for start, count in zip(starts, indices, strict=False)]
    if not all(one.start >= 0 and one.stop <= extent for one, extent in zip(box, data, strict=False)):
        return None
    if write.draft.open_sizes and any(len(one) < extent for one, extent in zip(box, data, strict=False)):
        return None
    made = operator.inputs[2]
    for axis in reversed(range(len(box))):
        before, after = range(box[axis].start), range(box[axis].stop, data[axis])
        parts = [_part(write, f"before{axis}", [*box[:axis], before]), made]
        parts = [part for part in (*parts, _part(write, f"after{axis}", [*box[:axis], after])) if part]
        made = write.op("Concat", f"joined{axis}", *parts, axis=axis) if len(parts) > 1 else made
    if made == operator.inputs[2]:
        return [replace(operator, op_type="Identity", inputs=(made,), attributes={})]
    return [*write.made[:-1], replace(write.made[-1], name=operator.name, outputs=operator.outputs)]


def _part(write: Writer, label: str, ranges: list[range]) -> str:
    """A slice of the first input along its first axes; "" where it has no elements."""
    if not len(ranges[-1]):
        return ""
    starts, ends = [one.start for one in ranges], [one.stop for one in ranges]
    bounds = {"starts": starts, "ends": ends, "axes": list(range(len(ranges)))}
    return write.op(
        "Slice", label, write.input(0), *(write.integers(f"{label}/{name}", value) for name, value in bounds.items())
    )


def _all_known(write: Writer) -> bool:
    return all(name in write.draft.tensors for name in (*write.operator.inputs, *write.operator.outputs))


def _starts(draft: Draft, makers: dict[str, Operator], name: str, shape: tuple[int, ...]) -> list[int] | None:
    """Where the box of places begins along each of its axes; None where they are no box in order, or not known."""
    grid, columns = shape[:-1], _columns(draft, makers, name, shape[-1])
    if columns is None or np.prod(grid) > MOST_PLACES:
        return None
    starts = []
    for axis, column in enumerate(columns):
        start = int(column.reshape(-1)[0]) if column.size else 0
        steps = start + np.arange(grid[axis]).reshape(-1, *(1,) * (len(grid) - axis - 1))
        one_sign = start >= 0 or start + grid[axis] <= 0
        fits = column.ndim <= len(grid) and np.array_equal(np.broadcast_to(column, grid), np.broadcast_to(steps, grid))
        if not fits or not one_sign:
            return None
        starts.append(start)
    return starts


def _columns(draft: Draft, makers: dict[str, Operator], name: str, count: int) -> list[NDArray[np.generic]] | None:
    """The index along each axis, which broadcasts to the places; None where one is not known.

    An index over thousands of places is left as an Expand when constants are folded.
    """
    whole = draft.constants.get(name)
    if whole is not None:
        return [whole[..., axis] for axis in range(count)]
    join = makers.get(name)
    if join is None or join.op_type != "Concat" or len(join.inputs) != count:
        return None
    found = [_column(draft, makers, part) for part in join.inputs]
    return [one for one in found if one is not None] if all(one is not None for one in found) else None


def _column(draft: Draft, makers: dict[str, Operator], name: str) -> NDArray[np.generic] | None:
    """A tensor [..., 1] without its last axis, before it is broadcast."""
    known, maker = draft.constants.get(name), makers.get(name)
    if known is not None:
        return known[..., 0] if known.ndim and known.shape[-1] == 1 else None
    if maker is None or maker.op_type != "Unsqueeze" or name not in draft.tensors:
        return None
    axes, inner = draft.vector(maker, 1), makers.get(maker.inputs[0])
    if axes is None or len(axes) != 1 or axes[0] % len(draft.tensors[name].shape) != len(draft.tensors[name].shape) - 1:
        return None
    known = draft.constants.get(maker.inputs[0])
    if known is None and inner is not None and inner.op_type == "Expand":
        known = draft.constants.get(inner.inputs[0])
    return known
