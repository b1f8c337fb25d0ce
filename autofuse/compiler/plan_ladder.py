"""The ladder of fusion plans; each is checked against the graph again, and an illegal one is a miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from autofuse.compiler.context import Context
from autofuse.compiler.report import HIT, MODEL, NAMED, NEAREST, NONE, RULE, SIMILAR, STALE
from autofuse.compiler.schedule_ladder import alike
from autofuse.database.records import EXACT, PlanChoice
from autofuse.device.target import Target
from autofuse.environment.named_plans import limited_plan
from autofuse.environment.plan_evidence import known_limits
from autofuse.errors import AutofuseError, PlanError, StrictMissError
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import NO_LIMITS, FusionPlan, ScheduleLimits
from autofuse.fusion.planner.baselines import default_plan, none_plan
from autofuse.fusion.planner.rewriting import RewritingPlanner, is_exact
from autofuse.fusion.space import FusionSpace
from autofuse.graph.key import graph_key
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.coverage import with_checked_groups
from autofuse.kernels.lowering.lower import Lowered, Lowering, lower

ADVICE_S = 20.0
"""Seconds for asking a model about plans."""


@dataclass(frozen=True)
class FoundPlan:
    """A plan, its rung and where it came from; `complete`: a tuning job of this very model ended with it.

    `trusted`: whether the time that it was chosen by is; None where it was not chosen by one. `limits`: what its
    schedules may do. `pinned`: candidates by the key of their workload that were chosen together with the plan, in
    place of the best. `together`: a race of whole networks decided the plan with its schedules.
    """

    plan: FusionPlan
    tier: str
    source: str
    complete: bool = False
    trusted: bool | None = None
    limits: ScheduleLimits = NO_LIMITS
    pinned: Mapping[str, int] = field(default_factory=dict)
    together: bool = False


def find_plan(context: Context, graph: Graph, model_sha256: str, asked: str | None) -> FoundPlan:
    """The plan that was `asked` for by name or file, else the best rung's.

    Whatever the plan, its schedules keep to the limits under which this network is known to be right as a whole, and
    to the policy's. StrictMissError when only what was measured here will do, and nothing was.
    """
    found = named_plan(context, graph, asked) if asked and asked != "best" else _climbed(context, graph, model_sha256)
    return limited(context, graph_key(graph), found)


def limited(context: Context, key: str, found: FoundPlan) -> FoundPlan:
    """A plan with all limits that its schedules keep to, for the graph of this key."""
    known = known_limits(context.database, context.environment.setting, key)
    return replace(found, limits=found.limits & known & context.policy.limits)


def named_plan(context: Context, graph: Graph, asked: str) -> FoundPlan:
    """The plan of this name, or in this file."""
    plan, limits = limited_plan(graph, asked)
    if (context.policy.limits & limits).exact and not is_exact(plan):
        raise PlanError(f"--exact: plan {asked} folds or rewrites so that results round differently")
    return FoundPlan(plan, NAMED, asked, limits=limits)


def _climbed(context: Context, graph: Graph, model_sha256: str) -> FoundPlan:
    """The best rung's."""
    policy = context.policy
    for found in _measured(context, graph):
        if policy.require_complete and not found.complete:
            raise StrictMissError(
                f"{graph.name}: no tuning job of this model ended with the versions installed now ({found.source}, "
                f"{found.tier}): run `autofuse tune`, or compile without --require-complete"
            )
        return found
    if policy.measured_only:
        raise StrictMissError(
            f"{graph.name}: the database has no plan for this model, device and {context.threads} thread(s)"
            f"{' that keeps every rounding' if policy.limits.exact else ''}: "
            f"run `autofuse tune` first, or compile {policy.without}"
        )
    for found in _transferred(context, graph, model_sha256):
        return found
    return missed(context, graph)


def known_plans(context: Context, graph: Graph, model_sha256: str) -> Iterator[FoundPlan]:
    """Plans that were measured, here before elsewhere and at other shapes."""
    yield from _measured(context, graph)
    yield from _transferred(context, graph, model_sha256)


def missed(context: Context, graph: Graph) -> FoundPlan:
    """The plan where none was measured, as the policy wants it."""
    if context.policy.on_miss == "none":
        return FoundPlan(none_plan(graph), NONE, "none")
    return _advised(context, graph) if context.policy.on_miss == "model" else _default(context, graph)


def _default(context: Context, graph: Graph) -> FoundPlan:
    return FoundPlan(default_plan(graph, FusionSpace(exact=context.policy.limits.exact)), RULE, "default rule")


def _advised(context: Context, graph: Graph) -> FoundPlan:
    """The plan that a trained model expects to be the fastest; the default rule's where it abstains."""
    from autofuse.learning.advice import PlanAdviser, advise

    space = FusionSpace(exact=context.policy.limits.exact)
    asked = PlanAdviser(context.adviser, Lowering(graph, context.environment.target))
    found = advise(graph, RewritingPlanner(graph, space), asked, ADVICE_S)
    if found.plan is None:
        return FoundPlan(default_plan(graph, space), RULE, f"default rule: the model abstains, {found.abstains}")
    gain = found.default_us / found.us - 1 if found.us > 0 else 0.0
    return FoundPlan(found.plan, MODEL, f"model: {len(found.answers)} changes, {gain:.1%} over the rule expected")


def _measured(context: Context, graph: Graph) -> Iterator[FoundPlan]:
    stored = context.database.best_plan(context.environment.setting, graph_key(graph))
    if stored is None:
        return
    plan = usable(context, graph, stored.plan)
    if plan is not None:
        exact = stored.tier == EXACT
        source = f"{stored.source} ({stored.origin})"
        complete = exact and stored.source == "chosen"
        together = complete and bool(stored.details.get("together"))
        rung = HIT if exact else STALE
        trusted = stored.trusted if stored.median_us is not None else None  # without a time there is nothing to trust
        yield FoundPlan(plan, rung, source, complete, trusted, pinned=pinned(stored), together=together)


def pinned(stored: PlanChoice) -> dict[str, int]:
    """Candidates by the key of their workload that a choice takes in place of the best: where no better ones made the
    whole network faster beyond doubt."""
    if not stored.details.get("pinned"):
        return {}
    return {one.workload_key: one.candidate_id for one in stored.groups if one.candidate_id is not None}


def _transferred(context: Context, graph: Graph, model_sha256: str) -> Iterator[FoundPlan]:
    """Legal plans of the same model from the devices most like this one, then from other input shapes here."""
    base, setting = context.database, context.environment.setting
    key = graph_key(graph)
    for row in alike(base, context.environment, base.foreign_plans(setting, key)):
        plan = usable(context, graph, row.plan)
        if plan is not None:
            yield FoundPlan(plan, SIMILAR, row.origin, limits=ScheduleLimits.from_json(row.limits))
    for form in base.forms_of_model(setting, model_sha256):
        stored = base.best_plan(setting, form) if form != key else None
        plan = usable(context, graph, stored.plan) if stored is not None else None
        if stored is not None and plan is not None:
            source = f"{stored.source} ({stored.origin}) for other input shapes"
            yield FoundPlan(plan, NEAREST, source, limits=known_limits(base, setting, form))


def usable(context: Context, graph: Graph, text: str) -> FusionPlan | None:
    """A stored plan, when it is legal here and rounds as the policy wants."""
    plan = _legal(graph, text)
    return plan if plan is not None and (is_exact(plan) or not context.policy.limits.exact) else None


def _legal(graph: Graph, text: str) -> FusionPlan | None:
    """A stored plan, when it is legal here."""
    try:
        plan = FusionPlan.from_json(text)
        check_plan(graph, plan)
    except AutofuseError:
        return None
    return plan


def checked_plan(context: Context, graph: Graph, chosen: FoundPlan) -> tuple[FoundPlan, Lowered]:
    """A plan whose every group has a kernel, and `graph` lowered by it."""
    lowered = _lowered(graph, chosen.plan, context.environment.target)
    checked = with_checked_groups(chosen.plan, lowered)
    if checked == chosen.plan:
        return chosen, lowered
    return replace(chosen, plan=checked), _lowered(graph, checked, context.environment.target)


def _lowered(graph: Graph, plan: FusionPlan, target: Target) -> Lowered:
    return lower(graph, plan, target, [group.operators for group in plan.groups])
