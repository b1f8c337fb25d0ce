"""What a row is apart from its number: read off the tables, so that no table is forgotten.

Rows of two databases are the same row when their identities are equal: the columns of a uniqueness rule, in which a
reference counts as the identity of the row that it names. Numbers (`id`) and leases belong to one file only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    TypeDecorator,
    UniqueConstraint,
)

from autofuse.errors import InputError
from autofuse.profiling.records import PENDING, content_key
from autofuse.profiling.schema import PREFIX, VERSION_TABLE, OwnerMixin

MAX_TEXT = 16 << 20
"""Characters of one value, at most."""
LEASE = frozenset(OwnerMixin.__annotations__)
NUMBER = "id"

LOCAL = frozenset(("af_job", "af_task", "af_board"))
"""What coordinators do in one file: jobs go on where they were begun. Every other table is knowledge, and travels."""

KEPT, FIRST, LATEST, VERDICT = "kept", "first", "latest", "verdict"
"""What becomes of a row that two databases hold differently: refused (it never changes), the one recorded first, the
one recorded last, or worked out anew from its measurements."""

Raw = str | int | float | None
"""A value as SQLite stores it: dates as ISO text, documents as JSON text, booleans as 0 and 1."""

_RUN = ("name", "model_sha256", "seed", "started_at", "device_id", "target_id", "threads", "versions_id")
_IDENTITIES: Mapping[str, tuple[str, ...]] = {
    "af_run": _RUN,
    "af_choice": ("run_id", "plan_id", "created_at"),
}
"""For tables without a uniqueness rule; a table that is not here is told apart by all its columns."""

_POLICIES: Mapping[str, str] = {
    "af_candidate": VERDICT,
    "af_measurement": KEPT,
    "af_sample": KEPT,
    "af_plan_measurement": KEPT,
    "af_run": LATEST,
    "af_trial": LATEST,
}
"""Other tables: the row recorded first (where nothing tells, the greater text), whichever file is merged into which."""

_WORKING = {"af_run": (("running",), "interrupted"), "af_candidate": (PENDING, "queued")}

_TIMES = {FIRST: ("created_at", "started_at"), LATEST: ("finished_at", "updated_at", "created_at")}


class UnfitValueError(ValueError):
    """A value that its column must not hold; the text says why."""


@dataclass(frozen=True)
class Form:
    """A table: `columns` without lease columns, `references` (column -> table), what its rows are told apart by.

    `numbered`: rows have an `id`; `leased`: a process may be working on one. `policy`, `order`: for rows that differ;
    `order` is the column that tells when.
    """

    name: str
    columns: tuple[str, ...]
    references: Mapping[str, str]
    identity: tuple[str, ...]
    numbered: bool
    policy: str
    order: str | None
    checks: tuple[Callable[[object], Raw], ...]
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
            fit = [check(value) for check, value in zip(self.checks, row, strict=True)]
        except UnfitValueError:
            raise self._complaint(row) from None
        if self._keyed and content_key(str(fit[self.at["text"]])) != fit[self.at["key"]]:
            raise InputError(f"column key: it is not the SHA-256 of the text; got {_shown(fit[self.at['key']])}")
        return fit

    def settled(self, row: list[Raw]) -> list[Raw]:
        """The row as another file holds it: what a process is working on, it works on in its own file only."""
        working = _WORKING.get(self.name)
        if working is not None and row[self.at["state"]] in working[0]:
            row[self.at["state"]] = working[1]
        return row

    @cached_property
    def _keyed(self) -> bool:
        return self.identity == ("key",) and "text" in self.columns

    def _complaint(self, row: Sequence[object]) -> InputError:
        for column, check, value in zip(self.columns, self.checks, row, strict=True):
            try:
                check(value)
            except UnfitValueError as error:
                return InputError(f"column {column}: {error}; got {_shown(value)}")
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
    policy = _POLICIES.get(table.name, FIRST)
    order = next((name for name in _TIMES.get(policy, ()) if name in table.columns), None)
    return Form(
        name=table.name,
        columns=tuple(column.name for column in columns),
        references=references,
        identity=_identity(table, [column.name for column in columns]),
        numbered=numbered,
        policy=policy,
        order=order,
        checks=tuple(_check(table.name, column) for column in columns),
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


# Values ------------------------------------------------------------------------------------------


def _check(table: str, column: Column[object]) -> Callable[[object], Raw]:
    kind = column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
    shape = _SHAPES.get((table, column.name))
    if isinstance(kind, JSON) or shape:

        def check(value: object) -> Raw:
            return _document(value, shape)
    elif isinstance(kind, Boolean):
        check = _boolean
    elif isinstance(kind, DateTime):
        check = _date
    elif isinstance(kind, Integer):
        check = _integer
    elif isinstance(kind, Float):
        check = _number
    elif isinstance(kind, String):
        limit = min(kind.length or MAX_TEXT, MAX_TEXT)

        def check(value: object) -> Raw:
            return _text(value, limit)
    else:
        raise InputError(f"table {table}, column {column.name}: no check for type {kind!r}")
    if not column.nullable:
        return check
    return lambda value: None if value is None else check(value)


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str):
        raise UnfitValueError("expected text")
    if len(value) > limit:
        raise UnfitValueError(f"expected at most {limit} characters, found {len(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UnfitValueError("expected text that is valid Unicode") from None
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise UnfitValueError("expected an integer of 64 bits")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitValueError("expected a finite number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UnfitValueError("expected a finite number")
    return number


def _boolean(value: object) -> int:
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return int(value)
    raise UnfitValueError("expected true or false")


def _date(value: object) -> str:
    """Naive UTC, as SQLAlchemy writes it: `2026-01-31 23:59:59.000000`."""
    try:
        if isinstance(value, str) and str(datetime.fromisoformat(value).isoformat(" ", "microseconds")) == value:
            return value
    except ValueError:
        pass
    raise UnfitValueError("expected a date such as 2026-01-31 23:59:59.000000")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_document(text: str) -> object:
    """A JSON value; ValueError for anything else, NaN and infinity too."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _document(value: object, shape: Shape | None) -> str:
    text = _text(value, MAX_TEXT)
    try:
        document = _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise UnfitValueError("expected a JSON document") from None
    if shape is not None and not shape(document):
        raise UnfitValueError(f"expected {shape.__doc__}")
    return text


def _times(value: object) -> bool:
    """a list of times above 0"""
    return isinstance(value, list) and bool(value) and all(type(us) in (float, int) and 0 < us < 1e300 for us in value)


def _blocks(value: object) -> bool:
    """a list of [times, clock ratio or null, flagged]"""
    return isinstance(value, list) and all(
        isinstance(block, list)
        and len(block) == 3
        and _times(block[0])
        and (block[1] is None or type(block[1]) in (float, int))
        and isinstance(block[2], bool)
        for block in value
    )


def _names(value: object) -> bool:
    """a list of names"""
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _object(value: object) -> bool:
    """an object"""
    return isinstance(value, dict)


def _schedule(value: object) -> bool:
    """an object of texts and integers"""
    return isinstance(value, dict) and all(type(item) in (str, int) for item in value.values())


Shape = Callable[[object], bool]
_SHAPES: Mapping[tuple[str, str], Shape] = {
    ("af_sample", "us"): _times,
    ("af_plan_measurement", "blocks"): _blocks,
    ("af_choice_group", "operators"): _names,
    ("af_schedule", "text"): _schedule,
    ("af_target", "text"): _object,
    ("af_versions", "text"): _object,
    ("af_workload", "text"): _object,
    ("af_plan", "text"): _object,
    **{("af_run", name): _object for name in ("arguments", "budget", "provenance", "summary")},
    ("af_device", "facts"): _object,
    ("af_trial", "answers"): _object,
    ("af_choice", "details"): _object,
}
"""What a document must look like for those who read it; other documents: any JSON."""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def sort_text(values: Iterable[Raw]) -> str:
    """A text that two rows of equal content share; decides between rows that nothing else decides."""
    return json.dumps(list(values))
