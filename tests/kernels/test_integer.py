"""Integer products and convolutions are those of ONNX Runtime to the bit, by every instruction, over full ranges."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse.backend.compile.function import assembly
from autofuse.device.target import Target
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.narrow.instructions import multipliers
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.tir.digest import code_text
from autofuse.kernels.tir.features import has_feature
from tests.kernels.conftest import Array, Bench, Small, parsed
from tests.kernels.kernel_sample import NEWEST_ARM, SAMPLES, TARGETS

BYTES = ("int8", "uint8")
ALGORITHMS = ("quads", "pairs", "single")
"""Those of x86."""
WITHOUT_VNNI = {8: "haswell", 16: "skylake-avx512"}


def levels(dtype: str, *shape: int, seed: int = 0) -> Array:
    """Bytes of the full range, with many of the two extremes."""
    rng, limits = np.random.default_rng([seed, *shape]), np.iinfo(dtype)
    drawn = rng.integers(limits.min, limits.max, shape, endpoint=True)
    extreme = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random(shape) < 0.3, extreme, drawn).astype(dtype)


def exact(bench: Bench, small: Small, target: Target, schedule: dict[str, int | str], **layouts: str) -> None:
    """The kernel has the bits of ONNX Runtime."""
    bound = bench.bind(small, layouts)
    assert is_own(bound.workload), bound.workload.label
    found = bench.run(small, bound, build_kernel(bound.workload, schedule, target), target)
    for name, array in small.reference().items():
        np.testing.assert_array_equal(found[name], array)


def product(x: Array, w: Array, zeros: dict[str, Any], computed: bool = False) -> Small:
    inputs = {"x": x} | ({"w": w} if computed else {})
    constants = {name: np.asarray(array) for name, array in zeros.items()} | ({} if computed else {"w": w})
    names = ["x", "w", "zx" if "zx" in zeros else "", "zw" if "zw" in zeros else ""]
    while not names[-1]:
        names.pop()
    return Small(parsed(f"y = MatMulInteger ({', '.join(names)})"), inputs, ["y"], constants)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
def test_bytes_of_all_types(bench: Bench, lanes: int, algorithm: str, left: str, right: str) -> None:
    zeros = {
        "zx": np.array(17 if left == "uint8" else -128, left),
        "zw": np.array(200 if right == "uint8" else 3, right),
    }
    small = product(levels(left, 13, 35), levels(right, 35, 41, seed=1), zeros)
    exact(bench, small, bench.target(lanes), {"integer.algorithm": algorithm, "integer.vectors": 2})


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sums_do_not_saturate(bench: Bench, lanes: int, algorithm: str) -> None:
    """Two products of extremes exceed int16, where VNNI's predecessor would cut them."""
    x, w = np.full((2, 4096), 255, "uint8"), np.full((4096, 33), -128, "int8")
    w[:, ::2] = 127
    exact(bench, product(x, w, {}), bench.target(lanes), {"integer.algorithm": algorithm})


@pytest.mark.parametrize("lanes", [8, 16])
def test_a_target_without_vnni_multiplies_pairs(bench: Bench, lanes: int) -> None:
    target = bench.target(lanes, mcpu=WITHOUT_VNNI[lanes])
    small = product(levels("uint8", 7, 40), levels("int8", 40, 50), {"zx": np.uint8(9)})
    code = code_text(build_kernel(bench.bind(small).workload, {}, target).function)
    assert "vpdpbusd" not in code and "pmadd" in code
    exact(bench, small, target, {})


@pytest.mark.parametrize("isa", TARGETS)
def test_only_instructions_of_the_target_are_asked_for(bench: Bench, isa: str) -> None:
    target = TARGETS[isa]
    code = code_text(build_kernel(bench.bind(SAMPLES["integer product"].small).workload, {}, target).function)
    for word, features in (
        ("avx512.vpdpbusd.512", ("avx512vnni",)),
        ("neon.sdot", ("dotprod",)),
        ("avx2.pmadd", ("avx2",)),
        ("llvm.x86", ("sse2",)),
    ):
        assert word not in code or all(has_feature(target, feature) for feature in features)
    assert list(multipliers(target))[-1] == "single"


def test_features_follow_what_the_profile_adds_and_removes() -> None:
    arm = {"mtriple": "aarch64-linux-gnu", "mattr": ("+neon",)}
    for mcpu, able in (
        ("neoverse-v1", ["matrices", "quads", "single"]),
        ("cortex-a76", ["quads", "single"]),
        ("cortex-a72", ["single"]),
    ):
        assert list(multipliers(Target(mcpu, 4, 32, 2, 32768, 262144, **arm))) == able  # type: ignore[arg-type]
    plain = Target("icelake-server", 16, 32, 2, 32768, 262144)
    without = Target("icelake-server", 16, 32, 2, 32768, 262144, mattr=("-avx512vnni",))
    assert "quads" in multipliers(plain) and "quads" not in multipliers(without)


@pytest.mark.parametrize(
    ("left", "rows", "algorithm", "instruction"),
    [("uint8", 6, "matrices", "usmmla"), ("int8", 6, "matrices", "smmla"), ("uint8", 1, "matrices", "usdot"),
     ("uint8", 6, "quads", "sudot"), ("int8", 6, "quads", "sdot")],
)  # fmt: skip
def test_newer_arm_cores_multiply_bytes_of_either_sign_as_they_are(
    bench: Bench, left: str, rows: int, algorithm: str, instruction: str
) -> None:
    """No sign is flipped, as `sdot` needs it; one row has no second one for a matrix. `sudot` is `usdot` by a lane."""
    workload = bench.bind(product(levels(left, rows, 64), levels("int8", 64, 32), {})).workload
    function = build_kernel(workload, {"integer.algorithm": algorithm}, NEWEST_ARM).function
    text = assembly(function, NEWEST_ARM)
    assert set(re.findall(r"\b(?:u|s|us|su)(?:dot|mmla)\b", text)) == {instruction}
    older = code_text(build_kernel(workload, {}, TARGETS["neon"]).function)
    assert ("^" in older, "^" in code_text(function)) == (left == "uint8", False)


@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("blocked", [False, True])
def test_padding_holds_the_zero_point(bench: Bench, left: str, algorithm: str, blocked: bool) -> None:
    zero = np.array(201 if left == "uint8" else -77, left)
    nodes = parsed("y = ConvInteger <pads=[1, 2, 0, 1], strides=[2, 1], dilations=[1, 2]> (x, w, z)")
    small = Small(nodes, {"x": levels(left, 2, 16, 9, 11)}, ["y"], {"w": levels("int8", 32, 16, 3, 3), "z": zero})
    layouts = {"x": "c8", "y": "c8"} if blocked else {}
    exact(bench, small, bench.target(8), {"integer.algorithm": algorithm, "integer.vectors": 2}, **layouts)


def test_a_point_convolution_reads_blocks_where_they_lie(bench: Bench) -> None:
    for left in BYTES:
        small = Small(parsed("y = ConvInteger (x, w, z)"), {"x": levels(left, 1, 32, 5, 7)}, ["y"],
                      {"w": levels("int8", 24, 32, 1, 1), "z": np.array(5, left)})  # fmt: skip
        exact(bench, small, bench.target(16), {"integer.pixel_rows": 5}, x="c16")
        copies = re.compile(r'alloc_buffer\(\(\d+,\), "uint8"')
        for layouts, copied in (({"x": "c16"}, False), ({}, True)):
            workload = bench.bind(small, layouts).workload
            code = code_text(build_kernel(workload, {}, bench.target(16)).function)
            assert bool(copies.search(code)) == copied


@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("lanes", [8, 16])
def test_levels_of_several_results_are_made_together(bench: Bench, lanes: int, left: str) -> None:
    """Neighbours are pixels in blocks, columns in rows; those far out of range saturate."""
    columns, scales = 5 * lanes, {"sx": np.float32(0.02), "zx": np.asarray(13, left), "zw": np.zeros((), "int8")}
    scales |= {"sw": np.float32(0.03), "sy": np.float32(0.3), "zy": np.asarray(77, left)}
    constants = {**scales, "w": levels("int8", 32, columns)}
    product = Small(parsed("y = QLinearMatMul (x, sx, zx, w, sw, zw, sy, zy)"), {"x": levels(left, 2, 5, 32)}, ["y"],
                    constants)  # fmt: skip
    exact(bench, product, bench.target(lanes), {"integer.vectors": 3, "integer.pixels": 4})
    constants = {**scales, "w": levels("int8", columns, 32, 1, 1), "b": np.arange(columns, dtype="int32") * 99}
    constants |= {"sw": np.geomspace(1e-4, 1e35, columns, dtype="float32"), "zw": np.zeros(columns, "int8")}
    convolution = Small(parsed("y = QLinearConv (x, sx, zx, w, sw, zw, sy, zy, b)"), {"x": levels(left, 1, 32, 3, 7)},
                        ["y"], constants)  # fmt: skip
    exact(bench, convolution, bench.target(lanes), {"integer.pixels": 6}, x=f"c{lanes}", y=f"c{lanes}")
    exact(bench, convolution, bench.target(lanes), {"integer.pixels": 6})


@pytest.mark.parametrize("right", ["int8", "uint8"])
def test_both_sides_computed(bench: Bench, right: str) -> None:
    x, w = levels("uint8", 3, 10, 24), levels(right, 3, 24, 37, seed=2)
    zeros = {"zx": np.uint8(131), "zw": np.array(128 if right == "uint8" else 0, right)}
    exact(bench, product(x, w, zeros, computed=True), bench.target(16), {})
    odd = {"zx": np.uint8(131), "zw": np.array(7, right)}
    exact(bench, product(x, w, odd, computed=True), bench.target(16), {})


def test_zero_points_that_only_the_data_tell(bench: Bench) -> None:
    """As DynamicQuantizeLinear makes them."""
    for dtype in BYTES:
        inputs = {"x": levels(dtype, 9, 30), "z": np.array(77, dtype)}
        small = Small(parsed("y = MatMulInteger (x, w, z)"), inputs, ["y"], {"w": levels("int8", 30, 40)})
        exact(bench, small, bench.target(16), {})


def test_a_zero_point_for_each_column(bench: Bench) -> None:
    for size in (24, 80):  # few are literals, many are constants
        zeros = {"zx": np.uint8(3), "zw": levels("uint8", size)}
        exact(bench, product(levels("uint8", 6, 20), levels("uint8", 20, size), zeros), bench.target(16), {})


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
@pytest.mark.parametrize("shape", [(), (1,), (41,)])
def test_zero_points_of_constant_weights_leave_the_instruction_on_bytes(
    bench: Bench, lanes: int, left: str, right: str, shape: tuple[int, ...]
) -> None:
    """Weights less them exceed signed bytes: the sums of the rows take away what is left."""
    zeros = {"zx": levels(left), "zw": levels(right, *shape, seed=3)}
    for depth in (5, 64, 291):  # no whole vector of bytes, one, and some with a rest
        small = product(levels(left, 13, depth), levels(right, depth, 41, seed=1), zeros)
        exact(bench, small, bench.target(lanes), {})
        code = code_text(build_kernel(bench.bind(small).workload, {}, TARGETS["avx512"]).function)
        assert "vpdpbusd" in code


def test_unsigned_weights_without_a_zero_point(bench: Bench) -> None:
    exact(bench, product(levels("int8", 9, 70), levels("uint8", 70, 20), {}), bench.target(16), {})


def test_zero_points_for_the_columns_of_each_matrix(bench: Bench) -> None:
    for dtype in BYTES:
        zeros = {"zx": np.uint8(131), "zw": levels(dtype, 3, 1, 37)}
        for lanes in (8, 16):
            small = product(levels("uint8", 3, 10, 24), levels(dtype, 3, 24, 37, seed=2), zeros)
            exact(bench, small, bench.target(lanes), {})
            exact(bench, small, bench.target(lanes, mcpu=WITHOUT_VNNI[lanes]), {})


@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
@pytest.mark.parametrize(
    "text", ["pads=[1, 2, 0, 1], strides=[2, 1]", "pads=[2, 2, 2, 2], dilations=[1, 2]", "group=2"]
)
def test_convolutions_with_zero_points_on_both_sides(bench: Bench, left: str, right: str, text: str) -> None:
    channels = 8 if "group" in text else 16
    zeros = {"zx": levels(left), "zw": levels(right, seed=1)}
    for layouts in ({}, {"x": "c8", "y": "c8"}):
        small = Small(parsed(f"y = ConvInteger <{text}> (x, w, zx, zw)"), {"x": levels(left, 2, 16, 9, 11)}, ["y"],
                      {"w": levels(right, 32, channels, 3, 3), **zeros})  # fmt: skip
        exact(bench, small, bench.target(8), {"integer.vectors": 2}, **layouts)


def test_groups_and_volumes(bench: Bench) -> None:
    for text, x, w in (
        ("y = ConvInteger <group=2, pads=[1, 1, 1, 1]> (x, w, z)", (1, 8, 6, 6), (20, 4, 3, 3)),
        ("y = ConvInteger <pads=[1, 1]> (x, w, z)", (2, 5, 13), (9, 5, 3)),
        ("y = ConvInteger (x, w, z)", (1, 3, 4, 5, 6), (17, 3, 2, 2, 2)),
    ):
        constants = {"w": levels("int8", *w), "z": np.array(99, "uint8")}
        exact(bench, Small(parsed(text), {"x": levels("uint8", *x)}, ["y"], constants), bench.target(8), {})


@given(
    st.integers(1, 20), st.integers(1, 70), st.integers(1, 70), st.sampled_from(BYTES), st.sampled_from(ALGORITHMS),
    st.integers(1, 3), st.integers(1, 8), st.sampled_from([8, 16]),
)  # fmt: skip
@settings(max_examples=12, deadline=None, derandomize=True)
def test_any_size(
    rows: int, depth: int, columns: int, left: str, algorithm: str, vectors: int, pixels: int, lanes: int
) -> None:
    bench = Bench()
    small = product(levels(left, rows, depth), levels("int8", depth, columns), {"zx": np.array(11, left)})
    schedule: dict[str, int | str] = {
        "integer.algorithm": algorithm, "integer.vectors": vectors, "integer.pixels": pixels,
    }  # fmt: skip
    exact(bench, small, bench.target(lanes), schedule)
