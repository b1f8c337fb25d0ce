"""What measurements say about a plan's choices: times of groups, and of an edge fused against the same edge apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import hypot

from autofuse.graph.model import Graph
from autofuse.graph.transform.copies import Copy

LAUNCH_US = 0.3
"""What a kernel costs beyond its own time (call from the VM, as measured: tvm 0.27, 0.14 us, plus its pool)."""

MOST_STEPS = 20_000
"""Steps of one search for the cheapest cover; beyond it the best cover so far stands."""


@dataclass(frozen=True)
class GroupTime:
    """A time in microseconds with the ends of its 95 % interval; `trusted`: whether its measurement is."""

    us: float
    lo: float
    hi: float
    trusted: bool = True

    def without_call(self) -> GroupTime:
        """Of one kernel: what it takes by itself, as tables of kernels show it."""
        us, lo, hi = (max(0.0, us - LAUNCH_US) for us in (self.us, self.lo, self.hi))
        return GroupTime(us, lo, hi, self.trusted)

    def overlaps(self, other: GroupTime) -> bool:
        """Whether noise alone can explain the difference."""
        return self.lo <= other.hi and other.lo <= self.hi


def total(spans: Iterable[GroupTime]) -> GroupTime:
    """Sum of independent times: the half intervals add as root of squares."""
    us = below = above = 0.0
    trusted = True
    for span in spans:
        us, trusted = us + span.us, trusted and span.trusted
        below, above = hypot(below, span.us - span.lo), hypot(above, span.hi - span.us)
    return GroupTime(us, us - below, us + above, trusted)


@dataclass(frozen=True)
class Piece:
    """A group that was built once: `span`, its time with the launch; None when no schedule of it worked.

    `operators`: the group. `covers`: the operators of the model that it computes, folded ones too, and `folds`: those
    among them that it computes folded. `copies`: those that it holds, which it covers not. `failure`: state of its
    failures in the database ("wrong", "timeout", ...).
    """

    operators: tuple[str, ...]
    covers: frozenset[str]
    folds: tuple[str, ...] = ()
    span: GroupTime | None = None
    failure: str = ""
    copies: tuple[Copy, ...] = ()

    @property
    def identity(self) -> Identity:
        """What the group is (copies stand among its operators)."""
        return self.operators, self.folds


Identity = tuple[tuple[str, ...], tuple[str, ...]]
"""Operators and folds of a group: what it is, whatever it took."""


@dataclass(frozen=True)
class Comparison:
    """An edge in one kernel against the same operators with the edge between two; None: never measured.

    `failure`: why no time of the fused form is known although it was tried.
    """

    fused: GroupTime | None = None
    apart: GroupTime | None = None
    failure: str = ""

    @property
    def gain_us(self) -> float | None:
        """What fusing saves (negative: costs)."""
        return None if self.fused is None or self.apart is None else self.apart.us - self.fused.us

    @property
    def clear(self) -> bool:
        """Whether both times are known and differ beyond noise."""
        return self.fused is not None and self.apart is not None and not self.fused.overlaps(self.apart)


class Evidence:
    """Answers about one graph from the pieces that were measured of it."""

    def __init__(self, graph: Graph, pieces: Iterable[Piece]) -> None:
        self.graph = graph
        self._at: dict[str, list[Piece]] = {}
        self._best: dict[frozenset[str], Piece] = {}
        for piece in (piece for piece in pieces if not piece.copies):  # a copy changes what stands around it
            for name in piece.covers:
                self._at.setdefault(name, []).append(piece)
            known = self._best.get(piece.covers)
            if piece.span is not None and (known is None or known.span is None or piece.span.us < known.span.us):
                self._best[piece.covers] = piece
        self._found: dict[object, GroupTime | None] = {}

    def __bool__(self) -> bool:
        return bool(self._best)

    def edge(self, producer: str, consumer: str, groups: Mapping[str, frozenset[str]]) -> Comparison:
        """Both times of an edge, given a plan's groups (by each operator that they cover).

        Everything that the change touches is counted: the plan's kernels around the edge on one side, the cheapest
        measured kernels for the same operators on the other.
        """
        above, below = groups.get(producer), groups.get(consumer)
        if above is None or below is None:
            return Comparison()  # one of them stands in copies only
        if above == below:
            return Comparison(self.of(above), self._cheapest(above, (producer, consumer)))
        best: Comparison | None = None
        failure = ""
        for piece in self._at.get(producer, []):
            if consumer not in piece.covers:
                continue
            if piece.span is None:
                failure = failure or (piece.failure if piece.covers == above | below else "")
                continue
            found = self._joined(piece, groups)
            if found is not None and (best is None or (found.gain_us or 0.0) > (best.gain_us or 0.0)):
                best = found
        return best or Comparison(apart=self._sum({above, below}), failure=failure)

    def _joined(self, piece: Piece, groups: Mapping[str, frozenset[str]]) -> Comparison | None:
        """The plan's kernels that `piece` touches, against `piece` with the cheapest cover of what is left of them.

        None where nothing is known of that, or the plan has but copies of an operator of the piece.
        """
        if not piece.covers <= groups.keys():
            return None
        touched = {groups[name] for name in piece.covers}
        apart = self._sum(touched)
        rest = frozenset().union(*touched) - piece.covers
        left = self._cheapest(rest, None)
        if apart is None or left is None or piece.span is None:
            return None
        return Comparison(total([piece.span, left]), apart)

    def of(self, group: frozenset[str]) -> GroupTime | None:
        """Best time of a group, given as the operators of the model that it computes."""
        piece = self._best.get(group)
        return None if piece is None else piece.span

    def _sum(self, groups: Iterable[frozenset[str]]) -> GroupTime | None:
        spans = [self.of(group) for group in groups]
        known = [span for span in spans if span is not None]
        return total(known) if len(known) == len(spans) else None

    def _cheapest(self, operators: frozenset[str], split: tuple[str, str] | None) -> GroupTime | None:
        """The cheapest measured kernels that compute exactly `operators`, with `split` in two of them."""
        key = operators, split
        if key not in self._found:
            inside = [piece for covers, piece in self._best.items() if covers <= operators]
            if split is not None:
                inside = [piece for piece in inside if not piece.covers >= set(split)]
            self._found[key] = cheapest_cover(self.graph, operators, inside)
        return self._found[key]


def cheapest_cover(graph: Graph, operators: frozenset[str], pieces: Sequence[Piece]) -> GroupTime | None:
    """Time of the cheapest way to cover `operators` exactly by `pieces` that can run one after another.

    Branch and bound over the first operator left; None when there is no cover.
    """
    order = sorted(operators, key=graph.position.__getitem__)
    at: dict[str, list[tuple[Piece, GroupTime]]] = {name: [] for name in order}
    share = dict.fromkeys(order, float("inf"))
    for piece in pieces:
        if piece.span is not None:
            first = min(piece.covers, key=graph.position.__getitem__)
            at[first].append((piece, piece.span))
            for name in piece.covers:
                share[name] = min(share[name], piece.span.us / len(piece.covers))
    best: list[tuple[float, GroupTime]] = []
    steps = 0

    def descend(left: frozenset[str], taken: list[tuple[Piece, GroupTime]], us: float, bound: float) -> None:
        nonlocal steps
        steps += 1
        if (best and us + bound >= best[0][0]) or steps > MOST_STEPS:
            return
        if not left:
            if can_run(graph, [piece.covers for piece, _ in taken]):
                best[:] = [(us, total(span for _, span in taken))]
            return
        first = next(name for name in order if name in left)
        for piece, span in sorted(at[first], key=lambda pair: pair[1].us / len(pair[0].covers)):
            if piece.covers <= left:
                rest = bound - sum(share[name] for name in piece.covers)
                descend(left - piece.covers, [*taken, (piece, span)], us + span.us, rest)

    descend(operators, [], 0.0, sum(share.values()))
    return best[0][1] if best else None


def can_run(graph: Graph, groups: Sequence[frozenset[str]]) -> bool:
    """Whether groups (not always all of the graph) can run one after another."""
    owner = {name: index for index, group in enumerate(groups) for name in group}
    waits = TopologicalSorter[int]()
    for name, index in owner.items():
        producers = graph.predecessors(graph.by_name[name])
        waits.add(index, *{owner.get(producer.name, index) for producer in producers} - {index})
    try:
        waits.prepare()
    except CycleError:
        return False
    return True
