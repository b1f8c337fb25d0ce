"""Traces of open sizes: how many calls had which sizes, as a file of columns under the sizes' names and "calls"."""

from __future__ import annotations

import csv
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Trace:
    """A trace of sizes of such `names`. `rows`: a value of each, and how many calls had these. `file`: its name."""

    names: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    file: str = ""

    def of(self, sizes: Sequence[OpenSize]) -> dict[Point, int]:
        """Calls by these sizes, whatever the others were. InputError for one that it does not have."""
        for size in sizes:
            if size.name not in self.names:
                raise InputError(f"--trace: it has no {size.name!r}, only {', '.join(self.names)}")
        places, found = [self.names.index(size.name) for size in sizes], Counter[Point]()
        for *point, calls in self.rows:
            found[tuple(point[place] for place in places)] += calls
        return dict(sorted(found.items()))

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Trace:
        """The inverse of `dataclasses.asdict`, whose tuples JSON makes lists."""
        return cls(tuple(body["names"]), tuple(map(tuple, body["rows"])), body["file"])


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


def read_trace(path: Path, *sizes: OpenSize) -> Trace:
    """A trace of these sizes. InputError for what is no trace of `sizes`, or holds one outside of its range."""
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
        if len(values) != len(first) or None in values or (len(values) > len(sizes) and not values[-1]):
            raise InputError(f"--trace: {path}, line {number}: got {','.join(line)!r:.100}, allowed: {','.join(first)}")
        *point, calls = [value or 0 for value in (*values, 1)][: len(sizes) + 1]
        for size, count in zip(sizes, point, strict=True):
            if not size.low <= count <= size.high:
                raise InputError(f"--trace: {path}, line {number}: {size.name} is {count}, --sizes has {size}")
        found[tuple(point)] += calls
    if not found:
        raise InputError(f"--trace: {path} has no calls")
    return Trace(tuple(names), tuple((*point, calls) for point, calls in sorted(found.items())), str(path))


def shares(sizes: Sequence[OpenSize], trace: Trace | None) -> dict[Point, float]:
    """Sizes that stand for ranges, and which part of all calls each is: those of a trace, or all drawn ones alike."""
    counts = dict.fromkeys(product(*(size.drawn() for size in sizes)), 1) if trace is None else trace.of(sizes)
    total = sum(counts.values())
    return {point: calls / total for point, calls in counts.items()}
