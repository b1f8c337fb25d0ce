"""Two open sizes: a graph that is open over one of them, computed for as many sequences as the other says.

The second is a size whose rows are kept apart, whatever the first one is: row i of a result is made of row i of what is
read, so that it is what the graph of one sequence makes of it. In memory the sequences of a tensor stand one behind the
other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.open_graph import ADVICE


@dataclass(frozen=True)
class Repeats:
    """`size`: how many sequences there are. `axes`: of each input and output of the model of which every sequence has
    its own, the axis along which they stand. `own`: all such tensors of a graph."""

    size: OpenSize
    axes: Mapping[str, int]
    own: Collection[str] = field(default_factory=frozenset)


def own_tensors(repeats: Repeats, graph: Graph) -> frozenset[str]:
    """The tensors of which every sequence has its own: what is made of an input that it has of its own.

    InputError where that is not so of the outputs.
    """
    own = {name for name in graph.inputs if name in repeats.axes}
    for operator in graph.operators:
        if not own.isdisjoint(operator.inputs):
            own.update(name for name in operator.outputs if name)
    for name in graph.outputs:
        if (name in own) != (name in repeats.axes):
            reason = "is the same for all" if name in repeats.axes else "is one for all, and made of what each has"
            raise InputError(
                f"--sizes: {repeats.size.name} cannot stay open with another size: the output {name!r} {reason}; "
                f"fix {repeats.size.name}, or {ADVICE}"
            )
    return frozenset(own)
