"""What a budget will reach, said before a search begins: nothing is measured and nothing is written."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

from autofuse.database.database import ProfilingDatabase, open_for_lookup
from autofuse.database.records import Setting
from autofuse.environment.named_plans import named_plan
from autofuse.environment.place import Place
from autofuse.environment.rates import will_probe
from autofuse.errors import AutofuseError
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.coverage import require_kernels
from autofuse.measure.children.process import available_cores
from autofuse.search.budget.budget import now
from autofuse.search.budget.time_budget import (
    FIRST_CANDIDATE_S,
    FLIPS_AHEAD,
    LITTLE_FUSION,
    PROBING_S,
    alone_race_seconds,
    finale_most_s,
)
from autofuse.search.finals.finale import Estimates, Finale, Opening
from autofuse.search.plans.plan_search import PlanSearch
from autofuse.search.progress import Forecast, ForecastChanges, SearchRequest
from autofuse.search.schedules.evidence import SearchEvidence, searched_space

LEAST_MEASURED = 10
"""Measurements of a run below which it says nothing about the rate of a search."""


def forecast(model: Path, place: Place, request: SearchRequest, probes: bool = True) -> Forecast:
    """What a search of `model` at a place will reach; the arguments are those of `autofuse.search.tune.tune`.

    The rate is that of the newest run there, else the guess with which a search begins. `probes`: whether this is the
    first search there, which probes the machine.
    """
    started, budget_s, trials = now(), request.budget_s, request.trials
    graph = load(model, request.given)
    require_kernels(graph)
    load_s = now() - started
    with open_for_lookup(place.database) as base:
        environment = place.environment(base, measuring=False)
        chosen_space = searched_space(request.space, environment, request.exact)
        evidence = SearchEvidence(graph, chosen_space, environment, base, request.seed)
        planner = RewritingPlanner(graph, chosen_space.fusion)
        default = planner.plan({})
        rate, run = measured_rate(base, environment.setting)
        candidate_s = 1.0 / rate
        workloads, missing = evidence.of(default), evidence.missing(default)
        plans = {"default": default, **_little_fusion(evidence)}
        estimates = Estimates.of(evidence, Opening(load_s, load_s), available_cores(), budget_s)
        estimates = replace(estimates, alone_race_s=alone_race_seconds(budget_s) if request.alone else 0.0)
        probing_s = PROBING_S if probes and will_probe(base, environment, budget_s) else 0.0
        opening_s, first_s = 2 * load_s + probing_s, len(missing) * candidate_s
        finals, finals_s = estimates.kept(plans, finale_most_s(budget_s))
        if budget_s is None:
            search_s = max(0.0, (trials or 0) * candidate_s - first_s)
        else:
            search_s = max(0.0, budget_s - opening_s - first_s - finals_s)
            search_s = search_s if trials is None else min(search_s, max(0.0, trials * candidate_s - first_s))
        changes = _changes(evidence, planner, request.seed, candidate_s, search_s)
        return Forecast(
            budget_s, trials, environment.profile.name, environment.setting.threads,
            len(evidence.admit(default).kernels), len(workloads),
            sum(search.best_us is not None for search in workloads),
            rate, run, opening_s, first_s, search_s, finals_s, int(search_s / candidate_s), changes,
            _measured_whole(finals, budget_s, opening_s), finals.left_out, probing_s,
        )  # fmt: skip


def _measured_whole(finals: Finale, budget_s: float | None, opening_s: float) -> tuple[str, ...]:
    return finals.names if budget_s is None or budget_s > opening_s else ()


def _little_fusion(evidence: SearchEvidence) -> dict[str, FusionPlan]:
    """No fusion, and TVM's partition where TVM can say it."""
    found = {}
    for name in LITTLE_FUSION:
        try:
            found[name] = named_plan(evidence.graph, name)
        except AutofuseError:
            continue
    return found


def _changes(
    evidence: SearchEvidence, planner: RewritingPlanner, seed: int, candidate_s: float, search_s: float
) -> ForecastChanges:
    """The single changes of decisions, and how many of them there is time for; the heaviest say what one needs."""
    plans = PlanSearch(planner, seed)
    flips = [flip for flip in plans.flips(FLIPS_AHEAD) if flip.answers]
    count = sum(len(decision.choices) - 1 for decision in planner.decisions)
    if not flips:
        return ForecastChanges(len(planner.decisions), 0, 0, 0.0)
    known = {search.key for search in evidence.searches.values()}
    needed = {search.key for flip in flips for search in evidence.missing(flip.plan)} - known
    each_s = max(len(needed) / len(flips), 1 / FLIPS_AHEAD) * candidate_s
    return ForecastChanges(len(planner.decisions), count, min(count, int(search_s / each_s)), each_s)


def measured_rate(base: ProfilingDatabase, setting: Setting) -> tuple[float, str]:
    """Candidates a second in the newest run of this device and number of threads, and its name; a guess and ""
    where there is none."""
    for row in reversed(base.table("runs").records()):
        if (row["device_fingerprint"], row["threads"]) != (setting.device, setting.threads):
            continue
        measured = base.table("measurements", int(str(row["run_id"]))).records()
        dates = [date for one in measured if isinstance(date := one["created_at"], datetime)]
        if len(dates) >= LEAST_MEASURED and (lasted := (max(dates) - min(dates)).total_seconds()) > 0:
            return (len(dates) - 1) / lasted, str(row["name"])
    return 1.0 / FIRST_CANDIDATE_S, ""
