"""Taking in the rows of another database: append-only, what stands here stays, the same again changes nothing."""

from __future__ import annotations

import gc
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

from autofuse.database.content.forms import LEASE, NUMBER, OPEN, SAME, VERDICT, Form, forms
from autofuse.database.content.values import Raw, parse_document, shown
from autofuse.database.faults import errors_of
from autofuse.database.record.verdict import doubted, verdict
from autofuse.database.tables.columns import TIMING_COLUMNS
from autofuse.database.tables.schema import Base
from autofuse.errors import DatabaseError, InputError

CHUNK = 500
"""Rows at once, so that their numbers fit the variables of a statement."""

PARTS_AT_ONCE = 8_000
"""Rows without numbers are small and many."""

ROWS_A_STATEMENT = 100
"""One statement a row would take twice as long."""

Item = TypeVar("Item")
Row = list[Raw]
Part = tuple[Raw, ...]
Identity = Raw | tuple[Raw, ...]


@dataclass(frozen=True)
class TableMerge:
    """The merge of one table: `new` were appended, `known` were there, `updated` of those changed."""

    table: str
    rows: int
    new: int
    known: int
    updated: int


@dataclass(frozen=True)
class MergeReport:
    """The report of a merge, or of what it would do (`dry_run`). `verdicts`: candidates judged otherwise than either
    file had it."""

    source: str
    dry_run: bool
    tables: tuple[TableMerge, ...]
    verdicts: int

    @property
    def changes(self) -> int:
        """Rows that were appended or changed."""
        return sum(table.new + table.updated for table in self.tables)


def merge(into: sqlite3.Connection, source: sqlite3.Connection, name: str) -> tuple[tuple[TableMerge, ...], int]:
    """Append the rows of `source` that `into` lacks, inside the caller's transaction; (tables, verdicts changed).

    `name` names the source in messages. DatabaseError for a row that breaks a rule of its table, refers to a missing
    one, or contradicts a measurement that both hold: then the caller must roll back.
    """
    job = _Merge(into, source, name)
    with _without_collecting():
        tables = [job.table(form) for form in forms(Base.metadata)]
        return tuple(tables), job.judge()


@dataclass
class _Merge:
    """A merge at work. `numbers`: of each row of the source by its own number; `touched`: candidates with further
    measurements.

    `fresh`: candidates that were appended as the source judged them.
    """

    into: sqlite3.Connection
    source: sqlite3.Connection
    name: str
    numbers: dict[str, dict[int, int]] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    fresh: set[int] = field(default_factory=set)

    def table(self, form: Form) -> TableMerge:
        """One table, after those that it refers to."""
        part = _Numbered(self, form) if form.numbered else _Parts(self, form)
        rows = 0
        for columns in self._chunks(form):
            rows += len(columns[0])
            with _clear_constraints(self.name, form.name):
                part.take(columns)
        return TableMerge(form.name, rows, part.new, rows - part.new, part.updated)

    def _chunks(self, form: Form) -> Iterator[list[Sequence[Raw]]]:
        """Columns that refer to the rows of this database, some rows at once; `id` is still their own number."""
        order = NUMBER if form.numbered else ", ".join(form.identity)
        query = f"SELECT {', '.join(form.columns)} FROM {form.name} ORDER BY {order}"
        with errors_of(self.name):
            cursor = self.source.execute(query)
        while True:
            with errors_of(self.name):
                raw = cursor.fetchmany(CHUNK if form.numbered else PARTS_AT_ONCE)
            if not raw:
                return
            yield self._translated(form, raw)

    def _translated(self, form: Form, raw: Sequence[Sequence[object]]) -> list[Sequence[Raw]]:
        where = f"{self.name}: table {form.name}"
        try:
            columns = form.checked_columns(raw)
        except InputError as error:
            raise DatabaseError(f"{where}: {error}") from error
        for column, table in form.references.items():
            place, known = form.at[column], self.numbers[table]
            old = columns[place]
            new = columns[place] = list(map(known.get, old))  # type: ignore[arg-type]  # None names no row
            if new.count(None) > old.count(None):
                number = next(one for one, other in zip(old, new, strict=True) if one is not None and other is None)
                raise DatabaseError(f"{where}: {column} names row {number} of {table}, which is missing")
        return columns

    def judge(self) -> int:
        """Work out the verdicts of candidates that have further measurements; how many changed."""
        changed = self._unmeasured(sorted(self.fresh - self.touched))
        names = [*TIMING_COLUMNS, "build_s", "updated_at"]
        assignments = ", ".join(f"{name} = ?" for name in names)
        free = ", ".join(f"{name} = NULL" for name in sorted(LEASE))
        for numbers in _split(sorted(self.touched)):
            before = {row[0]: row[1:] for row in _where(self.into, "af_candidate", ["id", *names], "id", numbers)}
            updates = []
            histories = self._histories(numbers)
            blocks = self._blocks(histories.values())
            for number, history in histories.items():
                found = verdict(history, partial(_taken, blocks))
                found["updated_at"] = history[-1]["created_at"]
                values = tuple([found[name] for name in names])
                if values != before[number]:
                    changed += values[:-1] != before[number][:-1]
                    updates.append((*values, number))
            self.into.executemany(f"UPDATE af_candidate SET {assignments}, {free} WHERE id = ?", updates)
        return changed

    def _unmeasured(self, numbers: Sequence[int]) -> int:
        """Candidates without a measurement have no verdict, whatever the source says; how many had one."""
        nothing = ", ".join(f"{name} = NULL" for name in (*TIMING_COLUMNS, "build_s") if name != "state")
        columns = ["id", "state", "build_s", "max_rel_error"]
        found = _where(self.into, "af_candidate", columns, "id", numbers)
        judged = [(number,) for number, *rest in found if rest != ["queued", None, None]]
        self.into.executemany(f"UPDATE af_candidate SET state = 'queued', {nothing} WHERE id = ?", judged)
        return len(judged)

    def _histories(self, numbers: Sequence[int]) -> dict[int, list[dict[str, Raw]]]:
        columns = ["candidate_id", "id", "uid", "created_at", "build_s", *TIMING_COLUMNS]
        found: dict[int, list[dict[str, Raw]]] = defaultdict(list)
        for row in _where(self.into, "af_measurement", columns, "candidate_id", numbers):
            found[row[0]].append(dict(zip(columns, row, strict=True)))
        measured = [int(row["id"] or 0) for history in found.values() for row in history]
        rows = _where(self.into, "af_doubt", ["measurement_id"], "measurement_id", measured)
        doubts = {int(str(number)) for (number,) in rows}
        for history in found.values():
            history.sort(key=lambda row: (str(row["created_at"]), str(row["uid"])))
        return {number: doubted(history, doubts) for number, history in found.items()} if doubts else found

    def _blocks(self, histories: Iterable[Sequence[Mapping[str, Raw]]]) -> dict[int, list[list[float]]]:
        """Times of the blocks that count, of every measurement of a candidate that has several."""
        wanted = [int(row["id"] or 0) for history in histories if len(history) > 1 for row in history]
        found: dict[int, list[list[float]]] = {number: [] for number in wanted}
        for some in _split(wanted):
            query = f"SELECT measurement_id, group_concat(us) FROM af_sample WHERE measurement_id IN ({_marks(some)})"
            for number, lists in self.into.execute(f"{query} AND NOT flagged GROUP BY measurement_id", some):
                found[number] = json.loads(f"[{lists}]")
        return found


class _Numbered:
    """Rows with a number: found by their identity, appended under the next free number."""

    def __init__(self, job: _Merge, form: Form) -> None:
        self.job, self.form = job, form
        self.new = self.updated = 0
        self.numbers = job.numbers.setdefault(form.name, {})
        self.identity = itemgetter(*(form.at[name] for name in form.identity))
        query = f"SELECT {', '.join(form.identity)}, {NUMBER} FROM {form.name}"
        own = itemgetter(*range(len(form.identity)))
        self.known: dict[Identity, int] = {own(row): row[-1] for row in job.into.execute(query)}
        self.next = (job.into.execute(f"SELECT MAX({NUMBER}) FROM {form.name}").fetchone()[0] or 0) + 1

    def take(self, columns: Sequence[Sequence[Raw]]) -> None:
        """Append what is new, settle what differs."""
        at_number, first = self.form.at[NUMBER], self.next
        fresh: list[Row] = []
        old: dict[int, Row] = {}
        for row in map(list, zip(*columns, strict=True)):
            if self.form.works:
                self.form.settled(row)
            own = int(row[at_number] or 0)
            identity = self.identity(row)
            number = self.known.get(identity)
            if number is None:
                number = self.known[identity] = self.next
                self.next += 1
                row[at_number] = number
                fresh.append(row)
            elif number < first:
                old[number] = row
            self.numbers[own] = number
        _append(self.job.into, self.form, fresh)
        self.new += len(fresh)
        self._note(fresh)
        if old:
            self._settle(old)

    def _note(self, fresh: Sequence[Row]) -> None:
        """Remember whose verdict may be another now."""
        at = self.form.at
        if self.form.policy == VERDICT:
            self.job.fresh.update(int(row[at[NUMBER]] or 0) for row in fresh)
        elif self.form.name == "af_measurement":
            self.job.touched.update(int(row[at["candidate_id"]] or 0) for row in fresh)
        elif self.form.name == "af_doubt":
            numbers = [row[at["measurement_id"]] for row in fresh]
            found = _where(self.job.into, "af_measurement", ["candidate_id"], "id", numbers)
            self.job.touched.update(int(candidate) for (candidate,) in found)

    def _settle(self, rows: Mapping[int, Row]) -> None:
        """What stands here stays, unless it goes on; see `content.SAME` and its neighbours."""
        form, at = self.form, self.form.at
        if form.policy == VERDICT or not (form.policy in (SAME, OPEN) or form.fixed):
            return
        leased = ["owner_pid"] if form.leased else []
        forward = []
        for stored in _where(self.job.into, form.name, [*form.columns, *leased], NUMBER, list(rows)):
            mine, other = list(stored[: len(form.columns)]), rows[stored[at[NUMBER]]]
            compared = form.content if form.policy == SAME else [at[name] for name in form.fixed]
            if any(_differ(form, place, mine[place], other[place]) for place in compared):
                raise _contradiction(self.job.name, form, mine, other, compared)
            worked_on = bool(leased) and stored[-1] is not None
            if form.policy == OPEN and not worked_on and form.goes_on(mine) and _further(form, other, mine):
                forward.append([other[place] for place in form.content] + [mine[at[NUMBER]]])
        names = ", ".join(f"{form.columns[place]} = ?" for place in form.content)
        self.job.into.executemany(f"UPDATE {form.name} SET {names} WHERE {NUMBER} = ?", forward)
        self.updated += len(forward)


class _Parts:
    """Rows without a number, which belong to the row that their identity begins with, such as blocks."""

    def __init__(self, job: _Merge, form: Form) -> None:
        self.job, self.form = job, form
        self.new = self.updated = 0
        self.last = job.into.execute(f"SELECT MAX({form.identity[0]}) FROM {form.name}").fetchone()[0] or 0

    def take(self, columns: Sequence[Sequence[Raw]]) -> None:
        """Append what is new, refuse what contradicts."""
        numbers = set(columns[self.form.at[self.form.identity[0]]])
        owners = [number for number in numbers if int(number or 0) <= self.last]
        chunk = list(zip(*columns, strict=True))
        fresh = self._unknown(chunk, owners) if owners else chunk
        _append(self.job.into, self.form, fresh)
        self.new += len(fresh)

    def _unknown(self, chunk: list[Part], owners: Sequence[Raw]) -> list[Part]:
        form = self.form
        stored: set[Part] = set()
        for some in _split(owners):
            stored.update(self.job.into.execute(_asked(form.name, form.columns, form.identity[0], some), some))
        fresh = [row for row in chunk if row not in stored]
        if fresh:
            identity = itemgetter(*(form.at[name] for name in form.identity))
            mine = {identity(row): row for row in stored}
            for row in fresh:
                if identity(row) in mine:
                    raise _contradiction(self.job.name, form, mine[identity(row)], row, form.content)
        return fresh


def _append(into: sqlite3.Connection, form: Form, rows: Sequence[Sequence[Raw]]) -> None:
    insert = f"INSERT INTO {form.name} ({', '.join(form.columns)}) VALUES "
    row, width = f"({_marks(form.columns)})", ROWS_A_STATEMENT * len(form.columns)
    whole = len(rows) - len(rows) % ROWS_A_STATEMENT
    values = list(chain.from_iterable(rows[:whole]))
    several = (values[start : start + width] for start in range(0, len(values), width))
    into.executemany(insert + ", ".join([row] * ROWS_A_STATEMENT), several)
    into.executemany(insert + row, rows[whole:])


def _taken(blocks: Mapping[int, list[list[float]]], measurements: list[int]) -> list[list[float]]:
    return [us for number in measurements for us in blocks[number]]


def _further(form: Form, other: Row, mine: Row) -> bool:
    """Whether the other of two rows of one run or trial is at its end, or was touched later; `mine` is not at its."""
    if not form.goes_on(other):
        return True
    ends = [str(row[form.at["finished_at"]] or "") if "finished_at" in form.at else "" for row in (other, mine)]
    return ends[0] > ends[1]


def _differ(form: Form, place: int, mine: Raw, other: Raw) -> bool:
    if mine == other:
        return False
    if form.columns[place] not in form.documents or mine is None or other is None:
        return True
    return parse_document(str(mine)) != parse_document(str(other))


def _contradiction(
    name: str, form: Form, mine: Sequence[Raw], other: Sequence[Raw], places: Sequence[int]
) -> DatabaseError:
    column = next(form.columns[place] for place in places if mine[place] != other[place])
    identity = ", ".join(f"{key} {shown(mine[form.at[key]])}" for key in form.identity)
    return DatabaseError(
        f"{name}: table {form.name}, {identity}: {column} is not what this database holds, "
        "but such rows never change; one of the two files was altered, so nothing was merged"
    )


def _where(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], key: str, values: Sequence[Raw]
) -> Iterable[tuple[Any, ...]]:
    """Rows whose `key` is one of `values`."""
    for some in _split(values):
        yield from connection.execute(_asked(table, columns, key, some), some)


def _asked(table: str, columns: Sequence[str], key: str, values: Sequence[object]) -> str:
    return f"SELECT {', '.join(columns)} FROM {table} WHERE {key} IN ({_marks(values)})"


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _split(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Millions of small tuples, none of them in a cycle: looking for cycles among them takes an eighth of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def _clear_constraints(name: str, table: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise DatabaseError(f"{name}: table {table}: a row breaks a rule of it ({error})") from error
