"""What a machine can do at best: arithmetic and memory rates that reports hold kernels against.

The probes' kernels are built where TVM's compiler is, and run where the rates are wanted: in a child of this machine,
or in a session on a device elsewhere (see `autofuse.measure.remote.remote_rates`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.children.child import serve
from autofuse.measure.children.messages import FilePath, Message, Request
from autofuse.measure.children.process import Child, ask
from autofuse.measure.measurement import Failure
from autofuse.measure.timing.clock import pin_main_thread
from autofuse.values.processes import default_memory

if TYPE_CHECKING:
    from autofuse.backend.compile.jit import LoadedKernel

A = TypeVar("A", bound=Message)
MODULE = "autofuse.measure.machine"
LIMIT_S = 60.0


@dataclass(frozen=True)
class MachineRates:
    """Best rates seen of float32 multiply-adds (2 operations each) and of reads; decimal giga.

    Of one thread, and of `threads`. `l2`: half of one core's second-level cache, read again and again. `l1`, `l3`: the
    same of the first and the last level. `add`, `divide`: additions and divisions. `dots`: multiply-adds of bfloat16 by
    the instruction for them. `_ns`: nanoseconds of a read that waits for the one before, at each level. `dispatch_us`:
    of a kernel with nothing to do, on all `threads`. 0.0 where it was not probed: by an earlier version, or there is no
    third level or no such instruction.
    """

    threads: int
    gflops_1: float
    gflops_n: float
    l2_gbs_1: float
    l2_gbs_n: float
    dram_gbs_1: float
    dram_gbs_n: float
    add_gflops_1: float = 0.0
    divide_gflops_1: float = 0.0
    dots_gflops_1: float = 0.0
    l1_gbs_1: float = 0.0
    l3_gbs_1: float = 0.0
    l1_ns: float = 0.0
    l2_ns: float = 0.0
    l3_ns: float = 0.0
    dram_ns: float = 0.0
    dispatch_us: float = 0.0


@dataclass(frozen=True)
class Rates(Message):
    """The answer to `MeasureRates`."""

    rates: MachineRates


@dataclass(frozen=True)
class MeasureRates(Request[Rates]):
    """Measure the rates of one thread, and of `threads`, on these CPUs (none named: any).

    `l3_bytes`: of the last cache (0: there is none, or nobody knows). `kernels`: the probes, see `Probes`; what is not
    there is compiled where the rates are measured.
    """

    target: Target
    threads: int
    cpus: tuple[int, ...] = ()
    l3_bytes: int = 0
    kernels: dict[str, FilePath] = field(default_factory=dict)


@dataclass(frozen=True)
class Probes(Message):
    """The probes' kernels as libraries, by what they show and for how many threads: "compute-1", "read l2-1", ..."""

    kernels: dict[str, FilePath]


@dataclass(frozen=True)
class ExportProbes(Request[Probes]):
    """Build the probes for `target`, perhaps another machine, in `folder`."""

    target: Target
    threads: int
    folder: FilePath
    l3_bytes: int = 0


def probe_machine(target: Target, threads: int, l3_bytes: int = 0, limit_s: float = LIMIT_S) -> MachineRates:
    """Measure the rates of this machine in a child process, in a few seconds; DeviceError when it fails, or takes more
    than `limit_s`."""
    return _asked(MeasureRates(target, threads, l3_bytes=l3_bytes), threads, limit_s).rates


def export_probes(
    target: Target, threads: int, folder: Path, l3_bytes: int = 0, limit_s: float = LIMIT_S
) -> dict[str, Path]:
    """See `Probes`; DeviceError when they cannot be built, or not within `limit_s`."""
    return _asked(ExportProbes(target, threads, folder, l3_bytes), threads, limit_s).kernels


def _asked(request: Request[A], threads: int, limit_s: float) -> A:
    child = Child(MODULE, default_memory(1), {"TVM_NUM_THREADS": str(threads)}, ())
    try:
        reply = ask(child, request, limit_s)
    finally:
        child.kill()
    if isinstance(reply, Failure):
        raise DeviceError(f"cannot measure a machine's rates: {reply.message}")
    return reply


def rates_of(request: MeasureRates, load: Callable[[Path], LoadedKernel]) -> Rates:
    """Run the probes in this process; `load`: makes one of `request.kernels` out of its path."""
    from autofuse.measure.machine_probes import Probing

    target, threads = request.target, request.threads
    probing = Probing(target, request.l3_bytes, {name: load(path) for name, path in request.kernels.items()})
    with pin_main_thread():
        alone = probing.of_threads(1)
        together = alone if threads == 1 else probing.of_threads(threads)
        further = probing.of_one_thread()
    names = "gflops", "l2_gbs", "dram_gbs"
    rates = {f"{name}_1": rate for name, rate in zip(names, alone, strict=True)}
    rates |= {f"{name}_n": rate for name, rate in zip(names, together, strict=True)}
    return Rates(MachineRates(threads, **rates, **further, dispatch_us=probing.dispatch_us(threads)))


def _measure(request: MeasureRates) -> Rates:
    from autofuse.backend.compile.jit import load_kernel

    return rates_of(request, load_kernel)


def _export(request: ExportProbes) -> Probes:
    from autofuse.backend.compile.function import export_function
    from autofuse.measure.machine_probes import Probing

    made = {}
    for name, function in Probing(request.target, request.l3_bytes, {}).functions(request.threads).items():
        made[name] = request.folder / f"{name.replace(' ', '-')}.so"
        export_function(function, request.target, made[name])
    return Probes(made)


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve({MeasureRates: _measure, ExportProbes: _export})


if __name__ == "__main__":
    main()
