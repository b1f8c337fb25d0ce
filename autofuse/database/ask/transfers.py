"""Measurements from elsewhere: on other devices, for other shapes, for other forms of a model."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, func, select

from autofuse.database.ask.lookups import CHUNK, counted_us
from autofuse.database.records import EXACT, OK, STALE, ForeignPlan, ForeignSchedule, RelatedSchedule, Setting
from autofuse.database.tables.columns import is_shared
from autofuse.database.tables.schema import (
    CandidateRow,
    ChoiceRow,
    DeviceRow,
    PlanRow,
    RunRow,
    ScheduleRow,
    TargetRow,
    VersionsRow,
    WorkloadRow,
)
from autofuse.values.names import plan_name

NEAREST = 200
"""Workloads of one label that are compared at most, the ones measured last first."""


def elsewhere(
    connection: Connection, setting: Setting, workload_keys: Iterable[str], shared: bool = False
) -> list[ForeignSchedule]:
    """Measured schedules of workloads on other devices or for other targets, on as many threads; best first.

    `shared`: those that others shared, and only those: they are worth a measurement, and not taken unmeasured.
    """
    wanted = sorted(set(workload_keys))
    row = CandidateRow
    query = (
        select(
            WorkloadRow.key.label("workload_key"),
            ScheduleRow.text.label("schedule"),
            row.median_us,
            row.trusted,
            DeviceRow.fingerprint.label("device"),
            DeviceRow.facts.label("device_facts"),
            TargetRow.text.label("target"),
        )
        .join(WorkloadRow, WorkloadRow.id == row.workload_id)
        .join(ScheduleRow, ScheduleRow.id == row.schedule_id)
        .join(DeviceRow, DeviceRow.id == row.device_id)
        .join(TargetRow, TargetRow.id == row.target_id)
        .where(row.state == OK, row.threads == setting.threads)
        .where((DeviceRow.fingerprint != setting.device) | (TargetRow.key != setting.target))
        .where(is_shared() if shared else ~is_shared())
        .order_by(counted_us(), ScheduleRow.key)
    )
    found: list[ForeignSchedule] = []
    for start in range(0, len(wanted), CHUNK):
        here = query.where(WorkloadRow.key.in_(wanted[start : start + CHUNK]))
        found += [ForeignSchedule(**values) for values in connection.execute(here).mappings()]
    return found


def any_shared(connection: Connection) -> bool:
    """Whether there are rows that others shared."""
    return connection.execute(select(DeviceRow.id).where(is_shared()).limit(1)).first() is not None


def shared_workloads(connection: Connection, setting: Setting) -> dict[str, str]:
    """Label of each workload that others shared times of, on as many threads, by key; the longest first."""
    row = CandidateRow
    query = (
        select(WorkloadRow.key, WorkloadRow.label)
        .join(row, row.workload_id == WorkloadRow.id)
        .join(DeviceRow, DeviceRow.id == row.device_id)
        .where(is_shared(), row.state == OK, row.threads == setting.threads)
        .group_by(WorkloadRow.key, WorkloadRow.label)
        .order_by(func.min(row.median_us).desc(), WorkloadRow.key)
    )
    return {str(key): str(label) for key, label in connection.execute(query)}


def related(connection: Connection, setting: Setting, operators: str, others: Iterable[str]) -> list[RelatedSchedule]:
    """The best schedule here of each workload whose label starts with `operators`, but for the keys `others`.

    Labels are `Workload.label`: the operators' names, a space, a shape.
    """
    row = CandidateRow
    query = (
        select(
            WorkloadRow.key.label("workload_key"),
            WorkloadRow.text.label("workload"),
            ScheduleRow.text.label("schedule"),
            row.median_us,
            row.trusted,
            (VersionsRow.key == setting.versions).label("exact"),
        )
        .join(WorkloadRow, WorkloadRow.id == row.workload_id)
        .join(ScheduleRow, ScheduleRow.id == row.schedule_id)
        .join(DeviceRow, DeviceRow.id == row.device_id)
        .join(TargetRow, TargetRow.id == row.target_id)
        .join(VersionsRow, VersionsRow.id == row.versions_id)
        .where(row.state == OK, row.threads == setting.threads)
        .where(DeviceRow.fingerprint == setting.device, TargetRow.key == setting.target)
        .where(WorkloadRow.label.startswith(f"{operators} ", autoescape=True))
        .order_by(counted_us(), ScheduleRow.key)
    )
    skipped = set(others)
    best: dict[str, RelatedSchedule] = {}
    for values in connection.execute(query).mappings():
        if values["workload_key"] not in skipped:
            tier = EXACT if values["exact"] else STALE
            rest = {name: value for name, value in values.items() if name != "exact"}
            best.setdefault(values["workload_key"], RelatedSchedule(**rest, tier=tier))
            if len(best) >= NEAREST:
                break
    return list(best.values())


def foreign_plans(connection: Connection, setting: Setting, graph_key: str) -> list[ForeignPlan]:
    """Plans chosen for a graph on other devices, on as many threads; the newest first."""
    query = (
        select(
            PlanRow.text,
            PlanRow.origin,
            ChoiceRow.limits,
            DeviceRow.fingerprint,
            DeviceRow.facts,
            TargetRow.text.label("target"),
        )
        .join(ChoiceRow, ChoiceRow.plan_id == PlanRow.id)
        .join(DeviceRow, DeviceRow.id == ChoiceRow.device_id)
        .join(TargetRow, TargetRow.id == ChoiceRow.target_id)
        .where(ChoiceRow.graph_key == graph_key, ChoiceRow.threads == setting.threads)
        .where((DeviceRow.fingerprint != setting.device) | (TargetRow.key != setting.target), ~is_shared())
        .order_by(ChoiceRow.trusted.desc(), ChoiceRow.id.desc())
    )
    return [ForeignPlan(text, plan_name(origin), *rest) for text, origin, *rest in connection.execute(query)]


def forms_of_model(connection: Connection, setting: Setting, model_sha256: str) -> list[str]:
    """Keys of the graphs that a model file became in runs of this device and number of threads, newest first.

    A model with open input sizes becomes another graph with each.
    """
    query = (
        select(RunRow.graph_key)
        .join(DeviceRow, DeviceRow.id == RunRow.device_id)
        .where(RunRow.model_sha256 == model_sha256, RunRow.threads == setting.threads)
        .where(DeviceRow.fingerprint == setting.device)
        .order_by(RunRow.id.desc())
    )
    return list(dict.fromkeys(connection.execute(query).scalars()))
