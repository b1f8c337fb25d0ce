"""Recurrent layers and cells through the product's own tuner, against ONNX Runtime.

    .venv/bin/python -m experiments recurrent --kinds layers --trials 12 --bench 8s

Each is a network of its own: tuned into one database, compiled from it, then timed interleaved with ONNX Runtime.
What was tuned before is not tuned again (`--trials 0` only times).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx

from autofuse import api
from autofuse.api.results import BenchReport
from autofuse.errors import AutofuseError, InputError
from experiments import tables
from experiments.options import new_parser, one_of
from experiments.records import Table, keep
from experiments.recurrent.cases import KINDS, Layer


@dataclass(frozen=True)
class Row:
    """One network: times in microseconds, `ratio` = ONNX Runtime's time / ours with its interval.

    `gbs`: the recurrent weights, once a step, over our whole time (input products included): what the caches deliver
    at least. `gflops`: of all products, over our time.
    """

    network: str
    threads: int
    ours_us: float
    onnxruntime_us: float
    ratio: float
    ci_lo: float
    ci_hi: float
    trusted: bool
    gbs: float
    gflops: float


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """One row a network, as soon as it is measured."""
    options.out.mkdir(parents=True, exist_ok=True)
    for kind in options.kinds:
        for name, make in KINDS[kind].items():
            try:
                yield _row(name, make(), options)
            except AutofuseError as error:
                print(f"{name}: {error}", file=sys.stderr)


def _row(name: str, layer: Layer, options: argparse.Namespace) -> Row:
    path, database = options.out / f"{name.replace(' ', '_')}.onnx", str(options.out / "recurrent.db")
    if not path.exists():
        onnx.save(layer.model(), path)
    if options.trials:
        api.tune(path, database=database, trials=options.trials, budget=options.budget, threads=options.threads)
    found = api.bench(path, database=database, threads=options.threads, against=("onnxruntime",), budget=options.bench)
    assert isinstance(found, BenchReport), "its sizes are fixed"
    rival, read = found.rivals["onnxruntime"], layer.weight_bytes * layer.steps
    if rival.ratio is None or rival.median_us is None or rival.ci_lo is None or rival.ci_hi is None:
        raise InputError(f"no ratio to ONNX Runtime: {rival.error or rival.verdict}; run it on a quieter machine")
    flops = read  # two products, a multiply-add for each weight of four bytes
    return Row(
        name, options.threads, found.autofuse_us, rival.median_us, rival.ratio, rival.ci_lo,
        rival.ci_hi, rival.trusted, read / found.autofuse_us / 1e3, flops / found.autofuse_us / 1e3,
    )  # fmt: skip


def published(found: Sequence[Row]) -> str:
    """The rows as a table; "?" behind a ratio that the benchmark did not trust."""
    head = ("network", "threads", "us", "ONNX Runtime, us", "ONNX Runtime's time / ours", "weights, GB/s", "GFLOP/s")
    lines = tables.head(head)
    for row in found:
        ratio = tables.ratio(row.ratio, row.ci_lo, row.ci_hi, row.trusted)
        times = f"{row.ours_us:.1f}", f"{row.onnxruntime_us:.1f}"
        lines.append(tables.line([row.network, row.threads, *times, ratio, f"{row.gbs:.0f}", f"{row.gflops:.0f}"]))
    return "\n".join(lines) + "\n"


def _place(row: Row) -> int:
    names = [name for kind in KINDS.values() for name in kind]
    return names.index(row.network) if row.network in names else len(names)


TABLES = (Table("recurrent", Row, ("network", "threads"), published, _place),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; 0 when a network was measured."""
    parser = new_parser(__doc__, out="out/recurrent", threads=1, budget="60s", bench="8s")
    parser.add_argument("--kinds", type=one_of(*KINDS), default=list(KINDS), help="which (default: all)")
    parser.add_argument("--trials", type=int, default=12, help="candidates tuned for each network (0: none)")
    options = parser.parse_args(arguments)
    found: list[Row] = []
    for row in rows(options):
        found.append(row)
        keep(TABLES[0], [row])
        print(published(found).splitlines()[-1], flush=True)
    tables.write(options.out, found, published(found))
    return 0 if found else 1
