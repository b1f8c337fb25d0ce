"""The local runner: parallel children build and check candidates, and one at a time times what it built."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.library.threads import SPIN, SPIN_COUNT
from autofuse.device.description import DeviceDescription
from autofuse.device.profile import LOCAL
from autofuse.device.provenance import collect
from autofuse.device.target import Target
from autofuse.measure.checking.tolerance import limit_of
from autofuse.measure.children.ahead import Ahead, BuiltAhead, Trial, nothing_ahead
from autofuse.measure.children.pool import Answer, Call, Job, Member, Pool, Program
from autofuse.measure.children.process import TICK_S, Child, available_cores, poll, wait
from autofuse.measure.children.requests import Build, Check, Checked, Drop, KernelBuilt, StartWorker, Time, Timed
from autofuse.measure.measurement import Failure, Left, Limits, Measurement, MeasureRequest, Timing, no_end
from autofuse.measure.networks.bench import Contender, ContenderResult, bench_contenders, outputs_of
from autofuse.measure.timing.cores import Cores
from autofuse.measure.timing.lock import alone
from autofuse.measure.timing.race import InterleavingPolicy
from autofuse.measure.timing.sampling import SamplingPolicy, settling

BUILDER = "autofuse.kernels.build:build_kernel"
WORKER = "autofuse.measure.children.worker"
HELD_PER_WORKER = 8
AHEAD_PER_WORKER = 2
"""Candidates that are built before anybody asks for them, at most."""
TIMING_TICK_S = 0.5
DEFAULT_LIMITS = Limits()
DEFAULT_POLICY, DEFAULT_ROUNDS = SamplingPolicy(), InterleavingPolicy()
Array = NDArray[np.generic]
QUIET_S = 0.01
"""Pause before the timing phase, in which thread pools of the build phase stop spinning."""


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
        self._clock_full_s = 0.0
        self._identities = 0
        self._ahead = BuiltAhead()
        self._unwanted: list[tuple[Member[Trial], int]] = []
        self._by_code: dict[object, Timing] = {}

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
        self._ahead.clear()
        self._unwanted.clear()

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
    def clock_full_s(self) -> float:
        """Seconds of a clock probe at full clock, as this session knows it; 0 before the first time."""
        return self._clock_full_s

    def processes(self) -> tuple[int, ...]:
        """Process ids of the children that live."""
        return tuple(member.child.pid for member in self._pool.members if member.child.alive)

    def measure(self, batch: Sequence[MeasureRequest]) -> list[Measurement]:
        """One measurement a request, in the order of `batch`; see `stream`."""
        found = dict(self.stream(batch))
        return [found[index] for index in range(len(batch))]

    def stream(
        self, batch: Sequence[MeasureRequest], left: Left = no_end, ahead: Ahead = nothing_ahead
    ) -> Iterator[tuple[int, Measurement]]:
        """(index in `batch`, measurement) as each becomes known: failures first, then times.

        One candidate at a time is timed, with the machine's measuring lock held. A kernel of one thread is timed on a
        core of its own while the other cores build and check further candidates, and, when none of the batch waits any
        more, those that are likely to come next (`ahead`). Before kernels of several threads, and where a request of
        the batch is `undisturbed`, a stretch of the batch is built, and timed with no build under way.
        A candidate whose code was timed already, under another schedule of its workload, is not timed again.
        """
        try:
            if self._builds_meanwhile(batch):
                yield from self._build_and_time(batch, left, ahead)
            else:
                self._give_up_ahead()
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

    def _held(self) -> list[tuple[Job[Trial], Member[Trial]]]:
        """Candidates that wait to be timed, in the batch's order, and who holds each."""
        held = [
            (job.work.index, job, member)
            for member in self._pool.members
            for job in member.held
            if job.work.index is not None
        ]
        return [(job, member) for _, job, member in sorted(held, key=lambda one: one[0])]

    def _trial(self, request: MeasureRequest, index: int | None = None) -> Trial:
        self._identities += 1
        return Trial(request, self._identities, index)

    # -- ahead of a batch

    def _begin(self, batch: Sequence[MeasureRequest]) -> None:
        """Queues a batch: what was built ahead is not built again, and what else was built ahead is given up."""
        claimed = [self._ahead.claim(request, index) for index, request in enumerate(batch)]
        self._give_up_ahead()
        new = [self._trial(batch[index], index) for index, trial in enumerate(claimed) if trial is None]
        self._pool.submit(new)

    def _build_ahead(self, ahead: Ahead) -> None:
        """Queues what will probably be asked for next; nothing for children that are to be replaced."""
        if not self._pool.worn():
            likely = (self._trial(request) for request in ahead()[: self._pool.size * AHEAD_PER_WORKER])
            self._pool.submit([trial for trial in likely if self._ahead.add(trial)])

    def _give_up_ahead(self) -> None:
        """What nobody asked for is not built any more, and what is built is forgotten."""
        for trial in self._ahead.clear():
            member = self._pool.withdraw(trial)
            if member is not None:
                self._unwanted.append((member, trial.identity))

    def _forget_unwanted(self) -> None:
        """Children that have nothing else to do forget what they hold and nobody wants."""
        waiting, self._unwanted = self._unwanted, []
        for member, identity in waiting:
            if member.child.busy:
                self._unwanted.append((member, identity))
            else:
                self._drop(member, identity)

    def _drop(self, member: Member[Trial], identity: int) -> None:
        if member.child.alive:
            self._pool.ask_now(member, Call(Drop(identity), self.limits.run_s))

    # -- on cores of their own

    def _build_and_time(
        self, batch: Sequence[MeasureRequest], left: Left, ahead: Ahead
    ) -> Iterator[tuple[int, Measurement]]:
        """While time is `left`: a child that holds a candidate times it, unless another one does; the others build."""
        self._begin(batch)
        missing, asked = len(batch), False
        while missing and left() > 0:
            found = self._go_on()
            if not asked and not self._pool.waiting:
                asked = True
                self._build_ahead(ahead)
            for child, reply in poll(self._pool.busy(), TICK_S if self._timed is None else TIMING_TICK_S):
                answers = self._pool.take(child, reply)
                if child is self._timed:
                    self._end_timing()
                for answer in answers:
                    found += self._answered(answer)
            if found:
                found += self._go_on()  # before anybody takes in what was found: that may take a while
            missing -= len(found)
            yield from found

    def _go_on(self) -> list[tuple[int, Measurement]]:
        """Begins what can begin, a timing and builds; what is known without either."""
        found = [] if self._timed is not None else self._timed_before()
        self._forget_unwanted()
        if self._timed is None:
            self._begin_timing()
        for answer in self._pool.feed(hold=len(self._held()) >= self._most_held):
            found += self._answered(answer)
        return found

    def _timed_before(self) -> list[tuple[int, Measurement]]:
        """Held candidates with the code of one that was timed since they were built."""
        found: list[tuple[int, Measurement]] = []
        for job, member in self._held():
            if self._known_timing(job.work) is not None and not member.child.busy and member.job is None:
                self._pool.resume(member, job)
                found += self._shared(job.work, member)
        return found

    def _known_timing(self, trial: Trial) -> Timing | None:
        """The time of its code, if it was timed already and may be taken from there."""
        return None if trial.request.undisturbed else self._by_code.get(trial.code)

    def _shared(self, trial: Trial, member: Member[Trial]) -> Iterator[tuple[int, Measurement]]:
        """A candidate whose code was timed has the same time."""
        timing = self._known_timing(trial)
        assert timing is not None and trial.index is not None
        self._pool.finish(member)
        self._drop(member, trial.identity)
        yield trial.index, trial.measured(self.threads, timing, None)

    def _begin_timing(self) -> None:
        """The first candidate whose child is free is timed from now on, if there is one."""
        for job, member in self._held():
            if member.job is not None or member.child.busy:
                continue
            if not member.child.running():
                self._pool.lost(member)
                return
            self._undisturbed.enter_context(alone(self._lock))
            self._undisturbed.enter_context(self._cores.elsewhere())
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
            self._pool.submit([self._trial(batch[i], i) for i in range(first, len(batch))[: self._most_held]])
            while not self._pool.done and left() > 0:
                yield from self._build_all(left)
                yield from self._time_all(left)

    def _build_all(self, left: Left) -> Iterator[tuple[int, Measurement]]:
        """While time is `left`: each candidate ends as held by a child, or as a failure."""
        while not self._pool.done and left() > 0:
            for answer in self._pool.step():
                yield from self._answered(answer)

    def _answered(self, answer: Answer[Trial]) -> Iterator[tuple[int, Measurement]]:
        trial, reply, member = answer.work, answer.reply, answer.member
        if trial.index is None and (member is None or isinstance(reply, Failure) or not self._ahead.holds(trial)):
            self._let_go(answer)
        elif isinstance(reply, (Failure, Timed)) or member is None:
            yield from self._ended(answer)
        elif isinstance(reply, KernelBuilt):
            trial.built = reply
            limit_s = self.limits.run_s * len(trial.request.cases)
            self._pool.ask(member, Call(Check(trial.identity, trial.request.cases, limit_of(trial.request)), limit_s))
        elif isinstance(reply, Checked):
            trial.error = reply.max_rel_error
            self._pool.hold(member)

    def _let_go(self, answer: Answer[Trial]) -> None:
        """Nobody waits for this candidate."""
        self._ahead.remove(answer.work)
        if answer.member is None:
            return
        if not isinstance(answer.reply, Failure):
            self._pool.finish(answer.member)
        self._drop(answer.member, answer.work.identity)

    def _build(self, trial: Trial) -> Call:
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

    def _time(self, trial: Trial) -> Call:
        policy = settling(self.policy) if trial.request.undisturbed else self.policy
        time_it = Time(trial.identity, policy, trial.request.best_us, self._clock_full_s)
        return Call(time_it, self.limits.run_s + 4 * policy.cap_s)

    def _ended(self, answer: Answer[Trial]) -> Iterator[tuple[int, Measurement]]:
        """The measurement of a candidate that failed or was timed; its child forgets it."""
        trial, reply, member = answer.work, answer.reply, answer.member
        timing = failure = None
        if isinstance(reply, Timed):
            assert member is not None
            timing, self._clock_full_s = reply.timing, reply.clock_full_s
            self._pool.finish(member)
            if timing.trusted and trial.code is not None:
                self._by_code[trial.code] = timing
        elif isinstance(reply, Failure):
            failure = reply
        if member is not None:
            self._drop(member, trial.identity)
        assert trial.index is not None
        yield trial.index, trial.measured(self.threads, timing, failure)
