"""One kernel, compiled in this process or loaded from a file: running it, and timing calls of it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.compile.function import ENTRY, compile_function, tvm_target
from autofuse.device.target import Target
from autofuse.link.code_places import keep_places
from autofuse.link.linking import host_linker

if TYPE_CHECKING:
    from autofuse.backend.compile.objects import KernelObjects

__all__ = ["JitKernel", "LoadedKernel", "kept_kernel", "load_kernel", "tensor", "tvm_target"]

EVALUATOR_BELOW_S = 200e-6
"""Shorter kernels are timed by TVM's own loop, because a call from Python costs about 1 µs."""


class LoadedKernel:
    """A runtime module with one kernel, for the CPU of this process; its arguments are tensors made by `tensor`."""

    def __init__(self, module: Any, entry: str = ENTRY) -> None:
        """`entry`: name of the kernel in its module."""
        import tvm

        self._module, self._entry = module, entry
        self._call = self._module[entry]
        self._device = tvm.cpu()
        self._evaluators: dict[int, Any] = {}

    def __call__(self, *tensors: Any) -> None:
        """Run once; the kernel writes its last arguments."""
        self._call(*tensors)

    def block_seconds(self, tensors: Sequence[Any], calls: int, expected_s: float) -> float:
        """Mean wall seconds of one of `calls` calls in a row, on warm caches.

        `expected_s`: seconds one call is thought to take; decides who runs the loop.
        """
        if expected_s < EVALUATOR_BELOW_S:
            if calls not in self._evaluators:
                self._evaluators[calls] = self._module.time_evaluator(self._entry, self._device, number=calls, repeat=1)
            return float(self._evaluators[calls](*tensors).mean)
        call = self._call
        start = time.perf_counter_ns()
        for _ in range(calls):
            call(*tensors)
        return (time.perf_counter_ns() - start) / calls / 1e9

    def cold_block_seconds(self, tensors: Sequence[Any], cold: Sequence[Any], calls: int) -> float:
        """Like `block_seconds`, but `cold` tensors are flushed from all caches before each call.

        The call from Python (about 1 µs) is inside each timing.
        """
        import tvm

        flush = tvm.get_global_func("cache_flush_cpu_non_first_arg")
        call, spent = self._call, 0
        for _ in range(calls):
            flush(tensors[0], *cold)
            start = time.perf_counter_ns()
            call(*tensors)
            spent += time.perf_counter_ns() - start
        return spent / calls / 1e9


class JitKernel(LoadedKernel):
    """A TIR function compiled here and now."""

    def __init__(self, function: Any, target: Target) -> None:
        super().__init__(compile_function(function, target))


def kept_kernel(function: Any, code: str, target: Target, objects: KernelObjects) -> LoadedKernel:
    """The TIR `function` with this code key, compiled now or before; its object stays among `objects`.

    Where this machine has no linker of its own, or no room on its disk, nothing is kept.
    """
    linker = host_linker()
    if linker is None or not objects.has_room():
        return JitKernel(function, target)
    import tvm

    symbol, path = objects.translated(function, code)
    library = path.with_suffix(f".{os.getpid()}.so")
    try:
        keep_places([path])
        linker.link(library, [path])
        return LoadedKernel(tvm.runtime.load_module(str(library)), symbol)
    finally:
        library.unlink(missing_ok=True)  # what is mapped stays


def load_kernel(path: Path) -> LoadedKernel:
    """The kernel in a shared library that `compile_kernel.export_function` wrote."""
    import tvm

    return LoadedKernel(tvm.runtime.load_module(str(path)))


def tensor(array: NDArray[np.generic]) -> Any:
    """A copy of `array` in memory aligned to 64 bytes, as a kernel's argument."""
    import tvm

    return tvm.runtime.tensor(np.asarray(array, order="C"))
