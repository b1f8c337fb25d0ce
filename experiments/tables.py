"""The tables that experiments leave behind: `results.csv` for programs, `results.md` for people."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from autofuse.views.report.spreadsheet import cell

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row")


def write(folder: Path, rows: Sequence[DataclassInstance], text: str) -> None:
    """Both files in a folder, which is made where it is missing."""
    write_text(folder, text)
    write_csv(folder / "results.csv", [asdict(row) for row in rows])


def write_text(folder: Path, text: str) -> None:
    """The table as `results.md` in a folder, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.md").write_text(text, encoding="utf-8")


def write_csv(path: Path, records: Sequence[Mapping[str, object]]) -> None:
    """One line a record, under every name that any of them has; no cell is a formula of a spreadsheet."""
    columns = dict.fromkeys(column for record in records for column in record)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        writer.writerows({name: cell(value) for name, value in record.items()} for record in records)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The records of an earlier run; none where there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(folder: Path, rows: Sequence[DataclassInstance], text: str) -> str:
    """Writes the rows as `results.json` and `text` as `results.md` to a folder, made where it is missing; `text`."""
    write_text(folder, text)
    (folder / "results.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return text


def read_rows(folder: Path, make: Callable[..., Row]) -> list[Row]:
    """The rows that an earlier run wrote by `write_rows`; none where there is no such file."""
    path = folder / "results.json"
    return [make(**row) for row in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def ratio(value: float | None, low: float | None, high: float | None, trusted: bool | None, digits: int = 2) -> str:
    """ "1.14 (1.12-1.17)", with "?" behind what is not trusted (None: nobody said); "" where there is none."""
    if value is None:
        return ""
    interval = "" if low is None or high is None else f" ({low:.{digits}f}-{high:.{digits}f})"
    return f"{value:.{digits}f}{interval}{' ?' if trusted is False else ''}"


def line(cells: Iterable[object]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def head(titles: Sequence[object]) -> list[str]:
    """The first two lines of a Markdown table."""
    return [line(titles), line(["---"] * len(titles))]
