"""Recording candidates: a measurement is appended, the candidate's verdict follows from all of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from autofuse.database.record.identities import Identities
from autofuse.database.record.verdict import doubted, verdict
from autofuse.database.records import (
    Candidate,
    CandidateOutcome,
    SampleBlock,
    Setting,
    canonical_json,
    content_key,
)
from autofuse.database.tables.columns import (
    free_lease,
    insert_unless_there,
    packed,
    timing_columns,
)
from autofuse.database.tables.schema import (
    CandidateRow,
    CodeRow,
    DoubtRow,
    MeasurementRow,
    SampleRow,
    ScheduleRow,
    WorkloadRow,
)
from autofuse.errors import InputError

# Made once: building a statement costs more than running it.
_CANDIDATE = CandidateRow.__table__.c
_IDENTITY = ("workload_id", "schedule_id", "device_id", "target_id", "threads", "versions_id", "code_id")
_FIND = (
    select(_CANDIDATE.id)
    .where(*(_CANDIDATE[name] == bindparam(name) for name in _IDENTITY))
    # Locked where the database can lock a row: two coordinators may measure the same candidate.
    .with_for_update()
)
_APPEND = insert(SampleRow)


def record(
    connection: Connection, ids: Identities, setting: Setting, outcome: CandidateOutcome, run_id: int | None
) -> int:
    """Append a measurement to its candidate (made where it is new); the candidate's number.

    The candidate's verdict is that of all its measurements, see `verdict`. A `uid` seen before: no change.
    """
    identity = _identity(connection, ids, setting, outcome.candidate)
    now = datetime.now(UTC)
    fresh = {**timing_columns(outcome), "build_s": outcome.build_s, "updated_at": now, **free_lease()}
    candidate_id, made = _find_or_make(connection, identity, {**fresh, "created_at": now})
    measurement = {
        **timing_columns(outcome),
        "candidate_id": candidate_id,
        "run_id": run_id,
        "uid": outcome.uid or uuid.uuid4().hex,
        "build_s": outcome.build_s,
        "created_at": now,
    }
    statement = insert_unless_there(connection.dialect.name, MeasurementRow)
    appended = connection.execute(statement, measurement).scalar_one_or_none()
    if appended is None:
        return candidate_id
    _append_samples(connection, appended, outcome.blocks)
    if not made:
        connection.execute(
            update(CandidateRow)
            .where(CandidateRow.id == candidate_id)
            .values(**_verdict(connection, candidate_id), **free_lease(), updated_at=now)
        )
    return candidate_id


def _identity(connection: Connection, ids: Identities, setting: Setting, candidate: Candidate) -> dict[str, int]:
    try:
        schedule = canonical_json(json.loads(candidate.schedule))
    except json.JSONDecodeError as error:
        raise InputError(f"schedule is no JSON: {error}: {candidate.schedule[:80]!r}") from error
    workload = {
        "text": candidate.workload_text,
        "label": candidate.workload_label,
        "created_at": datetime.now(UTC),
    }
    return {
        **ids.setting_columns(connection, setting),
        "workload_id": ids.find_or_make(connection, WorkloadRow, {"key": candidate.workload_key}, workload),
        "schedule_id": ids.find_or_make(connection, ScheduleRow, {"key": content_key(schedule)}, {"text": schedule}),
        "code_id": ids.find_or_make(connection, CodeRow, {"digest": candidate.digest}, {}),
    }


def _find_or_make(connection: Connection, identity: dict[str, int], values: dict[str, Any]) -> tuple[int, bool]:
    """(number, whether it was made now) of the candidate with this identity."""
    found = connection.execute(_FIND, identity).scalar_one_or_none()
    if found is not None:
        return found, False
    statement = insert_unless_there(connection.dialect.name, CandidateRow)
    made = connection.execute(statement, {**identity, **values}).scalar_one_or_none()
    if made is not None:
        return made, True
    return connection.execute(_FIND, identity).scalar_one(), False


def _append_samples(connection: Connection, measurement_id: int, blocks: Sequence[SampleBlock]) -> None:
    rows = [
        {
            "measurement_id": measurement_id,
            "block": number,
            "us": packed(block.us),
            "clock_ratio": block.clock_ratio,
            "flagged": block.flagged,
        }
        for number, block in enumerate(blocks)
    ]
    if rows:
        connection.execute(_APPEND, rows)


def _verdict(connection: Connection, candidate_id: int) -> dict[str, Any]:
    """See `verdict.verdict`."""
    row = MeasurementRow
    history = connection.execute(
        select(row.__table__).where(row.candidate_id == candidate_id).order_by(row.created_at, row.uid)
    )

    def blocks_of(numbers: list[int]) -> list[list[float]]:
        query = select(SampleRow.us).where(SampleRow.measurement_id.in_(numbers), ~SampleRow.flagged)
        return list(connection.execute(query).scalars())

    rows = [dict(row) for row in history.mappings()]
    asked = select(DoubtRow.measurement_id).where(DoubtRow.measurement_id.in_([row["id"] for row in rows]))
    return verdict(doubted(rows, set(connection.execute(asked).scalars())), blocks_of)


def doubt(connection: Connection, uids: Sequence[str], reason: str) -> int:
    """Trust these measurements no more; how many candidates have another verdict. Doubted before: no change."""
    measured = select(MeasurementRow.id, MeasurementRow.candidate_id).where(
        MeasurementRow.uid.in_(list(uids)), MeasurementRow.trusted.is_(True)
    )
    changed = set()
    for number, candidate_id in connection.execute(measured).all():
        values = {"measurement_id": number, "reason": reason, "created_at": datetime.now(UTC)}
        statement = insert_unless_there(connection.dialect.name, DoubtRow)
        if connection.execute(statement, values).scalar_one_or_none() is not None:
            changed.add(candidate_id)
    for candidate_id in sorted(changed):
        found = _verdict(connection, candidate_id)
        found["updated_at"] = datetime.now(UTC)
        connection.execute(update(CandidateRow).where(CandidateRow.id == candidate_id).values(**found))
    return len(changed)
