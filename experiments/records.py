"""What experiments found: `results/NAME.json`, of which the tables of the pages are made.

A file holds records: the rows of one run, with the kind of machine, the day, the commit and the command. A run puts
its rows in the place of older ones of the same key on the same kind of machine, and leaves those of others alone.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from experiments.index import ROOT

Row = TypeVar("Row")
Cells = dict[str, Any]

RESULTS = ROOT / "experiments" / "results"
_MARKED = re.compile(r"(<!-- results: ([\w.]+) -->\n)(.*?)(<!-- end of results -->)", re.DOTALL)


@dataclass(frozen=True)
class Table(Generic[Row]):
    """A table that is kept. `name`: of its file, and in the markers of its page.

    `make`: a row of its fields; `key`: the fields that say what a row is about; `text`: the rows as Markdown; `order`:
    the place of a row, which runs of some rows must not change (None: rows as they came). `kept_as`: the table whose
    file it shows in another way ("": its own).
    """

    name: str
    make: Callable[..., Row]
    key: tuple[str, ...]
    text: Callable[[Sequence[Row]], str]
    order: Callable[[Row], Any] | None = None
    kept_as: str = ""

    @property
    def file(self) -> str:
        """The name of its file in `results/`."""
        return f"{self.kept_as or self.name}.json"


@dataclass(frozen=True)
class Record:
    """One run's rows. `machine`: the kind of CPU and its vectors, as "znver3, avx2"; `host`: which one it was.
    Both are None where an earlier session did not write them down.

    `trusted`: whether every row is; None where no time was taken. `note`: what a reader has to know beside the figures.
    """

    machine: str | None
    host: str | None
    date: str
    commit: str
    command: str
    trusted: bool | None
    rows: list[Cells]
    note: str = ""


def command(arguments: Sequence[str]) -> str:
    """How a run was called, without the folders of this machine: an absolute path is shown by its last part."""
    shown = (re.sub(r"(^|=)/[^=]*/([^/=]+)/?", r"\1\2", text) for text in arguments)
    return f"python -m experiments {shlex.join(shown)}"


@dataclass(frozen=True)
class Run:
    """The run that goes on: how it was called, and where results are kept."""

    command: str
    folder: Path


_RUN: ContextVar[Run | None] = ContextVar("run", default=None)


@contextmanager
def running(command: str, folder: Path = RESULTS) -> Iterator[None]:
    """Inside, what experiments find is kept in `folder`."""
    token = _RUN.set(Run(command, folder))
    try:
        yield
    finally:
        _RUN.reset(token)


def keep(table: Table[Row], rows: Sequence[Row]) -> None:
    """Keep rows that were measured just now; nothing where no runner asked for it."""
    run = _RUN.get()
    if run is None or not rows:
        return
    path = run.folder / f"{table.name}.json"
    cells = [_plain(asdict(row)) for row in rows]  # type: ignore[call-overload]
    machine, host, commit = here()
    day = datetime.now(UTC).date().isoformat()
    record = Record(machine, host, day, commit, run.command, _trusted(cells), cells)
    write(path, merged(read(path), record, table.key))


def here() -> tuple[str, str, str]:
    """The kind of this machine, the machine, and the commit."""
    from autofuse.backend.compile.host_cpu import llvm_version, local_device
    from autofuse.device.provenance import collect

    device = local_device()
    host = f"{device.cpu.model_name if device.cpu else device.mcpu}, {device.cores} cores"
    return f"{device.mcpu}, {device.target().isa}", host, (collect(llvm_version()).git or "unknown")[:12]


def merged(records: Sequence[Record], new: Record, key: Sequence[str]) -> list[Record]:
    """The records with a new one: what it measured anew is gone from older ones of its kind of machine."""

    def about(row: Mapping[str, Any]) -> str:
        return json.dumps([row.get(name) for name in key])

    again = {about(row) for row in new.rows}
    result: list[Record] = []
    for old in records:
        if old.machine != new.machine:
            result.append(old)
            continue
        rows = [row for row in old.rows if about(row) not in again]
        if _same_run(old, new):
            new = replace(new, rows=rows + new.rows, trusted=_trusted(rows + new.rows))
        elif rows:
            result.append(replace(old, rows=rows))
    return [*result, new]


def _trusted(rows: Sequence[Cells]) -> bool | None:
    """Whether every row is trusted that says so; None where none does."""
    said = [row["trusted"] for row in rows if isinstance(row.get("trusted"), bool)]
    return all(said) if said else None


def _same_run(one: Record, two: Record) -> bool:
    return (one.host, one.date, one.commit, one.command) == (two.host, two.date, two.commit, two.command)


def read(path: Path) -> list[Record]:
    """The records of a file; none where there is no such file."""
    return [Record(**body) for body in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def write(path: Path, records: Sequence[Record]) -> None:
    """The records as a file, a line a row, so that a review shows which changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = []
    for record in records:
        body = asdict(record)
        lines = ",\n   ".join(json.dumps(row, ensure_ascii=False) for row in body.pop("rows"))
        facts = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in body.items())
        head = ",\n  ".join(facts)
        parts.append(f' {{\n  {head},\n  "rows": [\n   {lines}\n  ]\n }}')
    path.write_text("[\n" + ",\n".join(parts) + "\n]\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Without numbers that JSON does not have, and without digits that no measurement has."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def shown(table: Table[Row], records: Sequence[Record]) -> str:
    """Every kind of machine with a table of its own, one behind the other; none of one about which it has no words."""
    parts = []
    for machine in dict.fromkeys(record.machine for record in records):
        own = [record for record in records if record.machine == machine]
        rows = [table.make(**row) for record in own for row in record.rows]
        rows = sorted(rows, key=table.order) if table.order else rows
        heading = "\n\n".join(_captions(own))
        if text := table.text(rows).strip():
            parts.append(f"{heading}\n\n{text}\n")
    return "\n".join(parts)


def _captions(records: Sequence[Record]) -> Iterator[str]:
    """Where the rows are from: a paragraph for each command, with its runs."""
    for about in dict.fromkeys((one.host, one.command, one.note) for one in records):
        own = [one for one in records if (one.host, one.command, one.note) == about]
        host, command, note = about
        runs = ", ".join(f"{one.date} ({one.commit[:8]})" for one in own)
        where = f"*{own[0].machine}*, {host}" if own[0].machine else "*A machine that was not written down*"
        yield f"{where}: `{command}`, {runs}" + (f"; {note}." if note else ".")


def rendered(text: str, tables: Mapping[str, Table[Any]], folder: Path = RESULTS) -> str:
    """A page with the tables between its markers made anew; KeyError for a marker of no table."""

    def fill(match: re.Match[str]) -> str:
        table = tables[match[2]]
        return f"{match[1]}{shown(table, read(folder / table.file))}{match[4]}"

    return _MARKED.sub(fill, text)
