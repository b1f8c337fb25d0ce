"""What each decision of a search was worth: from no fusion to the plan that was chosen, step by step.

The steps are differences of sums of kernels, so they add up exactly; what whole networks say beyond those sums is the
remainder. Two plans are compared where they differ: the smallest sets of operators that both part into kernels of
their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from autofuse.environment.plan_evidence import groups_of
from autofuse.environment.worth import Waterfall, WaterfallStep
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.model import Graph
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.rewrite.driver import apply
from autofuse.search.progress import PlanTime
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.schedules.schedule_search import WorkloadSearch
from autofuse.search.standing.standing import Standing
from autofuse.values.names import NO_FUSION, UNTUNED

RULE, REWRITE, SCHEDULES, BARE_SCHEDULES = "rule", "rewrite", "schedules", "schedules of no fusion"
FUSED, APART, REGROUPED, LAYOUT, OTHERS = "fused", "apart", "regrouped", "layout", "others"
DEFAULT = "default"
MOST_CHANGES = 12
"""Changes of the default plan that are named, the largest first; the others are one step."""
NAMED = 5e-4
"""Part of the time below which a change is not named."""
MOST_PARTS = 3
"""Kernels that the name of a change lists on each side."""

Cost = Callable[[WorkloadSearch], float | None]


@dataclass(frozen=True)
class _Kernel:
    """A group of a plan: the operators that it computes, the kinds in it, its time with the launch (0: a view)."""

    covers: frozenset[str]
    key: str
    kinds: str
    us: float


@dataclass
class Region:
    """Operators that two plans part differently: their kernels there, and the rewrites that only one of them makes."""

    before: list[_Kernel] = field(default_factory=list)
    after: list[_Kernel] = field(default_factory=list)
    rules: set[str] = field(default_factory=set)

    @property
    def saved_us(self) -> float:
        """What the change takes off."""
        return sum(one.us for one in self.before) - sum(one.us for one in self.after)

    @property
    def alike(self) -> bool:
        """Whether both plans have the same kernels there."""
        return Counter((one.covers, one.key) for one in self.before) == Counter(
            (one.covers, one.key) for one in self.after
        )

    @property
    def kind(self) -> str:
        """What kind of decision the change is."""
        if self.rules:
            return REWRITE
        if Counter(one.covers for one in self.before) == Counter(one.covers for one in self.after):
            return LAYOUT
        more = len(self.after) - len(self.before)
        return FUSED if more < 0 else APART if more > 0 else REGROUPED

    @property
    def what(self) -> str:
        """The change in the words of the operators: "Conv+Add | Relu -> Conv+Add+Relu"."""
        if self.rules:
            return ", ".join(sorted(self.rules))
        if self.kind == LAYOUT:
            return _parts(self.after)
        return f"{_parts(self.before)} -> {_parts(self.after)}"


def _parts(kernels: Sequence[_Kernel]) -> str:
    named = " | ".join(one.kinds for one in kernels[:MOST_PARTS])
    return named if len(kernels) <= MOST_PARTS else f"{named} | {len(kernels) - MOST_PARTS} more"


def waterfall(standing: Standing, chosen: FusionPlan, name: str, times: Mapping[str, PlanTime]) -> Waterfall | None:
    """The steps from no fusion to the plan `chosen`, called `name`; `times`: of the finalists.

    From the default plan where nothing is known of no fusion; None where the default plan has no time for each kernel.
    """
    evidence, none, default = standing.evidence, standing.baselines.get(NO_FUSION), standing.baselines.get(DEFAULT)
    end_us = evidence.composed_us(chosen)
    default_us = evidence.composed_us(default) if default is not None else None
    if default is None or default_us is None or end_us is None:
        return None
    first_us = sum(one.us for one in _kernels(evidence, default, _first))
    if name == UNTUNED:
        end_us = evidence.rule_us(default) or first_us
    own = [WaterfallStep(SCHEDULES, "better ones of the rule's kernels", 1, first_us - default_us)]
    own += _named(changes_between(evidence, default, chosen, at_best), default_us)
    own = [one for one in own if one.us and name != UNTUNED]
    time, none_us = times[name], evidence.composed_us(none) if none is not None else None
    if time.median_us is None or time.speedup is None:
        if none is None or none_us is None:
            if not own:
                return None
            start = f"{DEFAULT}, first schedules"
            return Waterfall(start, first_us, tuple(own), 0.0, name, end_us, False, first_us, end_us)
        steps = (*_to_the_rule(evidence, none, default), *own)
        return Waterfall(NO_FUSION, none_us, steps, 0.0, name, end_us, False, none_us, end_us)
    start_us = time.median_us * time.speedup
    if none is not None and none_us is not None:
        rule = _to_the_rule(evidence, none, default)
    else:
        schedules_us = 0.0 if name == UNTUNED else first_us - default_us
        rule = [_rule_as_a_whole(start_us, times.get(UNTUNED if name == UNTUNED else DEFAULT), schedules_us, first_us)]
    steps = (*rule, *own)
    remainder_us = start_us - time.median_us - sum(one.us for one in steps)
    return Waterfall(NO_FUSION, start_us, steps, remainder_us, name, time.median_us, True, none_us, end_us)


def _rule_as_a_whole(start_us: float, default: PlanTime | None, schedules_us: float, first_us: float) -> WaterfallStep:
    """What the fixed rule fuses, where the kernels of no fusion have no times of their own: by whole networks, less
    what schedules gave to the `default` plan."""
    if default is not None and default.median_us is not None and default.speedup is not None:
        whole_us = start_us - start_us / default.speedup
        return WaterfallStep(RULE, "what the fixed rule fuses, by times of whole networks", 1, whole_us - schedules_us)
    what = "what the fixed rule fuses, and what sums of kernels do not see"
    return WaterfallStep(RULE, what, 1, start_us - first_us)


def _to_the_rule(evidence: SearchEvidence, none: FusionPlan, default: FusionPlan) -> list[WaterfallStep]:
    """From no fusion with its best schedules to the default plan with its first ones: what the rule decides is
    compared with the first schedule on both sides, so that neither had more care."""
    first_us, best_us = (sum(one.us for one in _kernels(evidence, none, cost)) for cost in (_first, at_best))
    regions = changes_between(evidence, none, default, _first)
    fused = [region for region in regions if not region.rules]
    rewritten = _merged(region for region in regions if region.rules)
    steps = [WaterfallStep(BARE_SCHEDULES, "first ones from here on", 1, best_us - first_us)]
    steps.append(WaterfallStep(RULE, "what the fixed rule fuses", len(fused), sum(region.saved_us for region in fused)))
    steps += [WaterfallStep(REWRITE, f"{one.what} (by the rule)", one.times, one.us) for one in rewritten]
    return [one for one in steps if one.us]


def _named(regions: Iterable[Region], total_us: float) -> list[WaterfallStep]:
    """A step for each change that is worth naming, equal ones together, and one for the others."""
    found = _merged(regions)
    named = [one for one in found if abs(one.us) >= NAMED * total_us][:MOST_CHANGES]
    others = [one for one in found if one not in named]
    if others:
        count = sum(one.times for one in others)
        named.append(WaterfallStep(OTHERS, "smaller changes", count, sum(one.us for one in others)))
    return named


def _merged(regions: Iterable[Region]) -> list[WaterfallStep]:
    """Equal changes as one step each, the largest first."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(list)
    for region in regions:
        sums[region.kind, region.what].append(region.saved_us)
    steps = [WaterfallStep(kind, what, len(us), sum(us)) for (kind, what), us in sums.items()]
    return sorted(steps, key=lambda one: -abs(one.us))


def changes_between(evidence: SearchEvidence, before: FusionPlan, after: FusionPlan, cost: Cost) -> list[Region]:
    """Where two plans differ, and what it is worth."""
    old, new = _kernels(evidence, before, cost), _kernels(evidence, after, cost)
    ties = _ties(evidence.graph, before, after)
    places = _components([*(one.covers for one in old), *(one.covers for one in new), *(names for names, _ in ties)])
    regions: dict[int, Region] = defaultdict(Region)
    for place, kernel in zip(places, old, strict=False):
        regions[place].before.append(kernel)
    for place, kernel in zip(places[len(old) :], new, strict=False):
        regions[place].after.append(kernel)
    for place, (_, rule) in zip(places[len(old) + len(new) :], ties, strict=True):
        regions[place].rules |= {rule} if rule else set()
    return [region for region in regions.values() if not region.alike]


def _kernels(evidence: SearchEvidence, plan: FusionPlan, cost: Cost) -> list[_Kernel]:
    found = []
    for piece, bound in zip(groups_of(evidence.graph, plan), evidence.admit(plan).groups, strict=True):
        view = is_free_reshape(bound.workload)
        us = 0.0 if view else (cost(evidence.searches[bound.workload.key]) or 0.0) + LAUNCH_US
        kinds = "+".join(operator.op_type for operator in bound.workload.operators)
        found.append(_Kernel(piece.covers, bound.workload.key, kinds, us))
    return found


def _first(search: WorkloadSearch) -> float | None:
    return search.first_us


def at_best(search: WorkloadSearch) -> float | None:
    return search.best_us


def _ties(graph: Graph, before: FusionPlan, after: FusionPlan) -> list[tuple[frozenset[str], str]]:
    """Operators that belong together although no kernel has them all: what a rewrite that only one of the plans makes
    takes and leaves (with its rule), and an operator and the reader that has a copy of it (with "")."""
    found = []
    for plan, other in ((before, after), (after, before)):
        own = [step for step in plan.rewrites if step not in other.rewrites]
        found += [(names, step.partition("@")[0]) for step, names in _rewritten(graph, plan.rewrites, own)]
        found += [(frozenset((copy.operator, copy.reader)), "") for copy in plan.copies]
    return found


def _rewritten(graph: Graph, rewrites: Sequence[str], wanted: Sequence[str]) -> Iterable[tuple[str, frozenset[str]]]:
    """Each `wanted` step of `rewrites`, in their order, with the operators that it removes, makes or changes.

    Steps up to the next wanted one are made at once, those after the last one not at all: each takes as long as going
    through the whole graph.
    """
    done = 0
    for step in wanted:
        place = rewrites.index(step, done)
        graph = apply(graph, rewrites[done:place])
        after = apply(graph, (step,))
        names = {*graph.by_name, *after.by_name}
        yield step, frozenset(name for name in names if graph.by_name.get(name) != after.by_name.get(name))
        graph, done = after, place + 1


def _components(sets: Sequence[frozenset[str]]) -> list[int]:
    """The number of the connected component that each set is in; sets that share a name are connected."""
    places = {name: len(sets) + place for place, name in enumerate(dict.fromkeys(name for one in sets for name in one))}
    pairs = [(number, places[name]) for number, one in enumerate(sets) for name in one]
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    size = len(sets) + len(places)
    _, labels = connected_components(coo_array((np.ones(len(rows)), (rows, columns)), (size, size)), directed=False)
    return [int(label) for label in labels[: len(sets)]]
