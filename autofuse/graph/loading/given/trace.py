"""Traces of an open size: how many calls had which size, as a file of two columns under the size's name and "calls"."""

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
    """How many calls had which size; several threads may count at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._counts: Counter[int] = Counter()
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """One more call."""
        with self._lock:
            self._counts[size] += 1

    @property
    def counts(self) -> dict[int, int]:
        """Calls by size, the smallest first."""
        with self._lock:
            return dict(sorted(self._counts.items()))

    def write(self, path: Path) -> None:
        """Writes the trace, over an older one as well. InputError where that cannot be."""
        lines = [f"{self.name},{CALLS}", *(f"{size},{calls}" for size, calls in self.counts.items())]
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
