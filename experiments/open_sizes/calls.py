"""The process that is called at many sizes: `calls.py onnxruntime|autofuse FILE THREADS INPUTS.npz ...` prints JSON.

The memory of `experiments.memory.child`, and of the first and of the second call at each size, in turn, the seconds and
the pages that they touched first; then the same once more (`again`), when all sizes came before. Each pair of calls
follows one of another size, so that reading a file is not what the first one pays for.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.memory.child import forget_peak, opener, resident


def main(kind: str, path: str, threads: str, *inputs: str) -> None:
    """Load, call, report."""
    load = opener(kind, path, int(threads))
    run = load()
    peak = resident("VmHWM")
    forget_peak()
    calls = _pairs(run, inputs)
    running = resident("VmHWM")
    again = _pairs(run, inputs)
    print(json.dumps({"running": running, "peak": max(peak, running), "calls": calls, "again": again}))


def _pairs(run: Any, inputs: Sequence[str]) -> list[list[float]]:
    """Of each file of inputs: seconds of the first and of the second call, and pages of both."""
    found, before = [], None
    for file in inputs:
        with np.load(file) as arrays:
            feeds = dict(arrays)
        if before is not None:
            run(before)
        first, second = _call(run, feeds), _call(run, feeds)
        found.append([first[0], second[0], first[1], second[1]])
        before = feeds
    return found


def _call(run: Any, feeds: Mapping[str, Any]) -> tuple[float, int]:
    """Seconds, and how many pages had to be found for this process."""
    pages, began = _pages(), time.perf_counter()
    run(feeds)
    seconds = time.perf_counter() - began
    return seconds, _pages() - pages


def _pages() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


if __name__ == "__main__":
    main(*sys.argv[1:])
