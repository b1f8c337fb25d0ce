"""What is asked of a runner and what comes back: a time with its circumstances, or a failure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autofuse.kernels.workload.workload import Workload
from autofuse.values.statistics import Interval

FAILURE_KINDS = ("build_error", "run_error", "timeout", "wrong", "out_of_memory", "device_lost")


@dataclass(frozen=True)
class Failure:
    """Why there is no time: `kind` is one of `FAILURE_KINDS`; `message` is for people."""

    kind: str
    message: str

    def __post_init__(self) -> None:
        if self.kind not in FAILURE_KINDS:
            raise ValueError(f"failure kind {self.kind!r}: expected one of {', '.join(FAILURE_KINDS)}")


@dataclass(frozen=True)
class Case:
    """One set of inputs and the outputs that the reference computed from it.

    Files in .npy form, in the workload's order of inputs and of outputs, logical layout.
    """

    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]


@dataclass(frozen=True)
class MeasureRequest:
    """A candidate: a workload with the values of its schedule's knobs, and the data to check it with.

    `cases`: at least one; all are checked, the first is timed. `constants`: .npy files in workload order,
    original layout. `best_us`: time of the incumbent, so that a clearly slower candidate stops early.
    `limit`: largest relative error (None: the default of the dtype). `undisturbed`: nothing is built meanwhile, because
    the time settles something.
    """

    workload: Workload
    schedule: Mapping[str, int | str]
    cases: tuple[Case, ...]
    constants: tuple[Path, ...] = ()
    best_us: float | None = None
    limit: float | None = None
    undisturbed: bool = False


WAITED_LIMIT = 0.02
"""Part of a block in which its threads may have waited for a core."""


@dataclass(frozen=True)
class Slice:
    """One timed block of `calls` calls: `us` a call, and what happened around it.

    `clock`: the lower of the probes before and after, as a part of full clock. `waited`: part of the
    block in which a thread of the process was ready but not running, or the hypervisor took the core.
    """

    us: float
    calls: int
    clock: float
    waited: float
    good: bool

    @property
    def steady(self) -> bool:
        """Whether nobody took the core, whatever the clock was: it may be held against a block beside it."""
        return self.good or self.waited <= WAITED_LIMIT


def least_disturbed(slices: Sequence[Slice], at_least: int) -> list[float]:
    """Times (µs) of the quarter of `slices` (`at_least` so many) with the best clock and the least waiting.

    For when too few are good: chosen by their circumstances, never by their times.
    """
    ranked = sorted(slices, key=lambda piece: piece.waited + 1.0 - piece.clock)
    return [piece.us for piece in ranked[: max(at_least, len(slices) // 4)]]


@dataclass(frozen=True)
class Timing:
    """All slices of one candidate (bad ones too) and what they say.

    `us`: median and interval over the good slices (over the least disturbed quarter where too few are good,
    and then never trusted). `stopped`: "enough", "slower" (than the incumbent), "drifted" (nobody waits, the slices
    agree, and the clock is not the full one) or "time" (the cap was reached). `reason`: why not trusted. `probe_us`:
    full-clock time of the clock probe that slices were held against.
    """

    us: Interval
    slices: tuple[Slice, ...]
    trusted: bool
    reason: str
    stopped: str
    probe_us: float = 0.0


@dataclass(frozen=True)
class Measurement:
    """Exactly one of `timing` and `failure`. `max_rel_error` is None where nothing was compared.

    `build_s`: seconds of scheduling, lowering and LLVM, on a machine that may have been busy. `code`: which code was
    built, see `autofuse.kernels.tir.digest.code_key` ("" where nothing was).
    """

    timing: Timing | None = None
    failure: Failure | None = None
    build_s: float | None = None
    max_rel_error: float | None = None
    threads: int = 1
    code: str = ""

    def __post_init__(self) -> None:
        if (self.timing is None) == (self.failure is None):
            raise ValueError("a measurement is exactly one of a timing and a failure")

    @property
    def median_us(self) -> float | None:
        """Median time of a call; None for a failure."""
        return None if self.timing is None else self.timing.us.median


Left = Callable[[], float]
"""Seconds that may still be taken; 0 says that it is time to stop. Asked often, by whatever may take long."""


def no_end() -> float:
    """The time of whom nobody limits."""
    return math.inf


BUILD_CPU_S = 10.0
"""Processor time in which a kernel is built, or another one taken."""


@dataclass(frozen=True)
class Limits:
    """The limits of a child, enforced by its parent. Seconds, and bytes of its own memory.

    `start_s`: until it has imported and warmed up. `build_cpu_s`: of processor time, which the child keeps itself,
    however busy the machine is. `run_s`: a checked run, also a timing beyond its cap.
    `memory_bytes`: None = an equal share of 80 % of the machine's memory. `candidates`: a child is replaced
    after as many; `growth_bytes`: or when its idle memory has grown by so much.
    """

    start_s: float = 90.0
    build_s: float = 30.0
    build_cpu_s: float = BUILD_CPU_S
    run_s: float = 15.0
    memory_bytes: int | None = None
    candidates: int = 200
    growth_bytes: int = 1 << 30
    environment: Mapping[str, str] = field(default_factory=dict)
