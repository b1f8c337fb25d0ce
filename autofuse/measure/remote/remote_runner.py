"""The runner of a device elsewhere: built here in parallel, checked and timed there, one candidate at a time."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from autofuse.device.description import DeviceDescription
from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.children.codec import case_to_json, policy_to_json, timing_from_json
from autofuse.measure.children.messages import Message
from autofuse.measure.children.process import TICK_S, Child, Reply, poll
from autofuse.measure.cluster.farm import BuildFarm, Built
from autofuse.measure.measurement import Failure, Left, Limits, Measurement, MeasureRequest, no_end
from autofuse.measure.networks.bench import OUT_OF_TIME, Contender, ContenderResult
from autofuse.measure.remote.link import Link, RestartedError
from autofuse.measure.remote.remote_race import race, results_of
from autofuse.measure.timing.clock import PROBE_STEPS
from autofuse.measure.timing.race import InterleavingPolicy
from autofuse.measure.timing.sampling import SamplingPolicy
from autofuse.values.scratch import scratch_folder

ATTEMPTS = 3
"""Times that a candidate is tried on a device that restarts under it."""
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
    """The candidate that is on the device, and how far it has come."""

    built: Built
    doing: str = "load"
    error: float | None = None


@dataclass
class _Batch:
    """What is left of a batch: indices without a measurement, kernels that wait, the candidate on the device."""

    open: set[int]
    ready: deque[Built] = field(default_factory=deque)
    trial: _Trial | None = None


class RemoteRunner:
    """See `autofuse.measure.runner.Runner`: measures on the device that `link` reaches, for one target.

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
        self._clock_best: list[float] = []
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
        self._farm.close()
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

    def stream(self, batch: Sequence[MeasureRequest], left: Left = no_end) -> Iterator[tuple[int, Measurement]]:
        """See Runner."""
        try:
            self._ready()
        except DeviceError as error:
            yield from ((index, self._lost(str(error))) for index in range(len(batch)))
            return
        try:
            yield from self._run(batch, left)
        except BaseException:  # also KeyboardInterrupt and an abandoned generator: nothing may be left busy
            self._link.drop()
            self._farm.close()
            raise

    def _run(self, batch: Sequence[MeasureRequest], left: Left) -> Iterator[tuple[int, Measurement]]:
        self._farm.submit(list(enumerate(batch)), self.folder)
        state = _Batch(set(range(len(batch))))
        while state.open:
            if left() <= 0:
                self._link.drop()
                self._farm.close()
                return
            for index, failure in self._farm.feed(hold=len(state.ready) >= AHEAD):
                state.open.discard(index)
                yield index, self._failed(failure)
            if state.trial is None and state.ready:
                state.trial = _Trial(state.ready.popleft())
                self._ask(state.trial)
            waited = [*self._farm.busy(), *([self._link.child] if state.trial else [])]
            for child, reply in poll(waited, TICK_S):
                if state.trial is not None and child is self._link.child:
                    yield from self._from_device(state, state.trial, reply)
                elif state.open:
                    yield from self._from_farm(state, child, reply)

    def _from_farm(self, state: _Batch, child: Child, reply: Reply) -> Iterator[tuple[int, Measurement]]:
        for index, built in self._farm.take(child, reply):
            if isinstance(built, Built):
                state.ready.append(built)
            else:
                state.open.discard(index)
                yield index, self._failed(built)

    def _from_device(self, state: _Batch, trial: _Trial, reply: Reply) -> Iterator[tuple[int, Measurement]]:
        built = trial.built
        try:
            measured = self._advance(trial, reply)
        except RestartedError as restarted:
            built.attempts, state.trial = built.attempts + 1, None
            try:
                self._ready()
            except DeviceError as error:
                yield from self._give_back(state, str(error))
                return
            if built.attempts < ATTEMPTS:
                state.ready.appendleft(built)
                return
            text = f"{restarted} under this candidate {ATTEMPTS} times"
            measured = self._failed(restarted.failure, built) if restarted.failure else self._lost(text, built)
        except DeviceError as error:
            yield from self._give_back(state, str(error))
            return
        if measured is not None:
            state.trial = None
            state.open.discard(built.index)
            shutil.rmtree(built.folder, ignore_errors=True)
            yield built.index, measured

    def _give_back(self, state: _Batch, message: str) -> Iterator[tuple[int, Measurement]]:
        self._farm.close()
        left, state.open, state.trial = sorted(state.open), set(), None
        yield from ((index, self._lost(message)) for index in left)

    def _ready(self) -> None:
        """Connected, and greeted with the clock probe; DeviceError when the device does not answer."""
        child = self._link.connected()
        if self._greeted is child:
            return
        if self._greet() > PROBE_S:
            self._probe_steps = max(MIN_STEPS, round(self._probe_steps * PROBE_S / self._greet()))
            self._greet()
        self._greeted = child

    def _greet(self) -> float:
        """Set the session up; seconds of the clock probe there."""
        probe = self.folder / f"probe-{self._probe_steps}.so"
        if not probe.exists():
            self._farm.probe(probe, self.threads, self._probe_steps)
        hello = {
            "do": "hello",
            "target": self._farm.target_json,
            "threads": self.threads,
            "probe": str(probe),
            "steps": self._probe_steps,
            "cpus": list(self._cpus),
        }
        reply = self._link.ask(hello, self._link.limits.start_s)
        if isinstance(reply, Failure):
            raise DeviceError(f"{self.name} cannot be used: {reply.message}")
        return float(str(reply["probe_s"]))

    def _ask(self, trial: _Trial) -> None:
        built, request = trial.built, trial.built.request
        limit = self.limits.run_s + built.size_bytes / UPLOAD_BYTES_S
        message: Message
        if trial.doing == "load":
            message = {
                "do": "load",
                "id": built.identity,
                "workload": request.workload.text,
                "kernel": str(built.kernel),
                "constants": [str(path) for path in built.constants],
            }
        elif trial.doing == "check":
            cases = [case_to_json(case) for case in request.cases]
            message = {"do": "check", "id": built.identity, "cases": cases, "limit": request.limit}
            limit = self.limits.run_s * len(cases) + _size(request) / UPLOAD_BYTES_S
        elif trial.doing == "time":
            message = {
                "do": "time",
                "id": built.identity,
                "policy": policy_to_json(self.policy),
                "best_us": request.best_us,
                "clock_best_s": self._clock_best,
            }
            limit = self.limits.run_s + 4 * self.policy.cap_s
        else:
            message = {"do": "drop", "id": built.identity}
        self._link.child.request(message, limit)

    def _advance(self, trial: _Trial, reply: Reply) -> Measurement | None:
        """Take a reply in; the measurement when the candidate is through, else the next request is under way.

        RestartedError when the device started anew meanwhile, DeviceError when it is gone.
        """
        if isinstance(reply, Failure):
            if self._link.child.alive:
                self._link.ask({"do": "drop", "id": trial.built.identity}, self.limits.run_s)
            if not self._link.child.alive:
                reply = self._link.recover(reply)
                self._ready()
            return self._failed(reply, trial.built, trial.error)
        if trial.doing == "time":
            self._clock_best = [float(seconds) for seconds in _list(reply["clock_best_s"])]
            timing = timing_from_json(reply["timing"])
            dropped = self._link.ask({"do": "drop", "id": trial.built.identity}, self.limits.run_s)
            if isinstance(dropped, Failure) and not self._link.child.alive:
                self._link.recover(dropped)
                self._ready()
            return Measurement(timing, None, trial.built.build_s, trial.error, self.threads, trial.built.code)
        if trial.doing == "check":
            trial.error = float(str(reply["max_rel_error"]))
        trial.doing = {"load": "check", "check": "time"}[trial.doing]
        self._ask(trial)
        return None

    def _failed(self, failure: Failure, built: Built | None = None, error: float | None = None) -> Measurement:
        build_s, code = (built.build_s, built.code) if built else (None, "")
        return Measurement(failure=failure, build_s=build_s, max_rel_error=error, threads=self.threads, code=code)

    def _lost(self, message: str, built: Built | None = None) -> Measurement:
        return self._failed(Failure("device_lost", message), built)

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
        """See Runner. Tried again once: a session that broke for a moment is not the library's fault."""
        if left() <= 0:
            raise DeviceError(f"{self.name}: {OUT_OF_TIME}")
        try:
            return self._outputs(library, inputs)
        except DeviceError:
            self._link.drop()
            return self._outputs(library, inputs)

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


def _list(value: Any) -> list[Any]:
    assert isinstance(value, list)
    return value
