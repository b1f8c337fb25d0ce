"""The process that is called at many sizes: `calls.py onnxruntime|autofuse FILE THREADS INPUTS.npz ...` prints JSON.

The memory of `experiments.memory.child`, and seconds of the first and of the second call at each size, in turn.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.memory.child import forget_peak, opener, resident


def main(kind: str, path: str, threads: str, *inputs: str) -> None:
    """Load, call, report."""
    load = opener(kind, path, int(threads))
    run = load()
    peak = resident("VmHWM")
    forget_peak()
    calls = []
    for file in inputs:
        with np.load(file) as arrays:
            feeds = dict(arrays)
        calls.append([_seconds(run, feeds), _seconds(run, feeds)])
    running = resident("VmHWM")
    print(json.dumps({"running": running, "peak": max(peak, running), "calls": calls}))


def _seconds(run: Any, feeds: Mapping[str, Any]) -> float:
    began = time.perf_counter()
    run(feeds)
    return time.perf_counter() - began


if __name__ == "__main__":
    main(*sys.argv[1:])
