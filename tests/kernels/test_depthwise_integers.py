"""Depthwise convolutions of bytes are those of ONNX Runtime to the bit, by bytes and by float32, at every edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.registry import is_own, kind_of, nests_of
from autofuse.kernels.tir.digest import code_text
from tests.kernels.conftest import Array, Bench, Small, parsed
from tests.kernels.kernel_sample import SAMPLES, TARGETS
from tests.kernels.test_integer import WITHOUT_VNNI, levels

WAYS = ("bytes", "real")
"""By vectors of bytes, or by float32 where a target has no instruction for these."""


def depthwise(x: Array, window: tuple[int, int], attributes: str, zero: int | None) -> Small:
    channels = x.shape[1]
    constants: dict[str, Any] = {"w": levels("int8", channels, 1, *window)}
    names = "x, w"
    if zero is not None:
        constants["z"], names = np.asarray(zero, x.dtype), "x, w, z"
    nodes = parsed(f"y = ConvInteger <group={channels}, {attributes}> ({names})")
    return Small(nodes, {"x": x}, ["y"], constants)


def exact(bench: Bench, small: Small, lanes: int, way: str, schedule: dict[str, int | str], block: str) -> None:
    bound = bench.bind(small, {"x": block, "y": block} if block else {})
    assert is_own(bound.workload), bound.workload.label
    assert "integer_depthwise" in [kind_of(bound.workload, nest) for nest in nests_of(bound.workload)]
    target = bench.target(lanes) if way == "bytes" else bench.target(lanes, mcpu=WITHOUT_VNNI[lanes])
    found = bench.run(small, bound, build_kernel(bound.workload, schedule, target), target)
    for name, array in small.reference().items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_and_strides(bench: Bench, way: str, kernel: int, stride: int) -> None:
    pads = ", ".join([str(kernel // 2)] * 4)
    dtype, zero, lanes = ("uint8", 113, 16) if stride == kernel // 3 + 1 else ("int8", -77, 8)
    small = depthwise(levels(dtype, 1, 32, 11, 13), (kernel, kernel), f"pads=[{pads}], strides=[{stride}, {stride}]",
                      zero)  # fmt: skip
    schedule: dict[str, int | str] = {"integer_depthwise.pixels": 4}
    exact(bench, small, lanes, way, schedule, f"c{lanes}")


@pytest.mark.parametrize("way", WAYS)
def test_channels_that_fill_no_vector_and_maps_without_blocks(bench: Bench, way: str) -> None:
    for shape, block in (((2, 21, 7, 9), ""), ((1, 24, 6, 6), "c8"), ((1, 3, 9, 8), "")):
        small = depthwise(levels("int8", *shape), (3, 3), "pads=[1, 0, 2, 1]", 5)
        exact(bench, small, 16, way, {"integer_depthwise.rows_per_task": 2}, block)


def drawn(data: st.DataObject) -> None:
    draw = data.draw
    kernel = (draw(st.integers(1, 7)), draw(st.integers(1, 7)))
    strides = tuple(draw(st.integers(1, min(2, taps))) for taps in kernel)
    pads = [draw(st.integers(0, taps - 1)) for taps in (*kernel, *kernel)]
    lanes, dtype = draw(st.sampled_from([8, 16])), draw(st.sampled_from(["uint8", "int8"]))
    block = draw(st.sampled_from(["", f"c{lanes}"]))
    channels = draw(st.integers(2, 40)) if not block else lanes * draw(st.integers(1, 2))
    size = [draw(st.integers(max(1, taps - sum(pads[at::2])), 20)) for at, taps in enumerate(kernel)]
    limits = np.iinfo(dtype)
    zero = draw(st.one_of(st.none(), st.integers(int(limits.min), int(limits.max))))
    attributes = f"pads=[{', '.join(map(str, pads))}], strides=[{', '.join(map(str, strides))}]"
    small = depthwise(levels(dtype, draw(st.integers(1, 2)), channels, *size), kernel, attributes, zero)
    schedule: dict[str, int | str] = {
        "integer_depthwise.pixels": draw(st.sampled_from([2, 4, 6, 8, 12])),
        "integer_depthwise.rows_per_task": draw(st.sampled_from([0, 1, 4])),
    }
    exact(Bench(), small, lanes, draw(st.sampled_from(WAYS)), schedule, block)


@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_some_windows(data: st.DataObject) -> None:
    drawn(data)


@pytest.mark.long
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_random_windows(data: st.DataObject) -> None:
    drawn(data)


@pytest.mark.parametrize("way", WAYS)
def test_quantised_again_with_a_scale_for_each_channel(bench: Bench, way: str) -> None:
    """What a QLinearConv becomes: sums, bias, scale, bounds and rounding are one kernel."""
    channels = 32
    constants: dict[str, Any] = {
        "sx": np.float32(0.02), "zx": np.uint8(113), "w": levels("int8", channels, 1, 3, 3),
        "sw": np.linspace(0.005, 0.02, channels, dtype="float32"), "zw": np.zeros(channels, "int8"),
        "sy": np.float32(0.05), "zy": np.uint8(100), "b": np.arange(-3000, 3000, 6000 // channels, "int32")[:channels],
    }  # fmt: skip
    text = f"y = QLinearConv <group={channels}, pads=[1, 1, 1, 1]> (x, sx, zx, w, sw, zw, sy, zy, b)"
    small = Small(parsed(text), {"x": levels("uint8", 1, channels, 9, 10)}, ["y"], constants)
    exact(bench, small, 16, way, {}, "c16")


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("width", [1, 5, 11])
def test_levels_of_several_pixels_are_made_together(bench: Bench, dtype: str, lanes: int, width: int) -> None:
    """Also those far out of range, of products and sums beyond int32, which saturate."""
    channels = 2 * lanes
    scales = np.geomspace(1e-5, 1e36, channels, dtype="float32")
    constants: dict[str, Any] = {
        "sx": np.float32(0.02), "zx": np.asarray(13, dtype), "w": levels("int8", channels, 1, 3, 3),
        "sw": scales, "zw": np.zeros(channels, "int8"), "sy": np.float32(0.05), "zy": np.asarray(100, dtype),
        "b": np.resize(np.asarray([-3000, 0, 2**31 - 1, -(2**31), 77], "int32"), channels),
    }  # fmt: skip
    text = f"y = QLinearConv <group={channels}, pads=[1, 1, 1, 1]> (x, sx, zx, w, sw, zw, sy, zy, b)"
    small = Small(parsed(text), {"x": levels(dtype, 1, channels, 4, width)}, ["y"], constants)
    exact(bench, small, lanes, "bytes", {}, f"c{lanes}")
    exact(bench, small, lanes, "bytes", {"integer_depthwise.pixels": 6}, "")


@pytest.mark.parametrize("isa", TARGETS)
def test_only_instructions_of_the_target_are_asked_for(bench: Bench, isa: str) -> None:
    layouts = dict.fromkeys(("x", "y"), f"c{TARGETS[isa].lanes}")
    workload = bench.bind(SAMPLES["depthwise integers, blocks"].small, layouts).workload
    code = code_text(build_kernel(workload, {}, TARGETS[isa]).function)
    wanted = {"avx512": "vpdpbusd", "neon": "sdot"}.get(isa, "")
    assert [word for word in ("vpdpbusd", "sdot") if word in code] == ([wanted] if wanted else [])
