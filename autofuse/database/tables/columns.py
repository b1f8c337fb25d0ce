"""Values become columns here, for every module that writes rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Table, case, exists, false
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert

from autofuse.database.records import Outcome, SampleBlock
from autofuse.database.tables.owner import Owner
from autofuse.database.tables.schema import Base, DeviceRow, DoubtRow, MeasurementRow
from autofuse.values.ratios import kept

SHARED = "shared:"
"""Start of the fingerprint of a device whose rows somebody shared."""
TIMING_COLUMNS = ("state", "failure", "median_us", "ci_lo_us", "ci_hi_us", "trusted", "max_rel_error")


@cache
def insert_unless_there(dialect: str, row: type[Base]) -> ReturningInsert[Any]:
    """`INSERT ... ON CONFLICT DO NOTHING RETURNING id`, in the dialect of that name; made once.

    The values are parameters of its execution. No row comes back for one that was there.
    """
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    table = row.__table__
    assert isinstance(table, Table)
    return make(table).on_conflict_do_nothing().returning(table.c.id)


def timing_columns(outcome: Outcome) -> dict[str, Any]:
    """Column values of a time or failure; an error that is no number is stored as unknown."""
    values: dict[str, Any] = {name: getattr(outcome, name) for name in TIMING_COLUMNS}
    error = outcome.max_rel_error
    values["max_rel_error"] = None if error is None or math.isnan(error) else error
    return values


def still_trusted() -> ColumnElement[bool | None]:
    """Whether a measurement's time counts: it was trusted, and nothing doubted it afterwards (NULL for a failure)."""
    doubted = exists().where(DoubtRow.measurement_id == MeasurementRow.id)
    return case((doubted, false()), else_=MeasurementRow.trusted)


def lease_columns(owner: Owner) -> dict[str, Any]:
    """Column values of a lease."""
    return {
        "owner_host": owner.host,
        "owner_pid": owner.pid,
        "owner_boot_id": owner.boot_id,
        "owner_started": owner.started,
    }


def free_lease() -> dict[str, Any]:
    """Column values of no lease."""
    return {"owner_host": None, "owner_pid": None, "owner_boot_id": None, "owner_started": None}


def packed(values: Sequence[float]) -> list[float]:
    """Times rounded to the 6 significant digits that are stored."""
    return [kept(value) for value in values]


def packed_blocks(blocks: Sequence[SampleBlock]) -> list[list[object]]:
    """Blocks as one JSON document: [[us, clock ratio, flagged], ...]."""
    return [[packed(block.us), block.clock_ratio, block.flagged] for block in blocks]


def is_shared() -> ColumnElement[bool]:
    """Whether a device (`DeviceRow` is joined) is one of rows that somebody shared: never measured here, so a prior."""
    return DeviceRow.fingerprint.startswith(SHARED, autoescape=True)
