"""The judge of ARM code, and its verdict on the default NEON schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from autofuse.backend.compile.host_cpu import device_named
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import from_model
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.workload.workload import Workload
from experiments.arm_proxy.loops import hot_loop, innermost_loops
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


def contraction(kind: str, shape: tuple[int, ...], weights: tuple[int, ...], **attributes: Any) -> Workload:
    array = np.random.default_rng(0).standard_normal(weights).astype("float32")
    nodes = [helper.make_node(kind, ["x", "w"], ["t"], **attributes), helper.make_node("Relu", ["t"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    body = helper.make_graph(nodes, "net", inputs, [ValueInfoProto(name="y")], [numpy_helper.from_array(array, "w")])
    graph = from_model(helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), "net")
    plan = default_plan(graph)
    lowered = lower(graph, plan, device_named("raspberry-pi-4").target(), [group.operators for group in plan.groups])
    return lowered.kernels[0].workload


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
