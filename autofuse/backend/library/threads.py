"""How many threads TVM's pool uses for kernels called from the current thread, and where they sit.

TVM keeps one pool a calling thread, sized when it is first used. Here it is made as large as the machine
allows, each worker pinned to a core of its own, and then used as far as asked.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from autofuse.backend.library.runtime import global_function
from autofuse.errors import DeviceError, InputError

SPIN, SPIN_COUNT = "TVM_THREAD_POOL_SPIN_COUNT", "3000"
"""A worker of TVM's that has nothing to do asks so often for work, giving the core to whoever wants it in between, and
sleeps then: 2 ms, in which the next kernel of a call comes. By default it asks for 160 ms, and the program that called
us, and ONNX Runtime with its part of a model, find the core taken."""

_ONE_CORE_A_THREAD = -2
"""`kSpecifyOneCorePerThread` of TVM's thread pool."""

_CALLER = threading.local()
"""What the pool of each calling thread was last told (`cores`, `answer`: threads and the core to be held on).

It mirrors TVM's thread-local state.
"""


def configure_threads(threads: int) -> int | None:
    """Let kernels called from this thread run on `threads` threads.

    Returns the core to hold the calling thread on while it computes (see `held_on`); None when there is
    nothing to gain. Cheap when nothing changes. InputError when fewer CPUs are allowed to the process;
    DeviceError when the pool was already made smaller by somebody else.
    """
    known: tuple[int, int | None] | None = getattr(_CALLER, "answer", None)
    if known is not None and known[0] == threads:
        return known[1]
    cores = _cores()
    if not 1 <= threads <= len(cores):
        raise InputError(f"threads: got {threads}, this process may use 1 to {len(cores)}")
    _CALLER.answer = None
    _apply(threads, cores)
    core = cores[0] if threads > 1 and hasattr(os, "sched_setaffinity") else None
    _CALLER.answer = threads, core
    return core


def usable_threads() -> int:
    """Threads that kernels called from this thread can use at most."""
    return len(_cores())


@contextmanager
def held_on(core: int | None) -> Iterator[None]:
    """Keep the calling thread on `core`, and let it go afterwards.

    TVM pins its workers but not the caller, so both could share one core at half the speed. Nothing
    happens for None, or when the caller sits on one core already.
    """
    before = os.sched_getaffinity(0) if core is not None else set()
    if core is None or len(before) == 1:
        yield
        return
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _cores() -> tuple[int, ...]:
    """CPUs of this thread, as they were when it first asked: later it may be held on one of them."""
    if not hasattr(_CALLER, "cores"):
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        _CALLER.cores = tuple(sorted(allowed))
    cores: tuple[int, ...] = _CALLER.cores
    return cores


def _apply(threads: int, cores: tuple[int, ...]) -> None:
    os.environ.setdefault(SPIN, SPIN_COUNT)  # TVM reads it when the first worker of the process starts
    configure, count = global_function("runtime.config_threadpool"), global_function("runtime.NumThreads")
    pinnable = hasattr(os, "sched_setaffinity")
    before = os.sched_getaffinity(0) if pinnable else set()
    names = [str(core) for core in cores]
    configure(_ONE_CORE_A_THREAD, threads, names)
    started = int(count())
    if threads == 1:
        configure(_ONE_CORE_A_THREAD, 1, names[:1])  # a pool of one is skipped altogether
    if pinnable:
        os.sched_setaffinity(0, before)  # TVM moved the caller too
    if started < threads:
        raise DeviceError(
            f"threads: {threads} wanted, but TVM's pool of this thread was already started with {started}; "
            "load the library before other TVM code runs, or set TVM_NUM_THREADS"
        )
