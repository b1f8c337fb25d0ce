"""The best plan that a job's measured groups make, looked for exactly, and built up to a plan with a known time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autofuse.environment.plan_evidence import groups_of
from autofuse.errors import PlanError
from autofuse.fusion.evidence import GroupTime, Identity, Piece
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.skeleton import settled
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import BoundWorkload
from autofuse.search.budget.budget import Budget
from autofuse.search.composition.composition import Composition, compose, gap_of
from autofuse.search.lab.lab import Lab
from autofuse.search.progress import CompositionReport
from autofuse.search.schedules.evidence import SearchEvidence

MOST_ROUNDS = 6
"""Plans composed one after another, each with what the one before has taught about times in their layouts."""
MOST_VARIANTS = 3
"""Sets of rewrites within which plans are composed: groups of differently rewritten graphs do not fit together."""
SAME = 1e-6


@dataclass(frozen=True)
class Composed:
    """A plan with the sum of its groups' times, as measured in the layouts that they have in it, and as races of whole
    networks correct them.

    `keys`: of every plan that was composed on the way and was no plan of the search before.
    """

    plan: FusionPlan
    us: float
    report: CompositionReport
    keys: frozenset[str]


def compose_measured(evidence: SearchEvidence, lab: Lab | None, budget: Budget) -> Composed | None:
    """The best plan of everything that has a time; None when the groups cover the model in no way.

    See `_compose_variant`; plans are composed of groups of one rewritten graph, for the most promising ones.
    """
    variants = (_compose_variant(evidence, lab, rewrites, budget) for rewrites in _variants(evidence))
    found = [composed for composed in variants if composed is not None]
    if not found:
        return None
    best = min(found, key=lambda composed: composed.us)
    return replace(best, keys=frozenset().union(*(composed.keys for composed in found)))


def _variants(evidence: SearchEvidence) -> list[tuple[str, ...]]:
    """The rewrites of the best plans, each once, the fastest first."""
    best: dict[tuple[str, ...], float] = {}
    for plan, _ in evidence.known_plans():
        us = evidence.expected_us(plan)
        best[plan.rewrites] = min(best.get(plan.rewrites, float("inf")), float("inf") if us is None else us)
    return sorted(best, key=lambda rewrites: (best[rewrites], len(rewrites)))[:MOST_VARIANTS]


def _compose_variant(
    evidence: SearchEvidence, lab: Lab | None, rewrites: tuple[str, ...], budget: Budget
) -> Composed | None:
    """The best plan of the groups of one rewritten graph.

    A group's time depends a little on the layout of what it reads, which the plan around it decides: the composition
    is made with each group's best time, then with what its plans really took, until both agree. A group in a layout of
    which no time is known is measured by `lab`, if there is one.
    """
    graph, _ = settled(evidence.graph, FusionPlan((), rewrites=rewrites))
    known: dict[Identity, float] = {}
    best: tuple[FusionPlan, float] | None = None
    first: Composition | None = None
    seen: set[str] = set()
    made: set[str] = set()
    for _ in range(MOST_ROUNDS):
        found = compose(graph, pieces_of(evidence, rewrites), known, budget.left)
        if found is None:
            break
        found = replace(found, plan=replace(found.plan, rewrites=rewrites))
        first = first or found
        if found.plan.key in seen or not _legal(evidence, found.plan):
            break
        seen.add(found.plan.key)
        made |= {found.plan.key} - evidence.lowered.keys()
        evidence.admit(found.plan)
        if lab is not None:
            lab.measure_first(evidence.missing(found.plan), budget)
        time_us = evidence.expected_us(found.plan)
        if time_us is not None and (best is None or time_us < best[1]):
            best = found.plan, time_us
        if time_us is not None and abs(time_us - found.us) <= SAME * time_us:
            break
        known |= _times_in(evidence, found.plan)
    if best is None or first is None:
        return None
    distinct = sum(region.same_as < 0 for region in first.regions)
    report = CompositionReport(
        None, best[1], first.us, None, len(first.regions), distinct, first.cuts, len(seen), first.seconds
    )
    return Composed(best[0], best[1], report, frozenset(made))


def report_now(evidence: SearchEvidence, composed: Composed) -> CompositionReport:
    """The composition beside the best plan that was sampled, both by what is known now: a kernel that was measured
    again since the plans were summed counts with its new time on both sides."""
    sampled = (evidence.composed_us(plan) for plan, _ in evidence.known_plans() if plan.key not in composed.keys)
    sampled_us = min((us for us in sampled if us is not None), default=None)
    us = evidence.composed_us(composed.plan) or composed.us
    us = us if sampled_us is None else min(us, sampled_us)
    gap = None if sampled_us is None else gap_of(sampled_us, us)
    bound_us = min(composed.report.bound_us, us)
    return replace(composed.report, sampled_us=sampled_us, composed_us=us, bound_us=bound_us, gap=gap)


def pieces_of(evidence: SearchEvidence, rewrites: tuple[str, ...] = ()) -> list[Piece]:
    """Every group of every plan of a job with these rewrites, with its best time in any layout."""
    best: dict[Piece, float] = {}
    for plan, lowered in evidence.known_plans():
        if plan.rewrites != rewrites:
            continue
        for piece, bound in zip(groups_of(evidence.graph, plan), lowered.groups, strict=True):
            us = group_us(evidence, bound)
            if us is not None:
                best[piece] = min(us, best.get(piece, us))
    return [replace(piece, span=GroupTime(us, us, us)) for piece, us in best.items()]


def group_us(evidence: SearchEvidence, bound: BoundWorkload) -> float | None:
    """What a group is expected to take with its launch; nothing for a view; None when it has no time."""
    return 0.0 if is_free_reshape(bound.workload) else evidence.kernel_us(bound.workload.key)


def _times_in(evidence: SearchEvidence, plan: FusionPlan) -> dict[Identity, float]:
    """What each group really takes in a plan; a group that cannot be built there costs without end."""
    times = {}
    for piece, bound in zip(groups_of(evidence.graph, plan), evidence.admit(plan).groups, strict=True):
        us = group_us(evidence, bound)
        times[piece.identity] = float("inf") if us is None else us
    worst = sum(us for us in times.values() if us != float("inf"))
    return {here: min(us, 1e3 * worst) for here, us in times.items()}


def _legal(evidence: SearchEvidence, plan: FusionPlan) -> bool:
    try:
        check_plan(evidence.graph, plan)
    except PlanError:
        return False
    return True
