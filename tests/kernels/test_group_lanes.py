"""Convolutions of small groups with the lanes over several of them agree with ONNX Runtime, and are offered where they
may be."""

from __future__ import annotations

from typing import Any

import pytest

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.kernels.families.contraction.form import contraction_form, group_lanes_refusal
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from tests.kernels.conftest import Bench, Small, parsed, real

BLOCKED = {"x": "c8", "y": "c8"}
OVER_GROUPS: dict[str, int | str] = {"contraction.algorithm": "group_lanes"}
AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)


def grouped(x: tuple[int, ...], group: int, taps: tuple[int, ...], attributes: str = "", then: str = "") -> Small:
    """A convolution with as many channels on both sides, and what follows it."""
    listed = f"group={group}{', ' + attributes if attributes else ''}"
    others: dict[str, Any] = {"r": real(*x, seed=5)} if "r)" in then else {}
    constants = {"w": real(x[1], x[1] // group, *taps, seed=1), "b": real(x[1], seed=2)}
    nodes = parsed(f"c = Conv <{listed}> (x, w, b); {then or 'y = Relu (c)'}")
    return Small(nodes, {"x": real(*x), **others}, ["y"], constants)


@pytest.mark.parametrize(
    "small",
    [
        grouped((1, 16, 7, 9), 4, (3, 3), "pads=[1, 1, 1, 1]"),
        grouped((1, 16, 7, 9), 8, (3, 3), "pads=[1, 1, 1, 1]", "y = Add (c, r)"),
        grouped((2, 24, 9, 8), 6, (3, 3), "pads=[1, 1, 1, 1], strides=[2, 2]"),
        grouped((1, 16, 12, 12), 4, (3, 3), "pads=[0, 1, 2, 1], dilations=[2, 1]"),
        grouped((1, 32, 6, 6), 8, (1, 1)),
        grouped((1, 16, 40), 4, (5,), "pads=[2, 2]"),
        grouped((1, 8, 4, 5, 6), 2, (3, 3, 3), "pads=[1, 1, 1, 1, 1, 1]"),
    ],
    ids=["four", "two, residual", "stride", "dilation", "one tap", "one axis", "three axes"],
)
@pytest.mark.parametrize("tile", [(1, 7), (2, 3)], ids=str)
def test_it_computes_what_onnx_runtime_computes(bench: Bench, small: Small, tile: tuple[int, int]) -> None:
    vectors, pixels = tile
    layouts = BLOCKED | ({"r": "c8"} if "r" in small.inputs else {})
    bench.check(small, layouts, OVER_GROUPS | {"contraction.vectors": vectors, "contraction.pixels": pixels})


@pytest.mark.parametrize(
    ("small", "layouts", "reason"),
    [
        (grouped((1, 16, 6, 6), 4, (3, 3)), BLOCKED, None),
        (grouped((1, 16, 6, 6), 4, (3, 3)), {}, "its input does not lie in blocks of a vector"),
        (grouped((1, 16, 6, 6), 4, (3, 3)), {"x": "c4"}, "its input does not lie in blocks of a vector"),
        (grouped((1, 16, 6, 6), 2, (3, 3)), BLOCKED, "no whole number of groups fills a vector"),
        (grouped((1, 24, 6, 6), 8, (3, 3)), BLOCKED, "no whole number of groups fills a vector"),
        (grouped((1, 16, 6, 6), 1, (3, 3)), BLOCKED, "it is no convolution of groups with as many channels"),
    ],
    ids=["four", "plain", "narrow blocks", "eight", "three", "dense"],
)
def test_what_it_cannot_take_keeps_another_algorithm(
    bench: Bench, small: Small, layouts: dict[str, str], reason: str | None
) -> None:
    workload = bench.bind(small, layouts).workload
    operator = next(operator for operator in workload.operators if operator.op_type == "Conv")
    found = group_lanes_refusal(workload, contraction_form(workload, operator), 8)
    assert found is None if reason is None else reason in str(found)
    knobs = open_knobs(workload, AVX2, load_space("default", "avx2").schedule)
    assert ("group_lanes" in knobs.get("contraction.algorithm", ())) == (reason is None)
    bench.check(small, layouts, OVER_GROUPS)


def test_it_is_the_first_guess_where_it_may_be_taken(bench: Bench) -> None:
    workload = bench.bind(grouped((1, 16, 14, 14), 4, (3, 3), "pads=[1, 1, 1, 1]"), BLOCKED).workload
    guesses = first_schedules(workload, open_knobs(workload, AVX2, load_space("default", "avx2").schedule), AVX2)
    assert guesses[0]["contraction.algorithm"] == "group_lanes" and guesses[0]["contraction.vectors"] == 1
    assert "direct" in {guess["contraction.algorithm"] for guess in guesses}
