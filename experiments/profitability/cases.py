"""Choosing a plan, as a test: many plans of one network in one setting, each with its time composed of measured groups.

Besides the plans that were measured, groups of theirs are put together anew by chance: every legal way to cover the
network with measured groups is a plan whose time is known.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sqlalchemy import select

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import Setting
from autofuse.database.tables.schema import DeviceRow, TargetRow
from autofuse.device.target import Target
from autofuse.environment.named_plans import NAMES, named_plan
from autofuse.environment.plan_evidence import lowered_plans
from autofuse.errors import AutofuseError
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowered, Lowering
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import Workload
from autofuse.learning.dataset import target_from
from experiments.profitability import networks
from experiments.profitability.candidates import APART, Folded
from experiments.profitability.metrics import Floats

RECOMBINED = 120
"""Plans that are put together anew, at most."""
ATTEMPTS = 3
"""Tries for each of them."""
LEAST_PLANS = 5


@dataclass(frozen=True)
class Where:
    """A setting that networks were measured in; `device`: its name, `facts`: of its fingerprint."""

    setting: Setting
    device: str
    target: Target
    facts: Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Case:
    """The plans of a network, to choose from.

    `workloads`: distinct kernels, with their measured `us` (microseconds, launch included). `uses`: how often each plan
    (row) runs each of them (column). `named`: rows of plans with a name.
    """

    network: str
    where: Where
    workloads: tuple[Workload, ...]
    us: Floats
    uses: Floats
    named: Mapping[str, int]

    @property
    def times(self) -> Floats:
        """Microseconds of each plan."""
        return np.asarray(self.uses @ self.us)


def read_cases(base: ProfilingDatabase, models: Path) -> Iterator[Case]:
    """A case for each network and setting that the database has runs of; those with too few plans are left out."""
    stored = stored_plans(base)
    for name, places in settings_of(base).items():
        graph = load(networks.find(name, models), {})
        named = named_plans(graph)
        plans = {plan.key: plan for plan in (*named.values(), *stored.get(graph_key(graph), ()))}
        for where in places:
            case = _case(name, graph, plans.values(), named, base, where)
            if case is not None:
                yield case


def named_plans(graph: Graph) -> dict[str, FusionPlan]:
    """The fixed plans of a network: each operator alone (folded), and those of `named_plans.NAMES`."""
    found = {APART: Folded.of(graph).plan(())}
    for name in NAMES:
        try:
            found[name] = named_plan(graph, name)
        except AutofuseError:
            continue  # TVM may be unable to say how it would fuse
    return found


def settings_of(base: ProfilingDatabase) -> dict[str, list[Where]]:
    """The settings that each known network was measured in; of several versions of the code the newest."""
    with base.reading() as sql:
        facts = {row.fingerprint: row.facts for row in sql.execute(select(DeviceRow.fingerprint, DeviceRow.facts))}
        targets = {row.key: target_from(row.text) for row in sql.execute(select(TargetRow.key, TargetRow.text))}
    newest: dict[tuple[str, Setting], Where] = {}
    for row in base.table("runs").records():
        if row["model_name"] not in networks.FAMILIES:
            continue
        fingerprint, key, threads = str(row["device_fingerprint"]), str(row["target_key"]), int(str(row["threads"]))
        setting = Setting(fingerprint, key, threads, str(row["versions_key"]))
        where = Where(setting, str(row["device"]), targets[key], facts[fingerprint])
        newest[str(row["model_name"]), replace(setting, versions="")] = where
    found: dict[str, list[Where]] = {}
    for (name, _), where in newest.items():
        found.setdefault(name, []).append(where)
    return found


def stored_plans(base: ProfilingDatabase) -> dict[str, list[FusionPlan]]:
    """The plans of each graph."""
    table = base.table("plans")
    key, text = table.columns.index("graph_key"), table.columns.index("plan")
    found: dict[str, list[FusionPlan]] = {}
    for row in table.rows:
        found.setdefault(str(row[key]), []).append(FusionPlan.from_json(str(row[text])))
    return found


def _case(
    name: str,
    graph: Graph,
    plans: Iterable[FusionPlan],
    named: Mapping[str, FusionPlan],
    base: ProfilingDatabase,
    where: Where,
) -> Case | None:
    lowering = Lowering(graph, where.target)
    lowered = lowered_plans(lowering, plans)
    times = _times(base, where.setting, (made for _, made in lowered))
    timed = {plan.key: made for plan, made in lowered if _is_timed(made, times)}
    folded = Folded.of(graph)
    groups = {
        group.operators
        for plan, made in lowered
        if plan.folds == folded.folds and not plan.copies and not plan.rewrites
        for group, bound in zip(plan.groups, made.groups, strict=True)
        if bound.workload.key in times or is_free_reshape(bound.workload)
    }
    anew = recombined(folded, sorted(groups), random.Random(name))
    timed |= {plan.key: made for plan, made in lowered_plans(lowering, anew) if _is_timed(made, times)}
    if len(timed) < LEAST_PLANS:
        return None
    rows = {key: row for row, key in enumerate(timed)}
    found = {origin: rows[plan.key] for origin, plan in named.items() if plan.key in rows}
    return _assembled(name, where, list(timed.values()), found, times)


def _times(base: ProfilingDatabase, setting: Setting, lowered: Iterable[Lowered]) -> dict[str, float]:
    """Best time of each kernel that has one, with its launch."""
    keys = {bound.workload.key for made in lowered for bound in made.kernels}
    return {key: best.median_us + LAUNCH_US for key, best in base.lookup(setting, keys).items()}


def _is_timed(made: Lowered, times: Mapping[str, float]) -> bool:
    return all(bound.workload.key in times for bound in made.kernels)


def recombined(folded: Folded, groups: Iterable[tuple[str, ...]], choose: random.Random) -> Iterator[FusionPlan]:
    """Plans that cover the network with these groups, drawn by chance; each once."""
    at: dict[str, list[tuple[str, ...]]] = {operator.name: [] for operator in folded.graph.operators}
    for group in groups:
        at[group[0]].append(group)
    seen: set[str] = set()
    for _ in range(RECOMBINED * ATTEMPTS):
        plan = _covered(folded, at, choose)
        if plan is not None and plan.key not in seen:
            seen.add(plan.key)
            yield plan
        if len(seen) == RECOMBINED:
            return


def _covered(folded: Folded, at: Mapping[str, Sequence[tuple[str, ...]]], choose: random.Random) -> FusionPlan | None:
    """One cover, operator by operator; None when there is none this way, or its groups wait for one another."""
    left = {operator.name for operator in folded.graph.operators}
    chosen = []
    for operator in folded.graph.operators:
        if operator.name not in left:
            continue
        fitting = [group for group in at[operator.name] if left.issuperset(group)]
        if not fitting:
            return None
        chosen.append(choose.choice(fitting))
        left.difference_update(chosen[-1])
    try:
        return folded.plan(chosen)
    except AutofuseError:
        return None


def _assembled(
    name: str, where: Where, plans: Sequence[Lowered], named: Mapping[str, int], times: Mapping[str, float]
) -> Case:
    kernels = {bound.workload.key: bound.workload for made in plans for bound in made.kernels}
    column = {key: number for number, key in enumerate(kernels)}
    uses = np.zeros((len(plans), len(kernels)))
    for row, made in enumerate(plans):
        for bound in made.kernels:
            uses[row, column[bound.workload.key]] += 1
    us = np.array([times[key] for key in kernels])
    return Case(name, where, tuple(kernels.values()), us, uses, named)
