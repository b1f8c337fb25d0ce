"""How the tools for databases scale: merge, export, import, prune, report (in a browser), at the promised sizes.

    .venv/bin/python -m experiments database --out out/database

The rows are made up (`synthetic.py`); only the seconds and bytes printed here are results.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autofuse.database.database import open_database
from autofuse.database.files.upkeep import export_database, import_database, merge_database, prune_database
from autofuse.views.frames.analysis import open_analysis
from autofuse.views.report.page import write_html
from experiments.browser import WIDE, browsers, missing, opened_in_s, worked_s
from experiments.database.synthetic import write_database
from experiments.options import new_parser, one_of
from experiments.records import Table, keep
from experiments.tables import head, line

STEPS = ("merge", "exchange", "report")
OPENINGS = 5
OPENING_S = 2.0


@dataclass(frozen=True)
class Row:
    """What a step took or left: `value`, of which at most `most` are allowed, in `unit`."""

    step: str
    value: float
    most: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether the limit is kept."""
        return self.value <= self.most


def table(rows: Sequence[Row]) -> str:
    """The table of the page."""
    lines = head(("step", "work", "limit", ""))
    for row in rows:
        digits = 2 if row.value < 1 else 1
        shown = f"{row.value:.{digits}f} {row.unit}", f"{row.most:g} {row.unit}"
        lines.append(line([row.step, *shown, "met" if row.met else "BROKEN"]))
    return "\n".join(lines) + "\n"


TABLES = (Table("database", Row, ("step",), table),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make databases and time what is done with them; 1 when a promise is broken."""
    parser = new_parser(__doc__, out="out/database")
    parser.add_argument("--candidates", type=int, default=100_000, help="of each of the two databases")
    parser.add_argument("--report-candidates", type=int, default=50_000)
    parser.add_argument("--blocks", type=int, default=30, help="blocks of a measurement, as a real run has them")
    parser.add_argument(
        "--steps", type=one_of(*STEPS), default=list(STEPS), help=f"some of {', '.join(STEPS)}, in this order"
    )
    options = parser.parse_args(arguments)
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    steps = options.steps
    if "merge" in steps:
        _merge(out, options.candidates, options.blocks, rows)
    if "exchange" in steps:
        _exchange(out)
    if "report" in steps:
        _report(out, options.report_candidates, options.blocks, rows)
    keep(TABLES[0], rows)
    for row in rows:
        if not row.met:
            _tell(f"BROKEN: {row.step}: {row.value:.2f} {row.unit}")
    return int(not all(row.met for row in rows))


def _merge(out: Path, candidates: int, blocks: int, rows: list[Row]) -> None:
    one, two, other = (_fresh(out / name) for name in ("one.db", "two.db", "other.db"))
    with timed(f"make two databases of {candidates:,} candidates"):
        for seed, path in enumerate((one, two)):
            write_database(path, candidates, seed=seed, blocks=blocks)
    _tell(f"  {one.stat().st_size / 2**20:,.0f} MiB each")
    shutil.copy(one, other)
    with open_database(one) as database:
        limit(rows, f"merge {candidates:,} candidates into {candidates:,}", 30.0, lambda: merge_database(database, two))
        again = "the same again: nothing changes"
        limit(rows, again, 30.0, lambda: _expect(merge_database(database, two).changes == 0, "idempotent"))
    with open_database(two) as database:
        limit(rows, "the other way round", 30.0, lambda: merge_database(database, other))


def _exchange(out: Path) -> None:
    """What the merges left: both must export the same bytes."""
    exports = []
    for name in ("one", "two"):
        folder = out / f"export-{name}"
        with open_database(out / f"{name}.db", read_only=True) as database, timed(f"export {folder.name}"):
            export_database(database, folder)
        exports.append((folder / "manifest.json").read_bytes())
    _expect(exports[0] == exports[1], "order of merging")
    _tell("  both merges have equal contents: every file has the same SHA-256")
    with open_database(_fresh(out / "imported.db")) as database:
        with timed("import it"):
            import_database(database, out / "export-one")
        with timed("check it"):
            _expect(database.problems() == [], "sound")
        with timed("prune it to the winners"):
            report = prune_database(database, older_than_s=1.0, keep=3)
    _tell(f"  {report.bytes_before / 2**20:,.0f} -> {report.bytes_after / 2**20:,.0f} MiB")


def _report(out: Path, candidates: int, blocks: int, rows: list[Row]) -> None:
    path = _fresh(out / "night.db")
    with timed(f"make a night of {candidates:,} candidates"):
        write_database(path, candidates, seed=7, blocks=blocks)
    page = out / "report.html"
    with open_analysis(path) as analysis:
        limit(rows, f"report of {candidates:,} candidates", 20.0, lambda: write_html(analysis, None, page))
    size = page.stat().st_size
    _tell(f"  {size / 2**20:.2f} MiB (at most 10)")
    rows.append(Row("its size", size / 2**20, 10.0, "MiB"))
    if problem := missing():
        _tell(f"  not opened in a browser: {problem}")
        return
    with browsers() as open_page:
        opened = [open_page(page, WIDE) for _ in range(OPENINGS)]
        seconds, work = (statistics.median(map(time_of, opened)) for time_of in (opened_in_s, worked_s))
    _tell(f"  opens with {work:.2f} s of work, {seconds:.2f} s in all (at most {OPENING_S:.0f})")
    rows.append(Row("open it in Chromium (main thread, median of five)", work, OPENING_S, "s"))


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the seconds of a step, and those that the processor worked on it."""
    start, worked = time.perf_counter(), time.process_time()
    yield
    _tell(f"{what}: {time.process_time() - worked:.1f} s of work, {time.perf_counter() - start:.1f} s in all")


def limit(rows: list[Row], what: str, seconds: float, act: Callable[[], object]) -> None:
    """Time a step that must not work longer: on an idle machine that is all that it takes."""
    worked = time.process_time()
    with timed(f"{what} (at most {seconds:.0f} s)"):
        act()
    rows.append(Row(what, time.process_time() - worked, seconds, "s"))


def _fresh(path: Path) -> Path:
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    return path


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"BROKEN: {what}")


def _tell(line: str) -> None:
    sys.stdout.write(line + os.linesep)
    sys.stdout.flush()
