"""The process whose memory is measured: `child.py onnxruntime|autofuse FILE INPUTS.npz THREADS RUNS` prints JSON.

Bytes of resident memory: after the runtime is imported, after the model is loaded, at the highest point of loading and
running, and at the highest point of running alone (the kernel's counter is reset in between). Linux only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def resident(name: str) -> int:
    """`VmRSS` (now) or `VmHWM` (the most so far) of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def forget_peak() -> None:
    """From now on `VmHWM` is the highest point since this call."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def opener(kind: str, path: str, threads: int) -> Any:
    """A function that loads the model and gives a function of its inputs by name; the runtime is imported here."""
    if kind == "onnxruntime":
        from autofuse.values.processes import switch_off_telemetry

        switch_off_telemetry()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 4

        def session() -> Any:
            made = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            return lambda feeds: made.run(None, feeds)

        return session
    from autofuse.backend.library.library import load

    return lambda: load(Path(path), threads)


def main() -> None:
    """Load, run, report."""
    kind, path, inputs, threads, runs = sys.argv[1:]
    with np.load(inputs) as file:
        feeds = dict(file)
    load = opener(kind, path, int(threads))
    imported = resident("VmRSS")
    run = load()
    loaded, peak = resident("VmRSS"), resident("VmHWM")
    forget_peak()
    for _ in range(int(runs)):
        run(feeds)
    running = resident("VmHWM")
    print(json.dumps({"imported": imported, "loaded": loaded, "running": running, "peak": max(peak, running)}))


if __name__ == "__main__":
    main()
