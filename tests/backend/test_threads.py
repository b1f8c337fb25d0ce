"""How many threads kernels use, and where the calling thread sits; each in a process of its own, with a fresh pool."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from autofuse.backend.library.threads import SPIN, held_on

HEAD = """
import os, tvm
from autofuse.backend.library.threads import configure_threads, held_on, usable_threads
from autofuse.errors import DeviceError, InputError
count = tvm.get_global_func("runtime.NumThreads")
allowed = os.sched_getaffinity(0)
"""

several = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")


def run(code: str, environment: dict[str, str] | None = None) -> None:
    given = {key: value for key, value in os.environ.items() if key not in ("TVM_NUM_THREADS", SPIN)}
    done = subprocess.run(
        [sys.executable, "-c", HEAD + code], env={**given, **(environment or {})}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@several
def test_threads_go_up_and_down_and_the_caller_is_not_moved() -> None:
    run("""
for threads in (1, 2, 1, 2):
    core = configure_threads(threads)
    assert count() == threads, (count(), threads)
    assert os.sched_getaffinity(0) == allowed
    assert core == (None if threads == 1 else min(allowed))
""")


@several
def test_workers_are_pinned_to_cores_other_than_the_callers() -> None:
    run("""
from pathlib import Path
core = configure_threads(2)
own = os.getpid()
others = [os.sched_getaffinity(int(task.name)) for task in Path("/proc/self/task").iterdir() if int(task.name) != own]
pinned = [cores for cores in others if len(cores) == 1]
assert pinned and all(core not in cores for cores in pinned), others
""")


@several
def test_an_idle_worker_soon_leaves_its_core_to_others() -> None:
    """By default TVM's asks for work 300,000 times before it sleeps, which is 0.1 s of processor time and more."""
    run("""
import time
from pathlib import Path
threads = {int(task.name) for task in Path("/proc/self/task").iterdir()}
configure_threads(2)
(worker,) = {int(task.name) for task in Path("/proc/self/task").iterdir()} - threads
state = Path(f"/proc/self/task/{worker}/stat")
while state.read_text().rpartition(")")[2].split()[0] != "S":
    time.sleep(0.01)
ran_ns = int(Path(f"/proc/self/task/{worker}/schedstat").read_text().split()[0])
assert ran_ns < 50_000_000, ran_ns
""")


@several
def test_whoever_set_how_long_workers_look_for_work_is_heard() -> None:
    run('configure_threads(2); assert os.environ["TVM_THREAD_POOL_SPIN_COUNT"] == "7"', {SPIN: "7"})


@several
def test_a_pool_that_was_started_too_small_is_named() -> None:
    run(
        """
assert count() == 1
os.sched_setaffinity(0, allowed)  # starting the pool moved the caller
try:
    configure_threads(2)
except DeviceError as error:
    assert "TVM_NUM_THREADS" in str(error)
else:
    raise AssertionError("expected a DeviceError")
""",
        {"TVM_NUM_THREADS": "1"},
    )


def test_impossible_numbers_are_refused_with_the_allowed_ones() -> None:
    run("""
for threads in (0, -1, len(allowed) + 1):
    try:
        configure_threads(threads)
    except InputError as error:
        assert f"1 to {usable_threads()}" in str(error)
    else:
        raise AssertionError(threads)
""")


def test_the_caller_is_held_for_a_while_only() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(KeyError), held_on(min(before)):
        assert os.sched_getaffinity(0) == {min(before)}
        raise KeyError
    assert os.sched_getaffinity(0) == before
    with held_on(None):
        assert os.sched_getaffinity(0) == before


@several
def test_a_parallel_kernel_is_right_on_every_number_of_threads() -> None:
    run("""
import numpy as np
from tvm import s_tir, te
a = te.placeholder((64, 256), name="a")
b = te.compute((64, 256), lambda i, j: a[i, j] * 2 + 1, name="b")
schedule = s_tir.Schedule(te.create_prim_func([a, b]).with_attr("global_symbol", "main"))
schedule.parallel(schedule.get_loops(schedule.get_sblock("b"))[0])
kernel = tvm.compile(schedule.mod, target=tvm.target.Target({"kind": "llvm"})).jit()["main"]
x = np.random.default_rng(0).standard_normal((64, 256)).astype("float32")
for threads in (2, 1, 2):
    with held_on(configure_threads(threads)):
        out = tvm.runtime.tensor(np.zeros((64, 256), "float32"))
        kernel(tvm.runtime.tensor(x), out)
        np.testing.assert_allclose(out.numpy(), x * 2 + 1, rtol=1e-6)
""")
