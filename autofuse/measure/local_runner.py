"""The local runner: parallel children build and check candidates, and one at a time times what it built."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from autofuse.device.description import DeviceDescription
from autofuse.device.profile import LOCAL
from autofuse.device.provenance import collect
from autofuse.device.target import Target
from autofuse.measure.children.pool import Answer, Call, Job, Member, Pool, Program
from autofuse.measure.children.process import TICK_S, Child, available_cores, poll, wait
from autofuse.measure.children.requests import Build, Check, Checked, Drop, KernelBuilt, StartWorker, Time, Timed
from autofuse.measure.measurement import Failure, Left, Limits, Measurement, MeasureRequest, Timing, no_end
from autofuse.measure.networks.bench import Contender, ContenderResult, bench_contenders, outputs_of
from autofuse.measure.timing.cores import Cores
from autofuse.measure.timing.lock import alone
from autofuse.measure.timing.race import InterleavingPolicy
from autofuse.measure.timing.sampling import SamplingPolicy

BUILDER = "autofuse.kernels.build:build_kernel"
WORKER = "autofuse.measure.children.worker"
HELD_PER_WORKER = 8
TIMING_TICK_S = 0.5
DEFAULT_LIMITS = Limits()
DEFAULT_POLICY, DEFAULT_ROUNDS = SamplingPolicy(), InterleavingPolicy()
Array = NDArray[np.generic]
SPIN, SPIN_COUNT = "TVM_THREAD_POOL_SPIN_COUNT", "3000"
"""Threads of a pool that waits for work give the core back after about 2 ms (TVM's default: 160 ms)."""
QUIET_S = 0.01
"""Pause before the timing phase, in which thread pools of the build phase stop spinning."""


@dataclass
class _Trial:
    """A request of a batch, with what is known of its kernel so far."""

    index: int
    request: MeasureRequest
    identity: int
    built: KernelBuilt | None = None
    error: float | None = None

    def measured(self, threads: int, timing: Timing | None, failure: Failure | None) -> Measurement:
        build_s, code = (self.built.build_s, self.built.code) if self.built else (None, "")
        return Measurement(timing, failure, build_s, self.error, threads, code)


class LocalRunner:
    """The runner of this machine: it measures candidates for one target; see `autofuse.measure.runner.Runner`.

    `threads`: of the timed kernels. `builder`: "package.module:function" with the signature of
    `autofuse.kernels.build.build_kernel`, imported in the children only. `workers`: children that build
    in parallel (default: one a core). `import_paths`: folders children search for the builder.
    `rounds`: how whole networks are timed. `cpus`: those that kernels run on (none named: any). `lock`: file
    that keeps two runners of one machine from timing at once (None: one of this user). `objects`: folder that keeps
    what is compiled, see `autofuse.backend.compile.objects` (None: nothing is kept).
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
        objects: Path | None = None,
    ) -> None:
        self.name, self.rounds = LOCAL, rounds
        self.target, self.threads, self.builder = target, threads, builder
        self.limits, self.policy = limits, policy
        size = max(1, workers or available_cores())
        hello = Call(StartWorker(target, builder, threads, tuple(cpus), objects), limits.start_s)
        environment = {SPIN: SPIN_COUNT, **limits.environment, "TVM_NUM_THREADS": str(threads)}
        program = Program(WORKER, hello, environment, tuple(import_paths), limits.memory_bytes, size)
        self._pool = Pool(program.start, self._build, size, "worker process", limits=limits)
        self._lock, self._cores = lock, Cores.of(cpus)
        self._timed: Child | None = None
        self._undisturbed = ExitStack()
        self._clock_best: tuple[float, ...] = ()
        self._identities = 0

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all children; the runner starts new ones when it is used again."""
        self._pool.close()
        self._timed = None
        self._undisturbed.close()

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
        return self._clock_best

    def processes(self) -> tuple[int, ...]:
        """Process ids of the children that live."""
        return tuple(member.child.pid for member in self._pool.members if member.child.alive)

    def measure(self, batch: Sequence[MeasureRequest]) -> list[Measurement]:
        """One measurement a request, in the order of `batch`; see `stream`."""
        found = dict(self.stream(batch))
        return [found[index] for index in range(len(batch))]

    def stream(self, batch: Sequence[MeasureRequest], left: Left = no_end) -> Iterator[tuple[int, Measurement]]:
        """(index in `batch`, measurement) as each becomes known: failures first, then times.

        One candidate at a time is timed, with the machine's measuring lock held. A kernel of one thread is timed on a
        core of its own while the other cores build and check further candidates; before kernels of several threads,
        and where a request of the batch is `undisturbed`, a stretch of the batch is built, and timed with no build
        under way.
        """
        try:
            if self._builds_meanwhile(batch):
                self._pool.submit([self._trial(index, batch) for index in range(len(batch))])
                yield from self._build_and_time(left)
            else:
                yield from self._build_then_time(batch, left)
            if left() <= 0:
                self.close()
        except BaseException:  # also KeyboardInterrupt and an abandoned generator: no child may be left busy
            self.close()
            raise

    def _builds_meanwhile(self, batch: Sequence[MeasureRequest]) -> bool:
        """Whether a core is left to build on while a candidate is timed."""
        spare = self.threads == 1 and len(self._cores.usable) > 1 and self._pool.size > 1
        return spare and not any(request.undisturbed for request in batch)

    @property
    def _most_held(self) -> int:
        return self._pool.size * HELD_PER_WORKER

    def _held(self) -> list[tuple[Job[_Trial], Member[_Trial]]]:
        """Candidates that wait to be timed, in the batch's order, and who holds each."""
        held = [(job, member) for member in self._pool.members for job in member.held]
        return sorted(held, key=lambda pair: pair[0].work.index)

    def _trial(self, index: int, batch: Sequence[MeasureRequest]) -> _Trial:
        self._identities += 1
        return _Trial(index, batch[index], self._identities)

    # -- on cores of their own

    def _build_and_time(self, left: Left) -> Iterator[tuple[int, Measurement]]:
        """While time is `left`: a child that holds a candidate times it, unless another one does; the others build."""
        while left() > 0 and (self._held() or not self._pool.done):
            if self._timed is None:
                self._begin_timing()
            for answer in self._pool.feed(hold=len(self._held()) >= self._most_held):
                yield from self._answered(answer)
            for child, reply in poll(self._pool.busy(), TICK_S if self._timed is None else TIMING_TICK_S):
                answers = self._pool.take(child, reply)
                if child is self._timed:
                    self._end_timing()
                for answer in answers:
                    yield from self._answered(answer)

    def _begin_timing(self) -> None:
        """The first candidate whose child is free is timed from now on, if there is one."""
        for job, member in self._held():
            if member.job is not None or member.child.busy:
                continue
            if not member.child.running():
                self._pool.lost(member)
                return
            self._undisturbed.enter_context(alone(self._lock))
            self._cores.keep_apart(member.child.pid, [pid for pid in self.processes() if pid != member.child.pid])
            self._pool.resume(member, job)
            self._pool.ask(member, self._time(job.work))
            self._timed = member.child
            return

    def _end_timing(self) -> None:
        self._timed = None
        self._undisturbed.close()
        self._cores.free(self.processes())

    # -- building and checking, in parallel

    def _build_then_time(self, batch: Sequence[MeasureRequest], left: Left) -> Iterator[tuple[int, Measurement]]:
        """Stretch by stretch, while time is `left`."""
        for first in range(0, len(batch), self._most_held):
            self._pool.submit([self._trial(index, batch) for index in range(first, len(batch))[: self._most_held]])
            while not self._pool.done and left() > 0:
                yield from self._build_all(left)
                yield from self._time_all(left)

    def _build_all(self, left: Left) -> Iterator[tuple[int, Measurement]]:
        """While time is `left`: each candidate ends as held by a child, or as a failure."""
        while not self._pool.done and left() > 0:
            for answer in self._pool.step():
                yield from self._answered(answer)

    def _answered(self, answer: Answer[_Trial]) -> Iterator[tuple[int, Measurement]]:
        trial, reply, member = answer.work, answer.reply, answer.member
        if isinstance(reply, (Failure, Timed)) or member is None:
            yield from self._ended(answer)
        elif isinstance(reply, KernelBuilt):
            trial.built = reply
            limit_s = self.limits.run_s * len(trial.request.cases)
            self._pool.ask(member, Call(Check(trial.identity, trial.request.cases, trial.request.limit), limit_s))
        elif isinstance(reply, Checked):
            trial.error = reply.max_rel_error
            self._pool.hold(member)

    def _build(self, trial: _Trial) -> Call:
        request, limits = trial.request, self.limits
        constants = tuple(request.constants)
        build = Build(
            trial.identity, request.workload.text, dict(request.schedule), self.builder, constants, limits.build_cpu_s
        )
        return Call(build, limits.build_s, "build_error")

    # -- timing, one at a time

    def _time_all(self, left: Left) -> Iterator[tuple[int, Measurement]]:
        """Time what the children hold, in the batch's order, while time is `left`."""
        held = self._held()
        if not held or left() <= 0:
            return
        with alone(self._lock):
            time.sleep(QUIET_S)
            for job, member in held:
                if job not in member.held:
                    continue  # lost with its child, and begun anew
                if not member.child.running():
                    self._pool.lost(member)
                    continue
                self._pool.resume(member, job)
                self._pool.ask(member, self._time(job.work))
                reply = wait(member.child, TIMING_TICK_S, left)
                if reply is None:
                    return
                for answer in self._pool.take(member.child, reply):
                    yield from self._ended(answer)

    def _time(self, trial: _Trial) -> Call:
        time_it = Time(trial.identity, self.policy, trial.request.best_us, self._clock_best)
        return Call(time_it, self.limits.run_s + 4 * self.policy.cap_s)

    def _ended(self, answer: Answer[_Trial]) -> Iterator[tuple[int, Measurement]]:
        """The measurement of a candidate that failed or was timed; its child forgets it."""
        trial, reply, member = answer.work, answer.reply, answer.member
        timing = failure = None
        if isinstance(reply, Timed):
            assert member is not None
            timing, self._clock_best = reply.timing, reply.clock_best_s
            self._pool.finish(member)
        elif isinstance(reply, Failure):
            failure = reply
        if member is not None and member.child.alive:
            self._pool.ask_now(member, Call(Drop(trial.identity), self.limits.run_s))
        yield trial.index, trial.measured(self.threads, timing, failure)
