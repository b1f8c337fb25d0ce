"""Finding what has been measured: the best schedules of many workloads, all candidates of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    or_,
    select,
)
from sqlalchemy.orm import InstrumentedAttribute, aliased

from autofuse.database.records import (
    DOUBT,
    EXACT,
    FAILURES,
    OK,
    PENDING,
    STALE,
    STALE_CODE,
    BestSchedule,
    MeasuredSchedule,
    SampleBlock,
    Setting,
)
from autofuse.database.tables.columns import still_trusted
from autofuse.database.tables.schema import (
    AnySelect,
    CandidateRow,
    CodeRow,
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
MOST_RANKED = 32
"""Candidates of a workload that are ranked at most."""
ALL = 1 << 31
"""More candidates than any workload has."""
SCHEDULES_TRIED = 3
"""Schedules of a workload, best first, whose code `compile` compares with what was measured."""
Ranked = dict[str, tuple[BestSchedule, ...]]
"""Candidates by the key of their workload, best first."""
Fits = Callable[[str, str], bool]
"""Whether, of a workload (its key), a schedule (canonical JSON) is one that is wanted at all."""
TIERS = (STALE_CODE, STALE, EXACT)
"""Tiers, at the place that stands for them in SQL."""
DIGEST_LENGTH = 64
"""Shorter ones stand for code that has none, see `CodeRow`."""


def lookup(
    connection: Connection, setting: Setting, workload_keys: Iterable[str], fits: Fits | None = None
) -> dict[str, BestSchedule]:
    """The first of each workload's `ranked` schedules."""
    return {key: found[0] for key, found in ranked(connection, setting, workload_keys, fits, 1).items()}


def ranked(
    connection: Connection,
    setting: Setting,
    workload_keys: Iterable[str],
    fits: Fits | None = None,
    most: int = MOST_RANKED,
) -> Ranked:
    """The best candidates of each workload that has one, among those whose schedule `fits` (None: any does).

    By tier (see `records.EXACT`), then by the time as it counts (see `counted_us`), then by the schedule's key and the
    code's. None of them is a schedule that has failed since, with the versions asked for.
    """
    wanted = sorted(set(workload_keys))
    found: dict[str, list[BestSchedule]] = {}
    for start in range(0, len(wanted), CHUNK):
        read = most if fits is None else ALL  # how many of the first ones fit is not known before they are read
        here = {**_parameters(setting), "keys": wanted[start : start + CHUNK], "most": read}
        for row in connection.execute(_best_schedules(), here).mappings():
            best = BestSchedule(**{**row, "tier": TIERS[row["tier"]]})
            if fits is None or fits(best.workload_key, best.schedule):
                found.setdefault(best.workload_key, []).append(best)
    order = {tier: -place for place, tier in enumerate(TIERS)}

    def rank(best: BestSchedule) -> tuple[object, ...]:
        doubt = 1.0 if best.trusted else DOUBT
        return order[best.tier], best.median_us * doubt, best.schedule_key, best.digest

    return {key: tuple(sorted(rows, key=rank)[:most]) for key, rows in found.items()}


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
        MeasuredSchedule(**{**row, "tier": TIERS[row["tier"]]})
        for row in connection.execute(_all_schedules(), here).mappings()
    )


def samples(connection: Connection, candidate_id: int, run_id: int | None = None) -> tuple[SampleBlock, ...]:
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
    return tuple(SampleBlock(tuple(row.us), row.clock_ratio, row.flagged) for row in counted)


def counted_us() -> ColumnElement[float | None]:
    """What a candidate's time counts as when the best is chosen."""
    return CandidateRow.median_us * case((CandidateRow.trusted.is_(True), 1.0), else_=DOUBT)


def has_digest() -> ColumnElement[bool]:
    """Whether it is known what code a candidate is (`CodeRow` is joined)."""
    return func.length(CodeRow.digest) == DIGEST_LENGTH


@cache
def _best_schedules() -> AnySelect:
    """The first :most rows of each workload in :keys; more where they are equal."""
    keys: BindParameter[str] = bindparam("keys", expanding=True)
    tier = _tier()
    order = (tier.desc(), counted_us())
    ranked = (
        select(
            CandidateRow.id,
            tier.label("tier"),
            func.rank().over(partition_by=CandidateRow.workload_id, order_by=order).label("place"),
        )
        .join(CodeRow, CodeRow.id == CandidateRow.code_id)
        .where(
            CandidateRow.workload_id.in_(select(WorkloadRow.id).where(WorkloadRow.key.in_(keys))),
            *_here(),
            CandidateRow.state == OK,
            ~_failed_since(),
        )
        .subquery()
    )
    return _with_texts(
        select(*_SCHEDULE, ranked.c.tier)
        .select_from(CandidateRow)
        .join(ranked, and_(ranked.c.id == CandidateRow.id, ranked.c.place <= bindparam("most")))
    )


@cache
def _all_schedules() -> AnySelect:
    """Every candidate of the workload :key."""
    row = CandidateRow
    query = select(*_SCHEDULE, row.state, row.failure, row.max_rel_error, row.build_s, _tier().label("tier"))
    return _with_texts(query.select_from(row)).where(WorkloadRow.key == bindparam("key"), *_here()).order_by(row.id)


def _with_texts(query: AnySelect) -> AnySelect:
    """`query` of candidates, joined to what they name."""
    row = CandidateRow
    return (
        query.join(WorkloadRow, WorkloadRow.id == row.workload_id)
        .join(ScheduleRow, ScheduleRow.id == row.schedule_id)
        .join(CodeRow, CodeRow.id == row.code_id)
        .join(VersionsRow, VersionsRow.id == row.versions_id)
    )


_SCHEDULE = (
    CandidateRow.id.label("candidate_id"),
    WorkloadRow.key.label("workload_key"),
    ScheduleRow.text.label("schedule"),
    ScheduleRow.key.label("schedule_key"),
    CodeRow.digest,
    VersionsRow.text.label("versions"),
    CandidateRow.median_us,
    CandidateRow.ci_lo_us,
    CandidateRow.ci_hi_us,
    CandidateRow.trusted,
)


def _tier() -> ColumnElement[int]:
    """The place of a candidate's tier in `TIERS`."""
    return case((~has_digest(), 0), (~_is_exact(), 1), (~_superseded(), 2), else_=0)


def _failed_since() -> ColumnElement[bool]:
    """Whether the same schedule failed with the versions asked for: by other versions, or as older code, it worked."""
    other, same = _sibling()
    lasting = [state for state in FAILURES if state not in BY_CHANCE]
    later = and_(other.code_id != CandidateRow.code_id, other.created_at > CandidateRow.created_at)
    return exists().where(*same, _is_exact(other), other.state.in_(lasting), or_(~_is_exact(), later))


def _superseded() -> ColumnElement[bool]:
    """Whether the same schedule was measured as other code since then, with the same versions."""
    other, same = _sibling()
    return exists().where(
        *same,
        other.versions_id == CandidateRow.versions_id,
        other.code_id != CandidateRow.code_id,
        other.created_at > CandidateRow.created_at,
        other.state.not_in((*PENDING, *BY_CHANCE)),
    )


def _sibling() -> tuple[type[CandidateRow], tuple[ColumnElement[bool], ...]]:
    """Another candidate, and what makes it one of the same schedule of the same workload here."""
    other = aliased(CandidateRow)
    names = ("device_id", "workload_id", "target_id", "threads", "schedule_id")
    return other, tuple(getattr(other, name) == getattr(CandidateRow, name) for name in names)


def _is_exact(row: type[CandidateRow] = CandidateRow) -> ColumnElement[bool]:
    return row.versions_id == func.coalesce(_number(VersionsRow.id, VersionsRow.key, "versions"), -1)


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
