"""The judge of ARM code, and its verdict on the default NEON schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ValueInfoProto, helper, numpy_helper

from autofuse.backend.compile.host_cpu import device_named
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import from_model
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.workload.workload import Workload
from experiments.arm_proxy.loops import hot_loop, innermost_loops, summed_in_stretches
from experiments.arm_proxy.run import BOUND, judged

TWO_LOOPS = """
main:
	mov	x0, #0
.LBB0_1:
	mov	x1, #0
.LBB0_2:                                // inner
	ldr	q0, [x1]
	ldr	q9, [sp, #16]                   // 16-byte Folded Reload
	fmla	v1.4s, v0.4s, v9.s[0]
	fmla	v2.4s, v0.4s, v9.s[1]
	add	x1, x1, #16
	cmp	x1, x2
	b.ne	.LBB0_2
	add	x0, x0, #1
	cbnz	x0, .LBB0_1
	b	.LBB0_4
.LBB0_3:
	fmadd	s0, s1, s2, s0
	subs	x3, x3, #1
	b.ne	.LBB0_3
.LBB0_4:
	ret
"""


def test_loops_are_found_with_what_they_hold() -> None:
    wide, narrow = innermost_loops(TWO_LOOPS)
    assert (wide.fmla, wide.instructions, wide.spills, wide.ratio) == (2, 7, 1, 3.5)
    assert (narrow.fmla, narrow.scalar, narrow.instructions, narrow.ratio) == (0, 1, 3, 12.0)


def test_the_hot_loop_is_that_of_full_tiles() -> None:
    assert hot_loop(TWO_LOOPS, 2)[1]
    loop, full = hot_loop(TWO_LOOPS, 7)
    assert (loop.fmla, full) == (2, False)


STRETCH = """
main:
.LBB0_1:
	movi	v1.2d, #0
	str	q20, [sp, #32]
.LBB0_2:
	ldr	q0, [x1]
	fmla	v1.8h, v0.8h, v9.h[0]
	fmla	v2.8h, v0.8h, v9.h[1]
	b.ne	.LBB0_2
	fcvtl	v3.4s, v1.4h
	fadd	v4.4s, v4.4s, v3.4s
	b.ne	.LBB0_1
	ret
"""


def test_short_sums_are_counted_with_what_stands_between_them() -> None:
    whole = summed_in_stretches(STRETCH, 8)
    assert whole is not None
    assert (whole.fmla, whole.instructions, whole.spills, whole.names) == (8, 4 * 4 + 5, 0, ("fmla .8h",))
    alone = summed_in_stretches(STRETCH, 7)
    assert alone is not None
    assert (alone.fmla, alone.instructions) == (2, 4)
    assert summed_in_stretches(TWO_LOOPS, 2) is None


def contraction(
    kind: str, shape: tuple[int, ...], weights: tuple[int, ...], dtype: str = "float32", **attributes: Any
) -> Workload:
    array = np.random.default_rng(0).standard_normal(weights).astype(dtype)
    nodes = [helper.make_node(kind, ["x", "w"], ["t"], **attributes), helper.make_node("Relu", ["t"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(array.dtype), shape)]
    body = helper.make_graph(nodes, "net", inputs, [ValueInfoProto(name="y")], [numpy_helper.from_array(array, "w")])
    graph = from_model(helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), "net")
    plan = default_plan(graph)
    device = device_named("graviton2" if dtype == "float16" else "raspberry-pi-4")
    lowered = lower(graph, plan, device.target(), [group.operators for group in plan.groups])
    return lowered.kernels[-1].workload  # behind the Cast of float16 inputs


@pytest.mark.long
@pytest.mark.parametrize("device", ["raspberry-pi-4", "graviton2"])
@pytest.mark.parametrize(
    "workload",
    [
        contraction("Conv", (1, 64, 28, 28), (128, 64, 1, 1)),
        contraction("Conv", (1, 64, 28, 28), (64, 64, 3, 3), pads=[1] * 4),
        contraction("Conv", (1, 64, 28, 28), (64, 64, 3, 3), pads=[1] * 4, strides=[2, 2]),
        contraction("MatMul", (1, 128, 312), (312, 312)),
    ],
    ids=["1x1", "3x3", "strided", "product"],
)
def test_default_neon_schedules_need_few_instructions_and_spill_nothing(device: str, workload: Workload) -> None:
    found = judged(workload, device_named(device).target())
    assert found is not None
    assert found.full
    assert found.loop.spills == 0
    assert found.loop.ratio <= BOUND


@pytest.mark.parametrize("workload", [
    contraction("Conv", (1, 96, 28, 28), (128, 96, 1, 1), "float16"),
    contraction("MatMul", (1, 128, 312), (312, 312), "float16"),
], ids=["1x1", "product"])  # fmt: skip
def test_short_sums_of_float16_are_as_lean_and_twice_as_wide(workload: Workload) -> None:
    found = judged(workload, device_named("graviton2").target())
    assert found is not None
    assert found.algorithm == "float16_sums"
    assert found.loop.names == ("fmla .8h",)
    assert found.loop.spills == 0
    assert found.loop.ratio <= BOUND
