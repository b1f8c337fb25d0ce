"""Devices that were measured, for commands that cannot ask them."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select

from autofuse.database.tables.schema import CandidateRow, DeviceRow, RunRow, TargetRow

RATES = "rates"
"""Key of a machine's rates in the provenance of a run, see `autofuse.measure.machine.MachineRates`."""


def probed_rates(connection: Connection) -> dict[tuple[str, int], dict[str, object]]:
    """The rates of each device that a run probed, by its fingerprint and number of threads; the newest count."""
    query = (
        select(DeviceRow.fingerprint, RunRow.threads, RunRow.provenance)
        .join(DeviceRow, DeviceRow.id == RunRow.device_id)
        .order_by(RunRow.id)
    )
    found: dict[tuple[str, int], dict[str, object]] = {}
    for fingerprint, threads, provenance in connection.execute(query):
        rates = provenance.get(RATES) if isinstance(provenance, Mapping) else None
        if isinstance(rates, Mapping):
            found[str(fingerprint), int(threads)] = dict(rates)
    return found


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
