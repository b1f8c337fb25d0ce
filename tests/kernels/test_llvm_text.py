"""What LLVM is told beside a kernel: results too small for a normal number are 0 on x86, and counts are hidden."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as builder

import autofuse
from autofuse.backend.compile.function import SCHEDULED, assembly, compile_function
from autofuse.backend.compile.host_cpu import local_device
from autofuse.device.target import Target
from autofuse.kernels.tir.llvm_text import MANY_NAMES, flushing, hidden_counts
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


def largest_of_chains(names: int, count: int = 32) -> Any:
    """z[lane] = the largest of x[k, lane] halved and squared so many times, with a name for each number."""
    with IRBuilder() as current, builder.prim_func():
        builder.func_name("main")
        builder.func_attr({"tirx.noalias": True, "global_symbol": "main", SCHEDULED: True})
        x = builder.arg("x", builder.buffer((count * LANES,), "float32"))
        z = builder.arg("z", builder.buffer((LANES,), "float32"))
        with builder.vectorized(0, LANES) as lane:
            builder.buffer_store(z, tirx.const(-1.0, "float32"), [lane])
        with builder.serial(0, count) as step, builder.vectorized(0, LANES) as lane:
            value = builder.bind(x[step * LANES + lane])
            for _ in range(names - 1):
                value = builder.bind(tirx.max(value * tirx.const(0.5, "float32"), value * value))
            builder.buffer_store(z, tirx.max(z[lane], value), [lane])
    return current.get()


def test_the_count_of_a_loop_over_a_long_chain_is_hidden() -> None:
    function = largest_of_chains(MANY_NAMES)
    assert "autofuse_hidden" in str(hidden_counts(function))
    x = np.random.default_rng(0).random((32, LANES), np.float32) / 2 + np.float32(0.5)
    wanted = x
    for _ in range(MANY_NAMES - 1):
        wanted = np.maximum(wanted * np.float32(0.5), wanted * wanted)
    found = tvm.runtime.tensor(np.zeros(LANES, np.float32))
    compile_function(function, local_device().target())["main"](tvm.runtime.tensor(x.reshape(-1)), found)
    assert found.numpy().tolist() == wanted.max(0).tolist()


@pytest.mark.parametrize(("names", "count"), [(MANY_NAMES - 1, 32), (MANY_NAMES, 31)])
def test_counts_that_llvm_does_not_search_by_stay_known(names: int, count: int) -> None:
    function = largest_of_chains(names, count)
    assert hidden_counts(function).same_as(function)


def test_the_largest_of_many_functions_is_translated_in_seconds(tmp_path: Path) -> None:
    """LLVM followed every path through their selections, for more than ten minutes."""
    kinds = ["Softplus", "Sigmoid", "Tanh"] * 3
    chain = [helper.make_node(kind, [f"t{place}"], [f"t{place + 1}"]) for place, kind in enumerate(kinds)]
    last = helper.make_node("Softmax", [f"t{len(kinds)}"], ["y"], axis=1)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 32, 8, 8]) for name in ("t0", "y"))
    graph = helper.make_graph([*chain, last], "chain", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    began = time.process_time()
    autofuse.compile(tmp_path / "m.onnx", tmp_path / "m.so", database=tmp_path / "e.db", plan="always", threads=1)
    assert time.process_time() - began < 60
