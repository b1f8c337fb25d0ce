"""Sums in passes agree with ONNX Runtime, and are offered where a panel of weights does not fit the first cache."""

from __future__ import annotations

import pytest

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.kernels.build import build_kernel
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import canonical, open_knobs
from tests.kernels.conftest import Bench, Small, parsed, real

AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)


def product(rows: int, depth: int, columns: int) -> Small:
    """A product of `rows` rows with a constant matrix."""
    return Small(parsed("y = MatMul (x, w)"), {"x": real(rows, depth)}, ["y"], {"w": real(depth, columns, seed=1)})


def convolution(depth: int, size: int, text: str, group: int = 1) -> Small:
    """A convolution of `depth` channels of a square image, and what follows it."""
    constants = {"w": real(24, depth // group, 3, 3), "b": real(24)}
    return Small(parsed(text), {"x": real(2, depth, size, size)}, ["y"], constants)


STRIDED = "y = Conv <pads=[1, 1, 1, 1], strides=[2, 2]> (x, w, b)"
TURNED = Small(
    parsed("y = ConvTranspose <strides=[2, 2], pads=[1, 1, 1, 1]> (x, w)"),
    {"x": real(1, 32, 5, 6)},
    ["y"],
    {"w": real(32, 16, 3, 3)},
)
MODELS = {
    "a product": product(33, 128, 40),
    "tails": product(17, 77, 45),
    "strided": convolution(32, 9, STRIDED),
    "an epilogue": convolution(16, 7, "c = Conv <pads=[1, 1, 1, 1]> (x, w, b); s = Sigmoid (c); y = Mul (c, s)"),
    "groups": convolution(32, 7, "y = Conv <group=2> (x, w, b)", 2),
    "dilated": convolution(16, 9, "y = Conv <dilations=[2, 2], pads=[3, 3, 3, 3]> (x, w, b)"),
    "transposed": TURNED,
}


@pytest.mark.parametrize("passes", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_sums_in_passes_agree(bench: Bench, name: str, passes: int) -> None:
    blocked = len(MODELS[name].inputs["x"].shape) == 4 and passes == 4
    schedule = {
        "contraction.k_blocking": passes,
        "contraction.vectors": passes - 1,
        "contraction.rows_per_task": passes - 2,
    }
    bench.check(MODELS[name], {"x": "c8", "y": "c8"} if blocked else {}, schedule)


def test_passes_compute_what_one_pass_computes_in_another_loop(bench: Bench) -> None:
    bound = bench.bind(MODELS["strided"])
    one, four = (
        build_kernel(bound.workload, {"contraction.k_blocking": passes}, bench.target()).function.script()
        for passes in (1, 4)
    )
    assert one != four


def test_passes_are_offered_to_large_panels_of_many_rows_alone(bench: Bench) -> None:
    space = load_space("default", "avx2").schedule

    def passes(small: Small) -> tuple[int | str, ...]:
        return tuple(sorted(open_knobs(bench.bind(small).workload, AVX2, space).get("contraction.k_blocking", ())))

    assert passes(product(64, 768, 96)) == (1, 2, 4)
    assert passes(product(64, 128, 96)) == ()
    assert passes(product(16, 768, 96)) == ()


def test_a_panel_that_fills_the_second_cache_begins_with_passes_over_all_rows(bench: Bench) -> None:
    small = Small(parsed(STRIDED), {"x": real(1, 512, 14, 14)}, ["y"], {"w": real(32, 512, 3, 3), "b": real(32)})
    workload = bench.bind(small, {"x": "c8", "y": "c8"}).workload
    knobs = open_knobs(workload, AVX2, load_space("default", "avx2").schedule)
    first = first_schedules(workload, knobs, AVX2)[0]
    assert int(first["contraction.k_blocking"]) > 1
    assert first["contraction.rows_per_task"] == 0
    assert "contraction.order" not in first
    assert "contraction.order" in canonical(first | {"contraction.k_blocking": 1, "contraction.order": "pixels"}, knobs)


@pytest.mark.parametrize(("depth", "passes"), [(8192, True), (1024, False)])
def test_so_does_a_product_of_many_rows_and_a_panel_of_more_than_half_of_it(
    bench: Bench, depth: int, passes: bool
) -> None:
    workload = bench.bind(product(64, depth, 96)).workload
    knobs = open_knobs(workload, AVX2, load_space("default", "avx2").schedule)
    first = first_schedules(workload, knobs, AVX2)[0]
    assert (int(first.get("contraction.k_blocking", 1)) > 1) is passes
