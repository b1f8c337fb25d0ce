"""The plans of a model with open sizes: what `tune --sizes` chose for it, else what is known of fixed sizes, or the
rule's. Mostly a single one, at most three, each for a part of the range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from autofuse.backend.container.metadata import MOST_PLANS
from autofuse.compiler.context import Context
from autofuse.compiler.plan_ladder import FoundPlan, known_plans, limited, missed, named_plan, usable
from autofuse.compiler.report import HIT, NEAREST, RULE, STALE
from autofuse.database.records import EXACT, Json, PlanChoice
from autofuse.environment.named_plans import plans_of_ranges
from autofuse.errors import AutofuseError, InputError, StrictMissError
from autofuse.fusion.planner.baselines import OpenAxes, plan_of_rows
from autofuse.fusion.space import FusionSpace
from autofuse.graph.key import graph_key, open_key
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.model import Graph

SIZES, PARTS, TILES = "sizes", "plans", "tiles"
"""Names of the ranges, and of the plans for parts of them, among the details of a choice."""


@dataclass(frozen=True)
class RangedPlan:
    """A plan for a part of the range: calls whose open sizes have a product of at most `most`, where no plan before it
    takes them; None: all others."""

    found: FoundPlan
    most: int | None = None


@dataclass(frozen=True, eq=False)
class OpenForm:
    """A model with open `sizes`, for which plans are looked up. `graph`: as it is at some sizes; `sha256`: its file's.

    `check`: AutofuseError for a plan that leaves a graph in which these sizes cannot stay open. `open_axes`: the axes
    of a tensor that have one.
    """

    graph: Graph
    sha256: str
    sizes: tuple[OpenSize, ...]
    check: Callable[[FoundPlan], object]
    open_axes: OpenAxes

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


def find_open_plans(context: Context, form: OpenForm, asked: str | None) -> tuple[RangedPlan, ...]:
    """The plans that were `asked` for by name or file, else what a search over open sizes chose, else what is known of
    fixed ones, else the rule's.

    StrictMissError when only what was measured here will do, and no search over these sizes has ended.
    """
    found = _asked(context, form, asked) if asked and asked != "best" else _found(context, form)
    limits = (replace(one, found=limited(context, form.key, one.found)) for one in found)
    return within(tuple(limits), form.sizes)


def within(plans: Sequence[RangedPlan], sizes: Sequence[OpenSize]) -> tuple[RangedPlan, ...]:
    """Those of some plans that calls of these sizes may take."""
    least, largest = prod(size.low for size in sizes), prod(size.high for size in sizes)
    found = [one for one in plans if one.most is None or one.most >= least]
    last = next(number for number, one in enumerate(found) if one.most is None or one.most >= largest)
    return (*found[:last], replace(found[last], most=None))


def _asked(context: Context, form: OpenForm, asked: str) -> list[RangedPlan]:
    parts = plans_of_ranges(asked)
    if len(parts) > MOST_PLANS:
        raise InputError(f"--plan: got {len(parts)} plans, allowed: up to {MOST_PLANS}, each for a part of the range")
    return [RangedPlan(named_plan(context, form.graph, name), most) for name, most in parts]


def _found(context: Context, form: OpenForm) -> Sequence[RangedPlan]:
    """See `find_open_plans`."""
    policy = context.policy
    chosen: Sequence[RangedPlan] = next(_chosen(context, form), ())
    if policy.measured_only and (not chosen or (policy.require_complete and not chosen[0].found.complete)):
        reason = "no search of plans over these sizes ended here"
        if chosen:
            first = chosen[0].found
            reason += f" with these ranges and the versions installed now ({first.source}, {first.tier})"
        raise StrictMissError(
            f"{form.graph.name}: {reason}: run `autofuse tune` with the same --sizes, or compile {policy.without}"
        )
    if chosen:
        return chosen
    known = known_plans(context, form.graph, form.sha256)
    found = next((one for one in known if form.fits(one)), None)
    if found is None and policy.on_miss not in ("none", "model"):
        found = rule_plan(context, form)
    return [RangedPlan(found or missed(context, form.graph))]


def rule_plan(context: Context, form: OpenForm) -> FoundPlan:
    """The plan where nothing was measured."""
    space, target = FusionSpace(exact=context.policy.limits.exact), context.environment.target
    return FoundPlan(plan_of_rows(form.graph, space, target.l2_bytes, form.open_axes), RULE, "default rule")


def _chosen(context: Context, form: OpenForm) -> Iterator[list[RangedPlan]]:
    """What searches over these sizes chose, for these ranges before others."""
    base, setting = context.database, context.environment.setting
    keys = dict.fromkeys((form.key, *base.forms_of_model(setting, form.model_key)))
    for key in keys:
        stored = base.best_plan(setting, key)
        if stored is None or stored.source != "chosen":
            continue
        same = key == form.key and stored.details.get(SIZES) == ranges_json(form.sizes)
        for plans in (_parts(context, stored), [(None, stored.plan)]):
            usable_ones = [(most, text and usable(context, form.graph, text)) for most, text in plans]
            found = [RangedPlan(FoundPlan(plan, NEAREST, ""), most) for most, plan in usable_ones if plan]
            if found and len(found) == len(plans) and all(form.fits(one.found) for one in found):
                yield [replace(one, found=_rung(one.found, stored, same)) for one in found]
                break


def _parts(context: Context, stored: PlanChoice) -> list[tuple[int | None, str | None]]:
    """The plans that a choice has for parts of the range, with their ends; none where it has one alone."""
    parts = stored.details.get(PARTS)
    if not isinstance(parts, list):
        return []
    found = []
    for part in parts:
        most, key = part if isinstance(part, list) and len(part) == 2 else (None, None)
        found.append((most if isinstance(most, int) else None, context.database.plan(str(key))))
    return found


def parts_json(plans: Sequence[RangedPlan]) -> list[Json]:
    """Plans for parts of a range, as they are kept: their ends, and their keys."""
    return [[one.most, one.found.plan.key] for one in plans]


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
