"""`compile`: from a model and what the database knows to a library, without measuring anything."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autofuse.backend.linking import require_linker
from autofuse.backend.realise import build_library
from autofuse.errors import AutofuseError, InputError, StrictMissError
from autofuse.fusion.baselines import default_plan, none_plan
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.key import graph_key
from autofuse.graph.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.coverage import require_kernels
from autofuse.kernels.knobs import first_schedules, open_knobs
from autofuse.kernels.lower import Lowered, lower
from autofuse.kernels.workload import BoundWorkload
from autofuse.named_device import NamedDevice
from autofuse.named_plans import named_plan
from autofuse.named_setting import Circumstances, circumstances
from autofuse.profiling.database import ProfilingDatabase, open_for_lookup
from autofuse.profiling.records import BestSchedule
from autofuse.search_space import load_space

HIT, STALE, RULE = "hit", "hit (stale versions)", "rule"


@dataclass(frozen=True)
class GroupReport:
    """How one kernel's schedule was found: `tier` "hit", "hit (stale versions)" or "rule"; `us`: as measured."""

    group: str
    operators: tuple[str, ...]
    tier: str
    us: float | None
    schedule: str


@dataclass(frozen=True)
class CompileReport:
    """What was compiled. `plan`: where the plan came from; `hits` of `kernels` had a measured schedule."""

    model: str
    library: str
    plan: str
    plan_key: str
    threads: int
    device: str
    kernels: int
    hits: int
    size_bytes: int
    elapsed_s: float
    groups: tuple[GroupReport, ...]


def compile_model(
    model: Path,
    output: Path,
    *,
    database: str | None,
    threads: int,
    device: str | NamedDevice,
    on_miss: str,
    strict: bool,
    shapes: Mapping[str, tuple[int, ...]],
    plan: str | None,
) -> CompileReport:
    """Write the library of `model` to `output`; see `autofuse.api.compile`.

    StrictMissError when `strict` and a group has no measured schedule; DatabaseError when the database
    cannot be read.
    """
    started = time.monotonic()
    if output.is_dir() or not output.name:
        raise InputError(f"--output: {str(output)!r} is a folder; name a file in it, such as {output / 'model.so'}")
    graph = load(model, shapes)
    require_kernels(graph)
    with open_for_lookup(database) as base:
        around = circumstances(base, device, threads, measuring=False)
        require_linker(around.target)
        origin, chosen = _plan(graph, base, around, plan, on_miss)
        lowered = lower(graph, chosen, around.target, [group.operators for group in chosen.groups])
        known = base.lookup(around.setting, [bound.workload.key for bound in lowered.kernels])
    if strict:
        _refuse_misses(lowered, known)
    reports, schedules = _schedules(lowered, known, around)
    tiers = {bound.workload.key: report.tier for bound, report in zip(lowered.kernels, reports, strict=True)}
    build_library(lowered, schedules, around.target, threads, output, plan_key=chosen.key, tiers=tiers)
    return CompileReport(
        model.stem, str(output), origin, chosen.key, threads, around.profile.name, len(lowered.kernels),
        sum(report.tier != RULE for report in reports), output.stat().st_size, time.monotonic() - started, reports,
    )  # fmt: skip


def _plan(
    graph: Graph, base: ProfilingDatabase, around: Circumstances, plan: str | None, on_miss: str
) -> tuple[str, FusionPlan]:
    """(where it comes from, plan): the named one, else the best of the database, else what `on_miss` says."""
    if plan is not None and plan != "best":
        return plan, named_plan(graph, plan)
    stored = base.best_plan(around.setting, graph_key(graph))
    if stored is not None:
        try:
            found = FusionPlan.from_json(stored.plan)
            check_plan(graph, found)
            return f"{stored.source} ({stored.origin})", found
        except AutofuseError:
            pass  # an illegal stored plan is a miss, never a crash
    if on_miss == "fail":
        raise StrictMissError(
            f"{graph.name}: the database has no plan for this model, device and {around.setting.threads} thread(s): "
            f"run `autofuse tune` first, or compile with --on-miss rule"
        )
    return ("none", none_plan(graph)) if on_miss == "none" else ("default rule", default_plan(graph))


def _refuse_misses(lowered: Lowered, known: Mapping[str, BestSchedule]) -> None:
    missing = [bound.workload.label for bound in lowered.kernels if bound.workload.key not in known]
    if missing:
        raise StrictMissError(
            f"{len(missing)} of {len(lowered.kernels)} groups have no measured schedule, such as {missing[0]}: "
            "run `autofuse tune`, or compile without --strict"
        )


def _schedules(
    lowered: Lowered, known: Mapping[str, BestSchedule], around: Circumstances
) -> tuple[tuple[GroupReport, ...], dict[str, dict[str, int | str]]]:
    reports, schedules = [], {}
    for bound in lowered.kernels:
        key = bound.workload.key
        best = known.get(key)
        if best is not None:
            schedule, tier, us = json.loads(best.schedule), HIT if best.tier == "exact" else STALE, best.median_us
        else:
            schedule, tier, us = rule_schedule(bound, around), RULE, None
        schedules[key] = schedule
        reports.append(GroupReport(bound.workload.label, _operators(lowered, bound), tier, us, json.dumps(schedule)))
    return tuple(reports), schedules


def rule_schedule(bound: BoundWorkload, around: Circumstances) -> dict[str, int | str]:
    """The fixed schedule of a workload that was never measured: the first guess of its search."""
    space = load_space(None, around.target.isa)
    knobs = open_knobs(bound.workload, around.target, space.schedule)
    return dict(first_schedules(bound.workload, knobs, around.target)[0])


def _operators(lowered: Lowered, bound: BoundWorkload) -> tuple[str, ...]:
    """Names of the operators behind a workload, by the tensors it writes."""
    return tuple(dict.fromkeys(lowered.graph.producers[name].name for name in bound.outputs))
