"""Products and convolutions in bfloat16 are those of ONNX Runtime's Casts, by every instruction, edges among them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse.backend.compile.function import assembly
from autofuse.device.target import Target
from autofuse.graph.own.rounding import bits_of, rounded
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.narrow.instructions import bfloat16_multipliers
from autofuse.kernels.families.registry import family_of, is_own, nests_of
from autofuse.kernels.tir.digest import code_text
from autofuse.kernels.tir.features import has_feature
from tests.kernels.conftest import Array, Bench, Small, parsed, real
from tests.kernels.kernel_sample import NEWEST_ARM, ROUNDED, TARGETS

BFLOAT16_ALGORITHMS = ("dots", "widened")
"""Those of x86."""
TOLERANCE = 1e-6
"""Largest error as a part of the largest result: the same products, their sums in another order."""
BOTH = "v = Cast <to=16> (w); u = Cast <to=1> (v); "
TOO_SMALL = 2.0**-126


def product(x: Array, w: Array, **more: Array) -> Small:
    return Small(parsed(ROUNDED + "y = MatMul (r, w)"), {"x": x}, ["y"], {"w": rounded(w), **more})


def computed(x: Array, w: Array) -> Small:
    return Small(parsed(ROUNDED + BOTH + "y = MatMul (r, u)"), {"x": x, "w": w}, ["y"])


def convolution(attributes: str, x: Array, w: Array, **more: Array) -> Small:
    names = ", ".join(("r", "w", *more))
    return Small(parsed(ROUNDED + f"y = Conv <{attributes}> ({names})"), {"x": x}, ["y"], {"w": rounded(w), **more})


def result(bench: Bench, small: Small, lanes: int, schedule: dict[str, int | str], **layouts: str) -> Array:
    """What the kernel of the whole model computes; it is one of the family."""
    bound, target = bench.bind(small, layouts), bench.target(lanes)
    assert is_own(bound.workload), bound.workload.label
    assert "bfloat16" in {family_of(bound.workload, nest).name for nest in nests_of(bound.workload)}
    return bench.run(small, bound, build_kernel(bound.workload, schedule, target), target)["y"]


def close(bench: Bench, small: Small, lanes: int, schedule: dict[str, int | str], **layouts: str) -> None:
    found, wanted = result(bench, small, lanes, schedule, **layouts), small.reference()["y"]
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()


@pytest.mark.parametrize("algorithm", BFLOAT16_ALGORITHMS)
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_sums_that_float32_holds_are_exact(bench: Bench, lanes: int, algorithm: str) -> None:
    rng = np.random.default_rng(lanes)
    x, w = (rng.integers(-128, 129, shape).astype("float32") for shape in ((7, 31), (31, 40)))
    schedule: dict[str, int | str] = {"bfloat16.algorithm": algorithm, "bfloat16.vectors": 2, "bfloat16.pixels": 4}
    for small in (product(x, w), computed(x, w)):
        np.testing.assert_array_equal(result(bench, small, lanes, schedule), x @ w)


FORMS: dict[str, Any] = {
    "one row": lambda: product(real(1, 70), real(70, 33)),
    "rows in batches": lambda: product(real(2, 3, 9, 20), real(20, 33)),
    "computed weights": lambda: computed(real(2, 9, 21), real(2, 21, 19)),
    "weights for all batches": lambda: computed(real(3, 5, 16), real(1, 16, 20)),
    "window, padding, bias": lambda: convolution(
        "pads=[1, 1, 1, 1]", real(1, 16, 9, 9), real(32, 16, 3, 3), b=real(32)
    ),
    "stride, few channels": lambda: convolution(
        "strides=[2, 2], pads=[3, 3, 3, 3]", real(2, 3, 15, 17), real(24, 3, 7, 7)
    ),
    "dilation": lambda: convolution("dilations=[2, 2], pads=[2, 2, 2, 2]", real(1, 8, 9, 9), real(16, 8, 3, 3)),
    "groups": lambda: convolution("group=2", real(1, 16, 6, 6), real(32, 8, 1, 1)),
    "sequence": lambda: convolution("pads=[1, 1]", real(1, 8, 20), real(16, 8, 3)),
    "volume": lambda: convolution("pads=[1, 1, 1, 1, 1, 1]", real(1, 4, 3, 5, 6), real(16, 4, 3, 3, 3)),
}


@pytest.mark.parametrize("algorithm", BFLOAT16_ALGORITHMS)
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("form", FORMS)
def test_all_forms(bench: Bench, form: str, lanes: int, algorithm: str) -> None:
    close(bench, FORMS[form](), lanes, {"bfloat16.algorithm": algorithm, "bfloat16.vectors": 2, "bfloat16.pixels": 4})


def test_maps_in_blocks_of_channels(bench: Bench) -> None:
    small = convolution("pads=[1, 1, 1, 1]", real(1, 32, 9, 9), real(32, 32, 3, 3), b=real(32))
    for lanes in (8, 16):
        close(bench, small, lanes, {"bfloat16.rows_per_task": 4}, x=f"c{lanes}", y=f"c{lanes}")


def test_what_is_computed_before_and_behind_is_part_of_the_kernel(bench: Bench) -> None:
    text = "x = Neg (a); " + ROUNDED + "m = MatMul (r, w); s = Add (m, b); y = Relu (s)"
    small = Small(parsed(text), {"a": real(9, 32)}, ["y"], {"w": rounded(real(32, 40)), "b": real(40)})
    for algorithm in BFLOAT16_ALGORITHMS:
        close(bench, small, 8, {"bfloat16.algorithm": algorithm})


def edges() -> Array:
    """Numbers whose rounding is special, as bits: ties, overflow, infinities, no numbers, tiny ones."""
    bits = np.array(
        [0x3F808000, 0x3F818000, 0x3F80FFFF, 0x3F808001, 0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 0x7F800000, 0xFF800000,
         0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0xFF800001, 0x00000001, 0x80000001, 0x000116C2, 0x00800000, 0x80000000],
        "uint32",
    )  # fmt: skip
    return bits.view("float32")


def same_bits(found: Array, wanted: Array) -> None:
    """Equal, sign of zero included; what is no number is none."""
    nothing = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nothing)
    np.testing.assert_array_equal(found.view("uint32")[~nothing], wanted.view("uint32")[~nothing])


def test_rounding_is_that_of_a_cast_to_the_bit(bench: Bench) -> None:
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 4000, dtype="uint32").view("float32")
    x = np.concatenate([edges(), drawn])
    small = Small(parsed(ROUNDED + "y = Identity (r)"), {"x": x}, ["y"])
    wanted = small.reference()["y"]
    for lanes in (4, 8, 16):
        target, bound = bench.target(lanes), bench.bind(small)
        assert is_own(bound.workload)
        same_bits(bench.run(small, bound, build_kernel(bound.workload, {}, target), target)["y"], wanted)
    same_bits(rounded(x), wanted)
    same_bits((bits_of(x).astype("uint32") << 16).view("float32"), wanted)


@pytest.mark.parametrize("algorithm", BFLOAT16_ALGORITHMS)
def test_a_product_meets_every_edge_as_a_cast_does(bench: Bench, algorithm: str) -> None:
    """One number a row times 1: but for the tiny, which an instruction may take as 0, the bits of a Cast."""
    x = np.zeros((edges().size, 6), "float32")
    x[:, 2] = edges()
    ones = np.zeros((6, 16), "float32")
    ones[2] = 1
    for small in (product(x, ones), computed(x, ones)):
        found, wanted = result(bench, small, 16, {"bfloat16.algorithm": algorithm}), small.reference()["y"]
        tiny = np.abs(wanted) < TOO_SMALL
        np.testing.assert_array_equal(found[~tiny], wanted[~tiny])
        assert (np.abs(found[tiny]) <= TOO_SMALL).all()


@pytest.mark.parametrize("isa", TARGETS)
def test_only_instructions_of_the_target_are_asked_for(bench: Bench, isa: str) -> None:
    workload = bench.bind(product(real(8, 32), real(32, 40))).workload
    code = code_text(build_kernel(workload, {"bfloat16.algorithm": "dots"}, TARGETS[isa]).function)
    assert ("dpbf16ps" in code) == has_feature(TARGETS[isa], "avx512bf16") == (isa == "avx512")


@pytest.mark.parametrize(
    ("rows", "algorithm", "instruction"), [(6, "matrices", "bfmmla"), (6, "dots", "bfdot"), (1, "matrices", "bfdot")]
)
def test_newer_arm_cores_multiply_bfloat16(bench: Bench, rows: int, algorithm: str, instruction: str) -> None:
    workload = bench.bind(product(real(rows, 64), real(64, 32))).workload
    text = assembly(build_kernel(workload, {"bfloat16.algorithm": algorithm}, NEWEST_ARM).function, NEWEST_ARM)
    assert set(re.findall(r"\bbf(?:dot|mmla)\b", text)) == {instruction}


def test_a_target_without_the_instruction_widens() -> None:
    older = Target("cascadelake", 16, 32, 2, 32768, 1 << 20)
    assert list(bfloat16_multipliers(older)) == ["widened"]
    assert list(bfloat16_multipliers(TARGETS["avx512"])) == list(BFLOAT16_ALGORITHMS)
    workload = Bench().bind(product(real(8, 32), real(32, 40))).workload
    assert "dpbf16ps" not in code_text(build_kernel(workload, {}, older).function)


def drawn(data: st.DataObject) -> None:
    draw = data.draw
    depth, columns, rows = draw(st.integers(1, 90)), draw(st.integers(1, 70)), draw(st.integers(1, 20))
    schedule: dict[str, int | str] = {
        "bfloat16.algorithm": draw(st.sampled_from(BFLOAT16_ALGORITHMS)),
        "bfloat16.vectors": draw(st.sampled_from([1, 2, 3, 4])),
        "bfloat16.pixels": draw(st.sampled_from([2, 3, 4, 6])),
        "bfloat16.pixel_rows": draw(st.sampled_from([1, 2, 4])),
    }
    lead = draw(st.sampled_from([(rows,), (1, rows), (2, rows)]))
    make = draw(st.sampled_from([product, computed]))
    x, w = real(*lead, depth, low=0.0), real(depth, columns, low=0.0)  # no sum cancels: it would say nothing of errors
    close(Bench(), make(x, w), draw(st.sampled_from([8, 16])), schedule)


@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_some_shapes(data: st.DataObject) -> None:
    drawn(data)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_shapes(data: st.DataObject) -> None:
    drawn(data)
