"""Results too small for a normal number are 0 in kernels of ours on x86, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as builder

from autofuse.backend.compile.function import SCHEDULED, assembly, compile_function
from autofuse.backend.compile.host_cpu import local_device
from autofuse.device.target import Target
from autofuse.kernels.tir.llvm_text import flushing
from autofuse.link.architecture import X86_64, host_architecture

TASKS, LANES = 64, 16
TINY = np.float32(1e-42)
ARM = Target("cortex-a76", 4, 32, 4, 65536, 524288, mtriple="aarch64-linux-gnu")
x86 = pytest.mark.skipif(host_architecture() != X86_64, reason="asks an x86 core")


def product(*, parallel: bool = True, ours: bool = True, factor: bool = True) -> Any:
    """z = x * y, or just x, over tasks of one vector each."""
    with IRBuilder() as current, builder.prim_func():
        builder.func_name("main")
        builder.func_attr({"tirx.noalias": True, "global_symbol": "main"} | ({SCHEDULED: True} if ours else {}))
        x, y, z = (builder.arg(name, builder.buffer((TASKS * LANES,), "float32")) for name in "xyz")
        loop = builder.parallel if parallel else builder.serial
        with loop(0, TASKS) as task, builder.vectorized(0, LANES) as lane:
            place = task * LANES + lane
            builder.buffer_store(z, x[place] * y[place] if factor else x[place], [place])
    return current.get()


def called(function: Any, x: float, y: float) -> set[float]:
    """All different results."""
    arrays = [np.full(TASKS * LANES, value, np.float32) for value in (x, y, 7.0)]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    compile_function(function, local_device().target())["main"](*tensors)
    return set(map(float, tensors[-1].numpy()))


@x86
@pytest.mark.parametrize("parallel", [True, False])
def test_a_product_below_the_normal_numbers_is_0(parallel: bool) -> None:
    assert called(product(parallel=parallel), 1e-20, 1e-20) == {0.0}
    assert called(product(parallel=parallel), 1e-20, -1e-17) == {float(np.float32(1e-20) * np.float32(-1e-17))}


@x86
@pytest.mark.parametrize("parallel", [True, False])
def test_a_denormal_that_comes_in_is_read_as_it_is(parallel: bool) -> None:
    assert called(product(parallel=parallel), float(TINY), 2.0**40) == {float(TINY * np.float32(2.0**40))}
    assert called(product(factor=False), float(TINY), 1.0) == {float(TINY)}


@x86
def test_no_thread_is_left_so() -> None:
    """Neither the one that called nor those that took part: a function that is not ours is computed as before."""
    called(product(), 1e-20, 1e-20)
    assert np.float32(1e-20) * np.float32(1e-20) > 0
    assert called(product(ours=False), 1e-20, 1e-20) == {float(np.float32(1e-20) * np.float32(1e-20))}


def test_what_only_moves_numbers_is_left_as_it_is() -> None:
    function = product(factor=False)
    assert flushing(function).same_as(function)


@x86
def test_a_serial_function_flushes_once_and_restores_once() -> None:
    text = assembly(product(parallel=False), local_device().target())
    assert text.count("ldmxcsr") == 2


def test_each_task_restores_what_it_changed() -> None:
    text = assembly(product(), Target("x86-64-v3", 8, 16, 2, 32768, 524288, mtriple="x86_64-linux-gnu"))
    assert text.count("ldmxcsr") == 2 * text.count("stmxcsr") > 0


def test_arm_is_left_as_it_is() -> None:
    assert "fpcr" not in assembly(product(), ARM).lower()
