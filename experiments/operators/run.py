"""Single operators through the product's own tuner, against ONNX Runtime and against the machine's bandwidth.

    .venv/bin/python -m experiments operators --families skinny,rows --trials 32 --bench 8s

Each operator is a network of its own: tuned into one database, compiled from it, then timed interleaved with ONNX
Runtime. Blocks of calls alternate, so weights that fit the last cache stay in it for both, and larger ones are read
from memory by both. What was tuned before is not tuned again (`--trials 0` only times).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from autofuse import api
from autofuse.api.results import BenchReport
from autofuse.backend.compile.host_cpu import local_device
from autofuse.errors import AutofuseError
from autofuse.graph.loading.load import load
from autofuse.measure.machine import probe_machine
from experiments import tables
from experiments.operators.cases import FAMILIES
from experiments.options import new_parser, one_of
from experiments.peers.limits import Rates, demand_of, limit_of
from experiments.records import Table, keep

DESCRIPTION = "Single operators against ONNX Runtime and the machine's limit."


@dataclass(frozen=True)
class Row:
    """One operator: times in microseconds, `ratio` = ONNX Runtime's time / ours with its interval.

    `gbs`: weights, input and output once, over our time. `of_limit`: the least time that arithmetic at peak, or memory
    at its bandwidth, would take / our time; above 1 where the data stay in cache. `bound`: which of the two it is.
    Results of earlier sessions have no times, only ratios.
    """

    operator: str
    threads: int
    ours_us: float | None
    onnxruntime_us: float | None
    ratio: float
    ci_lo: float
    ci_hi: float
    trusted: bool
    gbs: float | None
    of_limit: float
    bound: str
    schedule: str


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """One row an operator, as soon as it is measured."""
    options.out.mkdir(parents=True, exist_ok=True)
    database = str(options.out / "operators.db")
    for family in options.families:
        for name, build in FAMILIES[family].items():
            if options.only and not any(part in name for part in options.only.split(",")):
                continue
            path = options.out / f"{name.replace(' ', '_')}.onnx"
            if not path.exists():
                onnx.save(build(), path)
            try:
                yield _row(name, path, database, options)
            except AutofuseError as error:
                print(f"{name}: {error}", file=sys.stderr)


def _row(name: str, path: Path, database: str, options: argparse.Namespace) -> Row:
    if options.trials:
        api.tune(path, database=database, trials=options.trials, budget=options.budget, threads=options.threads)
    found = api.bench(path, database=database, threads=options.threads, against=("onnxruntime",), budget=options.bench)
    assert isinstance(found, BenchReport), "its sizes are fixed"
    report = api.compile(path, dry_run=True, database=database, threads=options.threads)
    demand = demand_of(load(path, {}))
    limit, rival = limit_of(demand, _rates(options.threads)), found.rivals["onnxruntime"]
    schedules = [json.loads(text) for text in dict.fromkeys(group.schedule for group in report.groups)]
    return Row(
        name, options.threads, found.autofuse_us, rival.median_us or 0.0, rival.ratio or 0.0, rival.ci_lo or 0.0,
        rival.ci_hi or 0.0, rival.trusted, demand.bytes / found.autofuse_us / 1e3, limit.us / found.autofuse_us,
        limit.bound, " ".join(f"{knob.partition('.')[2]}={value}" for one in schedules for knob, value in one.items()),
    )  # fmt: skip


def _rates(threads: int) -> Rates:
    """What this machine reaches on so many threads; probed beside each row, since its clock varies."""
    found = probe_machine(local_device().target(), threads)
    return Rates(found.gflops_n, found.dram_gbs_n)


def markdown(found: Sequence[Row]) -> str:
    """The rows as a table; "?" behind a ratio that the benchmark did not trust."""
    lines = tables.head(("operator", "threads", "us", "ONNX Runtime, us", "ratio", "GB/s", "of the limit", "schedule"))
    for row in found:
        times = _figure(row.ours_us), _figure(row.onnxruntime_us)
        ratio = tables.ratio(row.ratio, row.ci_lo, row.ci_hi, row.trusted)
        limit = f"{100 * row.of_limit:.0f} % ({row.bound})"
        lines.append(tables.line([row.operator, row.threads, *times, ratio, _figure(row.gbs), limit, row.schedule]))
    return "\n".join(lines) + "\n"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def published(found: Sequence[Row]) -> str:
    """The table of the README: ratios, the limit and the schedules."""
    lines = tables.head(("operator", "ONNX Runtime's time / ours", "of the limit", "schedule"))
    for row in found:
        ratio = tables.ratio(row.ratio, row.ci_lo, row.ci_hi, row.trusted)
        lines.append(tables.line([row.operator, ratio, f"{100 * row.of_limit:.0f} % ({row.bound})", row.schedule]))
    return "\n".join(lines) + "\n"


def _place(row: Row) -> int:
    names = [name for family in FAMILIES.values() for name in family]
    return names.index(row.operator) if row.operator in names else len(names)


TABLES = (Table("operators", Row, ("operator", "threads"), published, _place),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; 0 when every operator was measured."""
    parser = new_parser(DESCRIPTION, out="out/operators", threads=1, budget="60s", bench="8s")
    parser.add_argument("--families", type=one_of(*FAMILIES), default=list(FAMILIES), help="which (default: all)")
    parser.add_argument("--only", default="", help="parts of the names of the operators wanted")
    parser.add_argument("--trials", type=int, default=32, help="candidates tuned for each operator (0: none)")
    options = parser.parse_args(arguments)
    found: list[Row] = []
    for row in rows(options):
        found.append(row)
        keep(TABLES[0], [row])
        print(markdown(found).splitlines()[-1], flush=True)
    tables.write(options.out, found, markdown(found))
    return 0 if found else 1
