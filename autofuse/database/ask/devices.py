"""Devices that were measured, for commands that cannot ask them."""

from __future__ import annotations

from sqlalchemy import Connection, select

from autofuse.database.tables.schema import CandidateRow, DeviceRow, TargetRow


def last_measured(connection: Connection, name: str, target_key: str, threads: int) -> str | None:
    """Fingerprint of the device called `name` on which code for this target was measured last; None: never."""
    query = (
        select(DeviceRow.fingerprint)
        .join(CandidateRow, CandidateRow.device_id == DeviceRow.id)
        .join(TargetRow, TargetRow.id == CandidateRow.target_id)
        .where(DeviceRow.name == name, TargetRow.key == target_key, CandidateRow.threads == threads)
        .order_by(CandidateRow.id.desc())
        .limit(1)
    )
    found: str | None = connection.execute(query).scalar_one_or_none()
    return found
