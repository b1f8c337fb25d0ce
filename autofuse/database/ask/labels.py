"""Labels of kernels as screens show them: unique among all workloads that the database knows."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, func, select

from autofuse.database.tables.schema import WorkloadRow
from autofuse.values.names import told_apart


def unique_labels(connection: Connection, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """A label for each of the workloads `own` (label by key), and for every stored one that shares its label."""
    shared = select(WorkloadRow.label).group_by(WorkloadRow.label).having(func.count() > 1)
    known = select(WorkloadRow.key, WorkloadRow.label)
    rows = list(connection.execute(known.where(WorkloadRow.label.in_(shared))))
    if own:
        rows += list(connection.execute(known.where(WorkloadRow.label.in_(set(own.values())))))
    return told_apart({**{str(key): str(label) for key, label in rows}, **(own or {})})
