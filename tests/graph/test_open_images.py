"""Where open sizes of images stand in a graph, what operators see around a place, and what is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize, open_sizes, parse_sizes
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.extents import Extent, Point
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph, points
from autofuse.graph.transform.open_sizes.images.grid_rules import GridOperators, check_grid, grid_groups
from autofuse.graph.transform.open_sizes.images.grid_tiles import tile_graph
from autofuse.graph.transform.open_sizes.images.grid_windows import Slide
from autofuse.graph.transform.open_sizes.images.reading import check_point, read_grid

SIZES = (OpenSize("h", 8, 64, 4), OpenSize("w", 8, 96, 4))
W = np.ones((4, 4, 3, 3), np.float32)


def read(body: str, weights: dict[str, Any] | None = None, sizes: tuple[OpenSize, ...] = SIZES) -> GridGraph:
    """The open graph of a model of images in ONNX's text form."""

    def at(point: Point) -> Graph:
        lines = body.replace(";", "\n")
        text = (
            f'<ir_version: 9, opset_import: ["" : 18]>\ng (float[1, 4, h, w] x) => (float[n, c, k, l] y) {{ {lines} }}'
        )
        model = onnx.parser.parse_model(text)
        model.graph.initializer.extend(
            numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()
        )
        return from_model(model, "test", {"x": (1, 4, *(*point, 32)[:2])})

    return read_grid(sizes, at, lambda _made, _wanted: False)


def test_steps_are_read() -> None:
    assert parse_sizes(["height=64:512:16,width=8:96"]) == {"height": (64, 512, 16), "width": (8, 96)}
    assert open_sizes(["height=64:512:16"]) == (OpenSize("height", 64, 512, 16),)
    assert str(OpenSize("height", 64, 512, 16)) == "height 64 to 512 in steps of 16"
    assert all(OpenSize("n", 16, 176, 16).has(size) for size in OpenSize("n", 16, 176, 16).drawn())


@pytest.mark.parametrize("text", ["h=64:512:0", "h=60:512:16", "h=64:500:16", "h=64:512:-16"])
def test_ends_that_are_no_multiples_of_the_step_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--sizes"):
        open_sizes([text])


def test_a_model_is_read_near_the_middle_and_compared_at_all_ends() -> None:
    base, twins, more = points(SIZES)
    assert base == (4 * 11, 4 * 17)
    assert twins == ((4 * 13, 4 * 17), (4 * 11, 4 * 19))
    assert {(8, 8), (8, 96), (64, 8), (64, 96), (12, 12)} == set(more)


def test_extents_are_parts_of_the_sizes_and_more() -> None:
    body = "a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w); y = Conv (a, w)"
    opened = read(body, {"w": W})
    assert opened.axes["a"] == {2: Extent(0, 1, 2), 3: Extent(1, 1, 2)}
    assert opened.axes["y"] == {2: Extent(0, 1, 2, -2), 3: Extent(1, 1, 2, -2)}
    assert opened.at((16, 24)).tensors["y"].shape == (1, 4, 6, 10)
    check_grid(opened)


def test_sizes_of_a_resize_are_those_of_its_result() -> None:
    body = """s = Shape <start = 2> (x); t = Mul (s, two); u = Concat <axis = 0> (lead, t);
              y = Resize <mode = "nearest"> (x, , , u)"""
    opened = read(body, {"two": [2], "lead": [1, 4]})
    assert [list(places.values()) for places in opened.targets.values()] == [[Extent(0, 2), Extent(1, 2)]]
    check_grid(opened)


ODD = (OpenSize("h", 7, 64), OpenSize("w", 9, 96))
"""Any size, which no stride divides."""


def test_extents_that_no_stride_divides_are_whole_parts_of_the_sizes() -> None:
    """Whole parts of whole parts, in front of windows that lose places and behind an image made larger."""
    body = (
        "a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w); "
        "b = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (a); "
        'y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (b, , s)'
    )
    opened = read(body, {"w": W, "s": np.array([1, 1, 2, 2], np.float32)}, ODD)
    assert opened.axes["a"] == {2: Extent(0, 1, 2, 0, 1), 3: Extent(1, 1, 2, 0, 1)}
    for point in ((7, 9), (8, 10), (9, 11), (10, 12), (33, 34), (64, 96)):
        halves = [(value - 1) // 2 + 1 for value in point]
        quarters = [(half - 3) // 2 + 1 for half in halves]
        made = opened.at(point).tensors
        assert [list(made[name].shape[2:]) for name in "aby"] == [halves, quarters, [2 * one for one in quarters]]
    check_grid(opened)


def test_the_size_of_another_image_may_be_odd() -> None:
    """As the levels of a pyramid are joined."""
    half = "MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>"
    body = f'a = {half} (x); b = {half} (a); s = Shape (a); r = Resize <mode = "nearest"> (b, , , s); y = Add (r, a)'
    opened = read(body, {}, ODD)
    assert opened.axes["r"] == opened.axes["a"] == {2: Extent(0, 1, 2, 0, 1), 3: Extent(1, 1, 2, 0, 1)}
    check_grid(opened)


REFUSED = {
    "a half of a half": ("a = Resize (x, , s); y = MaxPool <kernel_shape = [2, 2], strides = [8, 8]> (a)",
                         {"s": np.array([1, 1, 1.5, 1], np.float32)}, "h=8:64:8"),
    "softmax over places": ("y = Softmax <axis = 3> (x)", {}, "Softmax '.*'.*places along w"),
    "cubic, without what is outside": ('y = Resize <mode = "cubic", exclude_outside = 1> (x, , t)',
                                       {"t": np.array([1, 1, 1.5, 2], np.float32)}, "exclude_outside"),
    "fewer counted": ("y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)", {}, "count_include_pad"),
    "the size": ("s = Shape <start = 2, end = 3> (x); c = Cast <to = 1> (s); y = Div (x, c)", {}, "depends on it"),
    "backwards": ("y = Slice (x, one, end, axes, two)",
                  {"one": [-1], "end": [-(1 << 40)], "axes": [2], "two": [-1]}, "another rule"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_kernel_computes_at_any_size_is_named(name: str) -> None:
    body, weights, reason = REFUSED[name]
    with pytest.raises(InputError, match=f"--sizes: .*({reason})"):
        check_grid(read(body, weights))


def test_a_point_where_the_model_is_another_is_refused() -> None:
    opened = read("y = Relu (x)")
    other = read("y = Tanh (x)").graph
    with pytest.raises(InputError, match="what it does depends on the size"):
        check_point(opened, opened.point, other)


def slides_of(body: str, weights: dict[str, Any]) -> dict[int, Slide]:
    opened = read(body, weights)
    known = GridOperators(opened)
    (look,) = [look for one in opened.graph.operators if (look := known.look(one)) is not None]
    return dict(look.slides)


@pytest.mark.parametrize(
    ("body", "slide", "seen"),
    [
        ("y = Conv <pads = [1, 1, 1, 1]> (x, w)", Slide(1, 1, -1, 3), 10),
        ("y = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)", Slide(2, 1, -1, 3), 17),
        ("y = Conv <dilations = [2, 2], pads = [2, 2, 2, 2]> (x, w)", Slide(1, 1, -2, 5), 12),
        ("y = ConvTranspose <strides = [2, 2], pads = [1, 1, 0, 0]> (x, w)", Slide(1, 2, 0, 2), 5),
        ("y = ConvTranspose <pads = [1, 1, 1, 1]> (x, w)", Slide(1, 1, -1, 3), 10),
        ('y = Resize <mode = "linear"> (x, , t)', Slide(1, 2, -1, 3), 6),
        ("y = Slice (x, one, end, axes, steps)", Slide(2, 1, 1, 1), 15),
    ],
)
def test_what_eight_results_see(body: str, slide: Slide, seen: int) -> None:
    numbers = {"one": [1, 1], "end": [1 << 40, 1 << 40], "axes": [2, 3], "steps": [2, 2]}
    found = slides_of(body, {"w": W, "t": np.array([1, 1, 2, 2], np.float32), **numbers})
    assert found == {0: slide, 1: slide}
    assert slide.seen(8) == seen


def test_a_kernel_has_one_operator_that_looks_around_and_what_stands_at_its_results() -> None:
    body = """a = Conv <pads = [1, 1, 1, 1]> (x, w); b = Relu (a); c = Add (b, x);
              d = Conv <pads = [1, 1, 1, 1]> (c, w); y = Mul (d, c)"""
    opened = read(body, {"w": W})
    known = GridOperators(opened)
    names = {operator.outputs[0]: operator.name for operator in opened.graph.operators}
    groups = grid_groups(known, [tuple(names.values())], list)
    by_result = {name: result for result, name in names.items()}
    # x is seen around a place by the first one, so that what adds it is another; so is c by the second.
    assert [[by_result[name] for name in group.operators] for group in groups] == [["a", "b"], ["c"], ["d"], ["y"]]
    made = tile_graph(known, groups[0], {0: 4, 1: 8})
    assert made.graph.tensors["x"].shape == (1, 4, 6, 10)
    assert made.graph.tensors["b"].shape == (1, 4, 4, 8)
    assert made.graph.by_name[names["a"]].attributes["pads"] == (0, 0, 0, 0)
