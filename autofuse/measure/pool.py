"""The local runner: builds and checks candidates in parallel children, then times them one at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from autofuse.device.description import DeviceDescription
from autofuse.device.profile import LOCAL
from autofuse.device.provenance import collect
from autofuse.device.target import Target
from autofuse.measure.children.codec import case_to_json, policy_to_json, target_to_json, timing_from_json
from autofuse.measure.children.messages import Message
from autofuse.measure.children.process import (
    TICK_S,
    Child,
    Reply,
    available_cores,
    default_memory,
    poll,
    wait,
)
from autofuse.measure.measurement import Failure, Left, Limits, Measurement, MeasureRequest, no_end
from autofuse.measure.networks.bench import Contender, ContenderResult, bench_contenders, outputs_of
from autofuse.measure.timing.lock import alone
from autofuse.measure.timing.race import InterleavingPolicy
from autofuse.measure.timing.sampling import SamplingPolicy

BUILDER = "autofuse.kernels.build:build_kernel"
WORKER = "autofuse.measure.children.worker"
HELD_PER_WORKER = 8
ATTEMPTS = 3
START_ATTEMPTS = 2
TIMING_TICK_S = 0.5
DEFAULT_LIMITS = Limits()
DEFAULT_POLICY, DEFAULT_ROUNDS = SamplingPolicy(), InterleavingPolicy()
Array = NDArray[np.generic]
SPIN, SPIN_COUNT = "TVM_THREAD_POOL_SPIN_COUNT", "3000"
"""Threads of a pool that waits for work give the core back after about 2 ms (TVM's default: 160 ms)."""
QUIET_S = 0.01
"""Pause before the timing phase, in which thread pools of the build phase stop spinning."""


@dataclass
class _Job:
    """One request on its way through a batch."""

    index: int
    request: MeasureRequest
    identity: int
    attempts: int = 0
    build_s: float | None = None
    code: str = ""
    error: float | None = None

    def failed(self, failure: Failure, threads: int, error: float | None = None) -> Measurement:
        return Measurement(failure=failure, build_s=self.build_s, max_rel_error=error, threads=threads, code=self.code)


@dataclass
class _Worker:
    """A child with what it is doing ("start", "build", "check" or nothing) and what it holds built."""

    child: Child
    doing: str = "start"
    job: _Job | None = None
    held: list[_Job] = field(default_factory=list)
    served: int = 0
    idle_bytes: int = 0


class LocalRunner:
    """See `autofuse.measure.runner.Runner`: measures candidates for one target on this machine.

    `threads`: of the timed kernels. `builder`: "package.module:function" with the signature of
    `autofuse.kernels.build.build_kernel`, imported in the children only. `workers`: children that build
    in parallel (default: one a core). `import_paths`: folders children search for the builder.
    `rounds`: how whole networks are timed. `cpus`: those that kernels run on (none named: any). `lock`: file
    that keeps two runners of one machine from timing at once (None: one of this user).
    Failures are values; DeviceError is raised only when no child process can be started at all.
    Use from one thread.
    """

    def __init__(
        self,
        target: Target,
        threads: int = 1,
        *,
        builder: str = BUILDER,
        workers: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
        policy: SamplingPolicy = DEFAULT_POLICY,
        import_paths: Sequence[Path] = (),
        lock: Path | None = None,
        rounds: InterleavingPolicy = DEFAULT_ROUNDS,
        cpus: Sequence[int] = (),
    ) -> None:
        self.name, self.rounds = LOCAL, rounds
        self.target, self.threads, self.builder = target, threads, builder
        self.limits, self.policy = limits, policy
        self._size = max(1, workers or available_cores())
        self._paths, self._cpus = tuple(import_paths), tuple(cpus)
        self._lock = lock
        self._workers: list[_Worker] = []
        self._clock_best: list[float] = []
        self._identities = 0
        self._failed_starts = 0
        self._last_failure = Failure("device_lost", "")

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all children; the runner starts new ones when it is used again."""
        for worker in self._workers:
            worker.child.kill()
        self._workers.clear()

    def describe(self) -> DeviceDescription:
        """See `autofuse.measure.runner.Runner`."""
        from autofuse.backend.compile.host_cpu import llvm_version, local_device

        circumstances = collect(llvm_version())
        return DeviceDescription(local_device(), circumstances, circumstances.boot_id or "")

    def race(
        self,
        contenders: Sequence[Contender],
        inputs: Mapping[str, Array],
        budget_s: float,
        *,
        expected: Sequence[Array] | None = None,
        left: Left = no_end,
    ) -> dict[str, ContenderResult]:
        """See `autofuse.measure.runner.Runner`."""
        self.close()  # idle children would hold memory that the networks need
        return bench_contenders(
            contenders, inputs, self.threads, budget_s, target=self.target, expected=expected, policy=self.rounds,
            left=left,
        )  # fmt: skip

    def outputs(self, library: Path, inputs: Mapping[str, Array], left: Left = no_end) -> list[Array]:
        """See `autofuse.measure.runner.Runner`."""
        self.close()
        return outputs_of(library, inputs, self.threads, self.target, left)

    @property
    def clock_best_s(self) -> tuple[float, ...]:
        """The best clock probes of this session (seconds): what "full clock" is held against."""
        return tuple(self._clock_best)

    def processes(self) -> tuple[int, ...]:
        """Process ids of the children that live."""
        return tuple(worker.child.pid for worker in self._workers if worker.child.alive)

    def measure(self, batch: Sequence[MeasureRequest]) -> list[Measurement]:
        """One measurement a request, in the order of `batch`; see `stream`."""
        found = dict(self.stream(batch))
        return [found[index] for index in range(len(batch))]

    def stream(self, batch: Sequence[MeasureRequest], left: Left = no_end) -> Iterator[tuple[int, Measurement]]:
        """(index in `batch`, measurement) as each becomes known: failures first, then times.

        Builds and checks of a stretch of the batch run in parallel; then, with no build under way and the
        machine's measuring lock held, its candidates are timed one after the other.
        """
        chunk = self._size * HELD_PER_WORKER
        try:
            for first in range(0, len(batch), chunk):
                yield from self._chunk([self._job(index, batch) for index in range(first, len(batch))[:chunk]], left)
                if left() <= 0:
                    self.close()
                    return
        except BaseException:  # also KeyboardInterrupt and an abandoned generator: no child may be left busy
            self.close()
            raise

    def _job(self, index: int, batch: Sequence[MeasureRequest]) -> _Job:
        self._identities += 1
        return _Job(index, batch[index], self._identities)

    def _chunk(self, jobs: Sequence[_Job], left: Left) -> Iterator[tuple[int, Measurement]]:
        waiting = deque(jobs)
        self._failed_starts = 0
        while waiting and left() > 0:
            yield from self._build_all(waiting, left)
            if left() > 0:
                with alone(self._lock):
                    time.sleep(QUIET_S)
                    yield from self._time_all(waiting, left)

    # -- building and checking, in parallel

    def _build_all(self, waiting: deque[_Job], left: Left) -> Iterator[tuple[int, Measurement]]:
        """Empty `waiting`, while time is `left`: each job ends as held by a worker, or as a failure."""
        while left() > 0:
            self._hand_out(waiting)
            busy = [worker for worker in self._workers if worker.child.busy]
            if not busy:
                if waiting:
                    yield from self._device_lost(waiting)
                return
            owners = {id(worker.child): worker for worker in busy}
            for child, reply in poll([worker.child for worker in busy], TICK_S):
                yield from self._answered(owners[id(child)], reply, waiting)

    def _hand_out(self, waiting: deque[_Job]) -> None:
        self._replace_worn()
        usable = self._failed_starts < START_ATTEMPTS
        while usable and len(self._workers) < min(self._size, len(waiting) + self._occupied()):
            self._start()
        for worker in self._workers:
            if not waiting:
                return
            if not worker.child.busy:
                job = waiting.popleft()
                job.attempts += 1
                worker.job, worker.doing = job, "build"
                worker.child.request(self._build_message(job), self.limits.build_s, "build_error")

    def _occupied(self) -> int:
        return sum(worker.child.busy and worker.job is not None for worker in self._workers)

    def _replace_worn(self) -> None:
        """Drop workers that died while idle, and those that served long enough or have grown."""
        for worker in list(self._workers):
            idle = not worker.child.busy and not worker.held
            grown = worker.child.memory() - worker.idle_bytes > self.limits.growth_bytes if idle else False
            worn = idle and (worker.served >= self.limits.candidates or grown)
            if worn or (idle and not worker.child.running()):
                self._discard(worker)

    def _start(self) -> None:
        memory = self.limits.memory_bytes or default_memory(self._size)
        environment = {SPIN: SPIN_COUNT, **self.limits.environment, "TVM_NUM_THREADS": str(self.threads)}
        worker = _Worker(Child(WORKER, memory, environment, self._paths))
        hello = {
            "do": "hello",
            "target": target_to_json(self.target),
            "threads": self.threads,
            "builder": self.builder,
            "cpus": list(self._cpus),
        }
        worker.child.request(hello, self.limits.start_s)
        self._workers.append(worker)

    def _answered(self, worker: _Worker, reply: Reply, waiting: deque[_Job]) -> Iterator[tuple[int, Measurement]]:
        job, done = worker.job, worker.doing
        if isinstance(reply, Failure):
            worker.job, worker.doing = None, ""
            if not worker.child.alive:
                self._lost(worker, waiting)
            if done == "start":
                self._failed_starts += 1
                self._last_failure = reply
                self._discard(worker)
            elif job is not None and self._deserves_another(worker, job):
                waiting.append(job)
            elif job is not None:
                self._drop(worker, job, waiting)
                yield job.index, job.failed(reply, self.threads)
        elif done == "start":
            self._failed_starts = 0
            worker.idle_bytes = worker.child.memory()
            worker.doing = ""
        elif done == "build":
            assert job is not None
            job.build_s, job.code = float(str(reply["build_s"])), str(reply["code"])
            worker.doing = "check"
            worker.child.request(self._check_message(job), self.limits.run_s * len(job.request.cases))
        elif done == "check":
            assert job is not None
            job.error = float(str(reply["max_rel_error"]))
            worker.job, worker.doing = None, ""
            worker.held.append(job)

    def _deserves_another(self, worker: _Worker, job: _Job) -> bool:
        """Whether a candidate is tried again: its process was killed from outside, which it need not have caused."""
        return worker.child.killed and job.attempts < ATTEMPTS

    def _lost(self, worker: _Worker, waiting: deque[_Job]) -> None:
        """A dead worker's finished builds are built again elsewhere: they were not at fault."""
        waiting.extend(worker.held)
        worker.held.clear()
        self._discard(worker)

    def _discard(self, worker: _Worker) -> None:
        worker.child.kill()
        if worker in self._workers:
            self._workers.remove(worker)

    def _drop(self, worker: _Worker, job: _Job, waiting: deque[_Job]) -> None:
        worker.served += 1
        if worker.child.alive:
            worker.child.request({"do": "drop", "id": job.identity}, self.limits.run_s)
            if isinstance(wait(worker.child), Failure):
                self._lost(worker, waiting)

    def _device_lost(self, waiting: deque[_Job]) -> Iterator[tuple[int, Measurement]]:
        self._failed_starts = 0
        message = f"no worker process starts: {self._last_failure.message}"
        while waiting:
            job = waiting.popleft()
            yield job.index, job.failed(Failure("device_lost", message), self.threads)

    # -- timing, one at a time

    def _time_all(self, waiting: deque[_Job], left: Left) -> Iterator[tuple[int, Measurement]]:
        """Time all held jobs in order, while time is `left`; those lost with a crashed worker go back to `waiting`."""
        order = sorted(
            ((job, worker) for worker in self._workers for job in worker.held), key=lambda pair: pair[0].index
        )
        for job, worker in order:
            if job not in worker.held:
                continue
            if not worker.child.running():
                self._lost(worker, waiting)
                continue
            worker.held.remove(job)
            worker.child.request(self._time_message(job), self.limits.run_s + 4 * self.policy.cap_s)
            reply = wait(worker.child, TIMING_TICK_S, left)
            if reply is None:
                return
            if not isinstance(reply, Failure):
                self._clock_best = [float(seconds) for seconds in _list(reply["clock_best_s"])]
                timing = timing_from_json(reply["timing"])
                measured = Measurement(timing, None, job.build_s, job.error, self.threads, job.code)
            else:
                measured = job.failed(reply, self.threads, job.error)
            if not worker.child.alive:
                self._lost(worker, waiting)
            if isinstance(reply, Failure) and self._deserves_another(worker, job):
                waiting.append(job)
                continue
            self._drop(worker, job, waiting)
            yield job.index, measured
        for job in [job for job in waiting if job.attempts >= ATTEMPTS]:
            waiting.remove(job)
            message = f"lost with its worker process {job.attempts} times, through crashes of other candidates"
            yield job.index, job.failed(Failure("device_lost", message), self.threads)

    # -- messages

    def _build_message(self, job: _Job) -> Message:
        return {
            "do": "build",
            "id": job.identity,
            "workload": job.request.workload.text,
            "schedule": dict(job.request.schedule),
            "builder": self.builder,
            "constants": [str(path) for path in job.request.constants],
        }

    def _check_message(self, job: _Job) -> Message:
        cases = [case_to_json(case) for case in job.request.cases]
        return {"do": "check", "id": job.identity, "cases": cases, "limit": job.request.limit}

    def _time_message(self, job: _Job) -> Message:
        return {
            "do": "time",
            "id": job.identity,
            "policy": policy_to_json(self.policy),
            "best_us": job.request.best_us,
            "clock_best_s": self._clock_best,
        }


def _list(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(item) for item in value]
