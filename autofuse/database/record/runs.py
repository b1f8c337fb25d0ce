"""Runs and their leases: starting, ending, finding those that a crash or a reboot cut off."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import Connection, Select, func, insert, select, update

from autofuse.database.record.identities import Identities
from autofuse.database.records import (
    RUN_STATES,
    Json,
    RunInfo,
    RunStart,
    Setting,
    Trial,
    canonical_json,
)
from autofuse.database.tables.columns import free_lease, lease_columns
from autofuse.database.tables.owner import Owner, is_dead, this_process
from autofuse.database.tables.schema import (
    CandidateRow,
    DeviceRow,
    MeasurementRow,
    OwnerMixin,
    PlanRow,
    RunRow,
    TargetRow,
    TrialRow,
    VersionsRow,
)
from autofuse.errors import InputError

RUNNING = "running"
INTERRUPTED = "interrupted"
MOST_RUNS = 2**63 - 1
"""The largest number that a row can have."""


def start(connection: Connection, ids: Identities, setting: Setting, run: RunStart) -> int:
    """Insert a running run that the calling process owns; its number."""
    for document in (run.arguments, run.budget, run.provenance):
        canonical_json(document)
    values = {
        "name": run.name,
        "model_name": run.model_name,
        "model_sha256": run.model_sha256,
        "graph_key": run.graph_key,
        "seed": run.seed,
        "state": RUNNING,
        "started_at": run.started_at or datetime.now(UTC),
        "arguments": dict(run.arguments),
        "budget": dict(run.budget),
        "provenance": dict(run.provenance),
        **ids.setting_columns(connection, setting),
        **lease_columns(this_process()),
    }
    return connection.execute(insert(RunRow).values(**values).returning(RunRow.id)).scalar_one()


def resume(connection: Connection, run_id: int) -> None:
    """Let the calling process own a run that is not running; InputError when another one works on it."""
    state = _state(connection, run_id)
    if state == RUNNING and not is_dead(_owner_of(connection, run_id)):
        raise InputError(f"run {run_id} is still running: wait for it, or start another run")
    values = {"state": RUNNING, "finished_at": None, **lease_columns(this_process())}
    connection.execute(update(RunRow).where(RunRow.id == run_id).values(**values))


def finish(connection: Connection, run_id: int, state: str, summary: Mapping[str, Json] | None) -> None:
    """Give up the lease with a final state."""
    if state == RUNNING or state not in RUN_STATES:
        allowed = ", ".join(name for name in RUN_STATES if name != RUNNING)
        raise InputError(f"run state {state!r}: a run ends as one of {allowed}")
    _state(connection, run_id)
    canonical_json(summary)
    values = {"state": state, "finished_at": datetime.now(UTC), **free_lease()}
    if summary is not None:
        values["summary"] = dict(summary)
    connection.execute(update(RunRow).where(RunRow.id == run_id).values(**values))


def release_dead(connection: Connection) -> list[int]:
    """Mark running runs of dead owners interrupted; their numbers."""
    freed = [
        number
        for number, owner in _owners(connection, select(RunRow).where(RunRow.state == RUNNING), RunRow)
        if is_dead(owner)
    ]
    connection.execute(
        update(RunRow)
        .where(RunRow.id.in_(freed))
        .values(state=INTERRUPTED, finished_at=datetime.now(UTC), **free_lease())
    )
    return freed


def find(connection: Connection, *, number: int | None = None, name: str | None = None) -> RunInfo | None:
    """The run with this number, or the newest one with this name, or the newest of all."""
    query = _infos().order_by(RunRow.started_at.desc(), RunRow.id.desc()).limit(1)
    if number is not None:
        if not 0 <= number <= MOST_RUNS:
            return None
        query = query.where(RunRow.id == number)
    if name is not None:
        query = query.where(RunRow.name == name)
    return next(iter(_read(connection, query)), None)


def interrupted(connection: Connection, setting: Setting, model_sha256: str) -> RunInfo | None:
    """Newest run of this model, device, target and threads, if it was interrupted: the one to resume."""
    query = (
        _infos()
        .where(
            RunRow.model_sha256 == model_sha256,
            DeviceRow.fingerprint == setting.device,
            TargetRow.key == setting.target,
            RunRow.threads == setting.threads,
        )
        .order_by(RunRow.started_at.desc(), RunRow.id.desc())
        .limit(1)
    )
    newest = next(iter(_read(connection, query)), None)
    return newest if newest is not None and newest.state == INTERRUPTED else None


def counts(connection: Connection, run_id: int) -> dict[str, int]:
    """The number of candidates that a run measured, by the state that each came to last."""
    last = (
        select(func.max(MeasurementRow.id))
        .where(MeasurementRow.run_id == run_id)
        .group_by(MeasurementRow.candidate_id)
        .scalar_subquery()
    )
    query = (
        select(MeasurementRow.state, func.count().label("candidates"))
        .where(MeasurementRow.id.in_(last))
        .group_by(MeasurementRow.state)
        .order_by(MeasurementRow.state)
    )
    return {row.state: row.candidates for row in connection.execute(query)}


def trials(connection: Connection, run_id: int) -> tuple[Trial, ...]:
    """Trials of a run by number, for a search that resumes."""
    query = (
        select(TrialRow.number, TrialRow.answers, TrialRow.state, PlanRow.key.label("plan_key"), TrialRow.composed_us)
        .outerjoin(PlanRow, PlanRow.id == TrialRow.plan_id)
        .where(TrialRow.run_id == run_id)
        .order_by(TrialRow.number)
    )
    return tuple(Trial(**row) for row in connection.execute(query).mappings())


def require(connection: Connection, run_id: int) -> RunInfo:
    """The run with this number; InputError when there is none."""
    found = find(connection, number=run_id)
    if found is None:
        raise InputError(f"no run {run_id} in the profiling database")
    return found


def _state(connection: Connection, run_id: int) -> str:
    state = connection.execute(select(RunRow.state).where(RunRow.id == run_id)).scalar_one_or_none()
    if state is None:
        raise InputError(f"no run {run_id} in the profiling database")
    return state


def owner(connection: Connection, run_id: int) -> Owner | None:
    """The process of this machine that works on a run now; None when there is none."""
    found = _owner_of(connection, run_id)
    return found if found.host == this_process().host and found.pid > 0 and not is_dead(found) else None


def _owner_of(connection: Connection, run_id: int) -> Owner:
    return next(owner for _, owner in _owners(connection, select(RunRow).where(RunRow.id == run_id), RunRow))


def _owners(
    connection: Connection, query: Select[RunRow] | Select[CandidateRow], row: type[OwnerMixin]
) -> list[tuple[int, Owner]]:
    found = connection.execute(
        query.with_only_columns(
            row.id,  # type: ignore[attr-defined]
            row.owner_host,
            row.owner_pid,
            row.owner_boot_id,
            row.owner_started,
            maintain_column_froms=True,
        )
    )
    return [
        (number, Owner(host or "", pid if pid is not None else -1, boot or "", started or 0.0))
        for number, host, pid, boot, started in found
    ]


def _infos() -> Select[RunRow, str, str, str]:
    return (
        select(RunRow, DeviceRow.fingerprint, TargetRow.key, VersionsRow.key)
        .join(DeviceRow, DeviceRow.id == RunRow.device_id)
        .join(TargetRow, TargetRow.id == RunRow.target_id)
        .join(VersionsRow, VersionsRow.id == RunRow.versions_id)
    )


def _read(connection: Connection, query: Select[RunRow, str, str, str]) -> list[RunInfo]:
    from sqlalchemy.orm import Session

    with Session(connection) as session:
        return [
            RunInfo(
                id=row.id,
                name=row.name,
                model_name=row.model_name,
                model_sha256=row.model_sha256,
                graph_key=row.graph_key,
                seed=row.seed,
                state=_present_state(row),
                setting=Setting(device, target, row.threads, versions),
                started_at=row.started_at,
                finished_at=row.finished_at,
                arguments=row.arguments,
                budget=row.budget,
                provenance=row.provenance,
                summary=row.summary,
            )
            for row, device, target, versions in session.execute(query)
        ]


def _present_state(row: RunRow) -> str:
    """A running run whose process is gone is interrupted, whoever will say so in the table."""
    if row.state != RUNNING:
        return row.state
    lease = Owner(row.owner_host or "", row.owner_pid or -1, row.owner_boot_id or "", row.owner_started or 0.0)
    return INTERRUPTED if is_dead(lease) else RUNNING
