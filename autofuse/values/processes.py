"""Processes of ours: without telemetry, with this package on their path, ended with their parent, within limits.

autofuse itself has no telemetry. ONNX Runtime from 1.29 on writes a device identifier and a queue of events to the
user's cache, and uploads them from a thread of its own, unless its variable holds 1 (or another word; empty and 0 do
not count) when it is imported.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SWITCHED_OFF: Mapping[str, str] = {"ORT_DISABLE_TELEMETRY": "1"}
"""Environment variables of this process and of all its children."""
LOST_PARENT = 77
"""The exit code of a process whose parent is gone."""
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1


def switch_off_telemetry() -> None:
    """Set the variables here; before any import of ONNX Runtime, and so in `autofuse/__init__.py`."""
    os.environ.update(SWITCHED_OFF)


def child_environment(extra: Mapping[str, str] | None = None, paths: Iterable[Path] = ()) -> dict[str, str]:
    """The environment of a child: this process's and `extra`, in which Python finds autofuse and `paths` first."""
    inherited = os.environ.get("PYTHONPATH")
    search = [str(_PACKAGE_ROOT), *map(str, paths), *([inherited] if inherited else [])]
    return {**os.environ, **(extra or {}), **SWITCHED_OFF, "PYTHONPATH": os.pathsep.join(search)}


def follow_parent(parent: int | None) -> None:
    """Die with the parent, even while native code holds the interpreter's lock (Linux).

    `parent`: its process id when this one was started (None: not known); at once where that is gone already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:
            os._exit(LOST_PARENT)


def lower_limit(which: int, most: int) -> None:
    """Set one of this process's limits to `most`, for good; one that is lower stays as it is."""
    lowest = _lowest(which, most)
    resource.setrlimit(which, (lowest, lowest))


def default_memory(workers: int) -> int:
    """An equal share for each worker of 80 % of the machine's memory; no more than this process itself may take."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _lowest(resource.RLIMIT_DATA, int(total * 0.8) // max(1, workers))


@contextmanager
def processor_limit(seconds: float) -> Iterator[None]:
    """What is done here ends the process (SIGXCPU) after so many seconds of processor time, even in native code."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    before, hard = resource.getrlimit(resource.RLIMIT_CPU)
    wanted = math.ceil(used.ru_utime + used.ru_stime + seconds)
    most = _lowest(resource.RLIMIT_CPU, wanted)
    resource.setrlimit(resource.RLIMIT_CPU, (most, hard))  # at the hard one a process is killed without a reason
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (before, hard))


def _lowest(which: int, most: int) -> int:
    return min([most, *(limit for limit in resource.getrlimit(which) if limit != resource.RLIM_INFINITY)])
