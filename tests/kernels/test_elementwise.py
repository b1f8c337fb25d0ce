"""Elementwise groups: fan-out, several results, broadcasts, movements, booleans, integers, vectors that do not fit."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from autofuse.kernels.families.registry import is_own
from tests.kernels.conftest import Array, Bench, Small, parsed, real

Shape = tuple[int, ...]


def ints(*values: int) -> Array:
    return np.array(values, "int64")


def flags(*shape: int) -> Array:
    return np.random.default_rng(3).integers(0, 2, shape).astype(bool)


def numbers(*shape: int, dtype: str = "int64") -> Array:
    return np.random.default_rng(4).integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize(
    "shape", [(), (1,), (3,), (8,), (17,), (1, 1), (3, 5), (2, 3, 4), (1, 8, 1, 1), (2, 3, 1, 5, 2), (5000,), (70, 80)]
)
def test_any_shape_is_covered_exactly(bench: Bench, shape: Shape) -> None:
    nodes = parsed("s = Sigmoid (x); y = Mul (x, s)")
    bench.check(Small(nodes, {"x": real(*shape)}, ["y"]))


@pytest.mark.parametrize("shape", [(), (6, 40)])
@pytest.mark.parametrize("lanes", [8, 4])
def test_activations_upon_activations_build_and_are_right(bench: Bench, shape: Shape, lanes: int) -> None:
    """TVM's simplifier takes minutes for names upon names; beyond a few they pass through memory."""
    chain = "a = Softplus (x); b = Softplus (a); c = Erf (b); d = Mul (c, x); e = Sigmoid (d); y = Erf (e)"
    bench.check(Small(parsed(chain), {"x": real(*shape)}, ["y"]), lanes=lanes)


@pytest.mark.parametrize("chosen", ["Max (b, a)", "Where (c, b, a)", "PRelu (b, a)"])
@pytest.mark.parametrize("behind", ["Mul (a, chosen)", "Div (chosen, a)"])
def test_a_product_with_a_chosen_value_builds_and_is_right(bench: Bench, chosen: str, behind: str) -> None:
    """TVM's interval analysis fails on a name that stands for such a product."""
    nodes = parsed(f"a, b = Split <axis=0> (x); chosen = {chosen}; y = {behind}")
    feeds = {"x": 2 + real(6, 40)} | ({"c": real(3, 40) > 0} if "Where" in chosen else {})
    bench.check(Small(nodes, feeds, ["a", "y"]))


@pytest.mark.parametrize("moved", ["m, n = Split <axis=1> (b)", "m = Concat <axis=0> (b, x)", "m = Pad (b, p)"])
@pytest.mark.parametrize("columns", [8, 16])
def test_a_moved_value_times_a_constant_builds_and_is_right(bench: Bench, moved: str, columns: int) -> None:
    """TVM's vectorizer fails on a name that is defined inside such a factor."""
    nodes = parsed(f"a = Add (x, z); b = Sub (a, a); {moved}; y = Mul (m, c)")
    constants = {"z": real(9, 1), "c": real(1, 1)} | ({"p": np.array([1, 0, 0, 0])} if "Pad" in moved else {})
    bench.check(Small(nodes, {"x": real(9, columns)}, ["y"], constants))


@pytest.mark.parametrize("jobs", [8, 2, 32])
@pytest.mark.parametrize("shape", [(2, 16, 40, 7), (1, 24, 33, 31)])
def test_many_jobs_cover_a_large_map(bench: Bench, shape: Shape, jobs: int) -> None:
    small = Small(
        parsed("s = Add (x, z); y = Relu (s)"),
        {"x": real(*shape), "z": real(*shape, seed=1)},
        ["y"],
    )
    for layouts in ({}, {"x": "c8", "z": "c8", "y": "c8"}):
        bench.check(small, layouts, {"elementwise.tasks": jobs})


@pytest.mark.parametrize("x", ["plain", "c8", "c4"])
@pytest.mark.parametrize("z", ["plain", "c8"])
@pytest.mark.parametrize("y", ["plain", "c8", "c4"])
def test_layouts_mix(bench: Bench, x: str, z: str, y: str) -> None:
    nodes = parsed("s = Add (x, z); y = Mul (s, k)")
    small = Small(nodes, {"x": real(2, 8, 3, 5), "z": real(2, 8, 3, 5, seed=1)}, ["y"], {"k": real(8, 1, 1)})
    chosen = {name: layout for name, layout in (("x", x), ("z", z), ("y", y)) if layout != "plain"}
    for lanes in (8, 4):
        bench.check(small, chosen, lanes=lanes)


BROADCASTS = [
    ((2, 8, 3, 5), (5,)),
    ((2, 8, 3, 5), (8, 1, 1)),
    ((2, 8, 3, 5), (2, 1, 3, 1)),
    ((2, 1, 3, 1), (8, 1, 5)),
    ((7, 1), (1, 9)),
    ((), (3, 4)),
    ((1,), (2, 3)),
    ((3, 1), (3,)),
    ((1, 8, 1, 1), (2, 8, 3, 3)),
    ((4, 1, 6), (1, 5, 1)),
]


@pytest.mark.parametrize(("a", "b"), BROADCASTS)
@pytest.mark.parametrize("constant", [False, True], ids=["computed", "constant"])
def test_operands_broadcast(bench: Bench, a: Shape, b: Shape, constant: bool) -> None:
    nodes = parsed("s = Sub (x, z); y = Mul (s, x)")
    other = {"z": real(*b, seed=1)}
    small = Small(nodes, {"x": real(*a)}, ["y"], other) if constant else Small(nodes, {"x": real(*a), **other}, ["y"])
    bench.check(small)


MIXES = {
    "fan-out to four results": Small(
        parsed("e = Exp (x); n = Neg (e); m = Mul (e, n); a = Add (m, e)"),
        {"x": real(3, 7)},
        ["a", "m", "e", "n"],
    ),
    "results of several shapes": Small(
        parsed("r = Relu (x); a = Add (r, z); t = Transpose (r); f = Flatten (a)"),
        {"x": real(5, 1), "z": real(2, 5, 3)},
        ["r", "a", "t", "f"],
    ),
    "an input that is returned in another form": Small(
        parsed("v = Reshape (x, s); r = Relu (v)"),
        {"x": real(4, 6)},
        ["v", "r"],
        {"s": ints(8, 3)},
    ),
    "a copy": Small(parsed("y = Identity (x)"), {"x": real(2, 8, 3, 3)}, ["y"]),
    "unconnected parts": Small(parsed("y = Relu (x); w = Tanh (z)"), {"x": real(3, 4), "z": real(4, 3)}, ["y", "w"]),
    "a movement of something computed": Small(
        parsed("e = Exp (x); t = Transpose <perm=[1, 0]> (e); y = Mul (t, z)"),
        {"x": real(5, 9), "z": real(9, 5)},
        ["y"],
    ),
    "pieces put together again": Small(
        parsed("a, b, c = Split <axis=1> (x, s); r = Relu (b); y = Concat <axis=1> (c, r, a)"),
        {"x": real(3, 9, 4)},
        ["y"],
        {"s": ints(2, 3, 4)},
    ),
    "concat of constants and inputs": Small(
        parsed("y = Concat <axis=0> (k, x)"),
        {"x": real(3, 4)},
        ["y"],
        {"k": real(2, 4)},
    ),
    "concat of one": Small(parsed("r = Relu (x); y = Concat <axis=0> (r)"), {"x": real(3, 4)}, ["y"]),
    "concat of integers": Small(
        parsed("y = Concat <axis=1> (x, z, x)"), {"x": numbers(3, 2), "z": numbers(3, 5)}, ["y"]
    ),
    "padding around the lanes, of something computed": Small(
        parsed("e = Exp (x); q = Pad (e, p); y = Add (q, q)"),
        {"x": real(2, 8, 5, 6)},
        ["y"],
        {"p": ints(0, 0, 1, 1, 0, 0, 0, 2)},
    ),
    "padding of channels": Small(
        parsed("r = Relu (x); y = Pad (r, p)"),
        {"x": real(1, 8, 3, 3)},
        ["y"],
        {"p": ints(0, 3, 0, 0, 0, 5, 0, 0)},
    ),
    "negative padding": Small(parsed("y = Pad (x, p)"), {"x": real(5, 9)}, ["y"], {"p": ints(-1, 2, 3, -4)}),
    "rounded in vectors that do not fit": Small(
        parsed("r = Round (x); y = Add (r, r)"), {"x": real(15, low=-9, high=9)}, ["y"]
    ),
    "a comparison used twice": Small(
        parsed("g = Greater (x, z); n = Not (g); a = Where (g, x, z); y = Where (n, a, k)"),
        {"x": real(5, 7), "z": real(5, 7, seed=1)},
        ["y", "g"],
        {"k": np.array(0.0, "float32")},
    ),
    "integers from booleans": Small(
        parsed("e = Equal (x, z); c = Cast <to=7> (e); d = Mul (c, c); y = Add (d, c)"),
        {"x": numbers(40), "z": numbers(40)[::-1].copy()},
        ["y"],
    ),
    "booleans below a guard": Small(
        parsed("a = Less (x, z); b = And (a, w); c = Xor (b, a); y = Pad (c, p, v)"),
        {"x": numbers(4, 9), "z": numbers(4, 9)[::-1].copy(), "w": flags(4, 9)},
        ["y", "b"],
        {"p": ints(1, 1, 0, 2), "v": np.array(True)},
        21,
    ),
    "indices that are computed": Small(
        parsed("j = Add (i, k); g = Gather <axis=0> (x, j); y = Relu (g)"),
        {"x": real(6, 5), "i": np.array([[0, 1], [2, 4]])},
        ["y"],
        {"k": np.array(1)},
    ),
    "a mask for attention": Small(
        parsed("u = Unsqueeze (m, a); f = Cast <to=1> (u); s = Sub (one, f); y = Mul (s, low)"),
        {"m": np.array([[1, 1, 0, 1, 0]])},
        ["y"],
        {"a": ints(1, 2), "one": np.array(1, "float32"), "low": np.array(-1e4, "float32")},
    ),
    "doubles": Small(parsed("s = Mul (x, x); y = Sqrt (s)"), {"x": real(3, 11).astype("float64")}, ["y"]),
    "half precision": Small(parsed("s = Add (x, x); y = Relu (s)"), {"x": real(3, 11).astype("float16")}, ["y"]),
    "small integers": Small(
        parsed("y = Add (x, z)"), {"x": numbers(21, dtype="int8"), "z": numbers(21, dtype="int8")}, ["y"]
    ),
    "truth": Small(parsed("y = Or (x, z)"), {"x": flags(3, 7), "z": flags(7)}, ["y"]),
}


@pytest.mark.parametrize("name", MIXES)
def test_a_mix_of_operators_agrees(bench: Bench, name: str) -> None:
    bench.check(MIXES[name])


@pytest.mark.parametrize("shape", [(5,), (5, 4), (2, 4, 3), (2, 4, 3, 5)])
def test_batch_normalisation_agrees_at_any_rank(bench: Bench, shape: Shape) -> None:
    channels = shape[1] if len(shape) > 1 else 1
    constants = {name: real(channels, seed=number, low=0.5) for number, name in enumerate("sbmv")}
    bench.check(Small(parsed("y = BatchNormalization (x, s, b, m, v)"), {"x": real(*shape)}, ["y"], constants))


BATCHES: dict[str, list[Any]] = {
    "training": parsed("y, rm, rv = BatchNormalization <training_mode=1> (x, s, b, m, v)"),
    "inference": parsed("y = BatchNormalization (x, s, b, m, v)"),
}


def test_batch_normalisation_is_ours_also_when_it_trains(bench: Bench) -> None:
    constants = {name: real(4, seed=number, low=0.5) for number, name in enumerate("sbmv")}
    owned = {
        name: is_own(bench.bind(Small(nodes, {"x": real(2, 4, 3)}, list(nodes[0].output), constants)).workload)
        for name, nodes in BATCHES.items()
    }
    assert owned == {"training": True, "inference": True}


CHAIN = "a = Exp (x); b = Mul (a, w); c = Tanh (b); d = Add (c, v); y = Erf (d)"
FORKED = "a = Exp (x); b = Tanh (a); c = Mul (b, w); d = Sigmoid (c); e = Add (a, v); y = Mul (d, e)"
SPACES = [(1, 8, 7, 9), (2, 16, 5, 5), (1, 8, 31, 33)]


@pytest.mark.parametrize("text", [CHAIN, FORKED])
@pytest.mark.parametrize("shape", SPACES)
@pytest.mark.parametrize("vectors", [2, 8])
def test_functions_of_several_vectors_side_by_side_agree(
    bench: Bench, text: str, shape: tuple[int, ...], vectors: int
) -> None:
    """Whatever is read beside the map: all of it, a number a channel, a row, one number; in rows or in blocks."""
    channels, width = shape[1], shape[3]
    others = [shape, (1, channels, 1, 1), (1, 1, 1, width), (), (shape[2], width)]
    for beside, layouts in product(others, ({}, {"x": "c8", "y": "c8"}, {"x": "c8"})):
        inputs = {"x": real(*shape), "w": real(*beside, seed=1), "v": real(*shape, seed=2)}
        bench.check(Small(parsed(text), inputs, ["y"]), layouts, {"elementwise.vectors": vectors})


@pytest.mark.parametrize("vectors", [1, 8])
def test_functions_behind_and_before_moves_agree(bench: Bench, vectors: int) -> None:
    """Neighbours that do not stay neighbours are computed in rows as they were."""
    texts = (
        "a = Exp (x); b = Transpose <perm=[0, 2, 1]> (a); y = Tanh (b)",
        "a = Exp (x); b = Tanh (x); y = Concat <axis=1> (a, b)",
        "a = Exp (x); b = Tanh (a); c = Greater (b, x); y = Not (c)",
        "a = Exp (x); b = Tanh (a); y = Cast <to=7> (b)",
    )
    for text, shape in product(texts, ((2, 9, 21), (2, 16, 40))):
        bench.check(Small(parsed(text), {"x": real(*shape)}, ["y"]), {}, {"elementwise.vectors": vectors})


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize(("width", "times"), [(5, 16), (16, 2), (7, 24), (1, 32), (13, 3), (2, 65)])
def test_rows_made_of_fewer_elements_are_right_stretch_by_stretch(
    bench: Bench, mode: str, coordinates: str, width: int, times: int
) -> None:
    text = f'r = Resize <mode="{mode}", coordinate_transformation_mode="{coordinates}"> (x, , , s); y = Relu (r)'
    sizes = ints(1, 3, 6, width * times)
    small = Small(parsed(text), {"x": real(1, 3, 3, width)}, ["y"], {"s": sizes}, opset=19)
    bench.check(small)


@pytest.mark.parametrize(
    "text", ["y = Sub (x, x)", "r = Relu (x); y = Sub (r, r)", "y = Mul (x, z)", "y = Mul (z, x)", "y = Equal (x, x)",
             "e = Equal (x, x); y = Not (e)"],
)  # fmt: skip
def test_what_is_no_number_is_found_where_a_number_meets_itself_or_zero(bench: Bench, text: str) -> None:
    """TVM makes 0 of a number less itself and of one times 0, and holds each for equal to itself."""
    x = np.array([[np.nan, np.inf, 1.0, -np.inf, 0.0, -2.0, 1e-40, 3e38, np.nan]], "float32")
    bench.check(Small(parsed(text), {"x": x}, ["y"], {"z": np.float32(0)} if "z" in text else {}))
