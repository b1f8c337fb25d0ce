import os
import subprocess
import sys

import numpy as np
import pytest

from autofuse.measure.timing.clock import Clock, waited_ns
from autofuse.values.ratios import FULL_CLOCK

linux = pytest.mark.skipif(sys.platform != "linux", reason="threads are pinned on Linux only")


def scripted(*seconds: float) -> Clock:
    times = iter(seconds)
    return Clock(lambda: next(times))


def test_full_clock_begins_as_the_third_best_probe_so_that_two_flukes_do_not_count():
    clock = scripted(1.0, 1.0, 1.0, 0.5, 0.6, 1.0, 2.0)
    clock.calibrate(5)
    assert clock.full_s == 1.0
    assert [clock.ratio() for _ in range(2)] == [1.0, pytest.approx(0.5, rel=1e-3)]


def test_before_it_was_calibrated_the_third_best_probe_is_full_clock():
    clock = scripted(1.0, 1.1, 1.2, 0.9, 0.8)
    assert [clock.ratio() for _ in range(5)][-1] == 1.0
    assert clock.full_s == 1.0


def test_a_real_gain_of_speed_is_believed_within_seconds_and_a_loss_only_within_minutes():
    faster, slower = Clock(lambda: 0.9), Clock(lambda: 1.1)
    for clock in (faster, slower):
        clock.inherit(1.0)
        for _ in range(1200):
            clock.ratio()
    assert faster.full_s == pytest.approx(0.9, rel=1e-3)
    assert slower.full_s == pytest.approx(1.0, rel=0.02)


def test_a_boost_that_one_probe_in_a_hundred_sees_is_not_what_the_others_are_held_against():
    """The best three of six thousand probes would be boosts."""
    random = np.random.default_rng(0)
    clock = Clock(lambda: 0.92 if random.random() < 0.01 else float(random.normal(1.0, 0.005)))
    clock.calibrate()
    ratios = [clock.ratio() for _ in range(6000)]
    assert np.mean([ratio >= FULL_CLOCK for ratio in ratios[1000:]]) > 0.99


def test_settling_waits_for_full_clock_but_not_for_ever():
    clock = scripted(1.0, 1.0, 1.0, 2.0, 2.0, 1.0)
    clock.calibrate(3)
    assert clock.settle(patience=5) == pytest.approx(1.0, rel=1e-3)
    slow = scripted(1.0, 1.0, 1.0, *[2.0] * 5)
    slow.calibrate(3)
    assert slow.settle(patience=5) == pytest.approx(0.5, rel=1e-3)


def test_another_process_hands_on_what_full_clock_is():
    first = scripted(0.5, 0.5, 0.5)
    first.calibrate(3)
    second = scripted(1.0)
    second.inherit(first.full_s)
    assert second.ratio() == pytest.approx(0.5, rel=1e-3)


def test_who_knows_nothing_of_full_clock_takes_nothing_from_another():
    clock = scripted(1.0, 1.1, 1.2)
    clock.calibrate(3)
    clock.inherit(0.0)
    assert clock.full_s == 1.2


PINNED_BESIDE_A_NEIGHBOUR = """
import os, threading
from autofuse.measure.timing.clock import pin_main_thread
allowed = os.sched_getaffinity(0)
ready, done = threading.Event(), threading.Event()
def neighbour():
    os.sched_setaffinity(0, {min(allowed)})
    ready.set()
    done.wait()
thread = threading.Thread(target=neighbour, daemon=True)
thread.start()
ready.wait()
with pin_main_thread() as core:
    assert os.sched_getaffinity(0) == {core}
    assert len(allowed) == 1 or core != min(allowed), core
done.set()
assert os.sched_getaffinity(0) == allowed
"""


@linux
def test_the_main_thread_is_pinned_beside_other_pinned_threads_and_freed_again():
    """In a process of its own: other tests' thread pools leave pinned threads behind in this one."""
    done = subprocess.run([sys.executable, "-c", PINNED_BESIDE_A_NEIGHBOUR], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@linux
def test_waiting_for_a_core_is_counted():
    """Two busy threads on one core: each waits about half of the time, the interpreter's lock aside."""
    allowed = os.sched_getaffinity(0)
    core = {min(allowed)}
    rival = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(rival.pid, core)
        os.sched_setaffinity(0, core)
        before = waited_ns()
        total = sum(range(20_000_000))
        assert total > 0
        assert waited_ns() - before > 20e6
    finally:
        os.sched_setaffinity(0, allowed)
        rival.kill()
        rival.wait()


LISTENER_BESIDE_A_WORKER = """
import os, threading, time
from autofuse.measure.timing.clock import listening, waited_ns
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
ready = threading.Event()
def busy(listens):
    if listens:
        listening()
    ready.set()
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        sum(range(1000))
def waited_beside(listens):
    ready.clear()
    thread = threading.Thread(target=busy, args=(listens,))
    thread.start()
    ready.wait()
    before = waited_ns()
    time.sleep(0.3)
    found = waited_ns() - before
    thread.join()
    return found
rival = os.fork()
if not rival:
    while True:
        pass
try:
    computing, listener = waited_beside(False), waited_beside(True)
finally:
    os.kill(rival, 9)
assert computing > 5 * listener, (computing, listener)
"""


@linux
def test_what_only_listens_may_wait_for_a_core_and_disturbs_no_timing():
    done = subprocess.run([sys.executable, "-c", LISTENER_BESIDE_A_WORKER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
