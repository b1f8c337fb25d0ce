"""Files that were damaged, or made to do harm: taken in soundly or refused with a message, and nothing in between.

`pytest tests/database/test_mutated_imports.py --mutations 1000` tries so many; `make test` some.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autofuse.database.database import open_database
from autofuse.database.files.upkeep import export_database, import_database, merge_database
from autofuse.errors import AutofuseError
from tests.database.recorded import fill

NEVER = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "ctypes.dlopen", "pickle.find_class")
EXTENSIONS = ("sqlite3.enable_load_extension", "sqlite3.load_extension")
APPENDED = ("af_measurement.jsonl", "af_sample.jsonl", "af_plan_measurement.jsonl")

NASTY: tuple[object, ...] = (
    *(None, True, False, 0, -1, 2**63, -(2**70), 10**400, 1e308, -0.0, "", "\x00", "../../etc/passwd", "x" * 100_000),
    *([], {}, [[]], {"id": {}}, "'; DROP TABLE af_run; --", "__import__('os').system('true')", "\ud800", "𝛑", "NaN"),
    *("2026-01-01", "9999-99-99 99:99:99.999999", "running", "ok", [1, 2], {"a": [None]}, "ffffffffffffffffffff"),
)
NASTY_LITERALS = (b"NaN", b"-Infinity", b"1e999", b"[" * 5000, b"{", b"0x10", b'"\\u0000"', b"\xff\xfe", b"1" * 5000)

seen_events: list[str] = []
watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and (event in NEVER or event in EXTENSIONS):
        seen_events.append(f"{event}{arguments!r:.200}")


sys.addaudithook(_watch)


class Bench:
    """A sound database, sources to mutate, and the question whether an attempt left it sound."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own, self.source = fill(folder / "own.db", 1, 10), fill(folder / "source.db", 2, 10)
        self.export = folder / "export"
        with open_database(self.source, read_only=True) as database:
            export_database(database, self.export)
        self.before = self.content(self.own)
        self.taken = self.refused = 0

    def content(self, path: Path) -> dict[str, bytes]:
        out = self.folder / "content"
        shutil.rmtree(out, ignore_errors=True)
        with open_database(path, read_only=True) as database:
            assert database.problems() == []
            export_database(database, out)
        return {file.name: file.read_bytes() for file in out.iterdir()}

    def attempt(self, act: Callable[[Any, Path], object], source: Path, name: str) -> None:
        """Take in `source`; then the database holds what it held, and more only when that was said to have worked."""
        global watching
        target = self.folder / "target.db"
        for old in self.folder.glob("target.db*"):
            old.unlink()
        shutil.copy(self.own, target)
        seen_events.clear()
        watching = True
        try:
            with open_database(target) as database:
                act(database, source)
            self.taken += 1
            worked = True
        except AutofuseError as error:
            assert str(error).strip(), name
            self.refused += 1
            worked = False
        finally:
            watching = False
        assert seen_events == [], name
        after = self.content(target)
        if not worked:
            assert after == self.before, name
        for file in APPENDED:
            lines = set(after[file].splitlines())
            assert lines >= set(self.before[file].splitlines()), name


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("mutations"))


@pytest.fixture
def tries(request: pytest.FixtureRequest) -> Iterator[tuple[int, random.Random]]:
    count = max(1, int(request.config.getoption("--mutations")) // 2)
    return iter((seed, random.Random(seed)) for seed in range(count))


# Exports -----------------------------------------------------------------------------------------


def nasty_value(dice: random.Random, line: bytes) -> bytes:
    body = json.loads(line)
    body[dice.choice(list(body))] = dice.choice(NASTY)
    return json.dumps(body).encode() + b"\n"


def nasty_literal(dice: random.Random, line: bytes) -> bytes:
    body = json.loads(line)
    key = dice.choice(list(body))
    body[key] = "@@"
    return json.dumps(body).encode().replace(b'"@@"', dice.choice(NASTY_LITERALS)) + b"\n"


def other_keys(dice: random.Random, line: bytes) -> bytes:
    body = json.loads(line)
    if dice.random() < 0.5:
        del body[dice.choice(list(body))]
    else:
        body[dice.choice(("extra", "__class__", "id ", ""))] = 1
    return json.dumps(body).encode() + b"\n"


def flipped(dice: random.Random, data: bytes) -> bytes:
    content = bytearray(data)
    for _ in range(dice.choice((1, 1, 3, 30))):
        if content:
            content[dice.randrange(len(content))] = dice.randrange(256)
    return bytes(content)


def mutate_lines(dice: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    place = dice.randrange(len(lines)) if lines else 0
    way = dice.randrange(9)
    if not lines or way == 0:
        return data + dice.choice((b"\n", b"null\n", b"[]\n", b"{}\n", b"\xef\xbb\xbf", b"x" * 1_000_000))
    if way == 1:
        return b"".join(lines[:place] + lines[place + 1 :])
    if way == 2:
        return b"".join([*lines, lines[place]])
    if way == 3:
        dice.shuffle(lines)
        return b"".join(lines)
    if way == 4:
        return data[: dice.randrange(len(data))]
    if way == 5:
        return flipped(dice, data)
    try:
        lines[place] = (nasty_value, nasty_literal, other_keys)[way - 6](dice, lines[place])
    except (ValueError, TypeError, LookupError):  # the line was spoilt before
        lines[place] = flipped(dice, lines[place])
    return b"".join(lines)


def mutate_manifest(dice: random.Random, folder: Path) -> None:
    path = folder / "manifest.json"
    body = json.loads(path.read_text())
    way = dice.randrange(5)
    if way == 0:
        body[dice.choice(list(body))] = dice.choice(NASTY)
    elif way == 1:
        entry = dice.choice(body["files"])
        entry[dice.choice(list(entry))] = dice.choice((*NASTY, "../export/af_run", "/etc/passwd", "af_alembic_version"))
    elif way == 2:
        body["files"].append(dice.choice(body["files"]))
    elif way == 3:
        dice.shuffle(body["files"])
        body["files"].pop()
    if way == 4:
        path.write_bytes(flipped(dice, path.read_bytes()))
    else:
        path.write_text(json.dumps(body))


def state_truth(folder: Path) -> None:
    """Make the manifest fit the files again, as somebody who means harm would."""
    path = folder / "manifest.json"
    body = json.loads(path.read_text())
    for entry in body["files"]:
        data = (folder / f"{entry['table']}.jsonl").read_bytes()
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "rows": data.count(b"\n")}
    path.write_text(json.dumps(body))


def mutate_export(dice: random.Random, folder: Path) -> None:
    files = sorted(folder.glob("*.jsonl"))
    for _ in range(dice.choice((1, 1, 2, 4))):
        file = dice.choice(files)
        file.write_bytes(mutate_lines(dice, file.read_bytes()))
    if dice.random() < 0.85:
        state_truth(folder)
    if dice.random() < 0.2:
        mutate_manifest(dice, folder)
    if dice.random() < 0.05:
        file = dice.choice(files)
        file.unlink()
        if dice.random() < 0.5:
            file.symlink_to("/etc/passwd")


def test_mutated_exports(bench: Bench, tries: Iterator[tuple[int, random.Random]]) -> None:
    source = bench.folder / "mutated"
    for seed, dice in tries:
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(bench.export, source)
        mutate_export(dice, source)
        bench.attempt(import_database, source, f"export, seed {seed}")
    assert bench.refused > 0
    sys.stdout.write(f"exports: {bench.taken} taken in, {bench.refused} refused\n")


# SQLite files ------------------------------------------------------------------------------------

ATTACKS = (
    "CREATE TRIGGER t AFTER INSERT ON af_run BEGIN DELETE FROM af_candidate; END",
    "CREATE VIEW v AS SELECT * FROM af_run",
    "CREATE TABLE other (x); INSERT INTO other VALUES (load_extension('x'))",
    "DROP TABLE af_sample; CREATE VIEW af_sample AS SELECT 1 AS measurement_id, 0 AS block, '[1]' AS us, 1, 0",
    "CREATE VIRTUAL TABLE af_evil USING fts5(x)",
    "ALTER TABLE af_run ADD COLUMN evil TEXT DEFAULT (hex(randomblob(4)))",
    "UPDATE af_alembic_version SET version_num = 'r0000'; PRAGMA user_version = 7",
    "DELETE FROM af_alembic_version",
    "INSERT INTO af_alembic_version VALUES ('r0001')",
    "CREATE INDEX evil ON af_run (name)",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE x (' WHERE name = 'af_run'",
)


def attack(dice: random.Random, path: Path) -> None:
    """Change rows, or the schema, through SQL."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        try:
            if dice.random() < 0.3:
                connection.executescript(dice.choice(ATTACKS))
            for _ in range(dice.choice((0, 1, 2))):
                tables = [r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                table = dice.choice([name for name in tables if name.startswith("af_")])
                columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                value = dice.choice([v for v in NASTY if v is None or isinstance(v, int | float | str)])
                if isinstance(value, int) and abs(value) >= 2**63:
                    value = b"\x00\xff"  # type: ignore[assignment]
                if isinstance(value, str):
                    value = value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
                connection.execute(
                    f"UPDATE {table} SET {dice.choice(columns)} = ? WHERE rowid % ? = 0"
                    if table != "af_sample"
                    else f"UPDATE {table} SET {dice.choice(columns[1:])} = ? WHERE block % ? = 0",
                    (value, dice.choice((1, 2, 3))),
                )
            connection.commit()
        except (sqlite3.Error, OverflowError):
            pass  # a mutation that SQLite itself does not let through


def mutate_file(dice: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    pages = len(data) // 4096
    way = dice.randrange(8)
    if way in (0, 1):
        data = bytearray(flipped(dice, bytes(data)))
    elif way == 2:
        data = data[: dice.randrange(len(data))]
    elif way == 3:
        for _ in range(dice.choice((1, 5))):
            data[dice.randrange(100)] = dice.randrange(256)
    elif way == 4:
        page = dice.randrange(pages)
        data[page * 4096 : page * 4096 + 4096] = bytes(4096)
    elif way == 5:
        one, two = dice.randrange(1, pages), dice.randrange(1, pages)
        first = bytes(data[one * 4096 : one * 4096 + 4096])
        data[one * 4096 : one * 4096 + 4096] = data[two * 4096 : two * 4096 + 4096]
        data[two * 4096 : two * 4096 + 4096] = first
    elif way == 6:
        place = dice.randrange(len(data) - 64)
        data[place : place + 64] = bytes(dice.randrange(256) for _ in range(64))
    else:
        side = path.with_name(path.name + dice.choice(("-wal", "-journal")))
        side.write_bytes(bytes(dice.randrange(256) for _ in range(2048)))
    path.write_bytes(bytes(data))


def test_mutated_databases(bench: Bench, tries: Iterator[tuple[int, random.Random]]) -> None:
    refused = bench.refused
    for seed, dice in tries:
        for old in bench.folder.glob("mutated.db*"):
            old.unlink()
        source = bench.folder / "mutated.db"
        shutil.copy(bench.source, source)
        (attack if dice.random() < 0.5 else mutate_file)(dice, source)
        bench.attempt(merge_database, source, f"database, seed {seed}")
    assert bench.refused > refused
    sys.stdout.write(f"in all: {bench.taken} taken in, {bench.refused} refused\n")
