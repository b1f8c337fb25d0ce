"""The times that a model learns from: the best time of each workload in each setting, and whose workload it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from autofuse.database.ask.lookups import counted_us, has_digest
from autofuse.database.records import OK, Json
from autofuse.database.tables.columns import is_shared
from autofuse.database.tables.schema import (
    CandidateRow,
    ChoiceGroupRow,
    ChoiceRow,
    CodeRow,
    DeviceRow,
    MeasurementRow,
    RunRow,
    TargetRow,
    WorkloadRow,
)


@dataclass(frozen=True, kw_only=True)
class TimedWorkload:
    """A workload with its best time (microseconds a call) on a device, for a target, with a number of threads.

    `workload`, `target`: their JSON texts. `candidates`: schedules that worked here, of which this is the fastest.
    """

    workload_key: str
    workload: str
    label: str
    device: str
    fingerprint: str
    device_facts: Mapping[str, Json]
    target: str
    threads: int
    median_us: float
    ci_lo_us: float
    ci_hi_us: float
    trusted: bool
    candidates: int


def timed_workloads(connection: Connection) -> list[TimedWorkload]:
    """The best candidate of every workload in every setting: of the newest versions, the fastest as times count.

    Those whose code is known come first.

    Candidates that failed are not among them, and neither are workloads of which every candidate did, nor what others
    shared: a model learns from what its user measured.
    """
    row = CandidateRow
    place = (row.workload_id, row.device_id, row.target_id, row.threads)
    ranked = (
        select(
            row.id,
            func.row_number()
            .over(partition_by=place, order_by=(row.versions_id.desc(), has_digest().desc(), counted_us(), row.id))
            .label("place"),
            func.count().over(partition_by=place).label("candidates"),
        )
        .join(CodeRow, CodeRow.id == row.code_id)
        .where(row.state == OK)
        .subquery()
    )
    query = (
        select(
            WorkloadRow.key.label("workload_key"),
            WorkloadRow.text.label("workload"),
            WorkloadRow.label,
            DeviceRow.name.label("device"),
            DeviceRow.fingerprint,
            DeviceRow.facts.label("device_facts"),
            TargetRow.text.label("target"),
            row.threads,
            row.median_us,
            row.ci_lo_us,
            row.ci_hi_us,
            row.trusted,
            ranked.c.candidates,
        )
        .join(ranked, (ranked.c.id == row.id) & (ranked.c.place == 1))
        .join(WorkloadRow, WorkloadRow.id == row.workload_id)
        .join(DeviceRow, DeviceRow.id == row.device_id)
        .join(TargetRow, TargetRow.id == row.target_id)
        .where(~is_shared())
        .order_by(row.id)
    )
    return [TimedWorkload(**values) for values in connection.execute(query).mappings()]


def networks_of_workloads(connection: Connection) -> dict[str, tuple[str, ...]]:
    """Names of the models in whose runs each workload was measured or chosen, by workload key, the first run first."""
    measured = (
        select(WorkloadRow.key, RunRow.model_name, func.min(RunRow.id))
        .join(CandidateRow, CandidateRow.workload_id == WorkloadRow.id)
        .join(MeasurementRow, MeasurementRow.candidate_id == CandidateRow.id)
        .join(RunRow, RunRow.id == MeasurementRow.run_id)
        .group_by(WorkloadRow.key, RunRow.model_name)
    )
    chosen = (
        select(WorkloadRow.key, RunRow.model_name, func.min(RunRow.id))
        .join(ChoiceGroupRow, ChoiceGroupRow.workload_id == WorkloadRow.id)
        .join(ChoiceRow, ChoiceRow.id == ChoiceGroupRow.choice_id)
        .join(RunRow, RunRow.id == ChoiceRow.run_id)
        .group_by(WorkloadRow.key, RunRow.model_name)
    )
    found: dict[str, dict[str, None]] = {}
    for query in (measured, chosen):  # whoever measured a workload stands before those that only chose it
        for key, name, _ in sorted(connection.execute(query).all(), key=lambda row: row[2]):
            found.setdefault(str(key), {})[str(name)] = None
    return {key: tuple(names) for key, names in found.items()}
