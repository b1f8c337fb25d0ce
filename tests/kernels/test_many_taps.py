"""Windows of many taps, and much padding: right, and of code whose size does not grow with either."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import helper

from autofuse.errors import InputError
from autofuse.kernels.build import build_kernel
from autofuse.kernels.tir import emit
from tests.kernels.conftest import Bench, Small, real

node = helper.make_node
Shape = tuple[int, ...]
MOST_LINES = 2_000


def conv(x: Shape, w: Shape, kind: str = "Conv", **attributes: Any) -> Small:
    constants = {
        "w": real(*w, seed=1),
        "b": real(w[0] if kind == "Conv" else w[1] * attributes.get("group", 1), seed=2),
    }
    return Small([node(kind, ["x", *constants], ["y"], **attributes)], {"x": real(*x)}, ["y"], constants)


def pool(kind: str, x: Shape, **attributes: Any) -> Small:
    return Small([node(kind, ["x"], ["y"], **attributes)], {"x": real(*x)}, ["y"], opset=17)


CASES: dict[str, tuple[Small, dict[str, int | str]]] = {
    "an audio encoder's positions": (conv((1, 32, 25), (32, 8, 128), group=4, pads=[64, 64]), {}),
    "in passes": (conv((1, 64, 25), (32, 64, 65), pads=[32, 32]), {"contraction.k_blocking": 4}),
    "in parts": (conv((1, 64, 25), (32, 64, 65), pads=[32, 32]), {"contraction.split_k": 2}),
    "a row copied": (conv((1, 16, 3, 40), (8, 16, 3, 33), pads=[1, 16, 1, 16]), {"contraction.order": "copied"}),
    "strided": (conv((1, 4, 60), (8, 4, 50), strides=[3], pads=[40, 45]), {}),
    "dilated": (conv((1, 4, 60), (8, 4, 30), dilations=[3], pads=[50, 40]), {}),
    "dilated beyond the input": (conv((1, 4, 7), (8, 4, 20), dilations=[9], pads=[100, 90]), {}),
    "few taps, much padding": (conv((1, 4, 5), (8, 4, 3), pads=[300, 200]), {}),
    "few columns": (conv((1, 16, 30), (2, 16, 70), pads=[35, 35]), {"contraction.algorithm": "dot"}),
    "transposed": (conv((1, 4, 20), (4, 8, 90), "ConvTranspose", pads=[5, 9]), {}),
    "transposed, strided": (conv((1, 4, 12), (4, 8, 300), "ConvTranspose", strides=[3], pads=[50, 60]), {}),
    "depthwise": (conv((1, 16, 4, 30), (16, 1, 3, 65), group=16, pads=[1, 32, 1, 32]), {}),
    "depthwise, over pixels": (
        conv((1, 4, 4, 30), (4, 1, 3, 65), group=4, pads=[1, 32, 1, 32]),
        {"windowed.algorithm": "pixel_lanes"},
    ),
    "maximum": (pool("MaxPool", (1, 8, 2, 200), kernel_shape=[1, 150], pads=[0, 70, 0, 60]), {}),
    "maximum without padding": (pool("MaxPool", (1, 8, 2, 200), kernel_shape=[2, 150]), {}),
    "average": (pool("AveragePool", (1, 8, 90), kernel_shape=[80], pads=[40, 30]), {}),
    "average, padding counts": (
        pool("AveragePool", (1, 8, 90), kernel_shape=[80], pads=[40, 30], count_include_pad=1),
        {},
    ),
    "average, rounded up": (
        pool("AveragePool", (1, 8, 90), kernel_shape=[80], strides=[7], pads=[40, 30], ceil_mode=1),
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_many_taps_agree_in_little_code(bench: Bench, name: str) -> None:
    small, schedule = CASES[name]
    bench.check(small, schedule=schedule)
    workload = bench.bind(small).workload
    code = build_kernel(workload, schedule, bench.target()).function.script()
    assert len(code.splitlines()) < MOST_LINES


def test_code_that_would_keep_tvm_for_minutes_is_refused_while_it_is_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, schedule = CASES["an audio encoder's positions"]
    monkeypatch.setattr(emit, "MOST_STORES", 20)
    with pytest.raises(InputError, match="its code would have more than 20 stores; take smaller tiles"):
        build_kernel(bench.bind(small).workload, schedule, bench.target())
