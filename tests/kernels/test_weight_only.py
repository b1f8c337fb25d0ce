"""Products of weights in 4 and 8 bits are those of ONNX Runtime's MatMulNBits, by every way of unpacking."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autofuse.environment.space import load_space
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.tir.digest import code_text
from autofuse.kernels.tir.features import has_feature
from tests.kernels.conftest import Bench, Small, real
from tests.kernels.kernel_sample import TARGETS

TOLERANCE = 1e-5
"""Largest error as a part of the largest result: sums of float32 in another order."""
KINDS = [(4, ""), (4, "codes"), (4, "reals"), (8, ""), (8, "codes")]
"""Bits and zero points; ONNX Runtime has no real ones for 8 bits."""


def weights(columns: int, depth: int, bits: int, block: int, zeros: str = "", seed: int = 0) -> dict[str, Any]:
    """Constants of a MatMulNBits: codes over their full range; `zeros`: "", "codes" or "reals"."""
    rng = np.random.default_rng([seed, columns, depth, bits, block])
    blocks = -(-depth // block)
    found: dict[str, Any] = {
        "w": rng.integers(0, 256, (columns, blocks, block * bits // 8), dtype=np.uint8),
        "s": rng.uniform(0.5, 1.5, (columns, blocks)).astype("float32"),
    }
    if zeros == "codes":
        found["z"] = rng.integers(0, 256, (columns, -(-blocks * bits // 8)), dtype=np.uint8)
    if zeros == "reals":
        found["z"] = rng.uniform(0, 1 << bits, (columns, blocks)).astype("float32")
    return found


def product(x: Any, columns: int, bits: int, block: int, zeros: str = "", level: int = 1, **more: Any) -> Small:
    constants = weights(columns, x.shape[-1], bits, block, zeros) | more
    names = ["x", "w", "s", "z" if zeros else "", "", "b"]
    while names[-1] not in ("x", *constants):
        names.pop()
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=x.shape[-1], N=columns, bits=bits,
                            block_size=block, accuracy_level=level)  # fmt: skip
    return Small([node], {"x": x}, ["y"], constants, opset=21)


def close(bench: Bench, small: Small, lanes: int, schedule: dict[str, int | str], **target: Any) -> None:
    bound = bench.bind(small)
    assert is_own(bound.workload), bound.workload.label
    machine = bench.target(lanes, **target)
    found = bench.run(small, bound, build_kernel(bound.workload, schedule, machine), machine)
    for name, wanted in small.reference().items():
        assert np.abs(found[name] - wanted).max() <= TOLERANCE * np.abs(wanted).max()


BOTH = ("stream", "unpacked")


@pytest.mark.parametrize(("bits", "zeros"), KINDS)
def test_codes_and_zero_points_of_all_kinds(bench: Bench, bits: int, zeros: str) -> None:
    for rows, lanes, algorithm in ((1, 16, "stream"), (5, 8, "unpacked")):
        schedule: dict[str, int | str] = {"weight_only.algorithm": algorithm, "weight_only.vectors": 2}
        close(bench, product(real(rows, 96), 72, bits, 32, zeros), lanes, schedule | {"weight_only.rows": 2})


@pytest.mark.long
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize(("bits", "zeros"), KINDS)
@pytest.mark.parametrize("rows", [1, 5])
def test_every_way_of_unpacking(bench: Bench, lanes: int, bits: int, zeros: str, rows: int) -> None:
    for algorithm in BOTH:
        schedule: dict[str, int | str] = {"weight_only.algorithm": algorithm, "weight_only.vectors": 2}
        close(bench, product(real(rows, 96), 72, bits, 32, zeros), lanes, schedule | {"weight_only.rows": 2})


def drawn(data: st.DataObject) -> None:
    draw = data.draw
    (bits, zeros), block = draw(st.sampled_from(KINDS)), draw(st.sampled_from([16, 32, 64, 128, 256]))
    depth, columns, rows = draw(st.integers(1, 300)), draw(st.integers(1, 90)), draw(st.integers(1, 40))
    lead = draw(st.sampled_from([(rows,), (1, rows), (rows, 2), (2, 1, rows)]))
    schedule: dict[str, int | str] = {
        "weight_only.algorithm": draw(st.sampled_from(BOTH)),
        "weight_only.vectors": draw(st.sampled_from([1, 2, 4, 8])),
        "weight_only.rows": draw(st.sampled_from([1, 2, 4, 6, 8])),
        "weight_only.prefetch": draw(st.sampled_from([0, 64])),
    }
    small = product(real(*lead, depth), columns, bits, block, zeros)
    close(Bench(), small, draw(st.sampled_from([8, 16])), schedule)


@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_some_shapes_and_blocks(data: st.DataObject) -> None:
    drawn(data)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_shapes_and_blocks(data: st.DataObject) -> None:
    drawn(data)


def test_what_is_computed_before_and_behind_is_part_of_the_kernel(bench: Bench) -> None:
    """A product's rows are an activation's results, its own results are shifted and activated."""
    plain = product(real(3, 64), 40, 4, 32, b=real(40))
    before = helper.make_node("Sigmoid", ["a"], ["x"])
    behind = helper.make_node("Relu", ["y"], ["r"])
    small = Small([before, *plain.nodes, behind], {"a": real(3, 64)}, ["r"], plain.constants, opset=21)
    for algorithm in BOTH:
        close(bench, small, 8, {"weight_only.algorithm": algorithm})


def test_a_level_of_bytes_is_a_lower_bound(bench: Bench) -> None:
    """ONNX Runtime may quantise the rows there: it is further from the exact product than the kernel."""
    small = product(real(1, 256), 48, 4, 64, level=4)
    machine, bound = bench.target(8), bench.bind(small)
    found = bench.run(small, bound, build_kernel(bound.workload, {}, machine), machine)["y"]
    w, s = small.constants["w"], small.constants["s"]
    codes = np.stack([w & 15, w >> 4], axis=-1).reshape(48, 4, 64).astype("float64") - 8
    exact = (small.inputs["x"].astype("float64") @ (codes * s[..., None]).reshape(48, 256).T).astype("float32")
    off = [np.abs(result - exact).max() / np.ptp(exact) for result in (found, small.reference()["y"])]
    assert off[0] <= 1e-6 and off[0] <= off[1] <= 1e-2


@pytest.mark.parametrize("isa", TARGETS)
def test_only_instructions_of_the_target_are_asked_for(bench: Bench, isa: str) -> None:
    workload = bench.bind(product(real(1, 64), 48, 4, 32)).workload
    code = code_text(build_kernel(workload, {}, TARGETS[isa]).function)
    assert ("permvar" in code) == has_feature(TARGETS[isa], "avx512f")
    assert ("llvm.x86" in code) == (isa == "avx512")


def test_many_rows_unpack_a_panel_ahead(bench: Bench) -> None:
    for rows, way in ((1, None), (8, "stream"), (64, "unpacked")):
        workload = bench.bind(product(real(rows, 64), 48, 4, 32)).workload
        knobs = open_knobs(workload, bench.target(), load_space("default", "avx2").schedule)
        first = first_schedules(workload, knobs, bench.target())[0]
        assert first.get("weight_only.algorithm") == way
