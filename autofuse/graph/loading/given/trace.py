"""Traces of open sizes: how many calls had which sizes, as a file of columns under the sizes' names and "calls"."""

from __future__ import annotations

import csv
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.values.arguments import whole_number
from autofuse.values.outputs import Kind, read_text, write_output

CALLS = "calls"


def _is_trace(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline(1 << 10).rstrip(b"\r\n").endswith(f",{CALLS}".encode())


TRACE = Kind("a trace of sizes", _is_trace)


class SizeCounter:
    """How many calls had which sizes, of such `names`; several threads may count at a time."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._lock = threading.Lock()

    def add(self, *sizes: int) -> None:
        """One more call."""
        with self._lock:
            self._counts[sizes] += 1

    @property
    def counts(self) -> dict[int | tuple[int, ...], int]:
        """Calls by size, the smallest first; by all sizes where there are several."""
        with self._lock:
            counted = sorted(self._counts.items())
        return {sizes[0] if len(sizes) == 1 else sizes: calls for sizes, calls in counted}

    def write(self, path: Path) -> None:
        """Writes the trace, over an older one as well. InputError where that cannot be."""
        with self._lock:
            counted = sorted(self._counts.items())
        lines = [",".join((*self.names, CALLS)), *(",".join(map(str, (*sizes, calls))) for sizes, calls in counted)]
        write_output(path, "\n".join(lines) + "\n", TRACE, option="trace")


def read_trace(path: Path, size: OpenSize) -> dict[int, int]:
    """Calls by size. InputError for what is no trace of `size`, or holds one outside of its range."""
    try:
        first, *lines = list(csv.reader(read_text(path).splitlines())) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        raise InputError(f"--trace: {path}: {error}") from error
    if first not in ([size.name, CALLS], [size.name]):
        shown = ",".join(first)
        raise InputError(f"--trace: {path} begins with {shown!r:.100}, allowed: {size.name},{CALLS} or {size.name}")
    found: Counter[int] = Counter()
    for number, line in enumerate(lines, 2):
        values = [whole_number(text.strip()) for text in line]
        if not line:
            continue
        if len(values) != len(first) or any(value is None or value < 1 for value in values):
            raise InputError(f"--trace: {path}, line {number}: got {','.join(line)!r:.100}, allowed: {','.join(first)}")
        count, calls = [value or 0 for value in (*values, 1)][:2]
        if not size.low <= count <= size.high:
            raise InputError(f"--trace: {path}, line {number}: {size.name} is {count}, --sizes has {size}")
        found[count] += calls
    if not found:
        raise InputError(f"--trace: {path} has no calls")
    return dict(sorted(found.items()))


def shares(size: OpenSize, trace: Mapping[int, int] | None) -> dict[int, float]:
    """Sizes that stand for a range, and which part of all calls each is: those of a trace, or all drawn ones alike."""
    counts = dict.fromkeys(size.drawn(), 1) if trace is None else trace
    total = sum(counts.values())
    return {count: calls / total for count, calls in counts.items()}
