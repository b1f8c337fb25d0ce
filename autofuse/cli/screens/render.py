"""What verbs print: one JSON object, or tables that a person reads."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import IO, Any, Literal, cast

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from autofuse.cli.terminal import Screen, out
from autofuse.values.arguments import format_duration, micros, size

Format = Literal["text", "json"]

_PIPE_WIDTH = 1000
_MAX_CELL = 90
SECONDS = "seconds"
"""The name of a field that is its unit."""


class _Lasting:
    """A stream whose end (a terminal that was closed, a full disk) ends nothing: what it would show is lost."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def console(stderr: bool = False) -> Console:
    """A console for the output (or for progress, on stderr); piped text is wide, so that lines stay whole."""
    stream: IO[str] = cast("IO[str]", _Lasting(sys.stderr)) if stderr else sys.stdout
    return Screen(file=stream, width=None if stream.isatty() else _PIPE_WIDTH, highlight=False, soft_wrap=False)


def show(value: object, form: Format, text: RenderableType | None = None, then: RenderableType | None = None) -> None:
    """Print `value`: as one JSON object, or as `text` (None: laid out from its own fields).

    A text ends with what its words mean, and with `then`: the commands that come next.
    """
    if form == "json":
        out(json.dumps(plain(value), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
        return
    screen = console()
    _write(screen, explained(describe(value) if text is None else text))
    if then is not None:
        _write(screen, Group("", then))


def explained(text: RenderableType) -> RenderableType:
    """`text`, and below it what the words in it mean."""
    from autofuse import api

    wide = Console(file=StringIO(), width=_PIPE_WIDTH)  # where no word is broken over two lines
    wide.print(text)
    words = api.terms(wide.file.getvalue())  # type: ignore[attr-defined]
    return Group(text, "", Text(words, style="dim")) if words else text


def _write(screen: Console, text: RenderableType) -> None:
    """Lines end where their text does: nothing else is copied out of a terminal."""
    with screen.capture() as capture:
        screen.print(text)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in capture.get().split("\n")[:-1]))
    sys.stdout.flush()


def plain(value: object) -> object:
    """`value` out of JSON's own types: dataclasses by field, sets sorted, dates in ISO, NaN and infinity as null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return plain(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, Iterable) and not isinstance(value, Path):
        return [plain(item) for item in value]
    if hasattr(value, "item") and callable(value.item):
        return plain(value.item())
    return str(value)


def describe(value: object, title: str | None = None) -> RenderableType:
    """A value laid out by its fields: single values in two columns, lists of records as tables."""
    body = plain(value)
    if isinstance(body, list):
        return records(body, title)
    if not isinstance(body, dict):
        return Text(cell("", body))
    apart = {key for key, item in body.items() if isinstance(item, dict) or _is_records(item) or item == []}
    single = {key: item for key, item in body.items() if key not in apart}
    grid = Table.grid(padding=(0, 2))
    for key, item in single.items():
        grid.add_row(heading(key), Text(cell(key, item)))
    parts: list[RenderableType] = [Text(title, style="bold")] if title else []
    parts.append(grid)
    for key, item in body.items():
        if isinstance(item, dict) and item and all(isinstance(entry, dict) for entry in item.values()):
            parts += ["", records([{heading(key): name, **entry} for name, entry in item.items()])]
        elif isinstance(item, dict) and item:
            parts += ["", describe(item, heading(key))]
        elif _is_records(item):
            parts += ["", records(item, heading(key))]
    return Group(*parts)


def records(rows: object, title: str | None = None) -> Table:
    """A table of dictionaries; numbers to the right, units taken from the names of the columns."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    entries = [row if isinstance(row, dict) else {"": row} for row in rows] if isinstance(rows, Sequence) else []
    columns = list(dict.fromkeys(key for row in entries for key in row))
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float | None) for row in entries)
        table.add_column(heading(column), justify="right" if numeric else "left", overflow="fold")
    for row in entries:
        table.add_row(*(Text(cell(column, row.get(column))) for column in columns))
    return table


def heading(key: str) -> str:
    """Name of a field for readers, without its unit: `median_us` -> "median", `seconds` -> "time"."""
    if key == SECONDS:
        return "time"
    for suffix in ("_us", "_bytes", "_s", "_mib"):
        key = key.removesuffix(suffix)
    return key.replace("_", " ")


def beside(count: int, other: int, words: str, counted: str = "") -> str:
    """A count (as it is `counted`: "3 regions"), and another one in `words` where it differs."""
    shown = counted or str(count)
    return shown if other == count else f"{shown}, {words.format(other)}"


def cell(key: str, value: object) -> str:
    """A single value as text, in the unit that its name carries."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(key, value)
    if isinstance(value, list | dict):
        text = ", ".join(cell("", item) for item in value) if isinstance(value, list) else json.dumps(value)
        return text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 1] + "…"
    return str(value)


def _number(key: str, value: float) -> str:
    if key.endswith("_us"):
        return micros(value)
    if key.endswith("_bytes"):
        return size(value)
    if key.endswith("_s") or key == SECONDS:
        return format_duration(value) if value >= 60 else f"{value:.2f} s"
    if key == "gap":
        return f"{100 * value:.2f} %"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 and not key.endswith(("id", "seed")) else str(value)
    return f"{value:.3g}" if abs(value) < 0.01 else f"{value:.3f}"


def _is_records(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def ranges_text(sizes: Mapping[str, tuple[int, int]], steps: Mapping[str, int]) -> str:
    """Open sizes by name with what they may be: "height 8 to 64 in steps of 2"."""
    stepped = {name: f" in steps of {step}" for name, step in steps.items()}
    return ", ".join(f"{name} {low} to {high}{stepped.get(name, '')}" for name, (low, high) in sizes.items())
