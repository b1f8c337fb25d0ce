"""Axis "arguments": every option of every verb, with values that nobody expects, doubled and contradicting."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from autofuse.errors import InputError
from experiments.attack.stage import command, in_time, measured, require_untouched, room_of, state

BASES: dict[str, tuple[str, ...]] = {
    "inspect": ("model.onnx",),
    "compile": ("model.onnx", "-o", "new.so", "--db", "own.db", "-n", "1"),
    "run": ("model.so",),
    "explain": ("model.onnx", "--db", "own.db"),
    "report": ("--db", "own.db"),
    "compare": ("1", "2", "--db", "own.db"),
    "status": ("--db", "own.db"),
    "stop": ("--db", "own.db"),
    "cflags": (),
    "quantize": ("model.onnx", "--calibration", "given", "-o", "new.onnx", "--db", "own.db", "-n", "1"),
    "tune": ("missing.onnx", "--db", "own.db", "--trials", "1"),
    "bench": ("missing.onnx", "--db", "own.db", "--budget", "1s"),
    "plan show": ("model.onnx", "--db", "own.db"),
    "plan diff": ("model.onnx", "none", "default", "--db", "own.db"),
    "plan export": ("model.onnx", "-o", "new.onnx", "--db", "own.db"),
    "plan pareto": ("model.onnx", "--db", "own.db", "-n", "1"),
    "db info": ("--db", "own.db"),
    "db check": ("--db", "own.db"),
    "db merge": ("source.db", "--db", "own.db"),
    "db export": ("new", "--db", "own.db"),
    "db import": ("export", "--db", "own.db"),
    "db prune": ("--db", "own.db", "--dry-run"),
    "db migrate": ("--db", "own.db"),
    "model train": ("-o", "new", "--db", "own.db"),
    "model eval": ("--db", "own.db"),
    "model show": ("model.onnx",),
    "key new": ("new",),
    "key show": ("key.pub",),
    "device list": (),
    "device show": ("local",),
    "package": ("net.a", "-o", "new"),
    "library check": ("signed.so",),
    "cache info": (),
    "cache clear": (),
    "serve": ("--host", "256.256.256.256"),
    "doctor": ("--db", "own.db"),
}  # fmt: skip
MORE: dict[str, tuple[tuple[str, ...], ...]] = {
    "inspect": (("parts.onnx",),),
    "compile": (
        ("parts.onnx", "-o", "new.so", "--db", "own.db", "-n", "1"),
        ("parts.onnx", "-o", "new.so", "--require-complete", "-n", "1"),
        ("open.onnx", "-o", "new.so", "--sizes", "n=1:64", "-n", "1"),
        ("parts.onnx", "--dry-run", "--db", "own.db", "-n", "1"),
        ("model.onnx", "-o", "new.so", "--format", "c", "-n", "1"),
        ("model.onnx", "-o", "net.a", "--format", "c", "-n", "1"),
        ("model.onnx", "-o", "wrapped.onnx", "--format", "ort", "-n", "1"),
        ("model.onnx", "-o", "new.so", "--constant", "x=@x.npy", "-n", "1"),
    ),
    "run": (("parts.so",), ("open.so",), ("net.a",), ("wrapped.onnx",)),
    "package": (("model.so", "-o", "new"), ("net.a", "-o", "pack")),
    "library check": (("parts.so",), ("signed.so", "--trust", "key.pub"), ("net.a",), ("wrapped.onnx",)),
    "tune": (("model.onnx", "--db", "own.db", "--dry-run", "--budget", "1m", "-n", "1"),),
    "bench": (("parts.onnx", "--library", "missing.so", "--budget", "1s"),),
    "db export": (("new", "--share", "--db", "own.db"),),
    "db import": (("shared", "--db", "own.db"), ("export", "--shared", "--db", "own.db")),
}
"""Other sound beginnings of a verb."""
HEAVY = frozenset({"doctor", "quantize", "model train", "model eval"})
"""Take seconds each, and therefore fewer attempts."""
NEVER = frozenset({"--on-finish", "--watch", "--wait", "--revalidate", "--executor", "--install-completion", "--help"})
"""Run other programs, or wait for what does not come."""
VALUES = (
    "", " ", "0", "-1", "1", "2", "3.5", "1e400", "-1e400", "nan", "inf", "-inf", "1" * 400, "-" + "9" * 30, "0x10",
    "1_000", "١٢", "+5", "1s", "0s", "-5m", "1e9h", "9999999999999999d", "90d", "1K", "-1G", "1e30T", "0.0000001",
    "None", "null", "true", "\t", "a\nb", "\x1b[2J", "\u202e", "\udcff", "𝛑", "a" * 5000, "%s%n{}", "'; DROP TABLE x--",
    "x=1", "x=", "=1", "x=1,2,4,4", "x=0,0", "x=-1", "x=1,2,4,4,", "x=1;2", "x=9999999999999999999", "x=1e3", "x=x.npy",
    "x=model.onnx", "x=missing", "batch=1,2", "batch=", "batch=0", "batch=1,1,1", "n=1:8", "n=8:1", "n=0:4", "n=:",
    "n=1:1000000000000", "n=4", "x=1:4", "given", "127.0.0.1:1", "127.0.0.1:99999", "127.0.0.1:",
    ":0", "[::1]:1", "25:61", "24:00", "12:00", "-1:-1", "best", "none", "default", "always", "dnnfusion",
    "model.onnx", "own.db", "source.db", "notes.txt", "foreign", "missing", "key", "key.pub", "x.npy", "null", "loop",
    "full", "export", "model.so", "json", "csv", "candidates", "groups", "edges", "night-1", "local", "cortex-a72",
    "c", "so", "ort", "c,json", "so,c", "x=@x.npy", "x=@missing.npy", "x=@key", "x=[[1,2],[3]]", "x=[1e999]", "x=@",
    "x=[" + "1," * 3000 + "1]", "net.a", "net.h", "wrapped.onnx", "pack",
    "sqlite://", "sqlite:///own.db", "mysql://x", "postgresql://127.0.0.1:1/x", "onnxruntime", "onnxruntime,,tvm",
)  # fmt: skip


@cache
def options() -> dict[str, tuple[tuple[str, bool], ...]]:
    """For each verb its options, and whether each takes a value: as the command line itself declares them."""
    from typer.main import get_command

    from autofuse.cli.main import app

    found = {}
    for words, verb in _leaves(get_command(app)):
        names = [
            (name, not getattr(parameter, "is_flag", False))
            for parameter in verb.params
            for name in (*parameter.opts, *parameter.secondary_opts)
            if name.startswith("-") and name not in NEVER
        ]
        found[words] = tuple(names)
    return found


def _leaves(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, verb in group.commands.items():
        words = f"{before} {name}".strip()
        if hasattr(verb, "commands"):
            yield from _leaves(verb, words)
        else:
            yield words, verb


def words_of(dice: random.Random) -> list[str]:
    """A command line: a sound one with a value replaced, or options put in."""
    verb = dice.choice(sorted(BASES))
    if verb in HEAVY and dice.random() < 0.7:
        verb = dice.choice(("compile", "report", "db prune", "plan show"))
    words = list(dice.choice((BASES[verb], *MORE.get(verb, ()))))
    for _ in range(dice.choice((0, 1, 1, 1, 2, 3))):
        taken = options()[verb]
        if not taken:
            break
        name, valued = dice.choice(taken)
        for _ in range(dice.choice((1, 1, 1, 1, 2))):
            words += [name, dice.choice(VALUES)] if valued else [name]
    if verb not in ("serve", "tune", "bench") and words and dice.random() < 0.3:
        words[dice.randrange(len(words))] = dice.choice(VALUES)
    if dice.random() < 0.05:
        words.append(dice.choice(VALUES))
    return [*verb.split(), *words]


def attempt(folder: Path, seed: int) -> str:
    """One command line; what it reads stays as it was."""
    words = words_of(random.Random(seed))
    room = room_of(folder)
    before, rows = state(room), measured(room / "own.db")
    with in_time():
        answer = command(*words)
    mine = {f"{name}{end}" for name in ("own.db", "source.db", "harddb") for end in ("", "-wal", "-shm")}
    if not answer.code:  # a library, a page or an export may be replaced by another
        mine |= {"model.so", "signed.so", "parts.so", "open.so", "net.a", "net.h", "wrapped.onnx", "libautofuse_ort.so"}
        mine |= {name for name in before if name.startswith(("export/", "shared/", "pack/"))}
    require_untouched(before, state(room), frozenset(mine), f"{words} (exit {answer.code}: {answer.last})")
    if rows - measured(room / "own.db") and words[:2] != ["db", "prune"]:
        raise AssertionError(f"destroyed: measurements of own.db by {words}")
    if answer.code:
        raise InputError(f"exit {answer.code}: {answer.last or 'refused'}")
    return " ".join(words)
