"""What a call through the session costs above TVM's virtual machine, from Python and from C; and 8 threads at once.

    .venv/bin/python -m experiments session --out out/session

Both ways of calling are interleaved block by block, so that a busy machine disturbs both; what is printed is the
median of their differences with its 95 % interval. The networks compute next to nothing (`networks.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm_ffi

import autofuse
from autofuse.backend.c_interface import compiler_arguments
from autofuse.backend.library.compiled import Library
from autofuse.values.statistics import Interval, median_interval
from experiments.options import new_parser
from experiments.records import Table, keep
from experiments.session.cases import CASES

LIMIT_US = 20.0
THREADS = 8
IN_PYTHON = ("Python, aligned inputs", "Python, inputs to be copied", "Python, bound inputs and outputs")


@dataclass(frozen=True)
class Overhead:
    """Microseconds a call above the virtual machine's own call (`machine_us`), by the way of calling."""

    network: str
    way: str
    machine_us: float
    above_us: Interval


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a promise is broken."""
    parser = new_parser(__doc__, out="out/session")
    parser.add_argument("--blocks", type=int, default=3000)
    parser.add_argument("--calls", type=int, default=5, help="calls a block: so few that most blocks are left in peace")
    parser.add_argument("--thread-calls", type=int, default=10_000, help="calls of each of the eight threads")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[Overhead] = []
    for name, make in CASES.items():
        path = compiled(make(), given.out / f"{make.__name__}.so")
        rows += measured_in_python(name, path, given.blocks, given.calls)
        rows.append(measured_in_c(name, path, given.out / "overhead", given.blocks, given.calls))
    _tell(markdown(rows))
    keep(TABLES[0], rows)
    different = calls_that_differ(given.out / "small.so", given.thread_calls)
    _tell(f"{THREADS} threads x {given.thread_calls:,} calls: {different} results differ")
    slow = [row for row in rows if "aligned" in row.way and row.above_us.lo > LIMIT_US]
    return 1 if slow or different else 0


def compiled(model: onnx.ModelProto, path: Path) -> Path:
    """The library of a model, by the fixed rules: nothing is measured."""
    source = path.with_suffix(".onnx")
    onnx.save(model, source)
    autofuse.compile(source, path, database=str(path.with_name("nothing-known.db")), threads=1)
    return path


def measured_in_python(name: str, path: Path, blocks: int, calls: int) -> list[Overhead]:
    """Inputs aligned to 64 bytes, which are read where they lie, also bound with the outputs (as ONNX Runtime's
    `io_binding` has it); and inputs that have to be copied first."""
    session = autofuse.Session(path, threads=1)
    aligned = session.empty_inputs()
    unaligned = {key: _moved(array) for key, array in aligned.items()}
    binding = session.io_binding()
    for key, array in aligned.items():
        binding.bind_cpu_input(key, array)
    for one in session.get_outputs():
        binding.bind_output(one.name)
    library = session._library  # the machine's own function is nothing that a user needs
    assert isinstance(library, Library), "one library, and no parts"
    machine = library._entries()[0]
    bound = [*(tvm_ffi.from_dlpack(array) for array in aligned.values()), *library._weights[0]]
    ways: list[Callable[[], object]] = [
        lambda: machine(*bound),
        lambda: session.run(None, aligned),
        lambda: session.run(None, unaligned),
        lambda: session.run_with_iobinding(binding),
    ]
    times = np.array([_interleaved(ways, block, calls) for block in range(blocks + 1)])[1:]  # the first warms up
    return [
        Overhead(name, way, float(np.median(times[:, 0])), median_interval(times[:, place] - times[:, 0]))
        for place, way in enumerate(IN_PYTHON, 1)
    ]


def _moved(array: np.ndarray) -> np.ndarray:
    """The array at an address that is no multiple of 64."""
    block = np.zeros(array.nbytes + 128, np.uint8)
    start = -block.__array_interface__["data"][0] % 64 + 16
    moved = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def _interleaved(ways: Sequence[Callable[[], object]], block: int, calls: int) -> list[float]:
    """Microseconds a call of each way, measured in an order that changes from block to block."""
    found = [0.0] * len(ways)
    for step in range(len(ways)):
        place = (block + step) % len(ways)
        call = ways[place]
        start = time.perf_counter()
        for _ in range(calls):
            call()
        found[place] = (time.perf_counter() - start) / calls * 1e6
    return found


def measured_in_c(name: str, path: Path, program: Path, blocks: int, calls: int) -> Overhead:
    """The same from C: `af_run` against the machine's function with everything bound (`overhead.c`)."""
    source = Path(__file__).with_name("overhead.c")
    libraries = [argument for argument in compiler_arguments() if not argument.endswith(".c")]
    subprocess.run(["gcc", "-O2", str(source), *libraries, "-o", str(program)], check=True, timeout=60)
    command = [str(program), str(path), str(blocks), str(calls)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    times = np.array([[float(word) for word in line.split()] for line in done.stdout.splitlines()])
    above = median_interval(times[:, 1] - times[:, 0])
    return Overhead(name, "C, aligned inputs", float(np.median(times[:, 0])), above)


def calls_that_differ(path: Path, calls: int) -> int:
    """How many of the calls of eight threads give another result, bit by bit, than one thread alone."""
    session = autofuse.Session(path, threads=1)
    random = np.random.default_rng(0)
    feeds = []
    for _ in range(THREADS):
        feed = session.empty_inputs()
        for array in feed.values():
            array[...] = random.standard_normal(array.shape)
        feeds.append((feed, [array.tobytes() for array in session.run(None, feed)]))
    different = [0] * THREADS
    start = threading.Barrier(THREADS)

    def work(number: int) -> None:
        feed, right = feeds[number]
        start.wait()
        for _ in range(calls):
            different[number] += [array.tobytes() for array in session.run(None, feed)] != right

    workers = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(different)


def markdown(rows: Sequence[Overhead]) -> str:
    """The table of the README."""
    lines = ["| network | called from | machine alone, µs | above it, µs | 95 % interval |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.network} | {row.way} | {row.machine_us:.1f} | {row.above_us.median:.1f} "
        f"| {row.above_us.lo:.1f}–{row.above_us.hi:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def _tell(line: str) -> None:
    sys.stdout.write(line + os.linesep)
    sys.stdout.flush()


def _row(**cells: Any) -> Overhead:
    """A row as it was kept."""
    return Overhead(**{**cells, "above_us": Interval(**cells["above_us"])})


TABLES = (Table("session", _row, ("network", "way"), markdown),)
