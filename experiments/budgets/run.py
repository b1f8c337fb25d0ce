"""How long a tuning needs: libraries tuned from an empty database for a short and for a long time, raced.

.venv/bin/python -m experiments budgets resnet50 mobilenet_v2 bert_base --budgets 5m,3m,1m,30s
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import autofuse
from autofuse.backend.compile.host_cpu import local_device
from autofuse.errors import AutofuseError
from autofuse.graph.loading.load import load
from autofuse.measure.networks.bench import Contender, ContenderResult
from experiments import tables
from experiments.model_files import HELP, asked_for
from experiments.options import durations, new_parser
from experiments.races import NO_RATIO, race
from experiments.records import Table, keep


@dataclass(frozen=True)
class Row:
    """A network tuned for `budget`, in `elapsed_s` seconds, which measured so many candidates.

    `ratio`: the time of the library of the first (longest) budget over this one's, with its interval [`lo`, `hi`].
    """

    network: str
    threads: int
    budget: str
    elapsed_s: float = 0.0
    measured: int = 0
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    trusted: bool = False
    problem: str = ""


def measure(model: Path, threads: int, budgets: Sequence[str], bench_s: float, folder: Path) -> list[Row]:
    """The rows of one network, the longest budget first; each budget has a new database of its own in `folder`."""
    rows: list[Row] = []
    contenders = []
    for budget in budgets:
        database, library = (folder / f"{model.stem}-{threads}t-{budget}.{kind}" for kind in ("db", "so"))
        for old in folder.glob(f"{database.name}*"):
            old.unlink()
        try:
            result = autofuse.tune(model, database=str(database), budget=budget, threads=threads)
            autofuse.compile(model, library, database=str(database), threads=threads)
        except AutofuseError as error:
            rows.append(Row(model.stem, threads, budget, problem=str(error)))
            continue
        rows.append(Row(model.stem, threads, budget, result.elapsed_s, result.measured))
        contenders.append(Contender(budget, "autofuse", library))
    if not contenders:
        return rows
    results = race(load(model, {}), contenders, threads, bench_s, local_device().target())
    return [judged(row, results.get(row.budget)) for row in rows]


def judged(row: Row, result: ContenderResult | None) -> Row:
    """The row with what the race said of its library."""
    if result is None:
        return row
    problem = result.error or result.wrong
    if problem or not result.ratio or not result.ci_lo or not result.ci_hi:
        return Row(row.network, row.threads, row.budget, row.elapsed_s, row.measured, problem=problem or NO_RATIO)
    return Row(
        row.network, row.threads, row.budget, row.elapsed_s, row.measured,
        1 / result.ratio, 1 / result.ci_hi, 1 / result.ci_lo, result.trusted,
    )  # fmt: skip


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table; a question mark stands where noise spoiled a ratio."""
    lines = tables.head(("network", "threads", "budget", "needed, s", "candidates", "longest's time / this one's"))
    for row in rows:
        if row.ratio is None:
            lines.append(tables.line([row.network, row.threads, row.budget, "", "", row.problem]))
            continue
        interval = tables.ratio(row.ratio, row.lo, row.hi, row.trusted, 3)
        ratio = "1" if row.ratio == row.lo == row.hi else interval  # the longest, against itself
        lines.append(tables.line([row.network, row.threads, row.budget, f"{row.elapsed_s:.0f}", row.measured, ratio]))
    return "\n".join(lines) + "\n"


TABLES = (Table("budgets", Row, ("network", "threads", "budget"), markdown),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rows of other networks in the folder stay; 1 when one of this call has a problem."""
    parser = new_parser("Short tunings against long ones.", out="out/budgets", threads=1, bench="30s")
    parser.add_argument("models", nargs="+", metavar="MODEL", help=HELP)
    parser.add_argument(
        "--budgets", type=durations, default=["5m", "3m", "1m"], help="longest first (default: 5m,3m,1m)"
    )
    options = parser.parse_args(arguments)
    files = asked_for(parser, options.models)
    failed = False
    options.out.mkdir(parents=True, exist_ok=True)
    for file in files:
        measured = measure(file, options.threads, options.budgets, options.bench, options.out)
        failed |= any(row.problem for row in measured)
        keep(TABLES[0], measured)
        old = tables.read_rows(options.out, Row)
        rows = [row for row in old if (row.network, row.threads) != (file.stem, options.threads)] + measured
        tables.write_rows(options.out, rows, markdown(rows))
        print(markdown(measured), flush=True)
    return int(failed)
