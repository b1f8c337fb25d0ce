"""What fusion alone gives: the plan that the search chose against no fusion and TVM's plan, all on our own kernels.

.venv/bin/python -m experiments fusion_alone out/models --threads 1,2 --budget 2m
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

import autofuse
from autofuse.backend.compile.host_cpu import local_device
from autofuse.database.database import open_database
from autofuse.environment.named_plans import named_plan
from autofuse.errors import AutofuseError
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.measure.machine import probe_machine
from autofuse.search.progress import TuneResult
from autofuse.views.inspect import bytes_moved
from experiments import tables
from experiments.model_files import HELP, asked_for
from experiments.options import new_parser
from experiments.records import Table, keep


@dataclass(frozen=True)
class Row:
    """One network at one number of threads. Times in microseconds, ratios above 1: the search's plan is faster.

    `none`: no fusion over the chosen plan, with its interval [`lo`, `hi`] (1 where no fusion was chosen); `tvm`: TVM's
    plan over the chosen one. `saved_mb`: bytes that kernels of the chosen plan need not write and read. `most`: the
    ratio that could be had if all of those moved at the bandwidth of memory, and each kernel less saved its dispatch.
    """

    network: str
    threads: int
    kernels_none: int = 0
    kernels_tvm: int = 0
    kernels: int = 0
    chosen_us: float | None = None
    none: float | None = None
    lo: float | None = None
    hi: float | None = None
    tvm: float | None = None
    trusted: bool = False
    saved_mb: float = 0.0
    most: float | None = None
    problem: str = ""


def measure(model: Path, database: Path, threads: int, budget: str) -> Row:
    """Tune one network; its finalists are raced whole and interleaved."""
    try:
        result = autofuse.tune(model, database=str(database), budget=budget, threads=threads)
        with open_database(str(database)) as base:
            chosen = FusionPlan.from_json(base.plan(result.plan_key) or "")
        return row_of(load(model, {}), chosen, result, probe_machine(local_device().target(), threads).dram_gbs_n)
    except AutofuseError as error:
        return Row(model.stem, threads, problem=str(error))


def row_of(graph: Graph, chosen: FusionPlan, result: TuneResult, gbs: float) -> Row:
    """The row of a finished tuning on a machine that reads `gbs` GB/s."""
    best, none, tvm = result.plans[result.chosen], result.plans.get("none"), result.plans.get("tvm-partition")
    if none is None or none.median_us is None or best.median_us is None:
        return Row(result.model, result.threads, problem=none.problem if none else "no fusion has no time")
    unfused = named_plan(graph, "none")
    saved_bytes = bytes_moved(graph, unfused) - bytes_moved(graph, chosen)
    saved_us = saved_bytes / gbs / 1e3 + (none.kernels - best.kernels) * LAUNCH_US
    return Row(
        result.model, result.threads, none.kernels, tvm.kernels if tvm else 0, best.kernels, best.median_us,
        best.speedup, best.ci_lo, best.ci_hi,
        best.speedup / tvm.speedup if tvm and tvm.speedup and best.speedup else None,
        best.trusted, saved_bytes / 1e6, 1 + saved_us / best.median_us,
    )  # fmt: skip


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table with geometric means; a question mark stands where noise spoiled a ratio."""
    lines = tables.head(
        ("network", "threads", "kernels: none, tvm, chosen", "none / chosen", "tvm / chosen", "MB not moved", "at most")
    )
    for row in rows:
        if row.problem or row.none is None:
            lines.append(tables.line([row.network, row.threads, "", row.problem, "", "", ""]))
            continue
        kernels = f"{row.kernels_none}, {row.kernels_tvm}, {row.kernels}"
        cells = [tables.ratio(row.none, row.lo, row.hi, row.trusted), _ratio(row.tvm)]
        lines.append(tables.line([row.network, row.threads, kernels, *cells, f"{row.saved_mb:.1f}", _ratio(row.most)]))
    for threads in sorted({row.threads for row in rows}):
        here = [row for row in rows if row.threads == threads]
        means = [_mean(row.none for row in here), _mean(row.tvm for row in here), "", _mean(row.most for row in here)]
        lines.append(tables.line(["geometric mean", threads, "", *means]))
    return "\n".join(lines) + "\n"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{geometric_mean(known):.3f} (of {len(known)})" if known else ""


TABLES = (Table("fusion_alone", Row, ("network", "threads"), markdown, lambda row: (row.network, row.threads)),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rows that are there are kept, failed ones tried again; 1 when one of this call failed."""
    parser = new_parser("What fusion alone gives.", out="out/fusion_alone", threads="1,2", budget="2m")
    parser.add_argument("models", nargs="+", metavar="MODEL", help=HELP)
    parser.add_argument("--again", action="store_true", help="measure rows anew that are there")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    files = asked_for(parser, options.models)
    failed = False
    for file in files:
        for threads in options.threads:
            rows = tables.read_rows(options.out, Row)
            here = [row for row in rows if (row.network, row.threads) == (file.stem, threads)]
            if not options.again and any(not row.problem for row in here):
                continue
            row = measure(file, options.out / f"{file.stem}.db", threads, options.budget)
            failed |= bool(row.problem)
            keep(TABLES[0], [row])
            rows = sorted([*(other for other in rows if other not in here), row], key=lambda r: (r.network, r.threads))
            tables.write_rows(options.out, rows, markdown(rows))
            print(f"{row.network}, {threads} threads: {row.problem or _ratio(row.none)}", flush=True)
    print(markdown(tables.read_rows(options.out, Row)))
    return int(failed)
