"""What a coordinator asks of the children that build, check and time single kernels, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.device.target import Target
from autofuse.measure.children.messages import Done, FilePath, Message, Request
from autofuse.measure.measurement import BUILD_CPU_S, Case, Timing
from autofuse.measure.timing.sampling import SamplingPolicy

# -- building


@dataclass(frozen=True)
class StartBuilder(Request[Done]):
    """Import everything that builds for `target`; `builder`: "package.module:function"."""

    target: Target
    builder: str


@dataclass(frozen=True)
class Exported(Message):
    """A kernel's library and its packed constants as files; seconds of building, and `Measurement.code`."""

    build_s: float
    code: str
    kernel: FilePath
    constants: tuple[FilePath, ...]


@dataclass(frozen=True)
class Export(Request[Exported]):
    """Build a kernel (its workload as text) with these constants (.npy files) into `folder`.

    `cpu_s`: processor time that it may take.
    """

    workload: str
    schedule: Mapping[str, int | str]
    builder: str
    constants: tuple[FilePath, ...]
    folder: FilePath
    cpu_s: float = BUILD_CPU_S


@dataclass(frozen=True)
class Translate(Request[Done]):
    """Translate the function in the file `function` to the object file `output`, where it is called `symbol`."""

    function: FilePath
    symbol: str
    output: FilePath
    cpu_s: float = BUILD_CPU_S


@dataclass(frozen=True)
class ExportProbe(Request[Done]):
    """Build the clock probe's loop as a shared library at `path`."""

    path: FilePath
    threads: int
    steps: int


@dataclass(frozen=True)
class StartWorker(Request[Done]):
    """Become a child that builds, checks and times here. `cpus`: those that it may use (none named: any).

    `objects`: folder that keeps what it compiles (None: nothing is kept).
    """

    target: Target
    builder: str
    threads: int
    cpus: tuple[int, ...] = ()
    objects: FilePath | None = None


@dataclass(frozen=True)
class KernelBuilt(Message):
    """Seconds of building, and `Measurement.code`."""

    build_s: float
    code: str


@dataclass(frozen=True)
class Build(Request[KernelBuilt]):
    """Build a kernel and hold it as candidate `id`. `cpu_s`: processor time that building may take."""

    id: int
    workload: str
    schedule: Mapping[str, int | str]
    builder: str
    constants: tuple[FilePath, ...]
    cpu_s: float = BUILD_CPU_S


# -- candidates


@dataclass(frozen=True)
class Checked(Message):
    """The candidate is right, with this error at most."""

    max_rel_error: float


@dataclass(frozen=True)
class Check(Request[Checked]):
    """Run a candidate on each case; refused as "wrong" unless all outputs compare."""

    id: int
    cases: tuple[Case, ...]
    limit: float | None = None


@dataclass(frozen=True)
class Timed(Message):
    """A time, and the seconds of a clock probe at full clock as the session now knows them."""

    timing: Timing
    clock_full_s: float


@dataclass(frozen=True)
class Time(Request[Timed]):
    """Time a candidate. `best_us`: of the incumbent. `clock_full_s`: a probe at full clock, as the session knows it (0:
    not yet)."""

    id: int
    policy: SamplingPolicy
    best_us: float | None = None
    clock_full_s: float = 0.0


@dataclass(frozen=True)
class Drop(Request[Done]):
    """Forget a candidate; unknown ones are fine."""

    id: int
