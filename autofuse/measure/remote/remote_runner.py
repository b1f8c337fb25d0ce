"""The runner of a device elsewhere: built here in parallel, checked and timed there, one candidate at a time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from autofuse.device.description import DeviceDescription
from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.checking.tolerance import limit_of
from autofuse.measure.children.ahead import Ahead, nothing_ahead
from autofuse.measure.children.messages import Done
from autofuse.measure.children.pool import ATTEMPTS, Again, Answer, Call, Pool
from autofuse.measure.children.process import TICK_S, Child, poll
from autofuse.measure.children.requests import Check, Checked, Drop, Time, Timed
from autofuse.measure.cluster.farm import BuildFarm, Built
from autofuse.measure.measurement import Failure, Left, Limits, Measurement, MeasureRequest, Timing, no_end
from autofuse.measure.networks.bench import OUT_OF_TIME, Contender, ContenderResult
from autofuse.measure.remote.link import BusyError, Link, RestartedError
from autofuse.measure.remote.remote_race import race, results_of
from autofuse.measure.remote.requests import LoadKernel, StartSession
from autofuse.measure.timing.clock import PROBE_STEPS
from autofuse.measure.timing.race import InterleavingPolicy
from autofuse.measure.timing.sampling import SamplingPolicy, settling
from autofuse.values.scratch import scratch_folder

AHEAD = 8
"""Built candidates that wait for the device, at most; building goes on meanwhile."""
PROBE_S, MIN_STEPS = 2e-3, 500
"""A device on which the clock probe takes longer gets a shorter one."""
UPLOAD_BYTES_S = 1 << 20
"""The slowest network that is waited for."""

Array = NDArray[np.generic]
DEFAULT_LIMITS, DEFAULT_POLICY, DEFAULT_ROUNDS = Limits(), SamplingPolicy(), InterleavingPolicy()


@dataclass
class _Trial:
    """A built candidate on its way over the device."""

    built: Built
    error: float | None = None


class RemoteRunner:
    """The runner of the device that `link` reaches, for one target; see `autofuse.measure.runner.Runner`.

    `farm`: builds the kernels. `limits`: `run_s` of a run on the device. `policy`, `rounds`: of candidates, networks.
    A candidate under which the device is lost is given back, and with it all that are not measured yet.
    """

    def __init__(
        self,
        link: Link,
        farm: BuildFarm,
        target: Target,
        threads: int = 1,
        *,
        cpus: Sequence[int] = (),
        limits: Limits = DEFAULT_LIMITS,
        policy: SamplingPolicy = DEFAULT_POLICY,
        rounds: InterleavingPolicy = DEFAULT_ROUNDS,
    ) -> None:
        self.name = link.address.text
        self.target, self.threads, self.limits, self.policy, self.rounds = target, threads, limits, policy, rounds
        self._link, self._farm, self._cpus = link, farm, tuple(cpus)
        self._clock_full_s = 0.0
        self._session = Pool(self._ready, self._load, 1, "session on the device", judge=self._judge)
        self._stack = ExitStack()
        self._folder: Path | None = None
        self._greeted: object = None
        self._probe_steps = PROBE_STEPS

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See Runner."""
        self._drop()
        self._link.close()
        self._stack.close()
        self._folder = None

    @property
    def folder(self) -> Path:
        """Where kernels wait for the device."""
        if self._folder is None:
            self._folder = self._stack.enter_context(scratch_folder())
        return self._folder

    def describe(self) -> DeviceDescription:
        """See Runner."""
        return self._link.describe()

    # -- candidates

    def measure(self, batch: Sequence[MeasureRequest]) -> list[Measurement]:
        """See Runner."""
        found = dict(self.stream(batch))
        return [found[index] for index in range(len(batch))]

    def stream(
        self,
        batch: Sequence[MeasureRequest],
        left: Left = no_end,
        ahead: Ahead = nothing_ahead,  # noqa: ARG002  # the farm builds a batch only
    ) -> Iterator[tuple[int, Measurement]]:
        """See Runner."""
        try:
            self._ready()
        except DeviceError as error:
            yield from ((index, self._lost(str(error))) for index in range(len(batch)))
            return
        try:
            yield from self._run(batch, left)
        except BaseException:  # also KeyboardInterrupt and an abandoned generator: nothing may be left busy
            self._drop()
            raise

    def _drop(self) -> None:
        self._session.close()
        self._link.drop()
        self._farm.close()

    def _run(self, batch: Sequence[MeasureRequest], left: Left) -> Iterator[tuple[int, Measurement]]:
        """Build and measure; when the device is lost, all that has no measurement yet is given back."""
        missing = set(range(len(batch)))
        self._farm.submit(list(enumerate(batch)), self.folder)
        while missing:
            if left() <= 0:
                self._drop()
                return
            try:
                for index, measured in self._step():
                    missing.discard(index)
                    yield index, measured
            except DeviceError as error:
                self._drop()
                yield from ((index, self._lost(str(error))) for index in sorted(missing))
                return

    def _step(self) -> Iterator[tuple[int, Measurement]]:
        """Go on building, unless enough kernels wait, and measuring; a moment later, what is through or failed."""
        for index, built in self._farm.feed(hold=len(self._session.waiting) >= AHEAD):
            yield from self._take_built(index, built)
        for answer in self._session.feed():
            yield from self._answered(answer)
        session = self._session.busy()
        for child, reply in poll([*self._farm.busy(), *session], TICK_S):
            if child in session:
                for answer in self._session.take(child, reply):
                    yield from self._answered(answer)
            else:
                for index, built in self._farm.take(child, reply):
                    yield from self._take_built(index, built)

    def _take_built(self, index: int, built: Built | Failure) -> Iterator[tuple[int, Measurement]]:
        if isinstance(built, Failure):
            yield index, self._measured(None, None, built)
        else:
            self._session.submit([_Trial(built)])

    def _answered(self, answer: Answer[_Trial]) -> Iterator[tuple[int, Measurement]]:
        trial, reply, member = answer.work, answer.reply, answer.member
        if member is not None and isinstance(reply, Done):
            self._session.ask(member, self._check(trial))
        elif member is not None and isinstance(reply, Checked):
            trial.error = reply.max_rel_error
            self._session.ask(member, self._time(trial))
        else:
            yield self._ended(answer)

    def _ended(self, answer: Answer[_Trial]) -> tuple[int, Measurement]:
        """The measurement of a candidate that failed or was timed; the device forgets it."""
        trial, reply, member = answer.work, answer.reply, answer.member
        timing = failure = None
        if isinstance(reply, Timed) and member is not None:
            timing, self._clock_full_s = reply.timing, reply.clock_full_s
            self._session.finish(member)
        elif isinstance(reply, Failure):
            failure = reply
        if member is not None and member.child.alive:
            self._session.ask_now(member, Call(Drop(trial.built.identity), self.limits.run_s))
        shutil.rmtree(trial.built.folder, ignore_errors=True)
        return trial.built.index, self._measured(trial, timing, failure)

    # -- the session

    def _ready(self) -> Child:
        """Connected, and greeted with the clock probe; DeviceError when the device does not answer."""
        child = self._link.connected()
        if self._greeted is not child:
            if self._greet() > PROBE_S:
                self._probe_steps = max(MIN_STEPS, round(self._probe_steps * PROBE_S / self._greet()))
                self._greet()
            self._greeted = child
        return child

    def _judge(self, _child: Child, failure: Failure) -> Failure | Again:
        """See `pool.Judge`: the device knows how its process ended. DeviceError when it stays away."""
        try:
            return self._link.recover(failure)
        except RestartedError as restarted:
            text = f"{restarted} under this candidate {ATTEMPTS} times"
            return Again(restarted.failure or Failure("device_lost", text))

    def _greet(self) -> float:
        """Set the session up; seconds of the clock probe there."""
        probe = self.folder / f"probe-{self._probe_steps}.so"
        if not probe.exists():
            self._farm.probe(probe, self.threads, self._probe_steps)
        hello = StartSession(self._farm.target, self.threads, probe, self._probe_steps, self._cpus)
        reply = self._link.ask(hello, self._link.limits.start_s)
        if isinstance(reply, Failure):
            raise DeviceError(f"{self.name} cannot be used: {reply.message}")
        return reply.seconds

    def _load(self, trial: _Trial) -> Call:
        built = trial.built
        load = LoadKernel(built.identity, built.request.workload.text, built.files.kernel, built.files.constants)
        return Call(load, self.limits.run_s + built.size_bytes / UPLOAD_BYTES_S)

    def _check(self, trial: _Trial) -> Call:
        request = trial.built.request
        limit_s = self.limits.run_s * len(request.cases) + _size(request) / UPLOAD_BYTES_S
        return Call(Check(trial.built.identity, request.cases, limit_of(request)), limit_s)

    def _time(self, trial: _Trial) -> Call:
        request = trial.built.request
        policy = settling(self.policy) if request.undisturbed else self.policy
        time_it = Time(trial.built.identity, policy, request.best_us, self._clock_full_s)
        return Call(time_it, self.limits.run_s + 4 * policy.cap_s)

    def _measured(self, trial: _Trial | None, timing: Timing | None, failure: Failure | None) -> Measurement:
        if trial is None:
            return Measurement(timing, failure, threads=self.threads)
        files = trial.built.files
        return Measurement(timing, failure, files.build_s, trial.error, self.threads, files.code)

    def _lost(self, message: str) -> Measurement:
        return self._measured(None, None, Failure("device_lost", message))

    # -- whole networks

    def race(
        self,
        contenders: Sequence[Contender],
        inputs: Mapping[str, Array],
        budget_s: float,
        *,
        expected: Sequence[Array] | None = None,
        left: Left = no_end,
    ) -> dict[str, ContenderResult]:
        """See Runner. All contenders run in one session, so that they share its thread pool."""
        self._ready()
        folder = self.folder / "race"
        folder.mkdir(exist_ok=True)
        rounds = replace(self.rounds, budget_s=budget_s)
        try:
            return race(self._link, self.target, self.threads, contenders, inputs, expected, folder, rounds, left)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self._link.drop()  # the session's networks go with it

    def outputs(self, library: Path, inputs: Mapping[str, Array], left: Left = no_end) -> list[Array]:
        """See Runner. Tried again once: a session that broke for a moment is not the library's fault.

        Nor is a device that others hold: it is waited for.
        """
        if left() <= 0:
            raise DeviceError(f"{self.name}: {OUT_OF_TIME}")
        busy_until = time.monotonic() + min(left(), self._link.limits.busy_s)
        broken = False
        while True:
            try:
                return self._outputs(library, inputs)
            except BusyError:
                if time.monotonic() >= busy_until:
                    raise
            except DeviceError:
                if broken:
                    raise
                broken = True
            self._link.drop()

    def _outputs(self, library: Path, inputs: Mapping[str, Array]) -> list[Array]:
        self._ready()
        folder = self.folder / "outputs"
        folder.mkdir(exist_ok=True)
        try:
            return results_of(self._link, self.target, self.threads, library, inputs, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _size(request: MeasureRequest) -> int:
    return sum(path.stat().st_size for case in request.cases for path in (*case.inputs, *case.outputs))
