"""The number of images in front of all else, in a model that has it behind their places: as that of sequences is where
these are the steps of a recurrence.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.errors import InputError
from autofuse.graph.model import Graph
from autofuse.graph.transform.leading import with_leading_size
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph, open_graph


def size_in_front(graph: Graph, twins: Sequence[Graph]) -> int | None:
    """The number of the size that is the first axis of every input that has it, and no other one of these. `twins`: the
    graph at another value of each size. None where there is none, or no other size."""
    for number, twin in enumerate(twins) if len(twins) > 1 else ():
        shapes = [(graph.tensors[name].shape, twin.tensors[name].shape) for name in graph.inputs if name in twin.inputs]
        differing = [(one[0] != other[0], one[1:] != other[1:]) for one, other in shapes if one != other]
        if differing and all(place == (True, False) for place in differing):
            return number
    return None


def no_divisors(graph: Graph, numbers: Sequence[int]) -> tuple[int, int]:
    """Two numbers that divide no extent of a graph, of some; the first ones where there are none."""
    extents = {extent for tensor in graph.tensors.values() for extent in tensor.shape}
    first, second = [*(one for one in numbers if all(extent % one for extent in extents if extent)), *numbers][:2]
    return first, second


def images_first(symbol: str, counts: tuple[int, int], graph: Graph, twin: Graph) -> OpenGraph | None:
    """The graph of any number of images with that in front of all axes. `graph`, `twin`: as it is at such `counts`.
    None where it stands nowhere else, or cannot be put there."""
    try:
        opened = open_graph(symbol, counts[0], graph, counts[1], twin)
        if not opened.grids:
            return None
        return open_graph(
            symbol,
            counts[0],
            with_leading_size(opened, counts[0]),
            counts[1],
            with_leading_size(opened, counts[1]),
        )
    except InputError:
        return None
