"""Making a database smaller without changing one answer: what may be chosen stays, what lost long ago goes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from autofuse.database.ask.lookups import BY_CHANCE, DIGEST_LENGTH, SCHEDULES_TRIED
from autofuse.database.content.forms import forms
from autofuse.database.records import DOUBT, FAILURES, PENDING
from autofuse.database.tables.schema import Base

CANDIDATE, MEASUREMENT, SAMPLE, TRIAL = "af_candidate", "af_measurement", "af_sample", "af_trial"
DOUBTS = "af_doubt"
ORPHANS = ("af_plan", "af_workload", "af_schedule", "af_code", "af_versions", "af_target", "af_device")
"""Tables whose rows only say what others refer to."""
STEPS = 25
"""Parts in which losers are deleted until a size is reached."""


@dataclass(frozen=True)
class PruneReport:
    """The report of a pruning, or of what it would remove (`dry_run`): rows by table; bytes of the file's content
    before and after.

    `fits`: whether the size asked for was reached; what is left are winners and what is newer than the age.
    """

    dry_run: bool
    removed: dict[str, int]
    bytes_before: int
    bytes_after: int
    kept_candidates: int
    fits: bool


def prune(
    connection: sqlite3.Connection, *, before: datetime | None, max_bytes: int | None, keep: int, dry_run: bool
) -> PruneReport:
    """Delete candidates that lost, oldest first, with their measurements, trials and what nothing refers to any more.

    Inside the caller's transaction. Kept, whatever their age: what a choice or any other table names; the `keep` best
    schedules (at least the `SCHEDULES_TRIED` that `compile` asks for) of each workload, device, target, threads for
    every versions that may be asked for, as `lookups.ranked` ranks them; failures that rule out a schedule measured
    with other versions, or as other code; runs, choices and whole-model times.
    `before`: only what did not change since then (UTC); `max_bytes`: only until the content is that small.
    """
    start = content_bytes(connection)
    removed = {CANDIDATE: 0, MEASUREMENT: 0, SAMPLE: 0}
    _mark_winners(connection, keep)
    moment = _EVER if before is None else before.strftime("%Y-%m-%d %H:%M:%S.%f")
    if max_bytes is None or start > max_bytes:
        removed[TRIAL] = _delete_trials(connection, moment)
        rows = _rows(connection)
        for numbers in _losers(connection, moment, whole=max_bytes is None):
            _delete_candidates(connection, numbers, removed)
            # Pages that are half empty count as full until `VACUUM`: the rows left tell more, though too little.
            left = start * _rows(connection) / max(1, rows)
            if max_bytes is not None and min(left, content_bytes(connection)) <= max_bytes:
                break
        for table in ORPHANS:
            removed[table] = _delete_orphans(connection, table)
    connection.execute("DROP TABLE temp.winner")
    kept = connection.execute(f"SELECT COUNT(*) FROM {CANDIDATE}").fetchone()[0]
    after = content_bytes(connection)
    fits = max_bytes is None or after <= max_bytes
    return PruneReport(dry_run, {table: count for table, count in removed.items() if count}, start, after, kept, fits)


def content_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of the pages in use: what the file has after `VACUUM`, or a little more."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _rows(connection: sqlite3.Connection) -> int:
    tables = (CANDIDATE, MEASUREMENT, SAMPLE)
    return sum(int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]) for table in tables)


def _mark_winners(connection: sqlite3.Connection, keep: int) -> None:
    """Fill the temporary table `winner` with the numbers of candidates that stay."""
    connection.execute("CREATE TEMP TABLE winner (id INTEGER PRIMARY KEY)")
    for form in forms(Base.metadata):
        for column, table in form.references.items():
            if table == CANDIDATE and form.name != MEASUREMENT:
                connection.execute(
                    f"INSERT OR IGNORE INTO winner SELECT {column} FROM {form.name} WHERE {column} IS NOT NULL"
                )
            elif table == MEASUREMENT and form.name != SAMPLE:
                connection.execute(
                    f"INSERT OR IGNORE INTO winner SELECT m.candidate_id FROM {MEASUREMENT} m "
                    f"JOIN {form.name} o ON o.{column} = m.id"
                )
    asked = [row[0] for row in connection.execute("SELECT id FROM af_versions")]
    for versions in (*asked, _NO_VERSIONS):
        connection.execute(_RANKED, {"asked": versions, "keep": max(keep, SCHEDULES_TRIED)})
    connection.execute(
        f"INSERT OR IGNORE INTO winner SELECT c.id FROM {CANDIDATE} c WHERE c.state IN ({_LASTING}) "
        f"AND EXISTS ({_SIBLING} AND (o.versions_id <> c.versions_id OR o.code_id <> c.code_id) "
        "AND o.id IN (SELECT id FROM winner))"
    )


def keep_first(connection: sqlite3.Connection) -> None:
    """Delete all candidates but the first of each workload, device, target and threads, as `lookups.ranked` ranks them
    for versions that nothing was measured with, and what only the others refer to.

    Of a copy without choices, trials and plans, which might name a candidate.
    """
    connection.execute("CREATE TEMP TABLE winner (id INTEGER PRIMARY KEY)")
    connection.execute(_RANKED, {"asked": _NO_VERSIONS, "keep": 1})
    for numbers in _losers(connection, _EVER, whole=True):
        _delete_candidates(connection, numbers, {CANDIDATE: 0, MEASUREMENT: 0, SAMPLE: 0})
    connection.execute("DROP TABLE temp.winner")
    connection.execute(f"DELETE FROM {DOUBTS} WHERE measurement_id NOT IN (SELECT id FROM {MEASUREMENT})")
    for table in ORPHANS:
        _delete_orphans(connection, table)


_EVER = "9999-12-31 23:59:59.999999"
"""Later than any row."""
_NO_VERSIONS = -1
"""Stands for versions that nothing was measured with."""
_LASTING = ", ".join(f"'{state}'" for state in FAILURES if state not in BY_CHANCE)
_SAME = ("workload_id", "schedule_id", "device_id", "target_id", "threads")
_SIBLING = f"SELECT 1 FROM {CANDIDATE} o WHERE {' AND '.join(f'o.{name} = c.{name}' for name in _SAME)}"
_LATER = "o.code_id <> c.code_id AND o.created_at > c.created_at"
_FLEETING = ", ".join(f"'{state}'" for state in (*PENDING, *BY_CHANCE))
_PLACE = "workload_id, device_id, target_id, threads"
_RANKED = f"""
    WITH known AS (
        SELECT c.*, LENGTH(k.digest) = {DIGEST_LENGTH} AS digested, EXISTS (
            {_SIBLING} AND o.versions_id = c.versions_id AND {_LATER} AND o.state NOT IN ({_FLEETING})
        ) AS superseded
        FROM {CANDIDATE} c JOIN af_code k ON k.id = c.code_id
        WHERE c.state = 'ok' AND NOT EXISTS (
            {_SIBLING} AND o.versions_id = :asked AND o.state IN ({_LASTING})
            AND (c.versions_id <> :asked OR ({_LATER}))
        )
    ), ranked AS (
        SELECT id, schedule_id, {_PLACE}, RANK() OVER (
            PARTITION BY {_PLACE} ORDER BY
                CASE WHEN NOT digested THEN 0 WHEN versions_id <> :asked THEN 1 ELSE 2 * (NOT superseded) END DESC,
                median_us * CASE WHEN trusted THEN 1.0 ELSE {DOUBT} END
        ) AS place
        FROM known
    ), schedules AS (
        SELECT schedule_id, {_PLACE}, RANK() OVER (PARTITION BY {_PLACE} ORDER BY MIN(place)) AS place
        FROM ranked GROUP BY schedule_id, {_PLACE}
    )
    INSERT OR IGNORE INTO winner SELECT ranked.id FROM ranked JOIN schedules USING (schedule_id, {_PLACE})
    WHERE schedules.place <= :keep
"""
"""The candidates of the first :keep schedules as `lookups.ranked` ranks them for the versions :asked."""


def _losers(connection: sqlite3.Connection, moment: str, whole: bool) -> Iterator[list[int]]:
    """Numbers of candidates that may go, oldest first, all at once or in parts."""
    found = [
        row[0]
        for row in connection.execute(
            f"SELECT id FROM {CANDIDATE} WHERE updated_at < ? AND id NOT IN (SELECT id FROM winner) "
            "ORDER BY updated_at, id",
            (moment,),
        )
    ]
    size = max(1, len(found) if whole else -(-len(found) // STEPS))
    for start in range(0, len(found), size):
        yield found[start : start + size]


def _delete_candidates(connection: sqlite3.Connection, numbers: list[int], removed: dict[str, int]) -> None:
    connection.execute("CREATE TEMP TABLE loser (id INTEGER PRIMARY KEY)")
    connection.executemany("INSERT INTO loser VALUES (?)", [(number,) for number in numbers])
    measured = f"SELECT id FROM {MEASUREMENT} WHERE candidate_id IN (SELECT id FROM loser)"
    for table, condition in (
        (SAMPLE, f"measurement_id IN ({measured})"),
        (MEASUREMENT, "candidate_id IN (SELECT id FROM loser)"),
        (CANDIDATE, "id IN (SELECT id FROM loser)"),
    ):
        removed[table] += connection.execute(f"DELETE FROM {table} WHERE {condition}").rowcount
    connection.execute("DROP TABLE temp.loser")


def _delete_trials(connection: sqlite3.Connection, moment: str) -> int:
    """Trials of ended runs, but for the best of each graph in each setting: `compile` falls back on it."""
    return connection.execute(
        f"""
        DELETE FROM {TRIAL} WHERE created_at < ? AND id NOT IN (
            SELECT id FROM (
                SELECT t.id, RANK() OVER (
                    PARTITION BY r.graph_key, r.device_id, r.target_id, r.threads, r.versions_id
                    ORDER BY t.composed_us IS NULL, t.composed_us
                ) AS place
                FROM {TRIAL} t JOIN af_run r ON r.id = t.run_id
            ) WHERE place = 1
        ) AND run_id IN (SELECT id FROM af_run WHERE state IN ('finished', 'failed'))
        """,
        (moment,),
    ).rowcount


def _delete_orphans(connection: sqlite3.Connection, table: str) -> int:
    users = [
        f"SELECT {column} FROM {form.name} WHERE {column} IS NOT NULL"
        for form in forms(Base.metadata)
        for column, referred in form.references.items()
        if referred == table
    ]
    return connection.execute(f"DELETE FROM {table} WHERE id NOT IN ({' UNION '.join(users)})").rowcount
