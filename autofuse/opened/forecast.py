"""`tune --sizes --dry-run`: what a budget will reach of a model with open sizes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from autofuse.compiler import Context, Policy
from autofuse.compiler.open_sizes.plans import find_open_plans
from autofuse.compiler.plan_ladder import FoundPlan
from autofuse.environment.place import Place
from autofuse.errors import AutofuseError
from autofuse.fusion.plan import ScheduleLimits
from autofuse.fusion.planner.baselines import planner_of_rows
from autofuse.opened.search.opening import read_sized
from autofuse.opened.search.plan_race import linking_seconds, timing_seconds
from autofuse.opened.search.plan_search import COMPARED
from autofuse.opened.tiled import OpenedModel
from autofuse.opened.tune import MOST_KEPT
from autofuse.search.budget.budget import now
from autofuse.search.budget.time_budget import KERNEL_S
from autofuse.search.phases.forecast import measured_rate
from autofuse.search.plans.plan_search import PlanSearch
from autofuse.search.progress import Forecast, ForecastChanges, SearchRequest
from autofuse.search.schedules.evidence import SearchEvidence, searched_space
from autofuse.search.schedules.schedule_search import WorkloadSearch


def forecast_open(model: Path, place: Place, request: SearchRequest) -> Forecast:
    """What a search of `model` with the sizes of `request` at a place will reach; see
    `autofuse.search.phases.forecast.forecast`. InputError where they cannot stay open."""
    started, budget_s, trials = now(), request.budget_s, request.trials
    read = read_sized(model, request)
    opening_s = now() - started
    with Context(place, policy=Policy(limits=ScheduleLimits(exact=request.exact))) as context:
        environment, opened = context.environment, read.opened(context)
        form, space = opened.form, searched_space(request.space, environment, request.exact)
        evidence = SearchEvidence(form.graph, space, environment, context.database, request.seed)
        first = find_open_plans(context, form, None)
        found = first[-1].found
        of_all = [tile for one in first for tile in _tiles(evidence, opened, one.found)]
        kernels, tiles = opened.tiled(found).kernels, [*{tile.key: tile for tile in of_all}.values()]
        rate, run = measured_rate(context.database, environment.setting)
        race_s = linking_seconds(2 * len(tiles) * KERNEL_S) + timing_seconds(budget_s)
        race_s = race_s if budget_s is None else min(race_s, MOST_KEPT * budget_s)
        first_s = len(_untimed(tiles)) / rate
        limits = [] if budget_s is None else [budget_s - opening_s - race_s]
        limits += [] if trials is None else [trials / rate]
        search_s = max(0.0, min(limits) - first_s)
        planner = planner_of_rows(form.graph, space.fusion, environment.target.l2_bytes, form.open_axes)
        changes = _changes(evidence, opened, found, PlanSearch(planner, request.seed), search_s * rate, rate)
        return Forecast(
            budget_s, trials, environment.profile.name, environment.setting.threads, kernels, len(tiles),
            len(tiles) - len(_untimed(tiles)), rate, run, opening_s, first_s, search_s, race_s, int(search_s * rate),
            changes, (), (), sizes=tuple(size.typed for size in request.sizes),
        )  # fmt: skip


def _tiles(evidence: SearchEvidence, opened: OpenedModel, found: FoundPlan) -> list[WorkloadSearch]:
    """The tiles of a plan, with what is known of them. AutofuseError for one under which the sizes cannot stay open."""
    tiled = opened.tiled(found)
    admitted = [evidence.admit_workload(tile.bound, tiled.graphs[tile.graph]) for tile in tiled.tiles]
    return [*{search.key: search for search in admitted}.values()]


def _untimed(tiles: Collection[WorkloadSearch]) -> set[str]:
    """Tiles that get a first time."""
    return {search.key for search in tiles if search.best_us is None and not search.complete}


def _changes(
    evidence: SearchEvidence, opened: OpenedModel, found: FoundPlan, plans: PlanSearch, candidates: float, rate: float
) -> ForecastChanges:
    """The single changes of decisions, and how many of them so many candidates reach; the first ones say what one
    needs."""
    decisions = plans.planner.decisions
    count = sum(len(decision.choices) - 1 for decision in decisions)
    known, needed, taken = {*evidence.searches}, set[str](), 0
    for flip in [flip for flip in plans.flips(COMPARED) if flip.answers]:
        try:
            needed |= _untimed(_tiles(evidence, opened, replace(found, plan=flip.plan))) - known
            taken += 1
        except AutofuseError:  # the sizes cannot stay open under it: it costs nothing
            continue
    if not taken:
        return ForecastChanges(len(decisions), 0, 0, 0.0)
    each = max(len(needed) / taken, 1 / COMPARED)
    return ForecastChanges(len(decisions), count, min(count, int(candidates / each)), each / rate)
