"""Does a build on another core change what a candidate's timing says?

    .venv/bin/python -m experiments overlap mobilenet_v2 tinybert

The same kernels are timed on the first core, block by block in turn: with a process that builds kernels on the other
cores, and with that process stopped.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.compile.jit import JitKernel, tensor
from autofuse.errors import AutofuseError
from autofuse.kernels.build import build_kernel
from autofuse.measure.children.candidates import values_of
from autofuse.measure.timing.clock import pin_main_thread
from autofuse.measure.timing.cores import Cores
from autofuse.values.statistics import ratio_interval
from experiments import tables
from experiments.model_files import HELP, asked_for
from experiments.options import count, new_parser
from experiments.overlap.builder import READY
from experiments.overlap.candidates import candidates_of
from experiments.records import Table, keep

BLOCK_S, SETTLE_S = 0.006, 0.005


@dataclass(frozen=True)
class Row:
    """A network: the time beside a builder over the time alone, over all blocks of its `kernels`, and of the kernel
    with the largest ratio (`worst`)."""

    network: str
    kernels: int = 0
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    worst: float | None = None
    worst_kernel: str = ""
    problem: str = ""


@contextmanager
def builder(model: Path, cores: Sequence[int]) -> Iterator[Callable[[bool], None]]:
    """A process that builds on `cores`; called with whether it shall go on."""
    command = [sys.executable, "-m", "experiments.overlap.builder", str(model), ",".join(map(str, cores))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if process.stdout.readline() != READY:
            raise AutofuseError("the process that builds ended")

        def go_on(building: bool) -> None:
            process.send_signal(signal.SIGCONT if building else signal.SIGSTOP)
            time.sleep(SETTLE_S)

        yield go_on
    finally:
        process.kill()
        process.communicate()


def measure(model: Path, rounds: int) -> Row:
    """The row of one network."""
    usable = Cores.of().usable
    if len(usable) < 2:
        return Row(model.stem, problem="there is one core only")
    # Of one thread: a kernel that waits for a helper on the builder's core measures the scheduler, not the clock.
    target = replace(local_device().target(), cores=1)
    try:
        graph, candidates = candidates_of(model, target)
        ratios: dict[str, list[float]] = {}
        with builder(model, usable[1:]) as go_on, pin_main_thread():
            for bound, schedule in candidates:
                made = build_kernel(bound.workload, schedule, target)
                constants = made.pack([np.asarray(graph.constants[name]) for name in bound.constants])
                inputs, outputs = (
                    [tensor(np.zeros(value.physical_shape, value.dtype)) for value in values_of(bound.workload, kind)]
                    for kind in ("input", "output")
                )
                arguments = [*inputs, *map(tensor, constants), *outputs]
                kernel = JitKernel(made.function, target)
                ratios[bound.workload.label] = _compared(kernel, arguments, rounds, go_on)
    except AutofuseError as error:
        return Row(model.stem, problem=str(error))
    return row_of(model.stem, ratios)


def _compared(
    kernel: JitKernel, arguments: Sequence[object], rounds: int, go_on: Callable[[bool], None]
) -> list[float]:
    """A round each: the time of a block beside a build over that of one alone; who is first changes."""
    expected_s = kernel.block_seconds(arguments, 3, 1.0)
    calls = max(1, round(BLOCK_S / expected_s))
    found = []
    for number in range(rounds):
        seconds = {}
        for building in (number % 2 == 0, number % 2 == 1):
            go_on(building)
            seconds[building] = kernel.block_seconds(arguments, calls, expected_s)
        found.append(seconds[True] / seconds[False])
    return found


def row_of(network: str, ratios: dict[str, list[float]]) -> Row:
    """The row of what was measured: the ratios of each kernel's rounds."""
    every = [ratio for rounds in ratios.values() for ratio in rounds]
    whole = ratio_interval(every, np.ones(len(every)))
    medians = {label: float(np.median(rounds)) for label, rounds in ratios.items()}
    worst = max(medians, key=lambda label: medians[label])
    return Row(network, len(ratios), whole.median, whole.lo, whole.hi, medians[worst], worst)


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    lines = tables.head(("network", "kernels", "beside a build / alone", "kernel with the largest ratio"))
    for row in rows:
        if row.ratio is None:
            lines.append(tables.line([row.network, row.kernels, row.problem, ""]))
            continue
        ratio = f"{row.ratio:.3f} ({row.lo:.3f}-{row.hi:.3f})"
        lines.append(tables.line([row.network, row.kernels, ratio, f"{row.worst:.3f}: {row.worst_kernel}"]))
    return "\n".join(lines) + "\n"


TABLES = (Table("overlap", Row, ("network",), markdown),)


def main(arguments: Sequence[str] | None = None) -> int:
    """1 when a network could not be measured."""
    parser = new_parser("Timing beside a build against timing alone.", out="out/overlap")
    parser.add_argument("models", nargs="+", metavar="MODEL", help=HELP)
    parser.add_argument("--rounds", type=count, default=21, help="blocks of each kernel, beside a build and alone")
    options = parser.parse_args(arguments)
    rows = [measure(file, options.rounds) for file in asked_for(parser, options.models)]
    keep(TABLES[0], rows)
    print(tables.write_rows(options.out, rows, markdown(rows)))
    return int(any(row.problem for row in rows))
