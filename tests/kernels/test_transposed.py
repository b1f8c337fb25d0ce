"""Transposed convolutions agree with ONNX Runtime, and their windows meet each pair of element and tap once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import helper

from autofuse.kernels.families.contraction.form import contraction_form
from autofuse.kernels.families.registry import is_own, kind_of, nests_of
from autofuse.kernels.nest.transposed_window import TransposedWindow
from tests.kernels.conftest import Bench, Small, parsed, real

node = helper.make_node
SHORT = {"contraction.vectors": 1, "contraction.pixels": 2, "contraction.rows_per_task": 2, "windowed.pixels": 2}
Shape = tuple[int, ...]


def transposed(x: Shape, w: Shape, bias: bool = True, group: int = 1, **attributes: Any) -> Small:
    """One transposed convolution from input "x" to "y"; w is [C, columns a group, *taps]."""
    constants = {"w": real(*w, seed=1)} | ({"b": real(w[1] * group, seed=2)} if bias else {})
    nodes = [node("ConvTranspose", ["x", *constants], ["y"], group=group, **attributes)]
    return Small(nodes, {"x": real(*x)}, ["y"], constants)


CASES = {
    "u-net": transposed((1, 16, 5, 6), (16, 8, 2, 2), strides=[2, 2]),
    "dcgan": transposed((1, 16, 4, 5), (16, 8, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]),
    "dcgan, first": transposed((1, 24, 1, 1), (24, 16, 4, 4), bias=False),
    "to an image": transposed((1, 8, 4, 5), (8, 3, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]),
    "3x3, stride 2": transposed((1, 8, 5, 5), (8, 8, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]),
    "output padding": transposed((1, 8, 5, 5), (8, 8, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
    "stride 1": transposed((1, 8, 5, 6), (8, 8, 3, 2)),
    "stride 1, dilated, cut": transposed((1, 8, 6, 6), (8, 8, 3, 3), dilations=[2, 1], pads=[1, 3, 2, 0]),
    "a point": transposed((1, 8, 3, 4), (8, 16, 1, 1)),
    "a point, 1d": transposed((2, 8, 24), (8, 16, 1)),
    "a point, spread": transposed((1, 8, 3, 4), (8, 8, 1, 1), strides=[2, 3]),
    "a kernel smaller than its stride": transposed((1, 8, 3, 4), (8, 8, 2, 1), strides=[3, 4], output_padding=[2, 1]),
    "1d": transposed((2, 8, 9), (8, 5, 4), strides=[2], pads=[1, 0]),
    "1d, vocoder": transposed((1, 16, 7), (16, 8, 16), strides=[8], pads=[4, 4]),
    "3d": transposed((1, 8, 2, 3, 4), (8, 8, 2, 2, 2), strides=[2, 2, 2]),
    "3d, strides differ": transposed((1, 4, 3, 3, 2), (4, 5, 1, 3, 4), strides=[1, 2, 3], pads=[0, 1, 0, 0, 0, 1]),
    "dilation shares a factor with the stride": transposed(
        (1, 4, 4, 4), (4, 8, 3, 3), strides=[2, 4], dilations=[2, 6]
    ),
    "dilation and stride have none in common": transposed((1, 4, 4, 5), (4, 8, 3, 4), strides=[2, 3], dilations=[3, 2]),
    "grouped": transposed((1, 16, 4, 4), (16, 6, 3, 3), group=2, strides=[2, 2], pads=[1, 1, 0, 0]),
    "depthwise": transposed((1, 16, 4, 5), (16, 1, 4, 4), group=16, strides=[2, 2], pads=[1, 1, 1, 1]),
    "depthwise, odd": transposed((2, 5, 4, 3), (5, 2, 3, 2), group=5, strides=[2, 3], output_padding=[1, 0]),
    "depthwise, stride 1": transposed((1, 8, 4, 5), (8, 1, 3, 3), group=8, bias=False, dilations=[1, 2]),
    "same upper": transposed((1, 8, 4, 5), (8, 8, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    "same lower": transposed((1, 8, 4, 5), (8, 8, 3, 4), auto_pad="SAME_LOWER", strides=[2, 3]),
    "valid": transposed((1, 8, 4, 5), (8, 8, 3, 3), auto_pad="VALID", strides=[2, 2]),
    "a given shape": transposed((1, 8, 4, 5), (8, 8, 3, 3), strides=[2, 2], output_shape=[8, 10]),
    "a given shape, odd padding": transposed((1, 8, 4, 5), (8, 8, 4, 3), strides=[2, 2], output_shape=[7, 9]),
    "tails": transposed((1, 13, 3, 7), (13, 21, 2, 3), strides=[2, 2]),
    "one channel": transposed((1, 1, 4, 4), (1, 1, 2, 2), strides=[2, 2]),
    "width 1": transposed((1, 8, 6, 1), (8, 8, 3, 1), strides=[2, 1], pads=[1, 0, 0, 0]),
    "batch": transposed((3, 8, 3, 3), (8, 8, 2, 2), strides=[2, 2]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_transposed_convolution_agrees(bench: Bench, name: str) -> None:
    bench.check(CASES[name], schedule=SHORT)


LAYOUTS = [{"x": "c8", "y": "c8"}, {"x": "c8"}, {"y": "c8"}, {"x": "c4", "y": "c8"}]
BLOCKED = ["u-net", "dcgan", "3x3, stride 2", "1d, vocoder", "3d", "depthwise", "output padding", "a point, spread"]


@pytest.mark.parametrize(("number", "name"), list(enumerate(BLOCKED)))
def test_any_layout_is_read_and_written(bench: Bench, number: int, name: str) -> None:
    layouts = LAYOUTS[number % 4]
    if name == "depthwise":
        layouts = {"x": "c8", "y": "c8"}
    bench.check(CASES[name], layouts, SHORT)


def test_taps_computed_at_run_time_are_packed_first(bench: Bench) -> None:
    small = CASES["dcgan"]
    fed = Small(small.nodes, {**small.inputs, **small.constants}, small.outputs)
    bench.check(fed, {"x": "c8", "y": "c8"}, SHORT)
    turned = CASES["stride 1"]
    bench.check(Small(turned.nodes, {**turned.inputs, **turned.constants}, turned.outputs), {}, SHORT)


SURROUNDINGS = {
    "a norm and relu": "c = ConvTranspose <strides=[2, 2]> (x, w, b); n = Mul (c, s); y = Relu (n)",
    "a residual": "c = ConvTranspose <strides=[2, 2]> (x, w, b); a = Add (c, r); y = Relu (a)",
    "a skip connection": "c = ConvTranspose <strides=[2, 2]> (x, w, b); y = Concat <axis=1> (r, c)",
    "before it": "p = Relu (x); c = ConvTranspose <strides=[2, 2]> (p, w, b); y = Sigmoid (c)",
    "a convolution behind it": "c = ConvTranspose <strides=[2, 2]> (x, w, b); y = Conv (c, v)",
}
WEIGHTS = {"w": real(16, 8, 2, 2, seed=1), "b": real(8, seed=2), "s": real(8, 1, 1), "v": real(8, 8, 1, 1)}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_what_surrounds_it_is_in_its_loops(bench: Bench, name: str) -> None:
    nodes = parsed(SURROUNDINGS[name])
    read = {word for item in nodes for word in item.input}
    inputs = {"x": real(1, 16, 3, 4), "r": real(1, 8, 6, 8)}
    small = Small(
        nodes,
        {key: value for key, value in inputs.items() if key in read},
        ["y"],
        {key: value for key, value in WEIGHTS.items() if key in read},
    )
    for layouts in ({}, {"x": "c8", "y": "c8"}):
        bench.check(small, layouts, SHORT)
    nests = nests_of(bench.bind(small).workload)
    assert len(nests) == {"a skip connection": 2, "a convolution behind it": 2}.get(name, 1)


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_a_band_of_rows_runs_through_it(bench: Bench, rows: int) -> None:
    nodes = parsed(
        "a = Conv <pads=[1, 1, 1, 1]> (x, p); c = ConvTranspose <strides=[2, 2], pads=[1, 1, 0, 0]> (a, w); "
        "y = Conv <pads=[1, 1, 1, 1]> (c, q)"
    )
    constants = {"p": real(8, 8, 3, 3), "w": real(8, 8, 3, 2, seed=1), "q": real(8, 8, 3, 3, seed=2)}
    small = Small(nodes, {"x": real(1, 8, 5, 6)}, ["y"], constants)
    bench.check(small, {"x": "c8"}, {**SHORT, "band.rows": rows})


def test_winograd_serves_a_stride_of_one(bench: Bench) -> None:
    small = transposed((1, 8, 6, 9), (8, 16, 3, 3), pads=[1, 1, 1, 1])
    bench.check(small, {"x": "c8"}, {"contraction.algorithm": "winograd4", **SHORT}, limit=2e-5)


def test_each_element_meets_each_tap_once(bench: Bench) -> None:
    workload = bench.bind(CASES["dcgan"]).workload
    anchor = workload.operators[0]
    assert kind_of(workload, nests_of(workload)[0]) == "contraction"
    assert contraction_form(workload, anchor).flops == 2 * 4 * 5 * 16 * 8 * 4 * 4
    depthwise = bench.bind(CASES["depthwise"]).workload
    assert kind_of(depthwise, nests_of(depthwise)[0]) == "depthwise"


@st.composite
def spreads(draw: st.DrawFn) -> TransposedWindow:
    """Any dimension of a transposed convolution, its result cut or widened at either end."""
    size, taps = draw(st.integers(1, 9)), draw(st.integers(1, 7))
    stride, dilation = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    reach = (size - 1) * stride + (taps - 1) * dilation + 1
    begin = draw(st.integers(0, min(reach - 1, 9)))
    outputs = draw(st.integers(1, reach - begin + stride))
    return TransposedWindow(size, taps, stride, dilation, begin, 0, outputs)


def meetings(spread: TransposedWindow) -> dict[int, Counter[tuple[int, int]]]:
    """Output -> the (element, tap) pairs that meet there, from the definition."""
    found: dict[int, Counter[tuple[int, int]]] = {output: Counter() for output in range(spread.outputs)}
    for element in range(spread.size):
        for tap in range(spread.taps):
            output = element * spread.stride + tap * spread.dilation - spread.pad_begin
            if output in found:
                found[output][element, tap] += 1
    return found


@given(spreads())
def test_an_output_sees_the_pairs_that_meet_there(spread: TransposedWindow) -> None:
    for output, pairs in meetings(spread).items():
        low, high = spread.tap_range(output)
        assert Counter((spread.position(output, t), spread.kernel_tap(output, t)) for t in range(low, high)) == pairs


@given(spreads(), st.integers(1, 5))
def test_rows_need_no_element_outside_what_they_are_said_to_see(spread: TransposedWindow, count: int) -> None:
    found = meetings(spread)
    for begin in range(spread.outputs - count + 1):
        first, elements = spread.seen(begin, count)
        needed = {element for output in range(begin, begin + count) for element, _ in found[output]}
        assert all(first <= element < first + elements for element in needed)


@given(spreads())
def test_the_phases_cover_each_output_once_with_the_pairs_that_meet_there(spread: TransposedWindow) -> None:
    wanted, seen = meetings(spread), Counter[int]()
    for count, first in spread.phases:
        for number in range(count):
            phase = first.at(number)
            for place in range(phase.outputs):
                output = phase.result(place)
                seen[output] += 1
                inside = [tap for tap in range(phase.taps) if phase.inside(place, tap)]
                pairs = Counter((phase.position(place, tap), phase.kernel_tap(place, tap)) for tap in inside)
                assert pairs == wanted[output]
    assert seen == Counter(range(spread.outputs))


def test_phases_that_see_the_input_alike_are_one_loop() -> None:
    assert [count for count, _ in TransposedWindow(8, 2, 2, 1, 0, 0, 16).phases] == [2]
    assert [count for count, _ in TransposedWindow(8, 4, 2, 1, 1, 0, 16).phases] == [1, 1]
    assert [count for count, _ in TransposedWindow(8, 64, 32, 1, 16, 0, 256).phases] == [16, 16]
    assert [count for count, _ in TransposedWindow(8, 1, 3, 1, 0, 0, 22).phases] == [1, 2]


@st.composite
def models(draw: Any) -> tuple[Small, dict[str, str]]:
    """A transposed convolution of any kind, with blocks where they divide the channels."""
    rank, group = draw(st.integers(1, 3)), draw(st.sampled_from((1, 1, 2, 4)))
    channels, columns = group * draw(st.sampled_from((1, 4, 8))), draw(st.sampled_from((1, 3, 4, 8)))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    size, taps, strides, dilations = each(1, 5), each(1, 4), each(1, 4), each(1, 3)
    spans = [(k - 1) * d + 1 for k, d in zip(taps, dilations, strict=True)]
    reach = [(n - 1) * s + span for n, s, span in zip(size, strides, spans, strict=True)]
    pads = [draw(st.integers(0, min(2, (extent - 1) // 2))) for extent in reach] * 2
    extra = [draw(st.integers(0, s - 1)) for s in strides]
    assume(np.prod(reach) < 2000)
    small = transposed(
        (1, channels, *size), (channels, columns, *taps), draw(st.booleans()), group,
        strides=strides, dilations=dilations, pads=pads, output_padding=extra,
    )  # fmt: skip
    blocks = {"x": channels, "y": columns * group}
    layouts = {name: draw(st.sampled_from(("plain", "c4"))) for name, extent in blocks.items() if extent % 4 == 0}
    return small, layouts


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(models(), st.sampled_from((1, 2, 3)), st.sampled_from((1, 2, 5)))
def test_any_transposed_convolution_agrees(
    bench: Bench, model: tuple[Small, dict[str, str]], vectors: int, pixels: int
) -> None:
    assume(is_own(bench.bind(model[0]).workload))  # nothing but padding may be left
    knobs = {"contraction.vectors": vectors, "contraction.pixels": pixels, "windowed.pixels": pixels}
    bench.check(*model, knobs)
