"""Sums cut into parts agree with ONNX Runtime, and are offered where a product only streams its weights."""

from __future__ import annotations

import pytest

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.kernels.build import build_kernel
from autofuse.kernels.schedule.knobs import canonical, open_knobs
from tests.kernels.conftest import Bench, Small, parsed, real

AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)


def product(rows: int, depth: int, columns: int, text: str = "y = MatMul (x, w)") -> Small:
    """A product of `rows` rows with a constant matrix."""
    constants = {"w": real(depth, columns, seed=1)} | ({"b": real(columns, seed=2)} if "b" in text else {})
    return Small(parsed(text), {"x": real(rows, depth)}, ["y"], constants)


TURNED = Small(
    parsed("g = Gemm <transB=1, alpha=0.5> (x, w, b); y = Relu (g)"),
    {"x": real(1, 96)},
    ["y"],
    {"w": real(30, 96), "b": real(30)},
)
POOLED = Small(
    parsed("c = Conv (x, w, b); y = Sigmoid (c)"),
    {"x": real(1, 64, 1, 1)},
    ["y"],
    {"w": real(24, 64, 1, 1), "b": real(24)},
)
SMALL_MAP = Small(
    parsed("y = Conv <pads=[1, 1, 1, 1]> (x, w)"), {"x": real(2, 32, 3, 4)}, ["y"], {"w": real(16, 32, 3, 3)}
)
GROUPED = Small(parsed("y = Conv <group=2> (x, w)"), {"x": real(1, 64, 2, 2)}, ["y"], {"w": real(32, 32, 1, 1)})
COMPUTED = Small(parsed("y = MatMul (x, w)"), {"x": real(3, 64), "w": real(64, 20)}, ["y"])
MODELS = {
    "one row": product(1, 128, 48),
    "one row, one column": product(1, 64, 1),
    "tails": product(7, 77, 45),
    "as many rows as tiles": product(12, 64, 33, "m = MatMul (x, w); y = Add (m, b)"),
    "turned weights, scale, bias, epilogue": TURNED,
    "one pixel": POOLED,
    "a small map": SMALL_MAP,
    "groups": GROUPED,
    "a computed right-hand side": COMPUTED,
}


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_a_sum_in_parts_agrees(bench: Bench, name: str, parts: int) -> None:
    layouts = {"x": "c8", "y": "c8"} if name in ("one pixel", "a small map", "groups") and parts == 4 else {}
    schedule = {"contraction.split_k": parts, "contraction.vectors": parts, "contraction.panels_per_task": parts - 2}
    bench.check(MODELS[name], layouts, schedule)


def test_parts_are_added_in_the_same_order_every_time(bench: Bench) -> None:
    bound = bench.bind(MODELS["tails"])
    kernel = build_kernel(bound.workload, {"contraction.split_k": 3}, bench.target())
    first, again = (bench.run(MODELS["tails"], bound, kernel, bench.target())["y"].tobytes() for _ in range(2))
    assert first == again


def test_parts_are_offered_to_long_sums_of_few_rows_alone(bench: Bench) -> None:
    space = load_space("default", "avx2").schedule

    def parts(small: Small) -> tuple[int | str, ...]:
        return open_knobs(bench.bind(small).workload, AVX2, space).get("contraction.split_k", ())

    assert parts(product(1, 1280, 40)) == (1, 2, 4)
    assert parts(product(16, 256, 40)) == (1, 2, 4)
    assert parts(product(17, 1280, 40)) == ()
    assert parts(product(1, 100, 40)) == ()


def test_choices_that_parts_make_idle_are_dropped(bench: Bench) -> None:
    knobs = open_knobs(bench.bind(product(16, 256, 80)).workload, AVX2, load_space("default", "avx2").schedule)
    default = {name: values[0] for name, values in knobs.items()}
    assert "contraction.pixel_rows" in default
    assert "contraction.pixel_rows" not in canonical(
        default | {"contraction.split_k": 2, "contraction.pixel_rows": 2}, knobs
    )
    assert "contraction.rows_per_task" not in canonical(default, knobs)
    assert "contraction.rows_per_task" in canonical(default | {"contraction.pixel_rows": 2}, knobs)
