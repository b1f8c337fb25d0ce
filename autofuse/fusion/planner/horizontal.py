"""Groups side by side: operators that do not need one another, and gain by sharing a kernel.

Siblings read one tensor: in one kernel it is read once. Small equal operators gain one launch for several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autofuse.fusion.context import operator_label
from autofuse.fusion.edges import Edges
from autofuse.fusion.legality import Legality
from autofuse.fusion.planner.sites import SiblingSite
from autofuse.graph.mapping import MappingType

HORIZONTAL, BATCH = "horizontal", "batch"
"""Kinds of decision: siblings that read one tensor; small equal operators that share nothing."""
JOIN = "join"
"""The answer that puts them into one kernel."""
SMALL_ELEMENTS = 16_384
"""Elements of a result up to which an operator's launch is worth saving."""
MOST_TOGETHER = 8


def sibling_sites(edges: Edges) -> list[SiblingSite]:
    """Operators of one type that read one tensor and do not need one another, in topological order."""
    graph = edges.graph
    found: dict[SiblingSite, None] = {}
    for tensor in graph.tensors:
        if tensor in graph.constants:
            continue
        kinds: dict[str, list[str]] = {}
        for user in graph.consumers.get(tensor, ()):
            if edges.own[user.name] != MappingType.OPAQUE:
                kinds.setdefault(user.op_type, []).append(user.name)
        for names in kinds.values():
            site = _independent(edges, names)
            if len(site.operators) > 1:
                found[site] = None
    return list(found)


def batch_sites(edges: Edges, siblings: Iterable[SiblingSite]) -> list[SiblingSite]:
    """Small operators that are equal but for names, equally far from the inputs, and not siblings already."""
    graph = edges.graph
    known = {name for site in siblings for name in site.operators}
    level: dict[str, int] = {}
    alike: dict[tuple[int, str], list[str]] = {}
    for operator in graph.operators:
        name = operator.name
        level[name] = 1 + max((level[edge.producer] for edge in edges.into[name]), default=-1)
        size = max((graph.tensors[out].elements for out in operator.outputs if out), default=0)
        launched = edges.own[name] not in (MappingType.OPAQUE, MappingType.REORGANIZE)  # a view costs no launch
        if size <= SMALL_ELEMENTS and name not in known and launched:
            alike.setdefault((level[name], operator_label(graph, operator)), []).append(name)
    sites = (_independent(edges, names) for names in alike.values())
    return [site for site in sites if len(site.operators) > 1]


def _independent(edges: Edges, names: Sequence[str]) -> SiblingSite:
    """The first few of `names` of which none needs another."""
    reach = edges.reach
    kept: list[str] = []
    mask = 0
    for name in names:
        place = reach.position[name]
        if not (reach.ancestors[place] | reach.descendants[place]) & mask:
            kept.append(name)
            mask |= 1 << place
        if len(kept) == MOST_TOGETHER:
            break
    return SiblingSite(tuple(kept))


def joined(
    groups: Sequence[tuple[str, ...]], sites: Iterable[SiblingSite], legality: Legality
) -> list[tuple[str, ...]]:
    """The groups, with those that hold operators of one site as one group where that is legal.

    `legality` has settled `groups`, and settles what is joined.
    """
    result: dict[int, tuple[str, ...]] = dict(enumerate(groups))
    owner = {name: number for number, group in result.items() for name in group}
    position = legality.reach.position
    for site in sites:
        numbers = list(dict.fromkeys(owner[name] for name in site.operators if name in owner))
        for other in numbers[1:]:
            first = numbers[0]
            together = (*result[first], *result[other])
            if legality.may_merge(legality.reach.mask(result[first]), legality.reach.mask(result[other])):
                result[first] = tuple(sorted(together, key=position.__getitem__))
                owner.update(dict.fromkeys(result.pop(other), first))
                legality.settle(legality.reach.mask(result[first]))
    return list(result.values())
