"""Axis "databases": rows and schema edited by hand, locked, older, read-only, merged with themselves."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from autofuse.errors import InputError
from experiments.attack.stage import Answer, Broken, command, in_time, measured, room_of

VALUES = (
    0, -1, 2**63 - 1, -(2**63), 1e308, -1e308, float("inf"), 0.0, "", "x", "nan", "NULL", b"\xff\x00", b"", None,
    "2026-13-45 99:99:99", "0000-00-00 00:00:00.000000", "9999-12-31 23:59:59.999999", "2026-01-01", "{}", "[]", "null",
    "{", '{"groups": 3}', "[NaN]", "[1e999]", "[[[]]]", '"text"', "true", "\x1b[31mred\x07", "\u202eesrever", "=1+1",
    "a" * 100_000, "[" * 5000, "ok", "running", "complete", "0" * 64, "'; DROP TABLE af_run; --",
)  # fmt: skip
READERS = (
    ("status",), ("report",), ("report", "--format", "json"), ("report", "--html", "new.html"), ("report", "-o", "new"),
    ("report", "--frame", "candidates"), ("report", "--frame", "edges", "--format", "csv"), ("compare", "1", "1"),
    ("db", "info"), ("db", "check"), ("db", "export", "new"), ("db", "export", "--optuna", "new.log"),
    ("plan", "show", "model.onnx", "--plan", "best", "-n", "1"), ("plan", "pareto", "model.onnx", "-n", "1"),
    ("explain", "model.onnx", "-n", "1", "--plan", "best"), ("compile", "model.onnx", "-o", "new.so", "-n", "1"),
    ("db", "export", "new", "--share"), ("tune", "model.onnx", "--dry-run", "--budget", "1m", "-n", "1"),
    ("compile", "parts.onnx", "--dry-run", "-n", "1"),
    ("db", "prune", "--dry-run"), ("db", "migrate"), ("stop",), ("model", "train", "-o", "new.model"),
)  # fmt: skip


def attempt(folder: Path, seed: int) -> str:
    """Edit a database; what reads it says so or goes on, and what takes it in keeps what it had."""
    dice = random.Random(seed)
    room = room_of(folder)
    path = room / "own.db"
    if dice.random() < 0.12:
        return _merged_with_itself(room)
    edits = [_edited(dice, path) for _ in range(dice.choice((1, 1, 2, 4)))]
    held = _held(dice, path)
    refusals = []
    with in_time():
        for words in dice.sample(READERS, 2):
            answer = command(*words, "--db", "own.db")
            if answer.code:
                refusals.append(answer)
        if held is not None:
            held.close()
        _checked_means_readable(dice)
        _taken_in(room)
    if refusals:
        raise InputError(f"{edits}: exit {refusals[0].code}: {refusals[0].last or 'refused'}".replace("\n", " "))
    return str(edits)


def _edited(dice: random.Random, path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.Error):
        connection.executescript("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;")
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = dice.choice(tables)
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        column, value = dice.choice(columns), dice.choice(VALUES)
        way = dice.randrange(16)
        if way <= 9:
            some = "" if dice.random() < 0.5 else " WHERE rowid IN (SELECT rowid FROM temp.picked)"
            connection.execute(f'CREATE TEMP TABLE picked AS SELECT rowid FROM "{table}" ORDER BY rowid DESC LIMIT 1')
            connection.execute(f'UPDATE "{table}" SET "{column}" = ?{some}', (value,))
        else:
            connection.executescript(
                (
                    f'DROP TABLE "{table}"',
                    f'CREATE TRIGGER t BEFORE INSERT ON "{table}" BEGIN DELETE FROM "{table}"; END',
                    f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO odd',
                    f'DELETE FROM "{table}"',
                    f"UPDATE af_alembic_version SET version_num = '{dice.choice(('0001', '0002', '9999', ''))}'",
                    f'CREATE TABLE "\x1b[31m" (a); CREATE VIEW odd AS SELECT * FROM "{table}"',
                )[way - 10]
            )
        connection.commit()
        return f"{table}.{column} = {str(value)[:30]!r}" if way <= 9 else f"way {way} of {table}"
    return "nothing"


def _held(dice: random.Random, path: Path) -> sqlite3.Connection | None:
    """Sometimes another process reads meanwhile."""
    if dice.random() > 0.1:
        return None
    connection = sqlite3.connect(path)
    with suppress(sqlite3.Error):
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM af_run").fetchall()
    return connection


def _checked_means_readable(dice: random.Random) -> None:
    """What `db check` calls sound can be reported and exported."""
    if command("db", "check", "--db", "own.db").code:
        return
    for words in (("report",), ("db", "export", "checked")):
        answer = command(*words, "--db", "own.db")
        if answer.code and dice:
            raise Broken(f"sound, and yet {words}: {answer.last}")


def _taken_in(room: Path) -> None:
    """Merging it into another one keeps all that was there; then the other one is still sound."""
    before = measured(room / "source.db")
    answer: Answer = command("db", "merge", "own.db", "--db", "source.db")
    if before - measured(room / "source.db"):
        raise Broken("destroyed: measurements of the database that took a damaged one in")
    if (after := command("db", "check", "--db", "source.db")).code:
        raise Broken(f"merged (exit {answer.code}: {answer.last}), and then damaged: {after.out.strip()[:300]}")


def _merged_with_itself(room: Path) -> str:
    before = measured(room / "own.db")
    shutil.copy(room / "own.db", room / "copy.db")
    with in_time():
        for source in ("own.db", "harddb", "copy.db"):
            command("db", "merge", source, "--db", "own.db")
    if measured(room / "own.db") != before:
        raise Broken("merged with itself, it holds something else")
    return "merged with itself"
