"""The probes of a machine's rates: which kernels there are, and what their times say. They run on the device itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autofuse.backend.compile.jit import LoadedKernel
from autofuse.backend.compile.probes import (
    ADD,
    DIVIDE,
    DOTS,
    LINE,
    MULTIPLY_ADD,
    ChaseProbe,
    FmaProbe,
    ReadProbe,
    chase_function,
    dots_function,
    fma_function,
    read_function,
)
from autofuse.device.target import Target
from autofuse.measure.timing.clock import PROBE_STEPS

DRAM_BYTES = 128 << 20
"""Bytes swept over by all threads together: beyond the last cache of all but the largest servers."""
SWEPT_BYTES = 16 << 20
"""Bytes of a cache that are read in a run, in as many sweeps as that takes."""
LAST_SHARE = 4
"""A quarter of the last cache is read: others use it, too."""
CHASED_STEPS = 1 << 14
"""Reads in a run of those that wait for one another."""
ROUNDS, FURTHER_RUNS = 2, 6
"""Rounds through a chain before its reads come from where it lies, and runs beyond them."""
EMPTY_CALLS = 20
MOST_S = 2.0
"""Seconds after which a probe is not run again: a slow (or emulated) device has shown its best by then."""
DOTS_ALONE = f"{DOTS}-1"
L1, L2, L3, DRAM = "l1", "l2", "l3", "dram"


@dataclass(frozen=True)
class Probing:
    """The probes for one target. `l3_bytes`: of the last cache (0: unknown). `kernels`: those that were compiled
    elsewhere, by name and number of threads; the others are compiled when they are run."""

    target: Target
    l3_bytes: int
    kernels: Mapping[str, LoadedKernel]

    def functions(self, threads: int) -> dict[str, Any]:
        """TIR of every probe for one thread and for `threads`, by its name."""
        target, found = self.target, {}
        for count in dict.fromkeys((1, threads)):
            found[f"compute-{count}"] = fma_function(target, count, PROBE_STEPS)
            found[f"empty-{count}"] = fma_function(target, count, 1)
            for level in (L2, DRAM):
                found[f"read {level}-{count}"] = read_function(target, count, *self._swept(level, count))
        for level in self.levels:
            found[f"read {level}-1"] = read_function(target, 1, *self._swept(level, 1))
            found[f"wait {level}-1"] = chase_function(self._bytes(level), CHASED_STEPS)
        for instruction in (ADD, DIVIDE):
            found[f"{instruction}-1"] = fma_function(target, 1, PROBE_STEPS, instruction)
        dots = dots_function(target, PROBE_STEPS)
        return found if dots is None else found | {DOTS_ALONE: dots}

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of memory that this machine has, as far as anybody knows."""
        return (L1, L2, L3, DRAM) if self.l3_bytes // LAST_SHARE > self.target.l2_bytes else (L1, L2, DRAM)

    def of_threads(self, count: int) -> tuple[float, float, float]:
        """(GFLOP/s, GB/s of the second cache, GB/s of memory) of `count` threads: the best of a few runs each."""
        return self._arithmetic(MULTIPLY_ADD, count), self._read(L2, count), self._read(DRAM, count)

    def of_one_thread(self) -> dict[str, float]:
        """Every further rate and latency of one thread, by its name in `MachineRates`."""
        # Kernels that came from elsewhere say whether there is such an instruction: the compiler that knows is there.
        dots = DOTS_ALONE in self.kernels if self.kernels else dots_function(self.target, 1) is not None
        probed = (ADD, DIVIDE, DOTS) if dots else (ADD, DIVIDE)
        found = {f"{name}_gflops_1": self._arithmetic(name, 1) for name in probed}
        for level in self.levels:
            found[f"{level}_ns"] = self._wait(level)
            if level in (L1, L3):
                found[f"{level}_gbs_1"] = self._read(level, 1)
        return found

    def dispatch_us(self, threads: int) -> float:
        """Microseconds of a kernel with nothing to do on so many threads."""
        probe = FmaProbe(self.target, threads, 1, self.kernels.get(f"empty-{threads}"))
        probe.run()
        return shortest(lambda: probe.seconds(EMPTY_CALLS), 40) * 1e6

    def _arithmetic(self, instruction: str, count: int) -> float:
        name = "compute" if instruction == MULTIPLY_ADD else instruction
        probe = FmaProbe(self.target, count, PROBE_STEPS, self.kernels.get(f"{name}-{count}"), instruction)
        probe.run()
        return probe.flops / shortest(probe.seconds, 60) / 1e9

    def _read(self, level: str, count: int) -> float:
        size_bytes, sweeps = self._swept(level, count)
        probe = ReadProbe(self.target, count, size_bytes, sweeps, self.kernels.get(f"read {level}-{count}"))
        return probe.bytes / shortest(probe.seconds, 6 if level == DRAM else 40) / 1e9

    def _wait(self, level: str) -> float:
        """Nanoseconds of a read that waits for the one before."""
        size_bytes = self._bytes(level)
        probe = ChaseProbe(self.target, size_bytes, CHASED_STEPS, self.kernels.get(f"wait {level}-1"))
        rounds = 1 if level == DRAM else ROUNDS * size_bytes // (4 * LINE) // CHASED_STEPS
        return shortest(probe.seconds, rounds + FURTHER_RUNS) / CHASED_STEPS * 1e9

    def _swept(self, level: str, count: int) -> tuple[int, int]:
        """Bytes a thread that are read, and how often in a run."""
        size_bytes = self._bytes(level) // (count if level == DRAM else 1)
        return size_bytes, 1 if level == DRAM else max(1, SWEPT_BYTES // size_bytes)

    def _bytes(self, level: str) -> int:
        near = {L1: self.target.l1_bytes // 2, L2: self.target.l2_bytes // 2, L3: self.l3_bytes // LAST_SHARE}
        return near.get(level, DRAM_BYTES)


def shortest(seconds: Callable[[], float], runs: int) -> float:
    """The shortest of so many runs, or of as many as there is time for."""
    best = spent = seconds()
    for _ in range(runs - 1):
        if spent > MOST_S:
            break
        found = seconds()
        best, spent = min(best, found), spent + found
    return best
