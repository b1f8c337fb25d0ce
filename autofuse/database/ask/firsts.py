"""The first schedule of a workload that got a time on a device: what a search's gain is counted from."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, func, select

from autofuse.database.ask.lookups import CHUNK
from autofuse.database.records import OK, FirstSchedule, Setting
from autofuse.database.tables.schema import CandidateRow, DeviceRow, TargetRow, WorkloadRow


def first_schedules(connection: Connection, setting: Setting, workload_keys: Iterable[str]) -> dict[str, FirstSchedule]:
    """The first schedule with a time of each workload on a device with a number of threads, whatever its versions."""
    wanted = sorted(set(workload_keys))
    found: dict[str, FirstSchedule] = {}
    for start in range(0, len(wanted), CHUNK):
        row = CandidateRow
        here = (
            select(
                row.id.label("candidate_id"),
                WorkloadRow.key.label("workload_key"),
                row.median_us,
                row.trusted,
                row.state,
                func.count().over(partition_by=row.workload_id).label("schedules"),
                func.rank()
                .over(partition_by=(row.workload_id, row.state), order_by=(row.created_at, row.id))
                .label("place"),
            )
            .join(WorkloadRow, WorkloadRow.id == row.workload_id)
            .join(DeviceRow, DeviceRow.id == row.device_id)
            .join(TargetRow, TargetRow.id == row.target_id)
            .where(
                WorkloadRow.key.in_(wanted[start : start + CHUNK]),
                DeviceRow.fingerprint == setting.device,
                TargetRow.key == setting.target,
                row.threads == setting.threads,
            )
            .subquery()
        )
        columns = (here.c.candidate_id, here.c.workload_key, here.c.median_us, here.c.trusted, here.c.schedules)
        query = select(*columns).where(here.c.place == 1, here.c.state == OK)
        for one in connection.execute(query).mappings():
            found[one["workload_key"]] = FirstSchedule(**one)
    return found
