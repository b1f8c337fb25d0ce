"""Whether anything was recorded since somebody last looked: a few numbers, without reading a table."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from autofuse.database.tables.schema import ChoiceRow, DoubtRow, MeasurementRow, PlanMeasurementRow, PlanRow, RunRow

_GROWING = (MeasurementRow, DoubtRow, PlanMeasurementRow, PlanRow, ChoiceRow, RunRow)


def stamp(sql: Connection) -> str:
    """Changes with each measurement, doubt, plan, choice and run that is recorded, imported or merged.

    What `db prune` removes changes no answer, so it may leave the stamp as it is.
    """
    return " ".join(str(sql.execute(select(func.max(table.id))).scalar()) for table in _GROWING)
