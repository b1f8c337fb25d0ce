"""Finding what has been measured: the best schedule of many workloads, all candidates of one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import cache

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    ScalarSelect,
    and_,
    bindparam,
    case,
    exists,
    func,
    select,
)
from sqlalchemy.orm import InstrumentedAttribute, aliased

from autofuse.database.records import DOUBT, EXACT, FAILURES, OK, STALE, BestSchedule, Block, MeasuredSchedule, Setting
from autofuse.database.tables.columns import still_trusted
from autofuse.database.tables.schema import (
    AnySelect,
    CandidateRow,
    DeviceRow,
    MeasurementRow,
    SampleRow,
    ScheduleRow,
    TargetRow,
    VersionsRow,
    WorkloadRow,
)

BY_CHANCE = ("pruned", "device_lost", "timeout")
"""Failures that say nothing about the schedule under other circumstances."""
CHUNK = 500
"""Keys a statement, so that they fit its variables."""


def lookup(
    connection: Connection, setting: Setting, workload_keys: Iterable[str], without: tuple[str, ...] = ()
) -> dict[str, BestSchedule]:
    """Best schedule of each workload that has one, among those whose text holds nothing of `without`.

    The versions asked for before others ("stale"), then the lowest time as it counts (see `counted_us`),
    then the lowest schedule key. A stale schedule that failed with the versions asked for is none.
    """
    wanted = sorted(set(workload_keys))
    found: dict[str, BestSchedule] = {}
    for start in range(0, len(wanted), CHUNK):
        here = {**_parameters(setting), "keys": wanted[start : start + CHUNK]}
        for row in connection.execute(_best_schedules(without), here).mappings():
            best = BestSchedule(**{**row, "tier": EXACT if row["tier"] else STALE})
            known = found.get(best.workload_key)
            if known is None or best.schedule_key < known.schedule_key:  # tied to the last bit
                found[best.workload_key] = best
    return found


def texts(connection: Connection, workload_keys: Iterable[str]) -> dict[str, str]:
    """Text of each stored workload, by key."""
    wanted = sorted(set(workload_keys))
    found: dict[str, str] = {}
    for start in range(0, len(wanted), CHUNK):
        query = select(WorkloadRow.key, WorkloadRow.text).where(WorkloadRow.key.in_(wanted[start : start + CHUNK]))
        found.update((str(key), str(text)) for key, text in connection.execute(query))
    return found


def measured(connection: Connection, setting: Setting, workload_key: str) -> tuple[MeasuredSchedule, ...]:
    """Every candidate of a workload, whatever its state and versions, first recorded first."""
    here = {**_parameters(setting), "key": workload_key}
    return tuple(
        MeasuredSchedule(**{**row, "tier": EXACT if row["tier"] else STALE})
        for row in connection.execute(_all_schedules(), here).mappings()
    )


def samples(connection: Connection, candidate_id: int, run_id: int | None = None) -> tuple[Block, ...]:
    """All blocks of a candidate, oldest first; of one run: those of its trusted measurements, while there are any."""
    query = (
        select(SampleRow.us, SampleRow.clock_ratio, SampleRow.flagged, still_trusted().label("trusted"))
        .join(MeasurementRow, MeasurementRow.id == SampleRow.measurement_id)
        .where(MeasurementRow.candidate_id == candidate_id)
        .order_by(SampleRow.measurement_id, SampleRow.block)
    )
    if run_id is not None:
        query = query.where(MeasurementRow.run_id == run_id)
    rows = connection.execute(query).all()
    counted = rows if run_id is None else [row for row in rows if row.trusted] or rows
    return tuple(Block(tuple(row.us), row.clock_ratio, row.flagged) for row in counted)


def counted_us() -> ColumnElement[float | None]:
    """What a candidate's time counts as when the best is chosen."""
    return CandidateRow.median_us * case((CandidateRow.trusted.is_(True), 1.0), else_=DOUBT)


@cache
def _best_schedules(without: tuple[str, ...] = ()) -> AnySelect:
    """Rows of rank 1 of each workload in :keys; several where the times are equal."""
    exact = _is_exact()
    order = (exact.desc(), counted_us())
    keys: BindParameter[str] = bindparam("keys", expanding=True)
    ranked = (
        select(
            CandidateRow.id,
            exact.label("tier"),
            func.rank().over(partition_by=CandidateRow.workload_id, order_by=order).label("place"),
        )
        .where(
            CandidateRow.workload_id.in_(select(WorkloadRow.id).where(WorkloadRow.key.in_(keys))),
            *_here(),
            CandidateRow.state == OK,
            ~and_(exact == 0, _failed_now()),
            *(~_holds(part) for part in without),
        )
        .subquery()
    )
    return (
        select(*_SCHEDULE, ranked.c.tier)
        .join(ranked, and_(ranked.c.id == CandidateRow.id, ranked.c.place == 1))
        .join(WorkloadRow, WorkloadRow.id == CandidateRow.workload_id)
        .join(ScheduleRow, ScheduleRow.id == CandidateRow.schedule_id)
    )


@cache
def _all_schedules() -> AnySelect:
    """Every candidate of the workload :key."""
    row = CandidateRow
    return (
        select(*_SCHEDULE, row.state, row.failure, row.max_rel_error, row.build_s, _is_exact().label("tier"))
        .join(WorkloadRow, WorkloadRow.id == row.workload_id)
        .join(ScheduleRow, ScheduleRow.id == row.schedule_id)
        .where(WorkloadRow.key == bindparam("key"), *_here())
        .order_by(row.id)
    )


_SCHEDULE = (
    CandidateRow.id.label("candidate_id"),
    WorkloadRow.key.label("workload_key"),
    ScheduleRow.text.label("schedule"),
    ScheduleRow.key.label("schedule_key"),
    CandidateRow.median_us,
    CandidateRow.ci_lo_us,
    CandidateRow.ci_hi_us,
    CandidateRow.trusted,
)


def _holds(part: str) -> ColumnElement[bool]:
    """Whether the text of a candidate's schedule contains `part`."""
    return exists().where(ScheduleRow.id == CandidateRow.schedule_id, ScheduleRow.text.contains(part, autoescape=True))


def _failed_now() -> ColumnElement[bool]:
    """Whether the same schedule of the same workload failed, here, with the versions asked for."""
    other = aliased(CandidateRow)
    lasting = [state for state in FAILURES if state not in BY_CHANCE]
    return exists().where(
        other.device_id == CandidateRow.device_id,
        other.workload_id == CandidateRow.workload_id,
        other.target_id == CandidateRow.target_id,
        other.threads == CandidateRow.threads,
        other.schedule_id == CandidateRow.schedule_id,
        other.versions_id == _number(VersionsRow.id, VersionsRow.key, "versions"),
        other.state.in_(lasting),
    )


def _is_exact() -> ColumnElement[int]:
    return case((CandidateRow.versions_id == _number(VersionsRow.id, VersionsRow.key, "versions"), 1), else_=0)


def _here() -> tuple[ColumnElement[bool], ...]:
    return (
        CandidateRow.device_id == _number(DeviceRow.id, DeviceRow.fingerprint, "device"),
        CandidateRow.target_id == _number(TargetRow.id, TargetRow.key, "target"),
        CandidateRow.threads == bindparam("threads"),
    )


def _number(number: InstrumentedAttribute[int], key: InstrumentedAttribute[str], name: str) -> ScalarSelect[int]:
    """Number of the row whose key is the parameter `name`; NULL, equal to nothing, where there is none."""
    return select(number).where(key == bindparam(name)).scalar_subquery()


def _parameters(setting: Setting) -> dict[str, object]:
    return asdict(setting)
