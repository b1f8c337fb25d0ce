"""Whole networks on a device elsewhere: loaded, checked and timed in turn inside one session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.measurement import Failure, Left
from autofuse.measure.networks.bench import (
    CALL_S,
    LOAD_S,
    OUT_OF_TIME,
    Contender,
    ContenderResult,
    results_of_race,
    written,
)
from autofuse.measure.networks.requests import CloseNetwork, CompareOutputs, LoadNetwork, SaveOutputs, TimeCalls
from autofuse.measure.remote.link import Link
from autofuse.measure.remote.requests import RunProbe
from autofuse.measure.timing.clock import Clock
from autofuse.measure.timing.race import ContenderLostError, InterleavingPolicy, Samples, TimedBlock, interleaved

Array = NDArray[np.generic]
UPLOAD_BYTES_S = 1 << 20
PROBE_S = 60.0
HERE_ONLY = "tvm"
"""The kind of contender that needs TVM's compiler in the process that runs it."""


class _RemoteRacer:
    """One contender on the device; see `autofuse.measure.networks.bench.Raced`."""

    def __init__(self, link: Link, contender: Contender) -> None:
        self.contender, self._link = contender, link
        self.name = contender.name
        self.error, self.wrong = "", ""
        self.max_rel_error: float | None = None
        self.load_s: float | None = None
        self._slowest_s = 1.0

    def load(self, target: Target, threads: int, inputs: Mapping[str, Path], expected: tuple[Path, ...] | None) -> None:
        """Load and check; failures stay in `error` and `wrong`."""
        if self.contender.kind == HERE_ONLY:
            self.error = "TVM's own pipeline is not run on a device elsewhere, which has no compiler"
            return
        path = self.contender.path
        uploads = path.stat().st_size + sum(file.stat().st_size for file in inputs.values())
        request = LoadNetwork(self.contender.kind, path, target, threads, inputs, self.name)
        reply = self._link.ask(request, LOAD_S + uploads / UPLOAD_BYTES_S)
        if isinstance(reply, Failure):
            self._failed(reply)
            return
        self.load_s, self._slowest_s = reply.load_s, reply.first_s
        if expected is None:
            return
        compared = self._link.ask(CompareOutputs(expected, self.name), LOAD_S)
        if isinstance(compared, Failure):
            self.wrong = compared.message
            return
        self.max_rel_error, self.wrong = compared.max_rel_error, compared.reason

    def block(self, calls: int) -> TimedBlock:
        """See `autofuse.measure.timing.race.BlockOf`."""
        if not self._link.child.alive:
            raise ContenderLostError("the session on the device broke under another contender")
        limit = CALL_S + 4 * self._slowest_s * (calls + 1)
        reply = self._link.ask(TimeCalls(calls, self.name), limit)
        if isinstance(reply, Failure):
            raise ContenderLostError(f"{reply.kind}: {reply.message}")
        return TimedBlock(reply.seconds, reply.waited)

    def _failed(self, failure: Failure) -> None:
        self.error = f"{failure.kind}: {failure.message}"


def race(
    link: Link,
    target: Target,
    threads: int,
    contenders: Sequence[Contender],
    inputs: Mapping[str, Array],
    expected: Sequence[Array] | None,
    folder: Path,
    policy: InterleavingPolicy,
    left: Left,
) -> dict[str, ContenderResult]:
    """See `autofuse.measure.runner.Runner.race`; `link` has been greeted. DeviceError when the session breaks."""
    places, outputs = written(folder, inputs, expected)
    racers = []
    for contender in contenders:
        racer = _RemoteRacer(link, contender)
        if left() > 0:
            racer.load(target, threads, places, outputs)
        else:
            racer.error = OUT_OF_TIME
        if not link.child.alive:
            raise DeviceError(f"{link.address.text}: lost while loading {contender.name!r}: {racer.error}")
        racers.append(racer)

    def probe() -> float:
        reply = link.ask(RunProbe(), PROBE_S)
        if isinstance(reply, Failure):
            raise DeviceError(f"{link.address.text}: the clock probe fails: {reply.message}")
        return reply.seconds

    alive = {racer.name: racer.block for racer in racers if not racer.error}
    samples: dict[str, Samples] = {}
    if alive:
        clock = Clock(probe)
        clock.calibrate()
        samples = interleaved(alive, clock, policy, left=left)
    return results_of_race(racers, samples)


def results_of(
    link: Link, target: Target, threads: int, library: Path, inputs: Mapping[str, Array], folder: Path
) -> list[Array]:
    """See `autofuse.measure.runner.Runner.outputs`; results are written to `folder`."""
    places, _ = written(folder, inputs, None)
    racer = _RemoteRacer(link, Contender("outputs", "autofuse", library))
    racer.load(target, threads, places, None)
    if racer.error:
        raise DeviceError(f"{link.address.text}: cannot run {library.name}: {racer.error}")
    reply = link.ask(SaveOutputs(folder, racer.name), LOAD_S)
    if isinstance(reply, Failure):
        raise DeviceError(f"{link.address.text}: no results of {library.name}: {reply.message}")
    results = [np.load(path) for path in reply.paths]
    link.ask(CloseNetwork(racer.name), CALL_S)
    return results
