"""Reductions, global pools, softmax and layer normalisation agree with ONNX Runtime over any axes and layouts."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import helper

from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.reductions.reduction import INTEGRAL, REDUCE
from autofuse.kernels.families.registry import is_own, nests_of
from tests.kernels.conftest import Array, Bench, Small, parsed, real

node = helper.make_node
Shape = tuple[int, ...]
KINDS = [kind for kind in REDUCE if kind.startswith("Reduce")]
MAP = (2, 8, 3, 5)


def reduce(
    kind: str, shape: Shape, axes: tuple[int, ...] | None, keep: int, opset: int = 18, **attributes: Any
) -> Small:
    """Axes as an input where the opset has it so, else as an attribute; None: all."""
    as_input = opset >= (13 if kind == "ReduceSum" else 18)
    constants = {"axes": np.array(axes, "int64")} if axes is not None and as_input else {}
    given = {"axes": axes} if axes is not None and not as_input else {}
    nodes = [node(kind, ["x", *constants], ["y"], keepdims=keep, **given, **attributes)]
    return Small(nodes, {"x": real(*shape)}, ["y"], constants, opset)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("axes", "keep", "opset"), [((-1,), 1, 18), ((1, 2), 0, 18), ((2,), 0, 11), (None, 0, 18)])
def test_every_kind_of_reduction_agrees(bench: Bench, kind: str, axes: Any, keep: int, opset: int) -> None:
    bench.check(reduce(kind, (3, 9, 11), axes, keep, opset))


AXES = [(0,), (1,), (2,), (3,), (2, 3), (1, 2, 3), (0, 2, 3), (0, 1), (1, 3), (0, 1, 2, 3)]
LAYOUTS = [{}, {"x": "c8"}, {"x": "c4", "y": "c4"}, {"x": "c8", "y": "c4"}, {"y": "c8"}]


@pytest.mark.parametrize("axes", AXES)
def test_any_axes_may_be_reduced_in_any_layout(bench: Bench, axes: tuple[int, ...]) -> None:
    for keep, layouts in product((0, 1), LAYOUTS):
        small = reduce("ReduceMean", MAP, axes, keep)
        shape = small.reference()["y"].shape
        if "y" not in layouts or (len(shape) > 2 and shape[1] == 8):
            bench.check(small, layouts)


@pytest.mark.parametrize(
    "shape", [(1,), (8,), (13,), (1, 1, 1), (1, 7, 1), (5, 32), (5, 33), (3, 70), (40, 3), (2, 17, 16)]
)
def test_rows_of_any_length_are_reduced(bench: Bench, shape: Shape) -> None:
    for axis in {0, len(shape) - 1}:
        bench.check(reduce("ReduceMax", shape, (axis,), 1))
        bench.check(reduce("ReduceSum", shape, (axis,), 0))


@pytest.mark.parametrize(("shape", "axes"), [((1, 56, 56, 16), (1, 2)), ((2, 401, 409), (1, 2)), ((4001, 8), (0,))])
def test_means_of_thousands_of_like_numbers_are_those_of_float64(bench: Bench, shape: Shape, axes: Shape) -> None:
    """A register that takes them one by one is off by 4e-5 of them."""
    small = reduce("ReduceMean", shape, axes, 0)
    small = Small(
        small.nodes, {"x": np.float32(0.57245) + real(*shape, low=-1e-5, high=1e-5)}, ["y"], small.constants, 18
    )
    bound, target = bench.bind(small), bench.target()
    found = bench.run(small, bound, build_kernel(bound.workload, {}, target), target)["y"]
    exact = small.inputs["x"].astype("float64").mean(axes)
    assert np.abs(found - exact).max() <= 1e-6 * 0.57245


def test_infinities_and_negative_values_keep_their_order(bench: Bench) -> None:
    x = np.array([[-np.inf, -3.0, -1.0], [np.inf, 2.0, -5.0], [-np.inf, -np.inf, -np.inf]], "float32")
    for kind in ("ReduceMax", "ReduceMin"):
        nodes = [node(kind, ["x", "a"], ["y"], keepdims=0)]
        bench.check(Small(nodes, {"x": x}, ["y"], {"a": np.array([1], "int64")}, 18))


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 5), 1), ((3, 67), 1), ((67, 3), 0), ((67, 40), 0)])
def test_what_is_no_number_wins_wherever_it_stands(bench: Bench, kind: str, shape: Shape, axis: int) -> None:
    """As in ONNX's definition; ONNX Runtime passes over it unless it is the first."""
    small = reduce(kind, shape, (axis,), 0)
    bound, target = bench.bind(small), bench.target()
    kernel = build_kernel(bound.workload, {}, target)
    x = small.inputs["x"]
    for place in range(0, shape[axis], 3):
        with_nan = np.array(x)
        with_nan[(1, place) if axis else (place, 1)] = np.nan
        held = Small(small.nodes, {"x": with_nan}, ["y"], small.constants, 18)
        found = bench.run(held, bench.bind(held), kernel, target)["y"]
        np.testing.assert_array_equal(found, getattr(np, kind[6:].lower())(with_nan, axis))


def test_no_axes_with_the_no_op_flag_is_not_ours(bench: Bench) -> None:
    small = reduce("ReduceSum", (2, 3), None, 1, noop_with_empty_axes=1)
    assert not is_own(bench.bind(small).workload)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("kind", sorted(INTEGRAL))
def test_sums_and_extremes_of_integers_are_exact(bench: Bench, kind: str, dtype: str) -> None:
    bounds = np.iinfo(dtype)
    for shape, axis in (((3, 37), 1), ((37, 3), 0), ((2, 1, 5), 1), ((4, 33, 2), 1)):
        x = np.random.default_rng(0).integers(-(2**25), 2**25, shape).astype(dtype)
        for first in (0, bounds.min, bounds.max):
            x.flat[0] = first if kind != "ReduceSum" else 2**24 + 1
            small = Small([node(kind, ["x", "a"], ["y"])], {"x": x}, ["y"], {"a": np.array([axis], "int64")}, 18)
            bound = bench.bind(small)
            assert is_own(bound.workload)
            target = bench.target(8)
            found = bench.run(small, bound, build_kernel(bound.workload, {}, target), target)["y"]
            np.testing.assert_array_equal(found, small.reference()["y"])


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceProd", "ReduceL2"])
def test_other_reductions_of_integers_are_not_ours(bench: Bench, kind: str) -> None:
    nodes = [node(kind, ["x", "a"], ["y"])]
    small = Small(nodes, {"x": np.arange(6).reshape(2, 3)}, ["y"], {"a": np.array([1], "int64")}, 18)
    assert not is_own(bench.bind(small).workload)


@pytest.mark.parametrize("kind", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(1, 8, 3, 5), (2, 16, 1, 1), (1, 13, 4, 4), (1, 8, 9), (1, 4, 2, 3, 4)])
def test_global_pools_agree(bench: Bench, kind: str, shape: Shape) -> None:
    small = Small([node(kind, ["x"], ["y"])], {"x": real(*shape)}, ["y"])
    for layouts in ({}, {"x": "c8", "y": "c8"}, {"x": "c4"}, {"y": "c8"}):
        if all(shape[1] % int(layout[1:]) == 0 for layout in layouts.values()):
            bench.check(small, layouts)


NORM = "n = LayerNormalization <axis=-1> (x, g, h); y = Relu (n)"
MASKED = "s = Add (x, m); y = Softmax <axis=-1> (s)"
SQUARED = "n = Softmax <axis=-1> (x); y = Mul (n, n)"
ROWS = [(1, 1), (3, 5), (3, 8), (2, 3, 13), (2, 2, 3, 40), (6,), (4, 67)]


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", ROWS)
def test_softmax_agrees_over_the_last_axis(bench: Bench, kind: str, shape: Shape) -> None:
    bench.check(Small([node(kind, ["x"], ["y"], axis=-1)], {"x": real(*shape, low=-9, high=9)}, ["y"]))


def test_softmax_survives_large_values(bench: Bench) -> None:
    x = np.array([[1e4, 1e4 - 1, -1e4], [-3e38, 0, 1], [0, -np.inf, 1]], "float32")
    for kind in ("Softmax", "LogSoftmax"):
        bench.check(Small([node(kind, ["x"], ["y"], axis=-1)], {"x": x}, ["y"]), limit=1e-6)


@pytest.mark.parametrize(("axis", "shape"), [(-1, (3, 40)), (0, (40, 3))])
def test_the_logarithm_of_a_softmax_counts_beside_large_values(bench: Bench, axis: int, shape: Shape) -> None:
    """Of forty equal numbers it is -log(40), which the sum with a number of ten millions would lose."""
    x = np.full(shape, 3e7, "float32")
    bench.check(Small([node("LogSoftmax", ["x"], ["y"], axis=axis)], {"x": x}, ["y"]), limit=1e-6)


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_softmax_over_several_axes_of_an_old_opset_agrees(bench: Bench, kind: str) -> None:
    bench.check(Small([node(kind, ["x"], ["y"], axis=1)], {"x": real(2, 3, 4)}, ["y"], opset=11))


COLUMNS = [((2, 3, 4), 1), ((1, 21, 5, 7), 1), ((1, 16, 3, 5), 1), ((5, 13), 0), ((2, 3, 16, 9), 2), ((3, 1, 8), 1)]


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("shape", "axis"), COLUMNS)
def test_softmax_agrees_over_an_axis_that_is_not_the_last(bench: Bench, kind: str, shape: Shape, axis: int) -> None:
    small = Small([node(kind, ["x"], ["y"], axis=axis)], {"x": real(*shape, low=-9, high=9)}, ["y"])
    bench.check(small)
    if shape[1] % 8 == 0 and len(shape) == 4:
        bench.check(small, {"x": "c8", "y": "c8"})


def test_softmax_of_columns_survives_large_values(bench: Bench) -> None:
    x = np.array([[1e4, -3e38, 0], [1e4 - 1, 0, -np.inf], [-1e4, 1, 1]], "float32")
    for kind in ("Softmax", "LogSoftmax"):
        bench.check(Small([node(kind, ["x"], ["y"], axis=0)], {"x": x}, ["y"]), limit=1e-6)


def test_softmax_of_columns_has_a_prologue_and_an_epilogue(bench: Bench) -> None:
    text = "s = Mul (x, m); p = Softmax <axis=1> (s); a = Add (p, r); y = Relu (a)"
    inputs = {"x": real(1, 6, 5, 4), "m": real(6, 1, 1), "r": real(1, 6, 5, 4, seed=3)}
    small = Small(parsed(text), inputs, ["y"])
    bench.check(small)
    assert len(nests_of(bench.bind(small).workload)) == 1


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("text", ["y = Softmax <axis=-1> (x)", "y = LogSoftmax <axis=-1> (x)", NORM, MASKED, SQUARED])
def test_rows_in_blocks_of_any_size_agree(bench: Bench, rows: int, text: str) -> None:
    given = {"g": real(19, seed=1), "h": real(19, seed=2), "m": real(3, 1, 19)}
    used = {name: array for name, array in given.items() if f", {name}" in text}
    bench.check(
        Small(parsed(text), {"x": real(3, 5, 19, low=-5, high=5)}, ["y"], used), schedule={"last_axis.rows": rows}
    )


@pytest.mark.parametrize("shape", [(3, 5, 16), (2, 3, 13), (4, 3), (2, 3, 7, 5)])
def test_root_mean_square_normalisation_agrees(bench: Bench, shape: Shape) -> None:
    nodes = [node("RMSNormalization", ["x", "g"], ["y"], axis=len(shape) - 1, epsilon=1e-3)]
    bench.check(Small(nodes, {"x": real(*shape)}, ["y"], {"g": real(shape[-1], seed=1)}, opset=23))


def normalise(shape: Shape, axis: int, bias: bool = True, **attributes: Any) -> Small:
    inner = shape[axis % len(shape) :]
    constants: dict[str, Array] = {"g": real(*inner, seed=1)} | ({"h": real(*inner, seed=2)} if bias else {})
    nodes = [node("LayerNormalization", ["x", *constants], ["y"], axis=axis, **attributes)]
    return Small(nodes, {"x": real(*shape)}, ["y"], constants)


NORMALISATIONS = {
    "rows": normalise((3, 5, 16), -1),
    "rows of any length": normalise((2, 3, 13), -1),
    "short rows": normalise((4, 3), -1),
    "without bias": normalise((2, 3, 16), -1, bias=False),
    "two axes": normalise((2, 3, 7, 5), 2),
    "all axes": normalise((2, 3, 4), 0),
    "one row": normalise((24,), 0),
    "another epsilon": normalise((3, 8), -1, epsilon=0.5),
}


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_layer_normalisation_agrees(bench: Bench, name: str) -> None:
    bench.check(NORMALISATIONS[name])


PARAMETERS = [(8,), (1,), (5, 1), (5, 8), (1, 1, 8), (3, 1, 8)]


@pytest.mark.parametrize("shape", PARAMETERS)
def test_parameters_of_a_normalisation_broadcast(bench: Bench, shape: Shape) -> None:
    nodes = [node("LayerNormalization", ["x", "g", "h"], ["y"], axis=1 if shape in [(5, 1), (5, 8)] else 2)]
    given = {"g": real(*shape, seed=1), "h": real(*shape, seed=2)}
    bench.check(Small(nodes, {"x": real(3, 5, 8)}, ["y"], given))
    bench.check(Small(nodes, {"x": real(3, 5, 8), **given}, ["y"]))


def test_further_results_of_a_normalisation_are_ours_too(bench: Bench) -> None:
    nodes = [node("LayerNormalization", ["x", "g"], ["y", "mean", "deviation"], axis=-1)]
    small = Small(nodes, {"x": real(3, 8)}, ["y", "mean", "deviation"], {"g": real(8, seed=1)})
    assert is_own(bench.bind(small).workload)
    bench.check(small)


def test_a_large_mean_does_not_spoil_the_variance(bench: Bench) -> None:
    x = real(4, 64) + np.float32(1000)
    nodes = [node("LayerNormalization", ["x", "g"], ["y"], axis=-1)]
    bench.check(Small(nodes, {"x": x}, ["y"], {"g": np.ones(64, "float32")}), limit=1e-3)


@pytest.mark.parametrize("pixels", [(7, 7), (3, 7), (5, 3), (33,)])
@pytest.mark.parametrize("then", ["y = Add (m, b)", "a = Add (m, b); g = Sigmoid (a); t = Tanh (g); y = Mul (t, a)"])
def test_a_norm_of_groups_is_finished_channel_by_channel(bench: Bench, pixels: Shape, then: str) -> None:
    """Vectors end where a channel does, whose scale they share."""
    nodes = parsed(f"n = LayerNormalization <axis=2> (x, o, z); r = Reshape (n, s); m = Mul (r, c); {then}")
    size, ones = 4 * int(np.prod(pixels)), (1,) * len(pixels)
    constants: dict[str, Array] = {"o": np.ones(size, "float32"), "z": np.zeros(size, "float32")}
    constants |= {"s": np.array([2, 12, *pixels], "int64"), "c": real(12, *ones, seed=1), "b": real(12, *ones, seed=2)}
    bench.check(Small(nodes, {"x": real(2, 3, size)}, ["y"], constants))
    bench.check(Small(nodes, {"x": real(2, 3, size)}, ["y"], constants), {}, {"last_axis.rows": 2}, 16)
