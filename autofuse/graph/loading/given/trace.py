"""Traces of open sizes: how many calls had which sizes, as a file of columns under the sizes' names and "calls"."""

from __future__ import annotations

import csv
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.values.arguments import whole_number
from autofuse.values.outputs import Kind, read_text, write_output

CALLS = "calls"
Point = tuple[int, ...]
"""A value of each size."""


def _is_trace(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline(1 << 10).rstrip(b"\r\n").endswith(f",{CALLS}".encode())


TRACE = Kind("a trace of sizes", _is_trace)


class SizeCounter:
    """How many calls had which sizes, of such `names`; several threads may count at a time."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self._counts: Counter[Point] = Counter()
        self._lock = threading.Lock()

    def add(self, *sizes: int) -> None:
        """One more call."""
        with self._lock:
            self._counts[sizes] += 1

    @property
    def counts(self) -> dict[int | Point, int]:
        """Calls by size, the smallest first; by all sizes where there are several."""
        return {sizes[0] if len(sizes) == 1 else sizes: calls for sizes, calls in self._counted()}

    def _counted(self) -> list[tuple[Point, int]]:
        with self._lock:
            return sorted(self._counts.items())

    def write(self, path: Path) -> None:
        """Writes the trace, over an older one as well. InputError where that cannot be."""
        rows = ((*sizes, calls) for sizes, calls in self._counted())
        lines = [",".join(map(str, row)) for row in ((*self.names, CALLS), *rows)]
        write_output(path, "\n".join(lines) + "\n", TRACE, option="trace")


def read_trace(path: Path, *sizes: OpenSize) -> dict[Point, int]:
    """Calls by sizes. InputError for what is no trace of `sizes`, or holds one outside of its range."""
    names = [size.name for size in sizes]
    try:
        first, *lines = list(csv.reader(read_text(path).splitlines())) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        raise InputError(f"--trace: {path}: {error}") from error
    if first not in ([*names, CALLS], names):
        shown, known = ",".join(first), ",".join(names)
        raise InputError(f"--trace: {path} begins with {shown!r:.100}, allowed: {known},{CALLS} or {known}")
    found: Counter[Point] = Counter()
    for number, line in enumerate(lines, 2):
        values = [whole_number(text.strip()) for text in line]
        if not line:
            continue
        if len(values) != len(first) or any(value is None or value < 1 for value in values):
            raise InputError(f"--trace: {path}, line {number}: got {','.join(line)!r:.100}, allowed: {','.join(first)}")
        *point, calls = [value or 0 for value in (*values, 1)][: len(sizes) + 1]
        for size, count in zip(sizes, point, strict=True):
            if not size.low <= count <= size.high:
                raise InputError(f"--trace: {path}, line {number}: {size.name} is {count}, --sizes has {size}")
        found[tuple(point)] += calls
    if not found:
        raise InputError(f"--trace: {path} has no calls")
    return dict(sorted(found.items()))


def shares(sizes: Sequence[OpenSize], trace: Mapping[Point, int] | None) -> dict[Point, float]:
    """Sizes that stand for ranges, and which part of all calls each is: those of a trace, or all drawn ones alike."""
    counts = dict.fromkeys(product(*(size.drawn() for size in sizes)), 1) if trace is None else trace
    total = sum(counts.values())
    return {point: calls / total for point, calls in counts.items()}
