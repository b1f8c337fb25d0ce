"""Contractions of few columns with the lanes over channels agree with ONNX Runtime, and are offered where possible."""

from __future__ import annotations

from typing import Any

import pytest

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from tests.kernels.conftest import Bench, Small, parsed, real

AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)
DOT: dict[str, Any] = {"contraction.algorithm": "dot", "contraction.pixels": 3, "contraction.rows_per_task": 2}


def few(text: str, x: tuple[int, ...], w: tuple[int, ...], columns: int, **others: Any) -> Small:
    constants = {"w": real(*w, seed=1)} | ({"b": real(columns, seed=2)} if "b)" in text else {})
    return Small(parsed(text), {"x": real(*x), **others}, ["y"], constants)


MODELS = {
    "a mask": few("c = Conv (x, w, b); y = Sigmoid (c)", (1, 16, 5, 6), (1, 16, 1, 1), 1),
    "an image": few("c = Conv <pads=[1, 1, 1, 1]> (x, w, b); y = Tanh (c)", (2, 16, 5, 7), (3, 16, 3, 3), 3),
    "five classes": few("y = Conv <strides=[2, 1]> (x, w)", (1, 24, 7, 6), (5, 24, 3, 2), 5),
    "spread": few("y = ConvTranspose <strides=[2, 2], pads=[1, 1, 1, 1]> (x, w, b)", (1, 16, 4, 5), (16, 3, 4, 4), 3),
    "1d": few("y = Conv <pads=[3, 3]> (x, w, b)", (1, 16, 19), (1, 16, 7), 1),
    "3d": few("y = Conv <pads=[1, 1, 1, 1, 1, 1]> (x, w)", (1, 8, 3, 4, 4), (2, 8, 3, 3, 3), 2),
    "grouped": few("y = Conv <group=2> (x, w)", (1, 16, 3, 4), (6, 8, 2, 2), 6),
    "a residual": few("c = Conv (x, w, b); y = Add (c, r)", (1, 16, 3, 5), (7, 16, 1, 1), 7, r=real(1, 7, 3, 5)),
}
PRODUCTS = {
    "one column": few("y = MatMul (x, w)", (9, 40), (40, 1), 1),
    "two classes": few("y = Gemm <transB=1> (x, w, b)", (5, 24), (2, 24), 2),
    "a vector": few("y = MatMul (x, w)", (3, 7, 16), (16,), 1),
    "batched": few("y = MatMul (x, w)", (2, 3, 5, 16), (16, 6), 6),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lanes", [8, 4])
def test_lanes_over_channels_agree(bench: Bench, name: str, lanes: int) -> None:
    bench.check(MODELS[name], {"x": "c8"}, DOT, lanes)
    knobs = open_knobs(bench.bind(MODELS[name], {"x": "c8"}).workload, AVX2, load_space("default", "avx2").schedule)
    assert "dot" in knobs["contraction.algorithm"]


@pytest.mark.parametrize("name", ["an image", "five classes", "1d", "3d", "grouped"])
@pytest.mark.parametrize("lanes", [8, 4])
def test_lanes_over_channels_read_a_copied_row(bench: Bench, name: str, lanes: int) -> None:
    bench.check(MODELS[name], {"x": "c8"}, DOT | {"contraction.order": "copied"}, lanes)


@pytest.mark.parametrize("name", PRODUCTS)
def test_rows_are_read_as_they_lie(bench: Bench, name: str) -> None:
    bench.check(PRODUCTS[name], {}, DOT)


def test_it_is_offered_first_where_columns_are_few_and_nowhere_else(bench: Bench) -> None:
    space = load_space("default", "avx2").schedule

    def offered(small: Small, layouts: dict[str, str]) -> bool:
        workload = bench.bind(small, layouts).workload
        knobs = open_knobs(workload, AVX2, space)
        first = first_schedules(workload, knobs, AVX2)[0]
        return first.get("contraction.algorithm") == "dot"

    assert offered(MODELS["an image"], {"x": "c8"})
    assert not offered(MODELS["an image"], {})
    assert not offered(few("y = Conv (x, w)", (1, 16, 5, 6), (8, 16, 1, 1), 8), {"x": "c8"})
    computed = Small(parsed("y = MatMul (x, w)"), {"x": real(9, 40), "w": real(40, 3)}, ["y"])
    assert not offered(computed, {})


def test_where_it_cannot_be_the_direct_form_is_used(bench: Bench) -> None:
    bench.check(MODELS["an image"], {}, DOT)
    bench.check(few("y = Conv (x, w)", (1, 8, 5, 6), (11, 8, 1, 1), 11), {"x": "c8"}, DOT)


def keys(
    rows: int, tokens: int, width: int, perm: tuple[int, ...] = (0, 1, 3, 2), then: str = "y = Mul (p, c)"
) -> Small:
    """Queries of a few rows by keys that are inputs, and are turned here."""
    shape = (2, 3, tokens, width) if perm == (0, 1, 3, 2) else (2, tokens, 3, width)
    nodes = parsed(f"t = Transpose <perm=[{', '.join(map(str, perm))}]> (k); p = MatMul (q, t); {then}")
    return Small(nodes, {"q": real(2, 3, rows, width), "k": real(*shape, seed=1)}, ["y"], {"c": real(1, seed=2)})


TURNED = {
    "one row": keys(1, 21, 16),
    "some rows": keys(7, 18, 32),
    "tokens first": keys(3, 9, 16, perm=(0, 2, 3, 1)),
    "one token": keys(4, 1, 16),
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("lanes", [16, 8, 4])
def test_few_rows_read_a_turned_matrix_as_it_lies(bench: Bench, name: str, lanes: int) -> None:
    bench.check(TURNED[name], {}, DOT, lanes)
    workload = bench.bind(TURNED[name], {}).workload
    target = Target("znver4", lanes, 32, 2, 32768, 1048576)
    first = first_schedules(workload, open_knobs(workload, target, load_space("default", "avx512").schedule), target)[0]
    assert first["contraction.algorithm"] == "dot"


@pytest.mark.parametrize("small", [keys(9, 20, 16), keys(2, 20, 15)], ids=["many rows", "odd width"])
def test_other_products_pack_a_turned_matrix(bench: Bench, small: Small) -> None:
    bench.check(small, {}, DOT)
    knobs = open_knobs(bench.bind(small, {}).workload, AVX2, load_space("default", "avx2").schedule)
    assert "dot" not in knobs.get("contraction.algorithm", ())
