"""Whole networks against each other: each rival in its own process, blocks in turn, results checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.device.target import Target
from autofuse.errors import DeviceError, InputError
from autofuse.measure.children.messages import Message, Request
from autofuse.measure.children.process import Child, wait
from autofuse.measure.measurement import Failure, Left, no_end
from autofuse.measure.networks.requests import CompareOutputs, LoadNetwork, SaveOutputs, StartProbe, TimeCalls
from autofuse.measure.timing.clock import Clock
from autofuse.measure.timing.lock import alone
from autofuse.measure.timing.race import (
    ContenderLostError,
    InterleavingPolicy,
    Samples,
    TimedBlock,
    interleaved,
    times_of,
)
from autofuse.values.processes import default_memory
from autofuse.values.ratios import Timed, compare, same_thing
from autofuse.values.scratch import scratch_folder

MODULE = "autofuse.measure.networks.contender"
KINDS = ("autofuse", "onnxruntime", "tvm")
LOAD_S = 300.0
CALL_S = 60.0
TICK_S = 0.5
OUT_OF_TIME = "no time was left for it"
DEFAULT_POLICY = InterleavingPolicy()

Array = NDArray[np.generic]
A = TypeVar("A", bound=Message)
Files = tuple[dict[str, Path], tuple[Path, ...] | None]
"""Files of a network's inputs by name, and of its expected outputs in order."""


@dataclass(frozen=True)
class Host:
    """The program that a contender runs in: `python -m module`.

    It must serve a `contender.ContenderSession`, whose opener then says which kinds there are.
    `python`: an interpreter with NumPy and pydantic, of any virtual environment (None: this one). `load_s`: limit of
    loading.
    """

    module: str = MODULE
    python: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    load_s: float = LOAD_S


OWN_HOST = Host()


@dataclass(frozen=True)
class Contender:
    """`kind`: "autofuse" (`path` is a library), "onnxruntime" or "tvm" (TVM's default pipeline; an ONNX file).

    Another `host` has kinds of its own. `threads`: those that it runs with (None: as many as the race).
    """

    name: str
    kind: str
    path: Path
    host: Host = OWN_HOST
    threads: int | None = None


@dataclass(frozen=True)
class ContenderResult:
    """`median_us`: over the rounds that count (`timed`, see `autofuse.values.ratios`); of its own blocks when it is
    wrong or lost.

    `ratio`: its time over that of the first contender, with the interval [`ci_lo`, `ci_hi`]; None where there is none.
    `trusted`: both it and the first are. `reason`: why not. `error`: set when it failed; then there may be no times.
    `max_rel_error`: against the expected outputs, None when not compared; `wrong`: how they differ beyond tolerance.
    """

    median_us: float | None
    ratio: float | None
    ci_lo: float | None
    ci_hi: float | None
    trusted: bool
    reason: str = ""
    error: str = ""
    max_rel_error: float | None = None
    wrong: str = ""
    load_s: float | None = None
    samples: Samples | None = None
    timed: Timed | None = None


def bench_contenders(
    contenders: Sequence[Contender],
    inputs: Mapping[str, Array],
    threads: int,
    budget_s: float,
    *,
    target: Target,
    expected: Sequence[Array] | None = None,
    policy: InterleavingPolicy = DEFAULT_POLICY,
    lock: Path | None = None,
    memory_bytes: int | None = None,
    left: Left = no_end,
) -> dict[str, ContenderResult]:
    """Load every contender in a process of its own, check its outputs, and time them in turn.

    `inputs`: by name of the model's inputs. `expected`: outputs in the model's order, to compare with.
    `budget_s`: seconds of timing, without loading. Ratios are to the first contender. While one runs, the
    processes of the others are stopped, so that no thread pool's spinning disturbs it, each with the settings that
    it ships with; every contender's main thread is pinned once its pool runs. `memory_bytes`: what each may take
    (None: an equal share of most of the machine's). When no time is `left`, what is not loaded yet stays so,
    and no block begins. Failures are values in the results;
    InputError for contenders that cannot be told apart, DeviceError when not even the clock probe starts.
    """
    _check(contenders)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        files = written(folder, inputs, expected)
        memory = memory_bytes or default_memory(len(contenders))
        racers = [stack.enter_context(_Racer(contender, threads, target, memory)) for contender in contenders]
        probe = stack.enter_context(_Racer(None, threads, target, memory))
        probe.start_probe()
        for racer in racers:
            racer.load(files, left)
        alive = {racer.name: racer.block for racer in racers if not racer.error}
        stack.enter_context(alone(lock))
        samples: dict[str, Samples] = {}
        if alive:
            clock = Clock(lambda: probe.block(1).seconds)
            clock.calibrate()
            samples = interleaved(alive, clock, replace(policy, budget_s=budget_s), left=left)
        return results_of_race(racers, samples)


def outputs_of(
    library: Path, inputs: Mapping[str, Array], threads: int, target: Target, left: Left = no_end
) -> list[Array]:
    """Outputs of a compiled library, run once in its own process.

    DeviceError when it crashes, hangs or refuses, and when no time is `left`.
    """
    contender = Contender("outputs", "autofuse", library)
    with scratch_folder() as folder, _Racer(contender, threads, target, default_memory(1)) as racer:
        racer.load(written(folder, inputs, None), left)
        if racer.error:
            raise DeviceError(f"{library.name} does not run: {racer.error}")
        reply = racer.ask(SaveOutputs(folder), LOAD_S, left)
        if isinstance(reply, Failure):
            raise DeviceError(f"{library.name} gives no results: {reply.message}")
        return [np.load(path) for path in reply.paths]


class _Racer:
    """The coordinator's handle on one contender's process, stopped after each answer until it is asked again.

    Not before its first answer: a child that is stopped while it starts would outlive a killed coordinator.
    """

    def __init__(self, contender: Contender | None, threads: int, target: Target, memory_bytes: int) -> None:
        self.contender, self.target = contender, target
        self.threads = contender.threads or threads if contender else threads
        self.name = contender.name if contender else "the clock probe"
        self.error, self.wrong = "", ""
        self.max_rel_error: float | None = None
        self.load_s: float | None = None
        self._slowest_s = 1.0
        host = contender.host if contender else OWN_HOST
        environment = {"TVM_NUM_THREADS": str(self.threads), **host.environment}
        self._child = Child(host.module, memory_bytes, environment, (), host.python)

    def __enter__(self) -> _Racer:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()

    def ask(self, message: Request[A], limit_s: float, left: Left = no_end) -> A | Failure:
        """One request, with the process running only meanwhile; a Failure, and its end, when no time is `left`."""
        self._child.resume()
        self._child.request(message, limit_s)
        reply = wait(self._child, TICK_S, left)
        if reply is None:
            self._child.kill()
            return Failure("timeout", OUT_OF_TIME)
        self._child.pause()
        return cast(A | Failure, reply)

    def start_probe(self) -> None:
        reply = self.ask(StartProbe(self.target, self.threads), LOAD_S)
        if isinstance(reply, Failure):
            raise DeviceError(f"the clock probe does not start: {reply.message}")

    def load(self, files: Files, left: Left = no_end) -> None:
        """Load and check; failures stay in `error` and `wrong`."""
        assert self.contender is not None
        if left() <= 0:
            self.error = OUT_OF_TIME
            return
        inputs, expected = files
        request = LoadNetwork(self.contender.kind, self.contender.path, self.target, self.threads, inputs)
        reply = self.ask(request, self.contender.host.load_s, left)
        if isinstance(reply, Failure):
            self.error = f"{reply.kind}: {reply.message}"
            return
        self.load_s, self._slowest_s = reply.load_s, reply.first_s
        if expected is None:
            return
        compared = self.ask(CompareOutputs(expected), CALL_S, left)
        if isinstance(compared, Failure) and compared.message == OUT_OF_TIME:
            self.error = OUT_OF_TIME
            return
        if isinstance(compared, Failure):
            self.wrong = compared.message
            return
        self.max_rel_error, self.wrong = compared.max_rel_error, compared.reason

    def block(self, calls: int) -> TimedBlock:
        """See `autofuse.measure.timing.race.BlockOf`."""
        reply = self.ask(TimeCalls(calls), CALL_S + 4 * self._slowest_s * (calls + 1))
        if isinstance(reply, Failure):
            raise ContenderLostError(f"{reply.kind}: {reply.message}")
        return TimedBlock(reply.seconds, reply.waited)


class Raced(Protocol):
    """A contender in a race, with what became of it beside its times; see `ContenderResult`."""

    name: str
    error: str
    wrong: str
    max_rel_error: float | None
    load_s: float | None


def results_of_race(racers: Sequence[Raced], samples: Mapping[str, Samples]) -> dict[str, ContenderResult]:
    """Results by name, with ratios to the first of `racers`; `samples`: of those that ran."""
    found: dict[str, ContenderResult] = {}
    for racer in racers:
        own = samples.get(racer.name)
        if own is None or own.us is None:
            error = racer.error or (own.error if own else "")
            found[racer.name] = ContenderResult(None, None, None, None, False, error, error, load_s=racer.load_s)
            continue
        found[racer.name] = ContenderResult(
            own.us.median, None, None, None, own.trusted, own.reason, own.error,
            racer.max_rel_error, racer.wrong, racer.load_s, own,
        )  # fmt: skip
    return compared(found)


def compared(results: Mapping[str, ContenderResult]) -> dict[str, ContenderResult]:
    """The results with the times and ratios of one race among those that are right and were not lost.

    The first contender is the one that the others are compared with.
    """
    fit = {name: one.samples for name, one in results.items() if one.samples and not one.error and not one.wrong}
    times = times_of(fit)
    first = next(iter(results))
    return {name: _beside(one, times.get(name), first, results[first], times) for name, one in results.items()}


def _beside(
    one: ContenderResult, own: Timed | None, first: str, other: ContenderResult, times: Mapping[str, Timed]
) -> ContenderResult:
    """A result beside that of the first contender."""
    if one.samples is None:
        return one
    theirs = other.samples.reason if other.samples else ""
    reason = one.samples.reason or (f"{first}: {theirs}" if theirs else "")
    if own is None or first not in times:
        return replace(one, ratio=None, ci_lo=None, ci_hi=None, trusted=False, reason=reason, timed=own)
    ratio = same_thing(own) if own is times[first] else compare(own, times[first])
    return replace(
        one, median_us=own.us.median, ratio=ratio.value, ci_lo=ratio.lo, ci_hi=ratio.hi,
        trusted=ratio.trusted, reason=reason or ("" if ratio.value else ratio.verdict), timed=own,
    )  # fmt: skip


def _check(contenders: Sequence[Contender]) -> None:
    names = [contender.name for contender in contenders]
    if not names or len(set(names)) != len(names):
        raise InputError(f"contenders need distinct names, got: {', '.join(names) or 'none'}")
    for contender in contenders:
        if contender.host.module == MODULE and contender.kind not in KINDS:
            raise InputError(f"contender {contender.name!r}: kind {contender.kind!r} is not one of {', '.join(KINDS)}")


def written(folder: Path, inputs: Mapping[str, Array], expected: Sequence[Array] | None) -> Files:
    """The arrays as files in `folder`."""
    places = {name: folder / f"input-{index}.npy" for index, name in enumerate(inputs)}
    for name, array in inputs.items():
        np.save(places[name], array, allow_pickle=False)
    if expected is None:
        return places, None
    outputs = tuple(folder / f"output-{index}.npy" for index in range(len(expected)))
    for path, array in zip(outputs, expected, strict=True):
        np.save(path, array, allow_pickle=False)
    return places, outputs
