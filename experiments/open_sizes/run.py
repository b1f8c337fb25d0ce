"""One library for every size: `python -m experiments open_sizes bert_base unet --threads 1,2 --budget 2m`.

Each network is made by torch's exporter with open sizes, compiled once, and raced at the smallest, at the largest and
at drawn sizes with ONNX Runtime and OpenVINO on the dynamic model; at a few sizes also with a library that is compiled
for just that size. Then it is called at all of them in turn, each time in a process of its own, for memory and for what
the first call at a size costs. `--budget`: the open library is tuned before, else its kernels are guessed. Any other
ONNX file with named sizes takes part with `--sizes`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from autofuse import api
from autofuse.backend.compile.host_cpu import local_device
from autofuse.errors import AutofuseError, InputError
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.given.buckets import form_of
from autofuse.graph.loading.given.sizes import OpenSize, open_ones, open_sizes, parse_sizes
from autofuse.graph.loading.given.trace import Point
from autofuse.graph.loading.load import load
from autofuse.measure.networks.bench import Contender, ContenderResult, Host
from autofuse.measure.networks.judgement import judged
from autofuse.values.ratios import compare
from experiments import tables
from experiments.index import ROOT
from experiments.open_sizes.cases import CASES, drawn, ends, spread, title
from experiments.open_sizes.rows import CALLS, FIXED, OWN, PEERS, SIZES, Calls, Row, published, published_calls
from experiments.options import duration, new_parser
from experiments.peers.environments import MissingEnvironmentError, install
from experiments.peers.rivals import RIVALS, host_of
from experiments.races import NO_RATIO, race
from experiments.records import keep

PROCESSES = 3
"""Each counts first and second calls once; a size's ratio is their median."""
TABLES = (SIZES, CALLS)


@dataclass(frozen=True)
class Network:
    """A model whose sizes are open, and its library. `folder`: of what is written for it."""

    name: str
    model: Path
    texts: str
    threads: int
    folder: Path

    @property
    def sizes(self) -> tuple[OpenSize, ...]:
        """All sizes that are named."""
        return open_sizes(parse_sizes([self.texts]))

    @property
    def ranges(self) -> tuple[OpenSize, ...]:
        """Those that stay open."""
        return open_ones(self.sizes)

    @property
    def library(self) -> Path:
        """The open library."""
        return self.folder / f"{self.name}-{self.threads}.so"

    @property
    def database(self) -> str:
        """Where times and schedules are."""
        return str(self.folder / f"{self.name}.db")

    def form(self, point: Point) -> dict[str, Any]:
        """The shapes of the inputs at these sizes."""
        values = {size.name: value for size, value in zip(self.ranges, point, strict=True)}
        return dict(form_of(self.model, self.sizes, values, {}))

    def inputs(self, point: Point) -> Path:
        """The file of made-up inputs at these sizes."""
        return self.folder / self.name / f"{title(point)}.npz"

    def compile(self, budget_s: float) -> None:
        """Makes the open library, tuned before where there is a budget."""
        ranges = parse_sizes([self.texts])
        if budget_s:
            api.tune(self.model, database=self.database, budget=budget_s, threads=self.threads, sizes=ranges)
        api.compile(self.model, self.library, database=self.database, threads=self.threads, sizes=ranges)

    def fixed(self, point: Point, budget_s: float) -> Path:
        """The library of just these sizes, from the same database."""
        path, shapes = self.library.with_name(f"{self.library.stem}-{title(point)}.so"), self.form(point)
        if budget_s:
            api.tune(self.model, database=self.database, budget=budget_s, threads=self.threads, shapes=shapes)
        api.compile(self.model, path, database=self.database, threads=self.threads, shapes=shapes)
        return path


def made(name: str, texts: str, threads: int, out: Path) -> Network:
    """The network of that name, or in that file; its exporter writes it unless it is there. InputError for neither."""
    path = Path(name)
    if name not in CASES:
        if not path.is_file() or not texts:
            raise InputError(f"{name!r} is none of {', '.join(CASES)}, and no ONNX file for which --sizes were given")
        return Network(path.stem, path.resolve(), texts, threads, out)
    path = out / f"{name}.onnx"
    if not path.exists():
        command = [str(install("torch")), "-m", "experiments.open_sizes.exports", str(path), name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AutofuseError(f"the exporter failed: {done.stderr.strip()[-500:]}")
    return Network(name, path, texts or CASES[name].sizes, threads, out)


def measured(network: Network, options: argparse.Namespace) -> Iterator[list[Row]]:
    """The rows of each size in turn."""
    low, high = ends(network.ranges)
    points = [low, *drawn(network.ranges, options.drawn, options.seed), high]
    alone = spread(points, options.fixed) if options.fixed else []
    for point in points:
        mixed = point not in (low, high)
        blank = Row(network.name, network.threads, network.texts, title(point), mixed, OWN)
        yield at_size(network, point, blank, options, fixed=point in alone)


def at_size(network: Network, point: Point, blank: Row, options: argparse.Namespace, *, fixed: bool) -> list[Row]:
    """A row for each engine at one size; made-up inputs are left in a file."""
    problems: dict[str, str] = {}
    contenders = [Contender(OWN, "autofuse", network.library)]
    for engine in PEERS:
        rival = RIVALS[engine]
        try:
            host = host_of(rival, network.threads, options.out) if rival.foreign else Host()
            contenders.append(Contender(engine, rival.kind, network.model, host))
        except MissingEnvironmentError as error:
            problems[engine] = str(error)
    if fixed:
        try:
            contenders.append(Contender(FIXED, "autofuse", network.fixed(point, options.fixed_budget)))
        except AutofuseError as error:
            problems[FIXED] = str(error)
    graph = load(network.model, network.form(point))
    inputs = generate_inputs(graph, 0)
    network.inputs(point).parent.mkdir(parents=True, exist_ok=True)
    np.savez(network.inputs(point), **inputs)  # type: ignore[arg-type]
    results = race(graph, contenders, network.threads, options.bench, local_device().target())
    results = judged(results, graph, inputs)
    for one in contenders:
        if one.name == FIXED:
            one.path.unlink()
    engines = [OWN, *PEERS, *([FIXED] if fixed else [])]
    return [_row(replace(blank, engine=engine, problem=problems.get(engine, "")), results) for engine in engines]


def _row(row: Row, results: Mapping[str, ContenderResult]) -> Row:
    """A row with what the race found."""
    one, own = results.get(row.engine), results[OWN]
    if one is None:
        return row
    row = replace(row, error=one.max_rel_error)
    if one.error or one.wrong:
        return replace(row, problem=one.error or one.wrong)
    row = replace(row, us=one.median_us)
    found = compare(one.timed, own.timed) if own.timed and one.timed else None
    if found is None or found.value is None:
        return row if row.engine == OWN else replace(row, problem=one.reason or NO_RATIO)
    return replace(row, ratio=found.value, lo=found.lo, hi=found.hi, trusted=found.trusted)


def called(network: Network, points: Sequence[str]) -> list[Calls]:
    """Memory and first calls of ours and of ONNX Runtime, at such sizes, each process beginning with the first."""
    found = []
    for engine, path in ((OWN, network.library), (PEERS[0], network.model)):
        reports = [_report(engine, path, network, points) for _ in range(PROCESSES)]
        firsts, again = _firsts(reports, points, "calls"), _firsts(reports, points, "again")
        pages = [one[2] - one[3] for report in reports for one in report["calls"][1:]]
        worst = max(firsts, key=lambda point: firsts[point])
        running, peak = (median(report[name] for report in reports) / 2**20 for name in ("running", "peak"))
        found.append(
            Calls(
                network.name, network.threads, engine, running, peak, median(firsts.values()), firsts[worst], worst,
                median(again.values()), median(pages),
            )
        )  # fmt: skip
    return found


def _firsts(reports: Sequence[dict[str, Any]], points: Sequence[str], what: str) -> dict[str, float]:
    """By size the first call's time over the second's, but for the first size: that pays for what is read from the
    disk."""
    ratios = [[one[0] / one[1] for one in report[what]] for report in reports]
    return {point: median(report[place] for report in ratios) for place, point in enumerate(points) if place}


def _report(engine: str, path: Path, network: Network, points: Sequence[str]) -> dict[str, Any]:
    files = [str(network.folder / network.name / f"{point}.npz") for point in points]
    command = [sys.executable, "-m", "experiments.open_sizes.calls", engine, str(path), str(network.threads), *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        raise AutofuseError(f"{engine} {path.name}: {done.stderr.strip()[-500:]}")
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Every network in turn; 1 when one cannot be compiled, or is wrong at a size."""
    options = _parser().parse_args(arguments)
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    calls: list[Calls] = []
    failed = False
    for name in options.models or CASES:
        for threads in options.threads:
            try:
                network = made(name, options.sizes, threads, options.out)
                network.compile(options.budget)
                own: list[Row] = []
                for found in measured(network, options):
                    own += found
                    keep(SIZES, own)
                    failed |= any(row.engine == OWN and row.problem for row in found)
                    print(published(found).splitlines()[-1], flush=True)
                rows += own
                again = called(network, list(dict.fromkeys(row.size for row in own)))
                keep(CALLS, again)
                calls += again
            except AutofuseError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                failed = True
    text = f"{published(rows)}\n{published_calls(calls)}"
    print(text)
    tables.write(options.out, rows, text)
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = new_parser(__doc__, out="out/open_sizes", threads="1", budget="", bench="4s", seed=0)
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL", help=f"of {', '.join(CASES)} (default: all), or an ONNX file")
    add("--sizes", default="", metavar="NAME=LOW:HIGH,...", help="ranges in place of a network's own")
    add("--drawn", type=int, default=20, metavar="N", help="sizes drawn between the ends (default: 20)")
    add("--fixed", type=int, default=3, metavar="N", help="sizes with a library of their own, too (default: 3)")
    text = "time for tuning each of these libraries (default: the open library's database must do)"
    add("--fixed-budget", type=duration, default=0.0, metavar="DURATION", help=text)
    return parser
