"""Small kernels that show what a core can do: arithmetic in registers, streaming reads, and reads that wait."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.compile.jit import JitKernel, LoadedKernel, tensor
from autofuse.device.target import Target

READ_STREAMS = 8
MULTIPLY_ADD, ADD, DIVIDE, DOTS = "multiply-add", "add", "divide", "dots"
"""Instructions whose peak is probed; the last is the one on bfloat16, where the target has it."""
_OPERATIONS = {MULTIPLY_ADD: 2.0, DOTS: 4.0}
LINE = 16
"""Integers of a cache line; a chase touches each line once before it comes back."""


class FmaProbe:
    """A loop of multiply-adds, or of another instruction, in registers only, one copy on each of `threads` threads.

    It is bound by throughput: enough independent accumulators hide the latency (4 cycles, up to 4 pipes). Nothing
    leaves the core, so only the clock, and whoever else uses the core, can change its time.
    """

    def __init__(
        self, target: Target, threads: int, steps: int, kernel: LoadedKernel | None = None,
        instruction: str = MULTIPLY_ADD,
    ) -> None:  # fmt: skip
        """`kernel`: the loop that `fma_function` makes of the same arguments, compiled elsewhere (None: now)."""
        accumulators, operations = _accumulators(target), _OPERATIONS.get(instruction, 1.0)
        self.flops = operations * accumulators * target.lanes * steps * threads
        if kernel is None:
            made = dots_function(target, steps) if instruction == DOTS else None
            kernel = JitKernel(made or fma_function(target, threads, steps, instruction), target)
        self._kernel = kernel
        factors = np.stack([np.full(target.lanes, 0.75), np.full(target.lanes, 0.25)]).astype("float32")
        out = np.zeros(threads * accumulators * target.lanes, "float32")
        self._arguments = (tensor(factors.ravel()), tensor(out))

    def run(self) -> None:
        """Run the loop once."""
        self._kernel(*self._arguments)

    def seconds(self, calls: int = 1) -> float:
        """Wall seconds of one run, the mean of `calls`."""
        return self._kernel.block_seconds(self._arguments, calls, 1.0)


class ReadProbe:
    """Sums `size_bytes` of float32 a thread, `sweeps` times, with vector loads: reads, and nothing else."""

    def __init__(
        self, target: Target, threads: int, size_bytes: int, sweeps: int, kernel: LoadedKernel | None = None
    ) -> None:
        """`kernel`: what `read_function` makes of the same arguments, compiled elsewhere (None: now)."""
        width, rows = target.lanes * READ_STREAMS, _rows(target, size_bytes)
        self.bytes = 4.0 * rows * width * sweeps * threads
        self._kernel = kernel or JitKernel(read_function(target, threads, size_bytes, sweeps), target)
        self._arguments = (
            tensor(np.ones(threads * rows * width, "float32")),
            tensor(np.zeros(threads * width, "float32")),
        )

    def seconds(self, calls: int = 1) -> float:
        """Wall seconds of one run, the mean of `calls`."""
        return self._kernel.block_seconds(self._arguments, calls, 1.0)


class ChaseProbe:
    """Reads that each wait for the one before: a chain through all cache lines of `size_bytes`, in random order.

    Every run goes on along the chain where the last one stopped.
    """

    def __init__(self, target: Target, size_bytes: int, steps: int, kernel: LoadedKernel | None = None) -> None:
        """`steps`: reads a run. `kernel`: what `chase_function` makes of the same arguments (None: compiled now)."""
        self.steps = steps
        self._kernel = kernel or JitKernel(chase_function(size_bytes, steps), target)
        self._arguments = (tensor(_chain(_chased(size_bytes))), tensor(np.zeros(1, "int32")))

    def seconds(self) -> float:
        """Wall seconds of one run."""
        return self._kernel.block_seconds(self._arguments, 1, 1.0)


def _chased(size_bytes: int) -> int:
    """Integers in whole cache lines of so many bytes."""
    return max(2, size_bytes // (4 * LINE)) * LINE


def _chain(count: int) -> NDArray[np.int32]:
    """At the start of each line the place of another one, so that all of them make one ring."""
    order = np.random.default_rng(0).permutation(count // LINE) * LINE
    following = np.zeros(count, "int32")
    following[order] = np.roll(order, -1)
    return following


def chase_function(size_bytes: int, steps: int) -> Any:
    """TIR of place = following[place], `steps` times."""
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as build

    with IRBuilder() as builder, build.prim_func(s_tir=True):
        build.func_name("main")
        build.func_attr({"tirx.noalias": True})
        following = build.arg("following", build.buffer((_chased(size_bytes),), "int32"))
        place = build.arg("place", build.buffer((1,), "int32"))
        held = build.sblock_alloc_buffer((1,), "int32", scope="local")
        build.buffer_store(held, place[0], [0])
        with build.serial(0, steps):
            build.buffer_store(held, following[held[0]], [0])
        build.buffer_store(place, held[0], [0])
    return builder.get()


def _accumulators(target: Target) -> int:
    return 20 if target.registers >= 32 else 12


def fma_function(target: Target, threads: int, steps: int, instruction: str = MULTIPLY_ADD) -> Any:
    """TIR of out = (... (a * x + y) * x + y ...), `steps` times, in as many vectors a thread as registers allow.

    Of another instruction: ... a + y, or a / x.
    """
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as build

    lanes, accumulators = target.lanes, _accumulators(target)
    size = accumulators * lanes
    with IRBuilder() as builder, build.prim_func(s_tir=True):
        build.func_name("main")
        build.func_attr({"tirx.noalias": True})
        factors = build.arg("factors", build.buffer((2 * lanes,), "float32"))
        out = build.arg("out", build.buffer((threads * size,), "float32"))
        with build.parallel(0, threads) as thread:
            held = build.sblock_alloc_buffer((size,), "float32", scope="local")
            with build.unroll(0, accumulators) as index, build.vectorized(0, lanes) as lane:
                build.buffer_store(held, factors[lane], [index * lanes + lane])
            with (
                build.serial(0, steps),
                build.unroll(0, accumulators) as index,
                build.vectorized(0, lanes) as lane,
            ):
                value = _applied(instruction, held[index * lanes + lane], factors[lane], factors[lanes + lane])
                build.buffer_store(held, value, [index * lanes + lane])
            with build.unroll(0, accumulators) as index, build.vectorized(0, lanes) as lane:
                value = held[index * lanes + lane]
                build.buffer_store(out, value, [thread * size + index * lanes + lane])
    return builder.get()


def dots_function(target: Target, steps: int) -> Any:
    """TIR of the same of one thread, by the instruction on bfloat16 that a target has: two products a lane and their
    sum. None where it has none."""
    from tvm import tirx
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as build

    from autofuse.kernels.families.narrow.instructions import bfloat16_multipliers

    dots = bfloat16_multipliers(target).get(DOTS)
    if dots is None:
        return None
    lanes, accumulators = target.lanes, _accumulators(target)
    with IRBuilder() as builder, build.prim_func(s_tir=True):
        build.func_name("main")
        build.func_attr({"tirx.noalias": True})
        factors = build.arg("factors", build.buffer((2 * lanes,), "float32"))
        out = build.arg("out", build.buffer((accumulators * lanes,), "float32"))
        with dots.known():
            held = [build.sblock_alloc_buffer((lanes,), "float32", scope="local") for _ in range(accumulators)]
            whole = tirx.Ramp(0, 1, lanes)
            for one in held:
                build.buffer_store(one, factors[whole], [whole])
            left, right = (
                build.bind(tirx.reinterpret(f"int32x{lanes}", factors[tirx.Ramp(first, 1, lanes)]))
                for first in (0, lanes)
            )
            with build.serial(0, steps):
                for one in held:
                    build.buffer_store(one, dots.add(one[whole], left, right), [whole])
            for number, one in enumerate(held):
                build.buffer_store(out, one[whole], [tirx.Ramp(number * lanes, 1, lanes)])
    return builder.get()


def _applied(instruction: str, value: Any, factor: Any, summand: Any) -> Any:
    """One step of the loop, as TIR."""
    if instruction == ADD:
        return value + summand
    return value / factor if instruction == DIVIDE else value * factor + summand


def _rows(target: Target, size_bytes: int) -> int:
    """Rows of one vector a stream in so many bytes."""
    return max(1, size_bytes // (4 * target.lanes * READ_STREAMS))


def read_function(target: Target, threads: int, size_bytes: int, sweeps: int) -> Any:
    """TIR of out[t] = sum over sweeps and rows of data[t, row], one vector a stream."""
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as build

    lanes, rows = target.lanes, _rows(target, size_bytes)
    width = lanes * READ_STREAMS
    with IRBuilder() as builder, build.prim_func(s_tir=True):
        build.func_name("main")
        build.func_attr({"tirx.noalias": True})
        data = build.arg("data", build.buffer((threads * rows * width,), "float32"))
        out = build.arg("out", build.buffer((threads * width,), "float32"))
        with build.parallel(0, threads) as thread:
            held = build.sblock_alloc_buffer((width,), "float32", scope="local")
            with build.unroll(0, READ_STREAMS) as index, build.vectorized(0, lanes) as lane:
                build.buffer_store(held, 0.0, [index * lanes + lane])
            with (
                build.serial(0, sweeps),
                build.serial(0, rows) as row,
                build.unroll(0, READ_STREAMS) as index,
                build.vectorized(0, lanes) as lane,
            ):
                at = index * lanes + lane
                build.buffer_store(held, held[at] + data[(thread * rows + row) * width + at], [at])
            with build.unroll(0, READ_STREAMS) as index, build.vectorized(0, lanes) as lane:
                at = index * lanes + lane
                build.buffer_store(out, held[at], [thread * width + at])
    return builder.get()
