"""The axes of tensors that follow open sizes, as a library describes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from autofuse.backend.container.open_spec import AxisSpec, FurtherSpec
from autofuse.graph.transform.open_sizes.extents import Extent, Joined
from autofuse.graph.transform.open_sizes.stored_shapes import OpenImages, OpenRows


def image_axes(extents: Mapping[int, Extent], joined: Mapping[int, Joined]) -> tuple[AxisSpec, ...]:
    """The axes of a tensor of images that follow open sizes."""
    found = [_joined_axis(n, [(1, extent.parts)]) for n, extent in extents.items()]
    found += [_joined_axis(n, whole.terms) for n, whole in joined.items()]
    return tuple(sorted(found, key=lambda one: one.axis))


def _joined_axis(axis: int, terms: Sequence[tuple[int, Sequence[Extent]]]) -> AxisSpec:
    """An axis along which places are joined: a sum of products, or one of these."""
    further: list[FurtherSpec] = []
    for rows, extents in terms:
        for number, e in enumerate(extents):
            times = 1 if number else rows
            further.append(FurtherSpec(e.size, e.factor * times, e.per, e.more * times, e.shift, adds=not number))
    first, *others = further
    return AxisSpec(axis, first.size, first.factor, first.per, first.more, None, first.shift, tuple(others))


def own_tensors(rows: OpenRows | OpenImages | None) -> Collection[str]:
    """Tensors of which each sequence has its own."""
    return rows.repeats.own if isinstance(rows, OpenRows) and rows.repeats is not None else ()


def stored_axes(rows: OpenRows | OpenImages | None) -> dict[str, tuple[AxisSpec, ...]]:
    """The axes of tensors, as they are stored, that follow an open size: the number of sequences is the first one."""
    if not isinstance(rows, OpenRows):
        names = () if rows is None else dict.fromkeys((*rows.axes, *rows.joined))
        return {} if rows is None else {n: image_axes(rows.axes.get(n, {}), rows.joined.get(n, {})) for n in names}
    own, size = own_tensors(rows), int(rows.repeats is not None)
    found: dict[str, tuple[AxisSpec, ...]] = {name: (AxisSpec(0, 0),) for name in own}
    for name, where in rows.axes.items():
        lead = found.get(name, ())
        found[name] = (*lead, AxisSpec(where.axis + len(lead), size + where.size, where.factor, 1, where.more))
    return found
