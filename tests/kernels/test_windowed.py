"""Depthwise convolutions and poolings agree with ONNX Runtime; poolings without a definition are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from onnx import helper

from autofuse.kernels.families.registry import is_own
from tests.kernels.conftest import Bench, Small, real

node = helper.make_node
Shape = tuple[int, ...]
SHORT = {"windowed.pixels": 2}


def depthwise(x: Shape, taps: Shape, multiplier: int = 1, bias: bool = True, **attributes: Any) -> Small:
    channels = x[1] * multiplier
    constants = {"w": real(channels, 1, *taps, seed=1)} | ({"b": real(channels, seed=2)} if bias else {})
    nodes = [node("Conv", ["x", *constants], ["y"], group=x[1], **attributes)]
    return Small(nodes, {"x": real(*x)}, ["y"], constants)


def pool(kind: str, x: Shape, opset: int = 17, **attributes: Any) -> Small:
    return Small([node(kind, ["x"], ["y"], **attributes)], {"x": real(*x)}, ["y"], opset=opset)


SAME = {"pads": [1, 1, 1, 1]}
DEPTHWISE = {
    "3x3": depthwise((1, 8, 6, 7), (3, 3), **SAME),
    "5x5, strided": depthwise((1, 16, 9, 8), (5, 5), strides=[2, 2], pads=[2, 2, 2, 2]),
    "dilated": depthwise((1, 8, 9, 9), (3, 3), dilations=[2, 3], pads=[2, 3, 2, 3]),
    "dilated and strided": depthwise((1, 8, 11, 9), (3, 3), dilations=[2, 2], strides=[3, 2], pads=[1, 2, 3, 0]),
    "asymmetric padding": depthwise((1, 8, 5, 5), (3, 2), pads=[0, 1, 2, 0]),
    "odd channels": depthwise((2, 13, 4, 5), (3, 3), **SAME),
    "fewer channels than lanes": depthwise((1, 3, 5, 5), (3, 3), **SAME),
    "two results a channel": depthwise((1, 8, 4, 5), (3, 3), multiplier=2, **SAME),
    "three results a channel, odd": depthwise((1, 5, 4, 5), (3, 3), multiplier=3, **SAME),
    "without bias": depthwise((1, 8, 4, 4), (3, 3), bias=False),
    "1d": depthwise((2, 8, 9), (3,), pads=[1, 1]),
    "3d": depthwise((1, 8, 3, 4, 5), (2, 3, 3), pads=[0, 1, 1, 1, 1, 1]),
    "windows that lie in the padding": depthwise((1, 8, 4, 4), (1, 1), pads=[1, 2, 0, 3]),
    "width 1": depthwise((1, 8, 5, 1), (3, 1), pads=[1, 0, 1, 0]),
    "a point": depthwise((1, 8, 3, 4), (1, 1)),
    "a window as large as the image": depthwise((1, 8, 4, 4), (4, 4)),
    "same upper": depthwise((1, 8, 7, 6), (3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
}
POOLS = {
    "2x2": pool("MaxPool", (1, 8, 6, 7), kernel_shape=[2, 2], strides=[2, 2]),
    "3x3, padded": pool("MaxPool", (1, 8, 7, 7), kernel_shape=[3, 3], strides=[2, 2], **SAME),
    "rounded up": pool("MaxPool", (1, 8, 6, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "rounded up, padded": pool("MaxPool", (1, 8, 6, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, **SAME),
    "dilated": pool("MaxPool", (1, 8, 9, 9), kernel_shape=[3, 2], dilations=[2, 3]),
    "dilated, padded": pool("MaxPool", (1, 8, 7, 7), kernel_shape=[3, 3], dilations=[2, 2], **SAME),
    "odd channels": pool("MaxPool", (2, 11, 5, 5), kernel_shape=[3, 3], **SAME),
    "1d": pool("MaxPool", (1, 8, 9), kernel_shape=[3], strides=[2], pads=[1, 1]),
    "3d": pool("MaxPool", (1, 4, 4, 5, 6), kernel_shape=[2, 2, 3], strides=[2, 1, 2]),
    "same lower": pool("MaxPool", (1, 8, 7, 6), kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
    "average": pool("AveragePool", (1, 8, 6, 7), kernel_shape=[2, 3], strides=[2, 2]),
    "average, padded": pool("AveragePool", (1, 8, 5, 6), kernel_shape=[3, 3], **SAME),
    "average, padding counts": pool("AveragePool", (1, 8, 5, 6), kernel_shape=[3, 3], count_include_pad=1, **SAME),
    "average, asymmetric": pool("AveragePool", (1, 8, 5, 6), kernel_shape=[3, 3], pads=[0, 2, 1, 0], strides=[2, 2]),
    "average, rounded up": pool("AveragePool", (1, 8, 6, 6), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "average, rounded up, padded": pool(
        "AveragePool", (1, 8, 6, 6), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, **SAME
    ),
    "average, rounded up, padding counts": pool(
        "AveragePool", (1, 8, 6, 6), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, count_include_pad=1, **SAME
    ),
    "average, rounded up, asymmetric padding counts": pool(
        "AveragePool",
        (1, 8, 7, 8),
        19,
        kernel_shape=[3, 4],
        strides=[3, 3],
        ceil_mode=1,
        count_include_pad=1,
        pads=[1, 0, 0, 1],
    ),
    "average, dilated": pool("AveragePool", (1, 8, 9, 9), 19, kernel_shape=[3, 3], dilations=[2, 2], **SAME),
    "average, 1d": pool("AveragePool", (1, 5, 9), kernel_shape=[4], pads=[1, 2]),
    "average, 3d": pool("AveragePool", (1, 4, 4, 4, 4), kernel_shape=[2, 2, 2], pads=[1, 0, 1, 0, 1, 1]),
    "average, whole image": pool("AveragePool", (1, 16, 4, 4), kernel_shape=[4, 4]),
}


def fitting(cases: Mapping[str, Small], layouts: Sequence[dict[str, str]]) -> list[Any]:
    """Every case in the plain layout, and in one of `layouts` (each in turn) when its channels have blocks."""
    found = [pytest.param(small, {}, id=f"{name}, plain") for name, small in cases.items()]
    blocked = [name for name, small in cases.items() if small.inputs["x"].shape[1] % 8 == 0]
    for name, layout in zip(blocked, cycle(layouts), strict=False):
        found.append(pytest.param(cases[name], layout, id=f"{name}, {layout}"))
    return found


BOTH = [{"x": "c8", "y": "c8"}, {"x": "c4", "y": "c4"}, {"x": "c8"}, {"y": "c4"}]


@pytest.mark.parametrize(("small", "layouts"), fitting(DEPTHWISE, BOTH))
def test_a_depthwise_convolution_agrees(bench: Bench, small: Small, layouts: dict[str, str]) -> None:
    bench.check(small, layouts, SHORT)


@pytest.mark.parametrize(("small", "layouts"), fitting(POOLS, BOTH))
def test_a_pool_agrees(bench: Bench, small: Small, layouts: dict[str, str]) -> None:
    bench.check(small, layouts, SHORT)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_pool_of_bytes_is_exact(bench: Bench, dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(3).integers(limits.min, limits.max, (2, 19, 7, 9), endpoint=True).astype(dtype)
    small = Small([node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], **SAME)], {"x": x}, ["y"])
    assert is_own(bench.bind(small).workload)
    bench.check(small, {}, SHORT)


REFUSED = {
    "a window between the edges of the image": pool(
        "MaxPool", (1, 8, 2, 2), kernel_shape=[2, 2], dilations=[4, 4], pads=[3, 3, 3, 3]
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_unusual_pool_is_not_ours(bench: Bench, name: str) -> None:
    assert not is_own(bench.bind(REFUSED[name]).workload)


def test_positions_of_the_largest_are_not_ours(bench: Bench) -> None:
    nodes = [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])]
    assert not is_own(bench.bind(Small(nodes, {"x": real(1, 8, 4, 4)}, ["y", "i"])).workload)
