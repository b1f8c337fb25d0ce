"""float16 inputs of products in float32: widened once for each row, not once for each panel of weights."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autofuse.backend.compile.function import assembly
from autofuse.environment.space import load_space
from autofuse.kernels.build import build_kernel
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from tests.kernels.conftest import Bench, Small, parsed, real

ORDER = "contraction.order"
COPIED = {ORDER: "copied", "contraction.panels_per_task": 0, "contraction.pixel_rows": 4, "contraction.k_blocking": 1}


def product(rows: int, depth: int, columns: int) -> Small:
    body = "r = Cast <to=1> (x); m = MatMul (r, w); y = Relu (m)"
    return Small(parsed(body), {"x": real(rows, depth).astype("float16")}, ["y"], {"w": real(depth, columns)})


def point(channels: int, image: int, columns: int) -> Small:
    body = "r = Cast <to=1> (x); y = Conv (r, w, b)"
    x = real(1, channels, image, image).astype("float16")
    return Small(parsed(body), {"x": x}, ["y"], {"w": real(columns, channels, 1, 1), "b": real(columns)})


CASES = {
    "a product": product(64, 64, 96),
    "rows that do not divide": product(67, 37, 41),
    "few rows": product(20, 64, 48),
    "a convolution": point(24, 9, 40),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("lanes", [8, 16])
def test_a_copied_row_gives_what_onnx_runtime_does(name: str, lanes: int) -> None:
    small, bench = CASES[name], Bench()
    bound, target = bench.bind(small), bench.target(lanes)
    found = bench.run(small, bound, build_kernel(bound.workload, COPIED, target), target)["y"]
    wanted = small.reference()["y"]
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def guess(small: Small, lanes: int) -> dict[str, int | str]:
    bench = Bench()
    target = bench.target(lanes)
    workload = bench.bind(small).workload
    knobs = open_knobs(workload, target, load_space(None, target.isa).schedule)
    return dict(first_schedules(workload, knobs, target)[0])


def test_that_is_the_first_guess_where_rows_are_many_enough() -> None:
    assert guess(product(64, 64, 96), 16)[ORDER] == "copied"
    assert guess(product(8, 64, 96), 16).get(ORDER) != "copied"
    wide = Small(parsed("m = MatMul (x, w); y = Relu (m)"), {"x": real(64, 64)}, ["y"], {"w": real(64, 96)})
    assert guess(wide, 16).get(ORDER) != "copied", "numbers that lie as they are read need no copy"


def test_the_inner_loop_widens_nothing() -> None:
    bench = Bench()
    target, bound = bench.target(16), bench.bind(product(64, 64, 96))
    counts = {}
    for order in ("weights", "copied"):
        made = build_kernel(bound.workload, COPIED | {ORDER: order}, target)
        text = assembly(made.function, target)
        counts[order] = max(map(_widened, _loops(text)), default=0)
    assert counts["copied"] == 0 < counts["weights"]


def _loops(text: str) -> list[str]:
    """The blocks of code that multiply and add."""
    return [block for block in re.split(r"^\S+:", text, flags=re.MULTILINE) if "vfmadd" in block]


def _widened(block: str) -> int:
    return len(re.findall(r"vcvtph2ps", block))
