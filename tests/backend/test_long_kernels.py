"""Long code is translated in time that grows with its length, and computes what short code does."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from autofuse.backend.compile import function as compiling
from autofuse.backend.compile.function import SCHEDULED, translate
from autofuse.backend.compile.host_cpu import local_device
from autofuse.kernels.tir.loops import vector_loops
from tests.kernels.kernel_sample import TARGETS

LANES, LONG, MOST_CPU_S = 16, 2_500, 40.0
"""Of a machine that is busy with others: it takes 2 s, and 25 s where each access looks through all loops."""


def sums(stores: int, attributes: dict[str, Any]) -> Any:
    """TIR of ten sums of vectors of `x`, in so many vector loops."""
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as build

    with IRBuilder() as builder, build.prim_func(s_tir=True):
        build.func_name("main")
        build.func_attr({"tirx.noalias": True, **attributes})
        x = build.arg("x", build.buffer((stores * LANES,), "float32"))
        y = build.arg("y", build.buffer((10 * LANES,), "float32"))
        for number in range(10):
            with build.vectorized(0, LANES) as lane:
                build.buffer_store(y, 0.0, [number * LANES + lane])
        with build.serial(0, 3) as step:
            for number in range(stores):
                with build.vectorized(0, LANES) as lane:
                    place = number % 10 * LANES + lane
                    taken = x[number * LANES + lane] * (step + 1).astype("float32")
                    build.buffer_store(y, y[place] + taken, [place])
    return builder.get()


@pytest.mark.parametrize("many", [0, 1 << 30])
def test_vectors_first_or_last_make_the_same_sums(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    monkeypatch.setattr(compiling, "MANY_VECTORS", many)
    stores = 40
    x = np.random.default_rng(0).standard_normal(stores * LANES).astype(np.float32)
    held = tvm.runtime.tensor(np.zeros(10 * LANES, np.float32))
    compiling.compile_function(sums(stores, {SCHEDULED: True}), local_device().target())["main"](
        tvm.runtime.tensor(x), held
    )
    expected = 6 * x.reshape(-1, 10, LANES).sum(0).reshape(-1)
    np.testing.assert_allclose(held.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("isa", "bound"), [("avx512", False), ("neon", True)])
def test_loops_become_vectors_without_a_target_where_none_has_vectors_of_its_own_length(isa: str, bound: bool) -> None:
    """With one TVM looks up all features of its CPU for each loop: a tenth of the time that kernels for x86 took."""
    import tvm

    target = TARGETS[isa]
    module = compiling._as_vectors(tvm.IRModule({"main": sums(4, {})}), compiling.tvm_target(target), target)
    assert vector_loops(module["main"]) == 0
    assert ("target" in module["main"].attrs) == bound


def test_thousands_of_vector_loops_are_translated_in_seconds() -> None:
    function = sums(LONG, {SCHEDULED: True})
    start = time.process_time()
    assert translate(function, "long", local_device().target()).kind == "llvm"
    assert time.process_time() - start < MOST_CPU_S
