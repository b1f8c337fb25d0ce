"""Convolutions of maps whose blocks are narrower than a register: its lanes run over several blocks of results."""

from __future__ import annotations

import pytest

from autofuse.kernels.build import build_kernel
from tests.kernels.conftest import Bench, Small, parsed, real

SHORT = {"contraction.vectors": 2, "contraction.pixels": 3, "contraction.rows_per_task": 2}
POINT = Small(parsed("y = Conv (x, w)"), {"x": real(1, 32, 5, 6)}, ["y"], {"w": real(24, 32, 1, 1)})
ADDED = Small(
    parsed("c = Conv <pads=[1, 1, 1, 1]> (x, w, b); s = Add (c, r); y = Relu (s)"),
    {"x": real(2, 24, 5, 6), "r": real(2, 40, 5, 6)},
    ["y"],
    {"w": real(40, 24, 3, 3), "b": real(40)},
)
SCALED = Small(
    parsed("c = Conv (x, w); g = Sigmoid (s); y = Mul (c, g)"),
    {"x": real(1, 24, 4, 5), "s": real(1, 24, 1, 1)},
    ["y"],
    {"w": real(24, 24, 1, 1)},
)
ONE_PIXEL = Small(
    parsed("y = Conv (x, w, b)"), {"x": real(1, 64, 1, 1)}, ["y"], {"w": real(24, 64, 1, 1), "b": real(24)}
)
GROUPS = Small(parsed("y = Conv <group=2> (x, w)"), {"x": real(1, 16, 4, 5)}, ["y"], {"w": real(48, 8, 1, 1)})
CASES = {
    "a point": (POINT, {"x": "c16", "y": "c8"}, {}),
    "from a narrow map to a wide one": (POINT, {"x": "c8", "y": "c8"}, {}),
    "with an addend": (ADDED, {"x": "c8", "r": "c8", "y": "c8"}, {}),
    "with a plain addend": (ADDED, {"x": "c8", "y": "c8"}, {}),
    "with an addend in passes": (ADDED, {"x": "c8", "r": "c8", "y": "c8"}, {"contraction.k_blocking": 2}),
    "with copied rows": (ADDED, {"x": "c8", "r": "c8", "y": "c8"}, {"contraction.order": "copied"}),
    "with a scale computed on the way": (SCALED, {"x": "c8", "s": "c8", "y": "c8"}, {}),
    "in parts": (ONE_PIXEL, {"x": "c16", "y": "c8"}, {"contraction.split_k": 2}),
    "in groups": (GROUPS, {"x": "c8", "y": "c8"}, {}),
    "in groups of wide maps": (GROUPS, {"x": "c16", "y": "c16"}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_lanes_of_a_register_run_over_several_blocks(bench: Bench, name: str) -> None:
    small, layouts, schedule = CASES[name]
    bench.check(small, layouts, SHORT | schedule, lanes=16)


def test_half_of_a_half_register_agrees_too(bench: Bench) -> None:
    bench.check(ADDED, {"x": "c4", "r": "c4", "y": "c4"}, SHORT, lanes=8)


def test_sums_fill_whole_registers_whatever_the_block(bench: Bench) -> None:
    bound = bench.bind(POINT, {"x": "c16", "y": "c8"})
    kernel = build_kernel(bound.workload, SHORT, bench.target(16))
    assert kernel.pack([POINT.constants["w"]])[0].size == 32 * 32, "24 columns stand in two vectors of 16"
