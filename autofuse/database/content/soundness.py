"""What `db check` finds in a database file: damage, what autofuse never makes, and unfit values.

SQLite keeps any value in any column, whatever its declared type; who reads it meets the surprise, such as `report`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import CheckConstraint, Connection, Table

from autofuse.database.content.forms import forms
from autofuse.database.content.source import expected_shape, shape_of
from autofuse.database.content.values import ColumnCheck, UnfitValueError, check_of, shown
from autofuse.database.faults import damage_of
from autofuse.database.records import content_key
from autofuse.database.tables.schema import PREFIX, VERSION_TABLE, Base

ROWS_AT_ONCE = 2_000
RULES: Mapping[str, str] = {
    "time_or_failure": "a time stands with its interval around it and no failure, a failure with its message alone",
    "af_trial_state": "a trial has composed_us exactly when it is complete",
}
"""What a rule of the schema says, by the end of its name; others say one thing of one column."""
SAME_GRAPH = "graph_key is not that of its {}"
CONTRADICTIONS: tuple[tuple[str, str, str, str], ...] = (
    ("af_choice", "af_plan", "p.id = r.plan_id AND p.graph_key <> r.graph_key", SAME_GRAPH),
    ("af_choice", "af_run", "p.id = r.run_id AND p.graph_key <> r.graph_key", SAME_GRAPH),
    ("af_plan_measurement", "af_plan", "p.id = r.plan_id AND p.graph_key <> r.graph_key", SAME_GRAPH),
    *(
        ("af_choice", "af_run", f"p.id = r.run_id AND p.{name} <> r.{name}", f"{name} is not that of its {{}}")
        for name in ("device_id", "target_id", "threads", "versions_id")
    ),
    *(
        (table, "af_plan", "p.id = r.plan_id AND p.graph_key <> (SELECT graph_key FROM af_run WHERE id = r.run_id)",
         "its {} is of another graph than its run")
        for table in ("af_trial", "af_edge")
    ),
    ("af_choice_group", "af_candidate", "p.id = r.candidate_id AND p.workload_id <> r.workload_id",
     "its {} is of another workload"),
)  # fmt: skip
"""Rows `r` of a table that contradict the row `p` of another that they name: (table, the other, when, what it is)."""
KEY, TEXT = "key", "text"
MOST_TOLD = 10
"""Unfit values of a table that are told one by one."""


def flaws(sql: Connection) -> list[str]:
    """What a full check of a database finds: damage, what autofuse never makes, values unfit for their columns.

    Only of SQLite: a server keeps its own pages, types and references.
    """
    raw = sql.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return [*damage_of(sql), *_unlike_ours(raw)]


def _unlike_ours(raw: sqlite3.Connection) -> list[str]:
    """Triggers, views, tables that are not as they should be, unfit values, rows that contradict each other."""
    tables = _tables(raw)
    unfit = (problem for table in tables for problem in _unfit(raw, table))
    found = [*_living(raw), *_shapes(raw), *unfit, *(problem for table in tables for problem in _altered(raw, table))]
    found += [problem for table in tables for problem in _against_rules(raw, table)]
    return [*found, *_contradictions(raw, {table.name for table in tables})]


def _living(raw: sqlite3.Connection) -> Iterator[str]:
    """What runs when the file is used."""
    query = "SELECT type, name, tbl_name FROM sqlite_master WHERE type IN ('trigger', 'view') ORDER BY name"
    for kind, name, table in raw.execute(query):
        where = f" on {shown(table)}" if kind == "trigger" else ""
        yield f"it has a {kind} {shown(name)}{where}, which autofuse never makes"


def _shapes(raw: sqlite3.Connection) -> Iterator[str]:
    found, wanted = shape_of(raw), expected_shape()
    for name in sorted({*found, *wanted}):
        if name not in found:
            yield f"{name} is missing"
        elif name not in wanted:
            yield f"it has {shown(name)}, which autofuse never makes"
        elif found[name] != wanted[name]:
            yield f"{name} is not as autofuse makes it"


def _tables(raw: sqlite3.Connection) -> list[Table]:
    """Our tables that have all their columns."""
    found = []
    for table in Base.metadata.sorted_tables:
        if table.name.startswith(PREFIX) and table.name != VERSION_TABLE:
            columns = {row[1] for row in raw.execute(f"PRAGMA table_info({table.name})")}
            if set(table.columns.keys()) <= columns:
                found.append(table)
    return found


def _altered(raw: sqlite3.Connection, table: Table) -> Iterator[str]:
    """Texts that are not those that their keys were made of: times would stand under what was never measured."""
    if not any(form.name == table.name and form.keyed for form in forms(Base.metadata)):
        return
    told = 0
    for key, text in raw.execute(f"SELECT {KEY}, {TEXT} FROM {table.name}"):
        if content_key(str(text)) != key:
            told += 1
            if told > MOST_TOLD:
                yield f"{table.name}: more keys are not the SHA-256 of their text"
                return
            yield f"{table.name}: key {shown(key)} is not the SHA-256 of its text; was it altered?"


def _against_rules(raw: sqlite3.Connection, table: Table) -> Iterator[str]:
    """Rows that break a rule of the schema; SQLite's own check leaves them out where a file is only read."""
    keys = ", ".join(table.primary_key.columns.keys())
    for rule in table.constraints:
        if not isinstance(rule, CheckConstraint):
            continue
        query = f"SELECT {keys} FROM {table.name} WHERE NOT ({rule.sqltext}) LIMIT {MOST_TOLD}"
        says = next((text for name, text in RULES.items() if str(rule.name).endswith(name)), str(rule.sqltext))
        for row in raw.execute(query):
            yield f"{table.name} row {', '.join(map(shown, row))}: {says}"


def _contradictions(raw: sqlite3.Connection, whole: set[str]) -> Iterator[str]:
    """Rows that say something else than the rows that they name."""
    for table, other, differ, says in CONTRADICTIONS:
        if whole >= {table, other, "af_run"}:
            query = f"SELECT r.id FROM {table} r JOIN {other} p ON {differ} LIMIT {MOST_TOLD}"
            for (number,) in raw.execute(query):
                yield f"{table} row {shown(number)}: {says.format(other.removeprefix(PREFIX))}"


def _unfit(raw: sqlite3.Connection, table: Table) -> Iterator[str]:
    checks = {column.name: check_of(table.name, column) for column in table.columns}
    keys = [list(checks).index(name) for name in table.primary_key.columns.keys()]  # noqa: SIM118  not a dict
    cursor = raw.execute(f"SELECT {', '.join(checks)} FROM {table.name}")
    told = 0
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        for place, (name, check) in enumerate(checks.items()):
            for number, problem in _unfit_values(check, [row[place] for row in rows]):
                told += 1
                if told > MOST_TOLD:
                    yield f"{table.name}: more values are unfit for their columns"
                    return
                row = ", ".join(shown(rows[number][key]) for key in keys)
                yield f"{table.name} row {row}: column {name}: {problem}"


def _unfit_values(check: ColumnCheck, values: Sequence[object]) -> Iterator[tuple[int, str]]:
    if check.plain(values):
        return
    for place, value in enumerate(values):
        try:
            check.value(value)
        except UnfitValueError as error:
            yield place, f"{error}; got {shown(value)}"
