"""The plan of a model with open sizes: what `tune --sizes` chose for it, else what is known of fixed sizes, or the
rule's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.compiler.context import Context
from autofuse.compiler.plan_ladder import FoundPlan, known_plans, limited, missed, named_plan, usable
from autofuse.compiler.report import HIT, NEAREST, RULE, STALE
from autofuse.database.records import EXACT, Json, PlanChoice
from autofuse.errors import AutofuseError, StrictMissError
from autofuse.fusion.planner.baselines import plan_of_rows
from autofuse.fusion.space import FusionSpace
from autofuse.graph.key import graph_key, open_key
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.model import Graph

SIZES = "sizes"
"""Name of the ranges among the details of a choice."""


@dataclass(frozen=True, eq=False)
class OpenForm:
    """A model with open `sizes`, for which plans are looked up. `graph`: as it is at some sizes; `sha256`: its file's.

    `check`: AutofuseError for a plan that leaves a graph in which these sizes cannot stay open.
    """

    graph: Graph
    sha256: str
    sizes: tuple[OpenSize, ...]
    check: Callable[[FoundPlan], object]

    @property
    def key(self) -> str:
        """What plans and choices of this form belong to."""
        return open_key(graph_key(self.graph), (size.name for size in self.sizes))

    @property
    def model_key(self) -> str:
        """The same for all ranges of these sizes."""
        return open_key(self.sha256, (size.name for size in self.sizes))

    def fits(self, found: FoundPlan) -> bool:
        """Whether the sizes may stay open under a plan."""
        try:
            self.check(found)
        except AutofuseError:
            return False
        return True


def find_open_plan(context: Context, form: OpenForm, asked: str | None) -> FoundPlan:
    """The plan that was `asked` for by name or file, else what a search over open sizes chose, else what is known of
    fixed ones, else the rule's.

    StrictMissError when only what was measured here will do, and no search over these sizes has ended.
    """
    policy = context.policy
    if asked and asked != "best":
        return limited(context, form.key, named_plan(context, form.graph, asked))
    found = next(_chosen(context, form), None)
    if policy.measured_only and (found is None or (policy.require_complete and not found.complete)):
        reason = "no search of plans over these sizes ended here"
        if found is not None:
            reason += f" with these ranges and the versions installed now ({found.source}, {found.tier})"
        raise StrictMissError(
            f"{form.graph.name}: {reason}: run `autofuse tune` with the same --sizes, or compile {policy.without}"
        )
    if found is None:
        known = known_plans(context, form.graph, form.sha256)
        found = next((one for one in known if form.fits(one)), None)
    if found is None and policy.on_miss not in ("none", "model"):
        found = rule_plan(context, form)
    return limited(context, form.key, found or missed(context, form.graph))


def rule_plan(context: Context, form: OpenForm) -> FoundPlan:
    """The plan where nothing was measured."""
    space, target = FusionSpace(exact=context.policy.limits.exact), context.environment.target
    return FoundPlan(plan_of_rows(form.graph, space, target.l2_bytes), RULE, "default rule")


def _chosen(context: Context, form: OpenForm) -> Iterator[FoundPlan]:
    """What searches over these sizes chose, for these ranges before others."""
    base, setting = context.database, context.environment.setting
    keys = dict.fromkeys((form.key, *base.forms_of_model(setting, form.model_key)))
    for key in keys:
        stored = base.best_plan(setting, key)
        if stored is None or stored.source != "chosen":
            continue
        plan = usable(context, form.graph, stored.plan)
        found = None if plan is None else FoundPlan(plan, NEAREST, "")
        if found is not None and form.fits(found):
            yield _rung(found, stored, key == form.key and stored.details.get(SIZES) == ranges_json(form.sizes))


def _rung(found: FoundPlan, stored: PlanChoice, same: bool) -> FoundPlan:
    """A plan on its rung; `same`: it was chosen for just these ranges."""
    exact, source = stored.tier == EXACT, f"{stored.source} ({stored.origin})"
    if not same:
        return replace(found, source=f"{source} for {ranges_text(stored.details)}")
    trusted = stored.trusted if stored.median_us is not None else None
    return replace(found, tier=HIT if exact else STALE, source=source, complete=exact, trusted=trusted)


def ranges_json(sizes: Sequence[OpenSize]) -> dict[str, Json]:
    """Ranges by name, as they are kept."""
    return {size.name: [size.low, size.high, size.step] for size in sizes}


def ranges_text(details: Mapping[str, Json]) -> str:
    """The ranges of a choice as people read them: "tokens 1 to 512"."""
    ranges = details.get(SIZES)
    if not isinstance(ranges, Mapping):
        return "other sizes"
    named = (str(OpenSize(name, *one)) for name, one in ranges.items() if isinstance(one, list))
    return ", ".join(named)
