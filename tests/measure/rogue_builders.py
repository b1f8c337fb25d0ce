"""Builders that child processes import by path: the schedule's "act" says how they (mis)behave.

The workload of `doubling_workload` is y = 2 x + c over float32 tensors of one length.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HANG_STEPS = 1 << 60


def build(workload: Any, schedule: Mapping[str, Any], target: Any) -> Any:
    """A kernel for the workload, or the accident that schedule["act"] names."""
    act = schedule.get("act", "good")
    accident = ACCIDENTS.get(act)
    if accident is not None:
        accident()
    if act == "killed_once" and not Path(schedule["mark"]).exists():
        Path(schedule["mark"]).touch()
        _killed()
    size = workload.values[0].shape[0]
    return SimpleNamespace(function=_function(size, act, int(schedule.get("work", 1))), pack=list)


def _function(size: int, act: str, work: int) -> Any:
    from tvm import tirx
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as ib

    with IRBuilder() as builder, ib.prim_func(s_tir=True):
        ib.func_name("main")
        x = ib.arg("x", ib.buffer((size,), "float32"))
        c = ib.arg("c", ib.buffer((size,), "float32"))
        y = ib.arg("y", ib.buffer((size,), "float32"))
        steps = HANG_STEPS if act == "hang_run" else work
        with ib.serial(0, steps) as step, ib.serial(0, size - 1 if act == "unwritten" else size) as index:
            factor = 2.5 if act == "wrong" else 2.0
            value = x[index] * tirx.const(factor, "float32") + c[index]
            if steps > 1:  # reads y after the first step, so that no step can be left out
                value = tirx.Select(
                    step > 0, y[index] * tirx.const(0.5, "float32") + value * tirx.const(0.5, "float32"), value
                )
            if act == "nan":
                value = value + tirx.const(float("nan"), "float32")
            target = index + tirx.const(1 << 40, "int64") if act == "crash_run" else index
            ib.buffer_store(y, value, [target])
            if act == "writes_input":
                ib.buffer_store(x, tirx.const(7.0, "float32"), [index])
    return builder.get()


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _killed() -> None:
    """As the system does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def _exit() -> None:
    os._exit(3)


def _sleep() -> None:
    time.sleep(3600)


def _stubborn() -> None:
    """Hang in native code that holds the interpreter's lock."""
    sum(range(1 << 62))


def _grandchild() -> None:
    """Start a process of its own, then hang: the whole group has to go."""
    import subprocess

    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    time.sleep(3600)


def _hog_numpy() -> None:
    import numpy as np

    kept = []
    while True:
        kept.append(np.empty(1 << 24))


def _raise() -> None:
    raise ValueError("tile 7 does not divide 12")


def _garbage() -> None:
    """Write to every pipe there is, also the private copy of standard output."""
    for descriptor in range(3, 12):
        try:
            os.write(descriptor, b"Segmentation fault (core dumped)\n")
        except OSError:
            continue


def _chatter() -> None:
    """Print far more than a pipe holds, to both streams."""
    for _ in range(200):
        os.write(1, b"x" * 4096)
        sys.stderr.write("y" * 4096)


ACCIDENTS = {
    "crash_build": _crash,
    "killed": _killed,
    "exit_build": _exit,
    "hang_build": _sleep,
    "stubborn_build": _stubborn,
    "grandchild": _grandchild,
    "hog": _hog_numpy,
    "raise": _raise,
    "garbage": _garbage,
    "chatter": _chatter,
}
