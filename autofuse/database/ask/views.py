"""Read-only views of the tables, joined to what a reader wants to see; `report` makes DataFrames of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, exists, func, or_, select

from autofuse.database.records import FAILURES, OK, Table
from autofuse.database.tables.columns import still_trusted
from autofuse.database.tables.schema import (
    AnySelect,
    CandidateRow,
    ChoiceGroupRow,
    ChoiceRow,
    CodeRow,
    DeviceRow,
    EdgeRow,
    MeasurementRow,
    PlanMeasurementRow,
    PlanRow,
    RunRow,
    SampleRow,
    ScheduleRow,
    SettingMixin,
    TargetRow,
    TrialRow,
    VersionsRow,
    WorkloadRow,
)
from autofuse.errors import InputError
from autofuse.values.names import FORMER_PLANS, FORMER_RIVALS

View = Callable[[int | None], AnySelect]


def read(connection: Connection, view: str, run_id: int | None) -> Table:
    """Columns and rows of a view, in the order in which they were recorded; `run_id` None: of all runs."""
    if view not in VIEWS:
        raise InputError(f"view {view!r}: allowed are {', '.join(VIEWS)}")
    result = connection.execute(VIEWS[view](run_id))
    return Table(tuple(result.keys()), [tuple(row) for row in result])


def _devices(run_id: int | None) -> AnySelect:
    row = DeviceRow
    query = select(row.id.label("device_id"), row.fingerprint, row.name, row.facts, row.created_at)
    return _kept(query, run_id and row.id.in_(select(RunRow.device_id).where(RunRow.id == run_id))).order_by(row.id)


def _runs(run_id: int | None) -> AnySelect:
    row = RunRow
    query = _with_setting(
        select(
            row.id.label("run_id"),
            row.name,
            row.model_name,
            row.model_sha256,
            row.graph_key,
            row.state,
            row.started_at,
            row.finished_at,
            row.seed,
            row.arguments,
            row.budget,
            row.provenance,
            row.summary,
            VersionsRow.text.label("versions"),
            *_SETTING,
            row.threads,
        ),
        row,
    )
    return _kept(query, run_id and row.id == run_id).order_by(row.id)


def _candidates(run_id: int | None) -> AnySelect:
    row = CandidateRow
    query = _with_setting(
        select(
            row.id.label("candidate_id"),
            WorkloadRow.key.label("workload_key"),
            WorkloadRow.label,
            *_SETTING,
            row.threads,
            ScheduleRow.key.label("schedule_key"),
            ScheduleRow.text.label("schedule"),
            CodeRow.digest,
            *_timing(row),
            row.build_s,
            row.created_at,
            row.updated_at,
        )
        .join(WorkloadRow, WorkloadRow.id == row.workload_id)
        .join(ScheduleRow, ScheduleRow.id == row.schedule_id)
        .join(CodeRow, CodeRow.id == row.code_id),
        row,
    )
    return _kept(query, run_id and _touched_by(run_id)).order_by(row.id)


def _measurements(run_id: int | None) -> AnySelect:
    row = MeasurementRow
    query = select(
        row.id.label("measurement_id"),
        row.candidate_id,
        row.run_id,
        *_timing(row),
        row.build_s,
        row.created_at,
    )
    return _kept(query, run_id and row.run_id == run_id).order_by(row.id)


def _failures(run_id: int | None) -> AnySelect:
    row = MeasurementRow
    query = (
        select(
            row.id.label("measurement_id"),
            row.candidate_id,
            row.run_id,
            WorkloadRow.key.label("workload_key"),
            WorkloadRow.label,
            ScheduleRow.text.label("schedule"),
            row.state,
            row.failure,
            row.max_rel_error,
            row.created_at,
        )
        .join(CandidateRow, CandidateRow.id == row.candidate_id)
        .join(WorkloadRow, WorkloadRow.id == CandidateRow.workload_id)
        .join(ScheduleRow, ScheduleRow.id == CandidateRow.schedule_id)
        .where(row.state.in_(FAILURES))
    )
    return _kept(query, run_id and row.run_id == run_id).order_by(row.id)


def _samples(run_id: int | None) -> AnySelect:
    row = SampleRow
    query = (
        select(
            MeasurementRow.candidate_id,
            row.measurement_id,
            MeasurementRow.run_id,
            row.block,
            row.us,
            row.clock_ratio,
            row.flagged,
            MeasurementRow.created_at,
        )
        .join(MeasurementRow, MeasurementRow.id == row.measurement_id)
        .order_by(row.measurement_id, row.block)
    )
    return _kept(query, run_id and MeasurementRow.run_id == run_id)


def _noise(run_id: int | None) -> AnySelect:
    row, sample = MeasurementRow, SampleRow
    steadiness = (
        select(
            sample.measurement_id,
            func.count().label("block_count"),
            func.sum(case((sample.flagged, 1), else_=0)).label("flagged_blocks"),
            func.avg(sample.clock_ratio).label("clock_ratio"),
        )
        .group_by(sample.measurement_id)
        .subquery()
    )
    query = (
        select(
            row.id.label("measurement_id"),
            row.run_id,
            row.median_us,
            row.ci_lo_us,
            row.ci_hi_us,
            still_trusted().label("trusted"),
            steadiness.c.block_count,
            steadiness.c.flagged_blocks,
            steadiness.c.clock_ratio,
            row.created_at,
        )
        .join(steadiness, steadiness.c.measurement_id == row.id)
        .where(row.state == OK)
    )
    return _kept(query, run_id and row.run_id == run_id).order_by(row.created_at, row.id)


def _plans(run_id: int | None) -> AnySelect:
    row = PlanRow
    query = select(
        row.id.label("plan_id"),
        row.key.label("plan_key"),
        row.graph_key,
        _ORIGIN,
        row.text.label("plan"),
        row.created_at,
    ).order_by(row.id)
    named = [
        exists().where(other.plan_id == row.id, other.run_id == run_id)
        for other in (PlanMeasurementRow, TrialRow, ChoiceRow)
    ]
    return _kept(query, run_id and or_(*named))


def _plan_measurements(run_id: int | None) -> AnySelect:
    row = PlanMeasurementRow
    query = _with_setting(
        select(
            row.id.label("plan_measurement_id"),
            row.run_id,
            _name(row),
            row.series,
            PlanRow.key.label("plan_key"),
            row.graph_key,
            *_SETTING,
            row.threads,
            *_timing(row),
            row.blocks,
            row.created_at,
        ).outerjoin(PlanRow, PlanRow.id == row.plan_id),
        row,
    )
    return _kept(query, run_id and or_(row.run_id == run_id, _benchmarked(run_id))).order_by(row.id)


def races_of(connection: Connection, graph_key: str) -> list[dict[str, Any]]:
    """Rows of `plan_measurements` under one key, in the order in which they were recorded."""
    query = _plan_measurements(None).where(PlanMeasurementRow.graph_key == graph_key)
    return [dict(row) for row in connection.execute(query).mappings()]


def _benchmarked(run_id: int) -> ColumnElement[bool]:
    """Whether `bench` measured the row's series later: the graph of a run, in its setting."""
    row, run = PlanMeasurementRow, RunRow
    same = [getattr(run, name) == getattr(row, name) for name in ("graph_key", "threads", "device_id", "target_id")]
    return and_(row.run_id.is_(None), exists().where(run.id == run_id, run.versions_id == row.versions_id, *same))


def _trials(run_id: int | None) -> AnySelect:
    row = TrialRow
    query = (
        select(
            row.run_id,
            row.number,
            row.state,
            row.composed_us,
            PlanRow.key.label("plan_key"),
            _ORIGIN,
            row.answers,
            row.created_at,
        )
        .outerjoin(PlanRow, PlanRow.id == row.plan_id)
        .order_by(row.run_id, row.number)
    )
    return _kept(query, run_id and row.run_id == run_id)


def _choices(run_id: int | None) -> AnySelect:
    row = ChoiceRow
    query = _with_setting(
        select(
            row.id.label("choice_id"),
            row.run_id,
            PlanRow.key.label("plan_key"),
            _ORIGIN,
            row.graph_key,
            *_SETTING,
            row.threads,
            row.median_us,
            row.trusted,
            row.details,
            row.created_at,
        ).join(PlanRow, PlanRow.id == row.plan_id),
        row,
    )
    return _kept(query, run_id and row.run_id == run_id).order_by(row.id)


def _groups(run_id: int | None) -> AnySelect:
    row = ChoiceGroupRow
    query = (
        select(
            row.choice_id,
            ChoiceRow.run_id,
            row.position,
            row.operators,
            WorkloadRow.key.label("workload_key"),
            WorkloadRow.label,
            row.candidate_id,
            row.us,
            ScheduleRow.text.label("schedule"),
            CandidateRow.median_us,
            CandidateRow.trusted,
        )
        .join(ChoiceRow, ChoiceRow.id == row.choice_id)
        .join(WorkloadRow, WorkloadRow.id == row.workload_id)
        .outerjoin(CandidateRow, CandidateRow.id == row.candidate_id)
        .outerjoin(ScheduleRow, ScheduleRow.id == CandidateRow.schedule_id)
        .order_by(row.choice_id, row.position)
    )
    return _kept(query, run_id and ChoiceRow.run_id == run_id)


def _edges(run_id: int | None) -> AnySelect:
    row = EdgeRow
    query = (
        select(
            row.run_id,
            PlanRow.key.label("plan_key"),
            row.producer,
            row.consumer,
            row.fused,
            row.reason,
            row.gain_us,
        )
        .join(PlanRow, PlanRow.id == row.plan_id)
        .order_by(row.id)
    )
    return _kept(query, run_id and row.run_id == run_id)


def _present(column: Any, former: Mapping[str, str]) -> Any:
    """A column of names, with the present one in the place of a former one (see `autofuse.values.names`)."""
    return case(former, value=column, else_=column)


def _name(row: type[PlanMeasurementRow]) -> Any:
    plan, rival = _present(row.name, FORMER_PLANS), _present(row.name, FORMER_RIVALS)
    return case((row.plan_id.is_not(None), plan), else_=rival).label("name")


_ORIGIN = _present(PlanRow.origin, FORMER_PLANS).label("origin")
_SETTING = (
    DeviceRow.name.label("device"),
    DeviceRow.fingerprint.label("device_fingerprint"),
    TargetRow.key.label("target_key"),
    VersionsRow.key.label("versions_key"),
)


def _with_setting(query: AnySelect, row: type[SettingMixin]) -> AnySelect:
    return (
        query.join(DeviceRow, DeviceRow.id == row.device_id)
        .join(TargetRow, TargetRow.id == row.target_id)
        .join(VersionsRow, VersionsRow.id == row.versions_id)
    )


def _timing(row: type[CandidateRow] | type[MeasurementRow] | type[PlanMeasurementRow]) -> tuple[Any, ...]:
    return (
        row.state,
        row.failure,
        row.median_us,
        row.ci_lo_us,
        row.ci_hi_us,
        still_trusted().label("trusted") if row is MeasurementRow else row.trusted,
        row.max_rel_error,
    )


def _touched_by(run_id: int) -> ColumnElement[bool]:
    """Whether a run measured the candidate, or chose it."""
    measured = select(MeasurementRow.candidate_id).where(MeasurementRow.run_id == run_id)
    chosen = (
        select(ChoiceGroupRow.candidate_id)
        .join(ChoiceRow, ChoiceRow.id == ChoiceGroupRow.choice_id)
        .where(and_(ChoiceRow.run_id == run_id, ChoiceGroupRow.candidate_id.is_not(None)))
    )
    return or_(CandidateRow.id.in_(measured), CandidateRow.id.in_(chosen))


def _kept(query: AnySelect, condition: Any) -> AnySelect:
    return query if condition is None else query.where(condition)


VIEWS: Mapping[str, View] = MappingProxyType(
    {
        "devices": _devices,
        "runs": _runs,
        "candidates": _candidates,
        "measurements": _measurements,
        "samples": _samples,
        "failures": _failures,
        "noise": _noise,
        "plans": _plans,
        "plan_measurements": _plan_measurements,
        "trials": _trials,
        "choices": _choices,
        "groups": _groups,
        "edges": _edges,
    }
)
