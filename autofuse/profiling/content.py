"""What a row is apart from its number: read off the tables, so that no table is forgotten.

Rows of two databases are the same row when their identities are equal: the columns of a uniqueness rule, in which a
reference counts as the identity of the row that it names. Numbers (`id`) and leases belong to one file only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

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
from autofuse.profiling.records import content_key
from autofuse.profiling.schema import PREFIX, VERSION_TABLE, OwnerMixin

MAX_TEXT = 16 << 20
"""Characters of one value, at most."""
LEASE = frozenset(OwnerMixin.__annotations__)
NUMBER = "id"

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

_TIMES = {FIRST: ("created_at", "started_at"), LATEST: ("finished_at", "updated_at", "created_at")}


class UnfitValueError(ValueError):
    """A value that its column must not hold; the text says why."""


@dataclass(frozen=True)
class Form:
    """A table: `columns` without lease columns, `references` (column -> table), what its rows are told apart by.

    `numbered`: rows have an `id`. `policy`, `order`: for rows that differ; `order` is the column that tells when.
    """

    name: str
    columns: tuple[str, ...]
    references: Mapping[str, str]
    identity: tuple[str, ...]
    numbered: bool
    policy: str
    order: str | None
    checks: Mapping[str, Callable[[object], Raw]]
    documents: frozenset[str]
    booleans: frozenset[str]

    @property
    def content(self) -> tuple[str, ...]:
        """Columns that count: all but the number."""
        return tuple(column for column in self.columns if column != NUMBER)

    @property
    def keyed(self) -> bool:
        """Whether `key` must be the SHA-256 of `text`."""
        return self.identity == ("key",) and "text" in self.columns

    def checked(self, row: Mapping[str, object]) -> dict[str, Raw]:
        """The row, each value fit for its column; InputError names the column and the value."""
        fit: dict[str, Raw] = {}
        for column in self.columns:
            try:
                fit[column] = self.checks[column](row[column])
            except UnfitValueError as error:
                raise InputError(f"column {column}: {error}; got {_shown(row[column])}") from None
        if self.keyed and content_key(str(fit["text"])) != fit["key"]:
            raise InputError(f"column key: it is not the SHA-256 of the text; got {_shown(fit['key'])}")
        return fit


def forms(metadata: MetaData) -> tuple[Form, ...]:
    """Every table of ours in `metadata`, those that others refer to first."""
    ours = (table for table in metadata.sorted_tables if table.name.startswith(PREFIX) and table.name != VERSION_TABLE)
    return tuple(_form(table) for table in ours)


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
        checks={column.name: _check(column) for column in columns},
        documents=frozenset(column.name for column in columns if isinstance(column.type, JSON)),
        booleans=frozenset(column.name for column in columns if isinstance(column.type, Boolean)),
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


def _check(column: Column[object]) -> Callable[[object], Raw]:
    kind = column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
    if isinstance(kind, JSON):
        check: Callable[[object], Raw] = _document
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
        raise InputError(f"table {column.table.name}, column {column.name}: no check for type {kind!r}")
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


def _document(value: object) -> str:
    text = _text(value, MAX_TEXT)
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise UnfitValueError("expected a JSON document") from None
    return text


def parse_document(text: str) -> object:
    """A JSON value; ValueError for anything else, NaN and infinity too."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def sort_text(values: Iterable[Raw]) -> str:
    """A text that two rows of equal content share; decides between rows that nothing else decides."""
    return json.dumps(list(values))
