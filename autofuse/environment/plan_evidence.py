"""The evidence behind a plan's choices: what the profiling database knows of the groups of one graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import and_

from autofuse.database.ask.lookups import Fits
from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import FAILURES, BestSchedule, Setting
from autofuse.environment.codes import Codes
from autofuse.errors import AutofuseError
from autofuse.fusion.evidence import LAUNCH_US, GroupTime, Piece
from autofuse.fusion.plan import NO_LIMITS, FusionPlan, ScheduleLimits
from autofuse.fusion.skeleton import folded_into, settled
from autofuse.graph.key import graph_key
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowered, Lowering
from autofuse.kernels.schedule.limits import keeps_text
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import Workload

VIEW = GroupTime(0.0, 0.0, 0.0)
"""A view of memory costs no kernel."""

PlansLowered = Iterable[tuple[FusionPlan, Lowered]]


def stored_plans(graph: Graph, base: ProfilingDatabase) -> list[FusionPlan]:
    """Every plan of the graph that the database holds, the oldest first."""
    table = base.table("plans")
    place = {column: index for index, column in enumerate(table.columns)}
    key = graph_key(graph)
    texts = [row[place["plan"]] for row in table.rows if row[place["graph_key"]] == key]
    return [FusionPlan.from_json(str(text)) for text in texts]


def lowered_plans(lowering: Lowering, plans: Iterable[FusionPlan]) -> list[tuple[FusionPlan, Lowered]]:
    """The plans with their workloads; one that does not fit the graph is left out."""
    found = []
    for plan in plans:
        try:
            found.append((plan, lowering.lower(plan)))
        except (AutofuseError, KeyError):
            continue  # a stored plan that is not legal here is no evidence
    return found


def groups_of(graph: Graph, plan: FusionPlan) -> tuple[Piece, ...]:
    """The groups of a plan, in its order, without times: what each covers, folds and copies."""
    graph, plan = settled(graph, plan)
    readers = {copy.name: copy for copy in plan.copies}
    folded: dict[str, list[str]] = {}
    for name, owner in folded_into(graph, plan.folds).items():
        folded.setdefault(owner, []).append(name)
    found = []
    for group in plan.groups:
        folds = tuple(sorted(name for owner in group.operators for name in folded.get(owner, ())))
        copies = tuple(copy for copy in plan.copies if copy.name in group.operators)
        covers = frozenset(name for name in group.operators if name not in readers) | frozenset(folds)
        found.append(Piece(group.operators, covers, folds, copies=copies))
    return tuple(found)


def known_limits(base: ProfilingDatabase, setting: Setting, graph_key: str) -> ScheduleLimits:
    """The limits of schedules under which a network as a whole is known to be right here."""
    return reduce(and_, map(ScheduleLimits.from_json, base.limits(setting, graph_key)), NO_LIMITS)


def fitting(limits: ScheduleLimits) -> Fits | None:
    """What the schedules that are looked up must be; None where nothing is limited."""
    return None if limits == NO_LIMITS else lambda _, text: keeps_text(limits, text)


def known_pieces(
    graph: Graph,
    lowered: PlansLowered,
    base: ProfilingDatabase,
    setting: Setting,
    limits: ScheduleLimits,
    codes: Codes | None = None,
) -> tuple[Piece, ...]:
    """Every group of the plans, once, with its best time within `limits` in any layout that it was measured in.

    With `codes` only times of the very code that is built now count; else the database's own view of that.
    """
    keys: dict[Piece, dict[str, None]] = {}
    workloads: dict[str, Workload] = {}
    for plan, kernels in lowered:
        for piece, bound in zip(groups_of(graph, plan), kernels.groups, strict=True):
            keys.setdefault(piece, {})["" if is_free_reshape(bound.workload) else bound.workload.key] = None
            if not is_free_reshape(bound.workload):
                workloads[bound.workload.key] = bound.workload
    fits = fitting(limits)
    if codes is None:
        known = base.lookup(setting, workloads, fits)
    else:
        ranked = base.ranked(setting, workloads, fits)
        best = {key: codes.best(workloads[key], rows) for key, rows in ranked.items()}
        known = {key: row for key, row in best.items() if row is not None}
    pieces = []
    for piece, found in keys.items():
        span, failure = _time(found, known, base, setting)
        pieces.append(replace(piece, span=span, failure=failure))
    return tuple(pieces)


def _time(
    keys: Iterable[str], known: Mapping[str, BestSchedule], base: ProfilingDatabase, setting: Setting
) -> tuple[GroupTime | None, str]:
    """Best time of a group over its workloads, or how it failed."""
    spans, failure = [], ""
    for key in keys:
        if not key:
            spans.append(VIEW)
        elif key in known:
            best = known[key]
            us, lo, hi = (us + LAUNCH_US for us in (best.median_us, best.ci_lo_us, best.ci_hi_us))
            spans.append(GroupTime(us, lo, hi, best.trusted))
        else:
            states = [row.state for row in base.measured_schedules(setting, key) if row.state in FAILURES]
            failure = failure or (states[0] if states else "")
    return (min(spans, key=lambda span: span.us), "") if spans else (None, failure)
