"""How many times faster two threads are than one, each with the plan and the schedules tuned for its number.

.venv/bin/python -m experiments scaling resnet50 bert_base --databases out/peers --budget 1m
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import autofuse
from autofuse.backend.compile.host_cpu import local_device
from autofuse.errors import AutofuseError
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.measure.networks.bench import Contender, ContenderResult
from experiments import tables
from experiments.model_files import HELP, asked_for
from experiments.options import new_parser
from experiments.races import NO_RATIO, race
from experiments.records import Table, keep

THREADS = (2, 1)
"""The first is what the times of the other are held against."""
KINDS = {"autofuse": "autofuse", "ONNX Runtime": "onnxruntime"}


@dataclass(frozen=True)
class Row:
    """A network and who runs it; `ratio`: the time of one thread over that of two, with its interval [`lo`, `hi`]."""

    network: str
    rival: str
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    trusted: bool = False
    problem: str = ""


def measure(model: Path, database: Path, budget: float, bench_s: float) -> list[Row]:
    """The rows of one network: autofuse's libraries in one race, ONNX Runtime's sessions in another."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            libraries = {threads: Path(folder) / f"{threads}.so" for threads in THREADS}
            for threads, library in libraries.items():
                if budget:
                    autofuse.tune(model, database=str(database), budget=budget, threads=threads)
                autofuse.compile(model, library, database=str(database), threads=threads)
            paths = {"autofuse": libraries, "ONNX Runtime": dict.fromkeys(THREADS, model)}
            graph = load(model, {})
            return [_raced(graph, rival, paths[rival], bench_s) for rival in KINDS]
    except AutofuseError as error:
        return [Row(model.stem, "autofuse", problem=str(error))]


def _raced(graph: Graph, rival: str, paths: dict[int, Path], bench_s: float) -> Row:
    """One race of a rival against itself with another number of threads."""
    contenders = [Contender(str(threads), KINDS[rival], paths[threads], threads=threads) for threads in THREADS]
    return row_of(graph.name, rival, race(graph, contenders, max(THREADS), bench_s, local_device().target()))


def row_of(network: str, rival: str, results: dict[str, ContenderResult]) -> Row:
    """The row of a race."""
    one = results[str(min(THREADS))]
    problem = next((text for result in results.values() if (text := result.error or result.wrong)), "")
    if problem or one.ratio is None:
        return Row(network, rival, problem=problem or NO_RATIO)
    return Row(network, rival, one.ratio, one.ci_lo, one.ci_hi, one.trusted)


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table; a question mark stands where noise spoiled a ratio."""
    lines = tables.head(("network", "rival", "one thread's time / two threads'"))
    for row in rows:
        if row.ratio is None:
            lines.append(tables.line([row.network, row.rival, row.problem]))
            continue
        lines.append(tables.line([row.network, row.rival, tables.ratio(row.ratio, row.lo, row.hi, row.trusted)]))
    return "\n".join(lines) + "\n"


TABLES = (Table("scaling", Row, ("network", "rival"), markdown),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rows of other networks in the folder stay; 1 when a network could not be measured."""
    parser = new_parser("One thread against two.", out="out/scaling", budget="", bench="20s")
    parser.add_argument("models", nargs="+", metavar="MODEL", help=HELP)
    parser.add_argument("--databases", type=Path, default=Path("out/scaling"), help="folder of NAME.db")
    options = parser.parse_args(arguments)
    options.databases.mkdir(parents=True, exist_ok=True)
    files = asked_for(parser, options.models)
    rows: list[Row] = []
    for file in files:
        measured = measure(file, options.databases / f"{file.stem}.db", options.budget, options.bench)
        rows = [row for row in tables.read_rows(options.out, Row) if row.network != file.stem] + measured
        keep(TABLES[0], measured)
        tables.write_rows(options.out, rows, markdown(rows))
        print(markdown(measured), flush=True)
    return int(any(row.problem for row in rows))
