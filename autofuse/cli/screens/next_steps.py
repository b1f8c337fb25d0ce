"""The commands that come next, as they are typed: shown at the end of a tuning run, of a job, of an interruption."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

MOST_MODELS = 3
"""Models of a job whose compilation is written out."""


def after_tuning(model: Path, named: Mapping[str, Any]) -> Table:
    """What follows a run of one model; `named`: the arguments of `api.tune`."""
    database, place = _database(named), _place(named, str(named.get("device", "local")))
    return _listed(
        [
            _compile(model, [*place, *_shapes(named), *database]),
            ["report", *database, "--html", f"{model.stem}.html"],
            ["bench", str(model), "--against", "onnxruntime,none", *place, *_shapes(named), *database],
        ]
    )


def after_job(done: Sequence[tuple[Path, str]], run: str, named: Mapping[str, Any]) -> Table:
    """What follows a job of this name; `done`: model and device of each task that has a plan."""
    database = _database(named)
    commands = [["report", "--run", run, *database, "--html", f"{run}.html"]]
    for model, device in done[:MOST_MODELS]:
        commands.append(_compile(model, [*_place(named, device), *_shapes(named), *database]))
    return _listed(commands, more=max(0, len(done) - MOST_MODELS))


def _compile(model: Path, options: Iterable[str]) -> list[str]:
    return ["compile", str(model), "-o", f"{model.stem}.so", *options]


def _database(named: Mapping[str, Any]) -> list[str]:
    return ["--db", str(named["database"])] if named.get("database") else []


def _place(named: Mapping[str, Any], device: str) -> list[str]:
    """Where the plan is for: the device, unless it is this machine, and the threads that were asked for."""
    threads = ["--threads", str(named["threads"])] if named.get("threads") else []
    return [*(["--device", device] if device != "local" else []), *threads]


def _shapes(named: Mapping[str, Any]) -> list[str]:
    shapes: Mapping[str, Sequence[int]] = named.get("shapes") or {}
    return [part for name, sizes in shapes.items() for part in ("--shape", f"{name}={','.join(map(str, sizes))}")]


def _listed(commands: Sequence[Sequence[str]], more: int = 0) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold")
    for number, command in enumerate(commands):
        grid.add_row("" if number else "next", Text(f"autofuse {shlex.join(command)}"))
    if more:
        grid.add_row("", Text(f"and so on for {more} more"))
    return grid
