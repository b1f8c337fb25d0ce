"""What a plan changes of another: the kernels that it replaces, those that come, and what that is expected to save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.planner import Decision
from autofuse.search.plans.plan_search import Flip, PlanSearch
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.schedules.expectations import chance, saved_by_change
from autofuse.search.schedules.schedule_search import WorkloadSearch


@dataclass(frozen=True)
class Change:
    """A change: how often each workload goes, and how often each comes, by key."""

    gone: Mapping[str, int]
    come: Mapping[str, int]

    @classmethod
    def between(cls, evidence: SearchEvidence, old: FusionPlan, new: FusionPlan) -> Change:
        """What `new` changes of `old`; both are made known to the evidence."""
        before, after = evidence.uses(old), evidence.uses(new)
        return cls(before - after, after - before)


def us_of(evidence: SearchEvidence, uses: Mapping[str, int]) -> float:
    """Microseconds of workloads with their launches; one without a time counts as none."""
    times = ((count, evidence.kernel_us(key)) for key, count in uses.items())
    return sum(count * us for count, us in times if us is not None)


@dataclass(frozen=True)
class Prospective:
    """A plan that may be tried: what it is expected to save, and the workloads that must be measured for it."""

    flip: Flip
    saved_us: float
    missing: tuple[WorkloadSearch, ...]


def single(evidence: SearchEvidence, default: FusionPlan, flip: Flip, most_us: float) -> Prospective:
    """The prospect of one changed decision: a part of the time of the kernels that it replaces, `most_us` at most."""
    replaced_us = us_of(evidence, Change.between(evidence, default, flip.plan).gone)
    saved_us = min(saved_by_change(flip.kind, replaced_us), most_us)
    return Prospective(flip, saved_us, tuple(evidence.missing(flip.plan)))


def several(evidence: SearchEvidence, best: FusionPlan, flip: Flip, behind_us: float, most_us: float) -> Prospective:
    """The prospect of several changed decisions: of the kernels that they replace in the best plan, a part according to
    how many of those that come have no time yet; what they are known to lose must be made up for first."""
    change, missing = Change.between(evidence, best, flip.plan), evidence.missing(flip.plan)
    unknown = sum(change.come.get(one.key, 0) for one in missing) / max(1, sum(change.come.values()))
    saved_us = min(saved_by_change(flip.kind, us_of(evidence, change.gone) * unknown), most_us)
    return Prospective(flip, chance(saved_us, behind_us), tuple(missing))


def chosen(
    found: Iterable[Prospective], candidate_s: float, planning_s: float, most: int, candidates: int, least: float
) -> tuple[list[Prospective], float]:
    """Those that promise most for their seconds, `most` at most with so many `candidates` together, and the seconds.

    A group that several need counts once. Those that promise less than the part `least` of what the first does for a
    second are left for later: what comes first may change what is expected of them.
    """
    ranked = sorted(found, key=lambda one: -one.saved_us / (planning_s + len(one.missing) * candidate_s))
    taken: list[Prospective] = []
    needed: dict[str, WorkloadSearch] = {}
    for one in ranked:
        new = {search.key: search for search in one.missing if search.key not in needed}
        if taken and (
            len(taken) == most
            or len(needed) + len(new) > candidates
            or one.saved_us / (planning_s + len(new) * candidate_s) < least * _rate(taken[0], candidate_s, planning_s)
        ):
            continue
        taken.append(one)
        needed |= new
    return taken, len(taken) * planning_s + len(needed) * candidate_s


def _rate(one: Prospective, candidate_s: float, planning_s: float) -> float:
    return one.saved_us / (planning_s + len(one.missing) * candidate_s)


def weights_of(evidence: SearchEvidence, plan: FusionPlan) -> Callable[[Decision], float]:
    """Microseconds of the kernels that a decision is about, by the operators at its sites, without planning it."""
    us: dict[str, float] = {}
    lowered = evidence.admit(plan)
    for group, bound in zip(plan.groups, lowered.groups, strict=True):
        search = evidence.searches.get(bound.workload.key)
        us |= dict.fromkeys(group.operators, (search.best_us or 0.0) if search is not None else 0.0)
    whole = sum(us.values())

    def weight(decision: Decision) -> float:
        if not decision.sites:
            return 0.0
        known = [us[name] for site in decision.sites for name in site.operators if name in us]
        return sum(known) if known else whole / max(1, len(us))

    return weight


def needed(found: Sequence[Prospective]) -> list[WorkloadSearch]:
    """The workloads that must be measured for some plans, each once."""
    return list({search.key: search for one in found for search in one.missing}.values())


def behind(evidence: SearchEvidence, changes: Sequence[Change]) -> list[float]:
    """By how many microseconds each change that was tried stands behind the best one that replaces a kernel which it
    replaces, or behind no change at all."""
    saved = [us_of(evidence, one.gone) - us_of(evidence, one.come) for one in changes]
    best: dict[str, float] = {}
    for change, us in zip(changes, saved, strict=True):
        for key in change.gone:
            best[key] = max(us, best.get(key, 0.0))
    ahead = (max((best[key] for key in one.gone), default=0.0) for one in changes)
    return [max(0.0, best_us - us) for best_us, us in zip(ahead, saved, strict=True)]


def changes_tried(evidence: SearchEvidence, plans: PlanSearch) -> list[Change]:
    """What the single flips that were tried change of the defaults."""
    return [Change.between(evidence, plans.default, plan) for plan in plans.tried.values()]
