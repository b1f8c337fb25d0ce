"""The groups of a program with an open size: those of a plan, where no attention cuts them.

All operators of an attention are one group, and so are the two of a shift; one that picks rows by their number, reduces
over all of them, sums them up, recurs over them, appends some to a cache, or turns an input or an output, is a group by
itself. What a plan has beside them in a group stays together where it hangs together, and is taken apart where it
cannot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autofuse.errors import PlanError
from autofuse.fusion.legality import ordered_groups
from autofuse.fusion.planner.baselines import PRODUCTS
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.attention import appends
from autofuse.graph.transform.open_sizes.group_kinds import GroupKind
from autofuse.graph.transform.open_sizes.lengths import OpenLengths, joint_attentions
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph
from autofuse.graph.transform.open_sizes.over_rows.recurrences import recurs
from autofuse.graph.transform.open_sizes.over_rows.sequences import is_of_sequences
from autofuse.graph.transform.open_sizes.over_rows.shifts import shifts
from autofuse.graph.transform.open_sizes.over_rows.turns import turns
from autofuse.graph.transform.open_sizes.repeats import counts
from autofuse.graph.transform.open_sizes.rows import picked_rows, reduces_rows, sums_rows

Operators = tuple[str, ...]


@dataclass(frozen=True)
class Grouped(GroupKind):
    """`operators` of one kernel, and what they are."""

    operators: Operators


def open_groups(opened: OpenLengths, planned: Sequence[Operators]) -> list[Grouped]:
    """The groups of an open graph, in an order in which they can run; `planned`: those of its plan."""
    graph = opened.graph
    apart = _apart(opened)
    own = {name: group for group in apart for name in group.operators}
    if len(opened.views) > 1:
        planned = [part for operators in planned for part in _of_one_length(opened, operators)]
    if not own:
        return [Grouped(operators) for operators in planned]
    known = {name for group in planned for name in group}
    planned = [*planned, *((name,) for name in graph.by_name if name not in known)]
    kept: list[Operators] = []
    cut: list[Operators] = []
    for group in planned:
        rest = tuple(name for name in group if name in graph.by_name and name not in own)
        (kept if len(rest) == len(group) else cut).append(rest)
    pieces = [piece for rest in cut for piece in _connected(graph, rest)]
    singles = [(name,) for group in kept for name in group]
    for tried in (
        [*kept, *pieces],
        [*kept, *_single(cut)],
        [*singles, *_single(cut)],
    ):
        try:
            return _ordered(graph, tried, apart)
        except PlanError:
            continue
    raise PlanError(f"{graph.name}: an attention waits for itself")


def behind_products(graph: Graph, planned: Sequence[Operators], least_bytes: int) -> list[Operators]:
    """The groups of a plan, in which a Split behind a product of so many bytes of weights begins a group of its own.

    A kernel of both computes some rows at a time, so that the product would read its weights for each of these.
    """
    found: list[Operators] = []
    for group in planned:
        behind = _behind_split(graph, group)
        first = tuple(name for name in group if name not in behind)
        cut = behind and any(_reads_constants(graph, name, least_bytes) for name in first)
        found += [first, tuple(name for name in group if name in behind)] if cut else [group]
    return found


def _behind_split(graph: Graph, group: Operators) -> set[str]:
    """The Splits of a group, and what reads their results in it."""
    found: set[str] = set()
    for operator in graph.operators:
        if operator.name in group:
            after = any(other.name in found for other in graph.predecessors(operator))
            if after or operator.op_type == "Split":
                found.add(operator.name)
    return found


def _reads_constants(graph: Graph, name: str, least_bytes: int) -> bool:
    operator = graph.by_name[name]
    weights = (graph.tensors[one].size_bytes for one in operator.inputs if one in graph.constants)
    return operator.op_type in PRODUCTS and max(weights, default=0) >= least_bytes


def _single(groups: Sequence[Operators]) -> list[Operators]:
    return [(name,) for group in groups for name in group]


def _of_one_length(opened: OpenLengths, operators: Operators) -> list[Operators]:
    """The operators of a group by the open length that they touch; those that touch none are with the first ones."""
    found: dict[int, list[str]] = {}
    for name in operators:
        operator = opened.graph.by_name[name]
        touched = (opened.number(one) for one in (*operator.inputs, *operator.outputs) if opened.has(one))
        found.setdefault(next((one for one in touched if one is not None), 0), []).append(name)
    return [tuple(part) for part in found.values()]


def _apart(opened: OpenLengths) -> list[Grouped]:
    """The groups that no plan decides about."""
    found = [Grouped(attention.operators, attention=attention) for attention in joint_attentions(opened)]
    inside = {name for group in found for name in group.operators}
    for view in opened.views:
        known = {group.operators for group in found}
        found += [group for group in _apart_in(view, inside) if group.operators not in known]
    return found


def _apart_in(opened: OpenGraph, attending: Collection[str]) -> list[Grouped]:
    """Those of one open length, but for attentions, whose operators are `attending`."""
    found = [Grouped(shift.operators, shift=shift) for shift in shifts(opened)]
    inside = {*attending, *(name for group in found for name in group.operators)}
    for operator in opened.graph.operators:
        picked = None if operator.name in inside else picked_rows(opened, operator)
        if picked is not None:
            found.append(Grouped((operator.name,), picked=picked))
        elif operator.name not in inside and reduces_rows(opened, operator):
            found.append(Grouped((operator.name,), reduces=True))
        elif sums_rows(opened, operator):
            found.append(Grouped((operator.name,), sums=True))
        elif counts(operator):
            found.append(Grouped((operator.name,), counts=True))
        elif recurs(opened, operator):
            found.append(Grouped((operator.name,), recurs=True))
        elif appends(opened, operator):
            found.append(Grouped((operator.name,), appends=True))
        elif turns(opened, operator):
            found.append(Grouped((operator.name,), turns=True))
        elif is_of_sequences(operator):
            found.append(Grouped((operator.name,), sequences=True))
    return found


def _ordered(graph: Graph, groups: Sequence[Operators], apart: Sequence[Grouped]) -> list[Grouped]:
    special: Mapping[frozenset[str], Grouped] = {frozenset(group.operators): group for group in apart}
    ordered = ordered_groups(graph, [*groups, *(group.operators for group in apart)])
    return [special.get(frozenset(group.operators), Grouped(group.operators)) for group in ordered]


def _connected(graph: Graph, operators: Operators) -> list[Operators]:
    """Operators in parts of which each hangs together by what they hand to one another."""
    left, found = dict.fromkeys(operators), []
    while left:
        wanted, part = [next(iter(left))], set()
        while wanted:
            name = wanted.pop()
            if name not in left:
                continue
            del left[name]
            part.add(name)
            operator = graph.by_name[name]
            wanted += [other.name for other in (*graph.predecessors(operator), *graph.successors(operator))]
        found.append(tuple(name for name in operators if name in part))
    return found
