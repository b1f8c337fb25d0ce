"""What this machine can do at best: arithmetic and memory rates that reports hold kernels against."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.measure.children.child import serve
from autofuse.measure.children.messages import Message, Request
from autofuse.measure.children.process import Child, ask, default_memory
from autofuse.measure.measurement import Failure
from autofuse.measure.timing.clock import PROBE_STEPS, pin_main_thread

MODULE = "autofuse.measure.machine"
LIMIT_S = 60.0
DRAM_BYTES = 128 << 20
"""Bytes swept over by all threads together: beyond the last cache of all but the largest servers."""


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
    """See `MachineRates`."""

    rates: MachineRates


@dataclass(frozen=True)
class MeasureRates(Request[Rates]):
    """Measure the rates of one thread, and of `threads`."""

    target: Target
    threads: int


def probe_machine(target: Target, threads: int) -> MachineRates:
    """Measure the rates in a child process, in about two seconds; DeviceError when it fails."""
    child = Child(MODULE, default_memory(1), {"TVM_NUM_THREADS": str(threads)}, ())
    try:
        reply = ask(child, MeasureRates(target, threads), LIMIT_S)
    finally:
        child.kill()
    if isinstance(reply, Failure):
        raise DeviceError(f"cannot measure this machine's rates: {reply.message}")
    return reply.rates


def _rates(request: MeasureRates) -> Rates:
    target, threads = request.target, request.threads
    found: list[tuple[float, float, float]] = []
    for count in (1, threads):
        found.append(_of_threads(target, count))
        if threads == 1:
            found *= 2
            break
    (flops_1, l2_1, dram_1), (flops_n, l2_n, dram_n) = found
    return Rates(MachineRates(threads, flops_1, flops_n, l2_1, l2_n, dram_1, dram_n))


def _of_threads(target: Target, count: int) -> tuple[float, float, float]:
    """(GFLOP/s, L2 GB/s, DRAM GB/s) of `count` threads: the best of a few runs each."""
    from autofuse.backend.compile.probes import FmaProbe, ReadProbe

    compute = FmaProbe(target, count, PROBE_STEPS)
    near = ReadProbe(target, count, target.l2_bytes // 2, sweeps=64)
    far = ReadProbe(target, count, DRAM_BYTES // count, sweeps=1)
    compute.run()
    with pin_main_thread():
        flops = compute.flops / min(compute.seconds() for _ in range(60))
        near_rate = near.bytes / min(near.seconds() for _ in range(40))
        far_rate = far.bytes / min(far.seconds() for _ in range(6))
    return flops / 1e9, near_rate / 1e9, far_rate / 1e9


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve({MeasureRates: _rates})


if __name__ == "__main__":
    main()
