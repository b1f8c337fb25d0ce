"""The identity of a row apart from its number, read off the tables, so that no table is forgotten.

Rows of two databases are the same row when their identities are equal: the columns of a uniqueness rule, in which a
reference counts as the identity of the row that it names. Numbers (`id`) and leases belong to one file only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import JSON, Boolean, MetaData, Table, UniqueConstraint

from autofuse.database.content.values import ColumnCheck, Raw, UnfitValueError, check_of, shown
from autofuse.database.records import PENDING, content_key
from autofuse.database.tables.schema import PREFIX, VERSION_TABLE, OwnerMixin
from autofuse.errors import InputError

LEASE = frozenset(OwnerMixin.__annotations__)
NUMBER = "id"

LOCAL = frozenset(("af_job", "af_task", "af_worker"))
"""What coordinators do in one file: jobs go on where they were begun. Every other table is knowledge, and travels."""

SAME, STORED, OPEN, VERDICT = "same", "stored", "open", "verdict"
"""What becomes of a row that this database holds otherwise: refused (such rows never change), left as it stands here,
brought forward as long as it is not at its end here, or worked out anew from its measurements."""

_RUN = ("name", "model_sha256", "seed", "started_at", "device_id", "target_id", "threads", "versions_id")
_IDENTITIES: Mapping[str, tuple[str, ...]] = {
    "af_run": _RUN,
    "af_choice": ("run_id", "plan_id", "created_at"),
}
"""Identities of tables without a uniqueness rule; rows of a table that is not here differ in some column."""

_POLICIES: Mapping[str, str] = {
    "af_candidate": VERDICT,
    "af_measurement": SAME,
    "af_sample": SAME,
    "af_plan_measurement": SAME,
    "af_run": OPEN,
    "af_trial": OPEN,
}
"""Other tables: what stands here stays, such as the date at which a workload was first seen."""

_NEVER_DIFFER: Mapping[str, tuple[str, ...]] = {"af_device": ("facts",), "af_plan": ("text",)}
"""Columns that follow from the row's identity, so that another content tells of an altered file."""

_OPEN = frozenset(("running", "interrupted"))
"""States of runs and trials that go on."""

_WORKING = {"af_run": (("running",), "interrupted"), "af_candidate": (PENDING, "queued")}


@dataclass(frozen=True)
class Form:
    """A table: `columns` without lease columns, `references` (column -> table), what its rows are told apart by.

    `numbered`: rows have an `id`; `leased`: a process may be working on one. `policy`: for rows that differ; `fixed`:
    columns in which they cannot.
    """

    name: str
    columns: tuple[str, ...]
    references: Mapping[str, str]
    identity: tuple[str, ...]
    numbered: bool
    policy: str
    fixed: tuple[str, ...]
    checks: tuple[ColumnCheck, ...]
    documents: frozenset[str]
    booleans: frozenset[str]
    leased: bool

    @cached_property
    def at(self) -> Mapping[str, int]:
        """Position of each column in a row."""
        return {column: place for place, column in enumerate(self.columns)}

    @cached_property
    def content(self) -> tuple[int, ...]:
        """Positions of the columns that count: all but the number."""
        return tuple(place for place, column in enumerate(self.columns) if column != NUMBER)

    def checked(self, row: Sequence[object]) -> list[Raw]:
        """The row, each value fit for its column; InputError names the column and the value."""
        try:
            fit = [check.value(value) for check, value in zip(self.checks, row, strict=True)]
        except UnfitValueError:
            raise self._complaint(row) from None
        if self.keyed and content_key(str(fit[self.at["text"]])) != fit[self.at["key"]]:
            raise InputError(f"column key: it is not the SHA-256 of the text; got {shown(fit[self.at['key']])}")
        return fit

    def checked_columns(self, rows: Sequence[Sequence[object]]) -> list[Sequence[Raw]]:
        """Checks many rows (at least one) as `checked` does, and turns them into columns: most are fit at one look."""
        if not self.keyed:
            try:
                return [
                    column if check.plain(column) else list(map(check.value, column))
                    for check, column in zip(self.checks, zip(*rows, strict=True), strict=True)
                ]
            except UnfitValueError:
                pass  # which row it is, the next line finds
        return list(zip(*(self.checked(row) for row in rows), strict=True))

    @property
    def works(self) -> bool:
        """Whether a row may say that a process is working on it."""
        return self.name in _WORKING

    def goes_on(self, row: Sequence[Raw]) -> bool:
        """Whether a run or a trial is not at its end."""
        return row[self.at["state"]] in _OPEN

    def settled(self, row: list[Raw]) -> list[Raw]:
        """The row as another file holds it: what a process is working on, it works on in its own file only."""
        working = _WORKING.get(self.name)
        if working is not None and row[self.at["state"]] in working[0]:
            row[self.at["state"]] = working[1]
        return row

    @cached_property
    def keyed(self) -> bool:
        """Whether its key is the SHA-256 of its text."""
        return self.identity == ("key",) and "text" in self.columns

    def _complaint(self, row: Sequence[object]) -> InputError:
        for column, check, value in zip(self.columns, self.checks, row, strict=True):
            try:
                check.value(value)
            except UnfitValueError as error:
                return InputError(f"column {column}: {error}; got {shown(value)}")
        raise AssertionError("no value is unfit")


def forms(metadata: MetaData) -> tuple[Form, ...]:
    """Every table of ours in `metadata` but `LOCAL` ones, those that others refer to first."""
    ours = (table for table in metadata.sorted_tables if table.name.startswith(PREFIX))
    return tuple(_form(table) for table in ours if table.name != VERSION_TABLE and table.name not in LOCAL)


def _form(table: Table) -> Form:
    columns = [column for column in table.columns if column.name not in LEASE]
    references = {
        column.name: next(iter(column.foreign_keys)).column.table.name for column in columns if column.foreign_keys
    }
    numbered = NUMBER in table.columns
    return Form(
        name=table.name,
        columns=tuple(column.name for column in columns),
        references=references,
        identity=_identity(table, [column.name for column in columns]),
        numbered=numbered,
        policy=_POLICIES.get(table.name, STORED),
        fixed=_NEVER_DIFFER.get(table.name, ()),
        checks=tuple(check_of(table.name, column) for column in columns),
        documents=frozenset(column.name for column in columns if isinstance(column.type, JSON)),
        booleans=frozenset(column.name for column in columns if isinstance(column.type, Boolean)),
        leased=not LEASE.isdisjoint(table.columns.keys()),
    )


def _identity(table: Table, columns: list[str]) -> tuple[str, ...]:
    if table.name in _IDENTITIES:
        return _IDENTITIES[table.name]
    rules = [tuple(rule.columns.keys()) for rule in table.constraints if isinstance(rule, UniqueConstraint)]
    rules += [tuple(index.columns.keys()) for index in table.indexes if index.unique]
    if rules:
        return min(rules, key=lambda names: (len(names), names))
    if NUMBER not in table.columns:
        return tuple(table.primary_key.columns.keys())
    return tuple(name for name in columns if name != NUMBER)
