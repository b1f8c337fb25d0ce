"""The runner with real child processes, whose builders and kernels misbehave on demand."""

import os
import signal
import time
from typing import ClassVar

import psutil
import pytest

from autofuse.backend.compile.objects import KernelObjects
from autofuse.errors import DeviceError
from autofuse.measure.children.process import available_cores
from autofuse.measure.local_runner import LocalRunner
from autofuse.measure.measurement import Failure, Limits, Measurement
from autofuse.measure.timing.cores import Cores
from autofuse.measure.timing.sampling import SamplingPolicy
from tests.measure.runner_contract import RunnerContract, outcome, shortened

pytestmark = pytest.mark.slow

SLEEPER = "import time; time.sleep(3600)"  # what `grandchild` starts
QUICK = SamplingPolicy(cap_s=0.3)
SHORT = Limits(build_s=120, run_s=120, memory_bytes=600 << 20)


@pytest.fixture(scope="module")
def runner(target, rogues, tmp_path_factory):
    """One runner for most tests: that it goes on working after each accident is part of what they show."""
    lock = tmp_path_factory.mktemp("lock") / "measure.lock"
    with LocalRunner(target, workers=2, limits=SHORT, policy=QUICK, lock=lock, **rogues) as made:
        yield made


class TestLocalRunner(RunnerContract):
    """What every runner must do; the `runner` of this module does it."""


@pytest.mark.parametrize(
    ("act", "kind", "says"),
    [
        ("exit_build", "build_error", "exited with code 3"),
        ("garbage", "build_error", "wrote garbage"),
        ("nan", "wrong", "nan at"),
        ("hog", "out_of_memory", "memory"),
    ],
)
def test_an_accident_becomes_a_failure_that_says_what_happened(runner, ask, act, kind, says):
    failure = runner.measure([ask(act)])[0].failure
    assert failure is not None
    assert failure.kind == kind
    assert says in failure.message


def test_a_child_that_prints_a_lot_is_no_trouble(runner, ask):
    assert outcome(runner.measure([ask("chatter")])[0]) == "ok"


def test_the_limit_of_the_request_replaces_the_default(runner, ask):
    assert outcome(runner.measure([ask("wrong")])[0]) == "wrong"
    assert outcome(runner.measure([ask("wrong", limit=1.0)])[0]) == "ok"


def test_a_build_that_hears_nothing_is_ended(runner, ask):
    with shortened(runner, build_s=1.0):
        failure = runner.measure([ask("stubborn_build")])[0].failure
    assert failure is not None
    assert (failure.kind, "1 s" in failure.message) == ("timeout", True)


@pytest.mark.long
def test_a_build_that_takes_more_processor_time_than_it_may_is_ended(runner, ask):
    with shortened(runner, build_cpu_s=1.0):
        failure = runner.measure([ask("stubborn_build")])[0].failure
    assert failure is not None
    assert (failure.kind, failure.message) == ("timeout", "it took more processor time than it may")
    assert outcome(runner.measure([ask()])[0]) == "ok"


def test_a_hung_build_takes_its_own_children_with_it(runner, ask):
    with shortened(runner, build_s=2.0):
        assert outcome(runner.measure([ask("grandchild")])[0]) == "timeout"
    deadline = time.monotonic() + 300.0  # other suites on this machine may have theirs
    while any(SLEEPER in (process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
def test_results_come_one_by_one_and_an_abandoned_batch_leaves_no_child(target, rogues, ask, tmp_path):
    with LocalRunner(target, workers=2, limits=SHORT, policy=QUICK, lock=tmp_path / "lock", **rogues) as runner:
        stream = runner.stream([ask("raise"), ask(), ask()])
        index, measured = next(stream)
        assert (index, outcome(measured)) == (0, "build_error")
        children = runner.processes()
        assert children
        stream.close()
        assert not any(psutil.pid_exists(child) for child in children)
        assert outcome(runner.measure([ask()])[0]) == "ok"


def test_equal_code_is_compiled_once_and_its_object_kept(target, rogues, ask, tmp_path):
    """Both children find it: the schedules differ in a knob that changes nothing."""
    kept = KernelObjects(tmp_path / "objects", target)
    with LocalRunner(target, workers=2, policy=QUICK, lock=tmp_path / "lock", objects=kept.folder, **rogues) as runner:
        first, *others = [runner.measure([ask(mark=str(number))])[0] for number in range(3)]
    assert [outcome(measured) for measured in (first, *others)] == ["ok"] * 3
    assert {measured.code for measured in others} == {first.code}
    assert kept.has(first.code)
    assert len(list(kept.folder.iterdir())) == 1


TWO_CORES = pytest.mark.skipif(available_cores() < 2, reason="one core builds or times")


@pytest.mark.long
def test_a_time_that_settles_something_may_take_longer(target, rogues, ask, tmp_path):
    """No slice is good, so both candidates are timed until their time is over."""
    policy = SamplingPolicy(cap_s=0.2, waited_limit=-1.0, patient=True)
    took_s = []
    with LocalRunner(target, workers=1, policy=policy, lock=tmp_path / "lock", **rogues) as runner:
        for request in (ask(mark="a"), ask(mark="b", undisturbed=True)):
            (measured,) = runner.measure([request])
            assert measured.timing.stopped == "time"
            took_s.append(sum(piece.us * piece.calls for piece in measured.timing.slices) * 1e-6)
    assert took_s[0] < took_s[1]


@TWO_CORES
def test_a_candidate_is_timed_while_others_build(target, rogues, ask, tmp_path):
    """The first candidate's build hangs until the second one's time is there."""
    with LocalRunner(target, workers=2, limits=SHORT, policy=QUICK, lock=tmp_path / "lock", **rogues) as runner:
        stream = runner.stream([ask("hang_build"), ask()])
        index, measured = next(stream)
        assert (index, outcome(measured)) == (1, "ok")
        for child in runner.processes():
            os.kill(child, signal.SIGSEGV)
        assert [(index, outcome(measured)) for index, measured in stream] == [(0, "build_error")]


@TWO_CORES
def test_what_must_not_be_disturbed_is_timed_once_nothing_builds(target, rogues, ask, tmp_path):
    """The first candidate's build ends at its limit of processor time, long after the second is built."""
    with LocalRunner(target, workers=2, limits=SHORT, policy=QUICK, lock=tmp_path / "lock", **rogues) as runner:
        assert outcome(runner.measure([ask(), ask()])[0]) == "ok"  # both children are warm
        with shortened(runner, build_cpu_s=3.0):
            found = list(runner.stream([ask("stubborn_build"), ask(undisturbed=True)]))
    assert [(index, outcome(measured)) for index, measured in found] == [(0, "timeout"), (1, "ok")]


@TWO_CORES
def test_a_core_is_kept_for_the_timing_and_freed_after_it(target, rogues, ask, tmp_path):
    class Watched(Cores):
        seen: ClassVar[list[tuple[int, list[list[int]]]]] = []

        def keep_apart(self, timing, others):
            others = list(others)
            super().keep_apart(timing, others)
            self.seen.append(
                (psutil.Process(timing).cpu_affinity(), [psutil.Process(o).cpu_affinity() for o in others])
            )

    with LocalRunner(target, workers=2, policy=QUICK, lock=tmp_path / "lock", **rogues) as runner:
        runner._cores = Watched(runner._cores.usable)
        assert [outcome(measured) for measured in runner.measure([ask(work=n) for n in range(1, 5)])] == ["ok"] * 4
        assert all(psutil.Process(pid).cpu_affinity() == list(runner._cores.usable) for pid in runner.processes())
    core, *spare = Watched(runner._cores.usable).usable
    assert len(Watched.seen) == 4
    assert all(timing == [core] and all(other == spare for other in others) for timing, others in Watched.seen)
    assert any(others for _, others in Watched.seen)


@pytest.mark.long
def test_a_worker_is_replaced_after_its_share_of_candidates(target, rogues, ask, tmp_path):
    limits = Limits(candidates=1)
    with LocalRunner(target, workers=1, limits=limits, policy=QUICK, lock=tmp_path / "lock", **rogues) as runner:
        seen = set()
        for _ in range(2):
            assert outcome(runner.measure([ask()])[0]) == "ok"
            seen.update(runner.processes())
        assert len(seen) == 2


@pytest.mark.long
def test_a_worker_that_died_while_idle_is_replaced(target, rogues, ask, tmp_path):
    with LocalRunner(target, workers=1, policy=QUICK, lock=tmp_path / "lock", **rogues) as runner:
        assert outcome(runner.measure([ask()])[0]) == "ok"
        (child,) = runner.processes()
        os.kill(child, 9)
        while psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        assert outcome(runner.measure([ask()])[0]) == "ok"
        assert child not in runner.processes()


def test_workers_that_never_start_make_the_device_lost(target, ask, tmp_path):
    limits = Limits(start_s=0.001)
    with LocalRunner(target, workers=1, limits=limits, lock=tmp_path / "lock") as runner:
        failures = [measured.failure for measured in runner.measure([ask(), ask()])]
    assert [failure.kind for failure in failures] == ["device_lost"] * 2
    assert "no worker process starts" in failures[0].message


def test_a_builder_that_cannot_be_imported_is_a_build_error(target, ask, tmp_path):
    with LocalRunner(target, workers=1, builder="no_such_module:build", lock=tmp_path / "lock") as runner:
        failure = runner.measure([ask()])[0].failure
    assert failure.kind == "build_error"
    assert "no_such_module" in failure.message


def test_an_interpreter_that_is_gone_raises_a_device_error(target, ask, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with LocalRunner(target, workers=1, lock=tmp_path / "lock") as runner, pytest.raises(DeviceError, match="python"):
        runner.measure([ask()])


def test_two_threads_are_used_when_asked_for(target, rogues, ask, tmp_path):
    with LocalRunner(target, threads=2, workers=1, policy=QUICK, lock=tmp_path / "lock", **rogues) as runner:
        (measured,) = runner.measure([ask()])
        assert outcome(measured) == "ok"
        assert measured.threads == 2
        (child,) = runner.processes()
        environment = psutil.Process(child).environ()
        assert environment["TVM_NUM_THREADS"] == "2"


@pytest.mark.long
def test_cold_constants_are_timed_too(target, rogues, ask, tmp_path):
    policy = SamplingPolicy(cap_s=0.3, cold_constants=True)
    with LocalRunner(target, workers=1, policy=policy, lock=tmp_path / "lock", **rogues) as runner:
        (measured,) = runner.measure([ask()])
    assert outcome(measured) == "ok"
    assert measured.median_us > 0.01


def test_a_measurement_is_exactly_one_of_time_and_failure():
    with pytest.raises(ValueError, match="exactly one"):
        Measurement()
    with pytest.raises(ValueError, match="expected one of build_error"):
        Failure("sad", "")


def test_kernels_run_on_the_cpus_that_are_named(target, rogues, ask, tmp_path):
    cpu = max(os.sched_getaffinity(0))
    with LocalRunner(target, workers=1, policy=QUICK, lock=tmp_path / "lock", cpus=(cpu,), **rogues) as runner:
        assert outcome(runner.measure([ask()])[0]) == "ok"
        (child,) = runner.processes()
        assert psutil.Process(child).cpu_affinity() == [cpu]
