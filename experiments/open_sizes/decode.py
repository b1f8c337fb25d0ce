"""Decoding with caches that the library keeps: `python -m experiments open_sizes.decode --threads 1,2 --budget 2m`.

A step of GPT-2 is compiled for any length of its caches, which it extends in place, and called `--steps` times from the
empty caches on, in `--passes` passes in one process. The table and the picture show how the time of a step follows the
bytes that it reads (weights of products once, the rows of the caches), at which rate it reads them, against a loop that
only reads memory, in turn with the steps, and whether memory grows from pass to pass.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from autofuse import api
from autofuse.errors import AutofuseError
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.given.sizes import parse_sizes
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from experiments import tables
from experiments.index import ROOT
from experiments.open_sizes.cases import STEP
from experiments.open_sizes.run import Network, made
from experiments.options import new_parser
from experiments.peers.environments import MissingEnvironmentError, interpreter
from experiments.records import Table, keep

CACHES = "present*=past*"
PRODUCTS = ("MatMul", "Gemm")
WINDOWS = 8
"""The table shows so many stretches of steps."""


@dataclass(frozen=True)
class Row:
    """Steps whose caches have `first` to `last` rows before them. `us`: the median of all passes; `read_bytes`: of
    weights and caches, `gbs`: over that time, `dram_gbs`: the median of what a loop that only reads got from memory
    between these steps. `memory_mib`: when each pass began, and at the end."""

    network: str
    threads: int
    first: int
    last: int
    us: float
    read_bytes: int
    gbs: float
    dram_gbs: float
    memory_mib: tuple[float, ...]


def read_bytes(graph: Graph) -> tuple[int, int]:
    """Bytes of the weights of all products, and of all caches."""
    weights = {
        name: graph.constants[name].nbytes
        for operator in graph.operators
        if operator.op_type in PRODUCTS
        for name in operator.inputs
        if name in graph.constants
    }
    pasts = [graph.tensors[name] for name in graph.inputs if name.startswith(CACHES.partition("=")[2].rstrip("*"))]
    return sum(weights.values()), sum(np.dtype(one.dtype).itemsize * int(np.prod(one.shape)) for one in pasts)


def measured(network: Network, steps: int, passes: int, budget_s: float) -> list[Row]:
    """The library made and called; a row for each stretch of steps."""
    library = network.library.with_name(f"{network.name}-kept-{network.threads}.so")
    base: dict[str, Any] = {"database": network.database, "threads": network.threads}
    base["sizes"] = parse_sizes([network.texts])
    if budget_s:
        api.tune(network.model, budget=budget_s, **base)
    api.compile(network.model, library, caches=[CACHES], **base)
    graph = load(network.model, network.form((network.ranges[0].high,)))
    inputs = network.folder / f"{network.name}-step.npz"
    np.savez(inputs, **generate_inputs(graph, 0))  # type: ignore[arg-type]
    names = [str(library), str(network.threads), str(steps), str(passes), str(inputs)]
    command = [sys.executable, "-m", "experiments.open_sizes.steps", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AutofuseError(f"{library.name}: {done.stderr.strip()[-500:]}")
    report = json.loads(done.stdout.splitlines()[-1])
    weights, caches = read_bytes(graph)
    blank = Row(
        network.name, network.threads, 0, 0, 0.0, weights, 0.0, 0.0, tuple(size / 2**20 for size in report["memory"])
    )
    return rows_of(blank, report["us"], report["gbs"], caches / network.ranges[0].high)


def rows_of(
    blank: Row, passes: Sequence[Sequence[float]], rates: Sequence[Sequence[float]], row_bytes: float
) -> list[Row]:
    """The steps in stretches, each as the median of its middle; `blank`: with the bytes of the weights.

    `rates`: of each pass, GB/s that were read behind every so many steps.
    """
    steps = len(passes[0])
    edges = [number * steps // WINDOWS for number in range(WINDOWS + 1)]
    found = []
    for first, end in pairwise(edges):
        if first < end:
            us = median(time for own in passes for time in own[first:end])
            size = round(blank.read_bytes + row_bytes * (first + end - 1) / 2)
            facts = {"first": first, "last": end - 1, "us": us, "read_bytes": size, "gbs": size / us / 1e3}
            found.append(Row(**{**vars(blank), **facts, "dram_gbs": _read_gbs(rates, first / steps, end / steps)}))
    return found


def _read_gbs(rates: Sequence[Sequence[float]], begin: float, end: float) -> float:
    """The median of what was read between two parts of each pass; of the read before it where none was."""
    read: list[float] = []
    for own in rates:
        first = int(begin * len(own))
        read += own[first : max(first + 1, int(end * len(own)))]
    return median(read)


def published(rows: Sequence[Row]) -> str:
    """A line for each stretch, and a sentence on each run."""
    titles = ("network", "threads", "rows of the caches", "us a step", "bytes read, MB", "GB/s", "of a loop that reads")
    lines, told = tables.head(titles), []
    for (network, threads), group in groupby(rows, key=lambda row: (row.network, row.threads)):
        own = list(group)
        for row in own:
            cells = [f"{row.first} to {row.last}", f"{row.us:.0f}", f"{row.read_bytes / 1e6:.0f}", f"{row.gbs:.1f}"]
            lines.append(tables.line([network, threads, *cells, f"{row.gbs / row.dram_gbs:.0%}"]))
        memory = ", ".join(f"{size:.0f}" for size in own[0].memory_mib)
        longer, more = own[-1].us / own[0].us, own[-1].read_bytes / own[0].read_bytes
        told.append(
            f"{network}, threads: {threads}: from the first stretch to the last a step takes {longer:.2f} times as "
            f"long and reads {more:.2f} times as much. Resident before each pass, and at the end: {memory} MiB."
        )
    return "\n".join([*lines, "", *told]) + "\n"


TABLES = (Table("open_sizes.decode", Row, ("network", "threads"), published, lambda row: (row.network, row.threads)),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table, and the picture where matplotlib is."""
    parser = new_parser(__doc__, out="out/open_sizes", threads="1", budget="")
    parser.add_argument("--steps", type=int, default=1000, metavar="N", help="of a pass (default: 1000)")
    parser.add_argument("--passes", type=int, default=3, metavar="N", help="one behind the other (default: 3)")
    options = parser.parse_args(arguments)
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for threads in options.threads:
        found = measured(made(STEP, "", threads, out), options.steps, options.passes, options.budget)
        keep(TABLES[0], found)
        rows += found
    text = published(rows)
    print(text)
    tables.write(out / "decode", rows, text)
    try:
        command = [str(interpreter("torch")), "-m", "experiments", "open_sizes.plot"]
        subprocess.run([*command, str(out / "decode" / "results.csv"), str(out / "decode.svg")], cwd=ROOT, check=False)
    except MissingEnvironmentError as error:
        print(f"no plot: {error}")
    return 0
