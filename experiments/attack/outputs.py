"""Axis "outputs": every verb that writes is told to write onto anything."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from autofuse.errors import InputError
from experiments.attack.stage import command, in_time, measured, require_untouched, room_of, state

READS = ("model.onnx", "model.so", "own.db", "x.npy", "source.db", "export", "key")
PLACES = (
    *READS, "given", "given/0.npy", "open.onnx", "open.so",
    "parts.onnx", "parts.so", "shared", "other.onnx", "signed.so",
    "notes.txt", "locked.txt", "foreign", "foreign/manifest.json", "out", "full",
    "out/report.md", "page.html", "picture.svg", "link", "hard", "harddb", "loop", "dangling", "folder", "folder/new",
    "pipe", "socket", "null", "fulldevice", "own.db-wal", "own.db-shm", "own.db-journal", "source.db-wal", "stranger",
    "key.pub", "new", "new.onnx", "new.svg", "no/such/new.so", "notes.txt/new", "model.onnx/", "./model.onnx", ".", "",
    "out/../model.onnx", "link/new", "a\nb", "\x1b[31mred", "a" * 300, "\udcff\udcfe", "𝛑 and spaces", "-x",
    "/proc/new", "net.a", "net.h", "wrapped.onnx", "libautofuse_ort.so", "pack", "new.a", "notes.a", "own.a",
    "own.db\x00x", "null/x", "loop/x", "sqlite:///own.db", "postgresql://127.0.0.1:1/x", "file:own.db?mode=ro",
)  # fmt: skip
C_FILES, ORT_FILES = frozenset({"net.a", "net.h"}), frozenset({"wrapped.onnx", "libautofuse_ort.so"})
LIBRARIES = frozenset({"model.so", "signed.so", "parts.so", "open.so"})
WRITERS: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "compile": (
        ("compile", "model.onnx", "--db", "own.db", "-n", "1", "-o", "@"),
        LIBRARIES,
    ),
    "compile --sign": (
        ("compile", "model.onnx", "--db", "own.db", "-n", "1", "--sign", "key", "-o", "@"),
        LIBRARIES,
    ),
    "compile --format c": (
        ("compile", "model.onnx", "--db", "own.db", "-n", "1", "--format", "c", "-o", "@"),
        C_FILES,
    ),
    "compile --format ort": (
        ("compile", "model.onnx", "--db", "own.db", "-n", "1", "--format", "ort", "-o", "@"),
        ORT_FILES,
    ),
    "package": (("package", "net.a", "-o", "@"), frozenset({"pack"})),
    "compile parts": (
        ("compile", "parts.onnx", "--db", "own.db", "-n", "1", "-o", "@"),
        LIBRARIES,
    ),
    "compile --require-complete": (
        ("compile", "parts.onnx", "--require-complete", "--db", "own.db", "-n", "1", "-o", "@"),
        frozenset(),
    ),
    "quantize": (
        ("quantize", "model.onnx", "--calibration", "given", "--db", "own.db", "-n", "1", "-o", "@"),
        frozenset(),
    ),
    "compile --sizes": (
        ("compile", "open.onnx", "--sizes", "n=1:64", "--db", "own.db", "-n", "1", "-o", "@"),
        LIBRARIES,
    ),
    "compile --dry-run": (
        ("compile", "parts.onnx", "--dry-run", "--db", "own.db", "-n", "1", "-o", "@"),
        frozenset(),
    ),
    "forecast": (("tune", "model.onnx", "--dry-run", "--budget", "1m", "-n", "1", "--db", "@"), frozenset()),
    "run": (("run", "model.so", "--input", "x=x.npy", "-o", "@"), frozenset()),
    "report": (("report", "--db", "own.db", "-o", "@"), frozenset()),
    "report --html": (("report", "--db", "own.db", "--html", "@"), frozenset()),
    "db export": (("db", "export", "@", "--db", "own.db"), frozenset({"export", "shared"})),
    "db export --share": (("db", "export", "@", "--share", "--db", "own.db"), frozenset({"export", "shared"})),
    "db export --compress": (("db", "export", "@", "--db", "own.db", "--compress"), frozenset({"export", "shared"})),
    "db export --optuna": (("db", "export", "--optuna", "@", "--db", "own.db"), frozenset()),
    "plan export": (("plan", "export", "model.onnx", "--plan", "none", "-o", "@"), frozenset()),
    "plan pareto": (("plan", "pareto", "model.onnx", "--db", "own.db", "-n", "1", "--save", "@"), frozenset()),
    "model train": (("model", "train", "--db", "own.db", "-o", "@"), frozenset()),
    "key new": (("key", "new", "@"), frozenset()),
    "db merge": (("db", "merge", "source.db", "--db", "@"), frozenset()),
    "db import --shared": (("db", "import", "export", "--shared", "--db", "@"), frozenset()),
    "db import": (("db", "import", "export", "--db", "@"), frozenset()),
    "db migrate": (("db", "migrate", "--db", "@"), frozenset()),
    "db prune": (("db", "prune", "--older-than", "90d", "--db", "@"), frozenset()),
    "tune --log": (
        ("tune", "model.onnx", "missing", "--trials", "1", "--db", "own.db", "--log", "@"),
        frozenset(),
    ),
    "stop": (("stop", "--db", "@"), frozenset()),
}
DATABASES = ("own.db", "source.db", "harddb")
BESIDE = tuple(f"{name}{end}" for name in DATABASES for end in ("-wal", "-shm", "-journal"))


def attempt(folder: Path, seed: int) -> str:
    """One verb, one place; whatever the verb does, nothing of others may change."""
    dice = random.Random(seed)
    verb = dice.choice(list(WRITERS))
    place = dice.choice(PLACES)
    words, mine = WRITERS[verb]
    room = room_of(folder)
    before, known = state(room), _known(room)
    with in_time():
        answer = command(*(place if word == "@" else word for word in words))
    what = f"{verb} onto {place!r} (exit {answer.code}: {answer.last})"
    database = verb.startswith(("db m", "db i", "db p", "tune", "stop"))
    allowed = _allowed(mine, database=database, ok=answer.code == 0)
    require_untouched(before, state(room), allowed | _inside(before, mine), what)
    for name, rows in known.items():
        lost = rows - measured(room / name)
        if lost:
            raise AssertionError(f"destroyed: {len(lost)} measurements of {name} by {what}")
    if answer.code:
        raise InputError(f"exit {answer.code}: {answer.last or 'refused'}")
    return what


def _allowed(mine: frozenset[str], *, database: bool, ok: bool) -> frozenset[str]:
    """Files that the verb may have changed: databases are looked into instead; after a failure nothing else."""
    return frozenset({*(DATABASES if database else ()), *BESIDE, *(mine if ok else ())})


def _inside(before: Sequence[str] | dict[str, str], mine: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in before if Path(name).parts[0] in mine)


def _known(room: Path) -> dict[str, set[tuple[object, ...]]]:
    return {name: measured(room / name) for name in DATABASES[:2]}
