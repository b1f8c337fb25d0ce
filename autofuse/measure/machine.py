"""What a machine can do at best: arithmetic and memory rates that reports hold kernels against.

The probes' kernels are built where TVM's compiler is, and run where the rates are wanted: in a child of this machine,
or in a session on a device elsewhere (see `autofuse.measure.remote.remote_rates`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.children.child import serve
from autofuse.measure.children.messages import FilePath, Message, Request
from autofuse.measure.children.process import Child, ask
from autofuse.measure.measurement import Failure
from autofuse.measure.timing.clock import PROBE_STEPS, pin_main_thread
from autofuse.values.processes import default_memory

if TYPE_CHECKING:
    from autofuse.backend.compile.jit import LoadedKernel

A = TypeVar("A", bound=Message)
MODULE = "autofuse.measure.machine"
LIMIT_S = 60.0
DRAM_BYTES = 128 << 20
"""Bytes swept over by all threads together: beyond the last cache of all but the largest servers."""
NEAR_SWEEPS = 64
MOST_S = 2.0
"""Seconds after which a probe is not run again: a slow (or emulated) device has shown its best by then."""


@dataclass(frozen=True)
class MachineRates:
    """Best rates seen of float32 multiply-adds (2 operations each) and of reads; decimal giga.

    Of one thread, and of `threads`. `l2`: half of one core's second-level cache, read again and again.
    """

    threads: int
    gflops_1: float
    gflops_n: float
    l2_gbs_1: float
    l2_gbs_n: float
    dram_gbs_1: float
    dram_gbs_n: float


@dataclass(frozen=True)
class Rates(Message):
    """The answer to `MeasureRates`."""

    rates: MachineRates


@dataclass(frozen=True)
class MeasureRates(Request[Rates]):
    """Measure the rates of one thread, and of `threads`, on these CPUs (none named: any).

    `kernels`: the probes, see `Probes`; what is not there is compiled where the rates are measured.
    """

    target: Target
    threads: int
    cpus: tuple[int, ...] = ()
    kernels: dict[str, FilePath] = field(default_factory=dict)


@dataclass(frozen=True)
class Probes(Message):
    """The probes' kernels as libraries, by what they show and for how many threads: "compute-1", "near-1", "far-1"."""

    kernels: dict[str, FilePath]


@dataclass(frozen=True)
class ExportProbes(Request[Probes]):
    """Build the probes for `target`, perhaps another machine, in `folder`."""

    target: Target
    threads: int
    folder: FilePath


def probe_machine(target: Target, threads: int) -> MachineRates:
    """Measure the rates of this machine in a child process, in about two seconds; DeviceError when it fails."""
    return _asked(MeasureRates(target, threads), threads).rates


def export_probes(target: Target, threads: int, folder: Path) -> dict[str, Path]:
    """See `Probes`; DeviceError when they cannot be built."""
    return _asked(ExportProbes(target, threads, folder), threads).kernels


def _asked(request: Request[A], threads: int) -> A:
    child = Child(MODULE, default_memory(1), {"TVM_NUM_THREADS": str(threads)}, ())
    try:
        reply = ask(child, request, LIMIT_S)
    finally:
        child.kill()
    if isinstance(reply, Failure):
        raise DeviceError(f"cannot measure a machine's rates: {reply.message}")
    return reply


def rates_of(request: MeasureRates, load: Callable[[Path], LoadedKernel]) -> Rates:
    """Run the probes in this process; `load`: makes one of `request.kernels` out of its path."""
    target, threads = request.target, request.threads
    found = [
        _of_threads(target, count, {name: load(path) for name, path in request.kernels.items() if _for(name, count)})
        for count in _counts(threads)
    ]
    (flops_1, l2_1, dram_1), (flops_n, l2_n, dram_n) = found[0], found[-1]
    return Rates(MachineRates(threads, flops_1, flops_n, l2_1, l2_n, dram_1, dram_n))


def _counts(threads: int) -> tuple[int, ...]:
    """Numbers of threads that are probed."""
    return (1,) if threads == 1 else (1, threads)


def _for(name: str, count: int) -> bool:
    return name.endswith(f"-{count}")


def _measure(request: MeasureRates) -> Rates:
    from autofuse.backend.compile.jit import load_kernel

    return rates_of(request, load_kernel)


def _export(request: ExportProbes) -> Probes:
    from autofuse.backend.compile.function import export_function
    from autofuse.backend.compile.probes import fma_function, read_function

    target, made = request.target, {}
    for count in _counts(request.threads):
        near_bytes, far_bytes = _sizes(target, count)
        functions = {
            "compute": fma_function(target, count, PROBE_STEPS),
            "near": read_function(target, count, near_bytes, NEAR_SWEEPS),
            "far": read_function(target, count, far_bytes, 1),
        }
        for name, function in functions.items():
            made[f"{name}-{count}"] = request.folder / f"{name}-{count}.so"
            export_function(function, target, made[f"{name}-{count}"])
    return Probes(made)


def _of_threads(target: Target, count: int, kernels: Mapping[str, LoadedKernel]) -> tuple[float, float, float]:
    """(GFLOP/s, L2 GB/s, DRAM GB/s) of `count` threads: the best of a few runs each."""
    from autofuse.backend.compile.probes import FmaProbe, ReadProbe

    near_bytes, far_bytes = _sizes(target, count)
    compute = FmaProbe(target, count, PROBE_STEPS, kernels.get(f"compute-{count}"))
    near = ReadProbe(target, count, near_bytes, NEAR_SWEEPS, kernels.get(f"near-{count}"))
    far = ReadProbe(target, count, far_bytes, 1, kernels.get(f"far-{count}"))
    compute.run()
    with pin_main_thread():
        flops = compute.flops / _shortest(compute.seconds, 60)
        near_rate = near.bytes / _shortest(near.seconds, 40)
        far_rate = far.bytes / _shortest(far.seconds, 6)
    return flops / 1e9, near_rate / 1e9, far_rate / 1e9


def _sizes(target: Target, count: int) -> tuple[int, int]:
    """Bytes a thread that are read over and over, and once."""
    return target.l2_bytes // 2, DRAM_BYTES // count


def _shortest(seconds: Callable[[], float], runs: int) -> float:
    best = spent = seconds()
    for _ in range(runs - 1):
        if spent > MOST_S:
            break
        found = seconds()
        best, spent = min(best, found), spent + found
    return best


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve({MeasureRates: _measure, ExportProbes: _export})


if __name__ == "__main__":
    main()
