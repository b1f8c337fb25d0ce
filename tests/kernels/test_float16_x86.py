"""Contractions of models in float16 by AVX512_FP16: gated, chosen where they pay, and ONNX Runtime's results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from autofuse.backend.compile.function import assembly
from autofuse.backend.compile.host_cpu import local_device
from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.graph.loading.load import from_model
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.narrow.float16.family import ANY_CONTRACTION
from autofuse.kernels.families.narrow.float16.instructions import STRETCH, float16_multipliers
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.workload.workload import bind_workload
from autofuse.measure.checking.tolerance import LIMITS, compare
from tests.kernels.conftest import Array, Bench, Small, parsed, real
from tests.kernels.test_float16 import ALGORITHM, bound, half, lowered, marks, product

SAPPHIRE = Target("sapphirerapids", 16, 32, 2, 49152, 2 << 20)
WITHOUT = Target("sapphirerapids", 16, 32, 2, 49152, 2 << 20, mattr=("-avx512fp16",))
CASCADE = Target("cascadelake", 16, 32, 2, 32768, 1 << 20)
NARROWER = Target("sapphirerapids", 8, 16, 2, 49152, 2 << 20)
SUMS = {ALGORITHM: "float16_sums", "contraction.vectors": 2, "contraction.pixels": 6}
MULTIPLY_ADD = r"vfmadd\d+ph\s.*zmm"

needs_float16 = pytest.mark.skipif(
    not float16_multipliers(local_device().target()), reason="this CPU does not multiply float16"
)


def test_only_a_target_with_the_feature_has_the_instruction() -> None:
    """LLVM would end the process."""
    assert list(float16_multipliers(SAPPHIRE)) == ["float16_sums"]
    for target in (WITHOUT, CASCADE, NARROWER):
        assert not float16_multipliers(target)
    assert marks(lowered(product(), SAPPHIRE)) == [1]
    assert marks(lowered(product(), WITHOUT)) == [None]


def text(small: Small, schedule: Mapping[str, int | str], target: Target) -> str:
    return assembly(build_kernel(bound(small), schedule, target).function, target)


@pytest.mark.parametrize("tile", [(2, 7), (2, 6), (1, 14)])
def test_thirty_two_products_by_one_instruction(tile: tuple[int, int]) -> None:
    """Every tile that fits holds its sums in registers: nothing of 64 bytes goes to the stack inside the loop."""
    schedule = SUMS | {"contraction.vectors": tile[0], "contraction.pixels": tile[1]}
    code = text(product(64, 256), schedule, SAPPHIRE)
    loops = re.findall(r"(?ms)^(\.LBB\w+):((?:(?!^\.LBB).)*?)jne\s+\1\n", code)
    inner = [body for _, body in loops if re.search(MULTIPLY_ADD, body)]
    assert inner
    for body in inner:
        assert "(%rsp)" not in body
        assert "vpbroadcastw" not in body
        assert "ps\t" not in re.sub(r"vmov[au]ps|vbroadcastss", "", body)


@pytest.mark.parametrize("target", [WITHOUT, CASCADE])
def test_a_schedule_of_another_target_is_computed_in_float32(target: Target) -> None:
    code = text(product(64, 256), SUMS, target)
    assert not re.search(MULTIPLY_ADD, code)
    assert re.search(r"vfmadd\w+ps\s.*zmm", code)


def test_tiles_leave_room_for_sums_in_both_types() -> None:
    tiles = {(2, 7): True, (2, 6): True, (1, 14): True, (8, 1): True, (4, 6): False, (2, 8): False}
    found = {
        (v, p): ANY_CONTRACTION.fits(SUMS | {"contraction.vectors": v, "contraction.pixels": p}, SAPPHIRE)
        for v, p in tiles
    }
    assert found == tiles


def first(small: Small, target: Target = SAPPHIRE) -> str:
    workload = bound(small)
    knobs = open_knobs(workload, target, load_space(None, target.isa).schedule)
    return str(first_schedules(workload, knobs, target)[0].get(ALGORITHM, "direct"))


def convolution(channels: int, size: int, columns: int, kernel: int, stride: int = 1) -> Small:
    pad = kernel // 2
    return Small(
        parsed(f"y = Conv <pads=[{pad}, {pad}, {pad}, {pad}], strides=[{stride}, {stride}]> (x, w)"),
        {"x": half(1, channels, size, size)}, ["y"], {"w": half(columns, channels, kernel, kernel)},
    )  # fmt: skip


def test_the_first_guess_takes_it_where_it_saves_more_than_it_costs() -> None:
    assert first(product(256, 256)) == "float16_sums"
    assert first(product(16, 256)) == "direct", "each number is rounded for few columns"
    assert first(product(256, 16)) == "direct", "sums are widened after a few products"
    assert first(convolution(256, 14, 256, 1)) == "float16_sums"
    assert first(convolution(256, 56, 64, 1)) == "direct", "what is rounded comes from beyond the second cache"
    assert first(convolution(64, 14, 64, 3)).startswith("winograd")
    assert first(convolution(512, 7, 512, 3)) == "float16_sums", "Winograd's weights are read for four tiles"
    assert first(product(256, 256), WITHOUT) == "direct"


SMALLS: dict[str, Callable[[], Small]] = {
    "product": lambda: Small(parsed("m = MatMul (x, w); y = Relu (m)"), {"x": half(13, 300)}, ["y"],
                             {"w": half(300, 41)}),
    "one row": lambda: Small(parsed("y = MatMul (x, w)"), {"x": half(1, 333)}, ["y"], {"w": half(333, 130)}),
    "deep": lambda: Small(parsed("y = MatMul (x, w)"), {"x": half(24, 4096)}, ["y"], {"w": half(4096, 64)}),
    "residual": lambda: Small(parsed("m = MatMul (x, w); b = Add (m, c); y = Add (b, z)"),
                              {"x": half(2, 9, 96), "z": half(2, 9, 64)}, ["y"], {"w": half(96, 64), "c": half(64)}),
    "transposed": lambda: Small(parsed("y = Gemm <transB=1> (x, w, b)"), {"x": half(9, 65)}, ["y"],
                                {"w": half(40, 65), "b": half(40)}),
    "one by one": lambda: Small(parsed("y = Conv (x, w, b)"), {"x": half(1, 37, 5, 9)}, ["y"],
                                {"w": half(20, 37, 1, 1), "b": half(20)}),
    "convolution": lambda: Small(parsed("c = Conv <pads=[1, 1, 1, 1]> (x, w); y = Sigmoid (c)"),
                                 {"x": half(1, 8, 9, 9)}, ["y"], {"w": half(16, 8, 3, 3)}),
    "photograph": lambda: Small(parsed("y = Conv <pads=[3, 3, 3, 3], strides=[2, 2]> (x, w)"),
                                {"x": half(1, 3, 21, 30)}, ["y"], {"w": half(48, 3, 7, 7)}),
    "strided groups": lambda: Small(parsed("y = Conv <group=2, pads=[2, 0, 1, 2], strides=[1, 2]> (x, w)"),
                                    {"x": half(1, 12, 7, 10)}, ["y"], {"w": half(24, 6, 3, 3)}),
    "dilated": lambda: Small(parsed("y = Conv <dilations=[1, 2], pads=[1, 2, 1, 2]> (x, w)"),
                             {"x": half(2, 20, 7, 10)}, ["y"], {"w": half(32, 20, 3, 3)}),
    "too large for sums of float16": lambda: Small(
        parsed("m = MatMul (x, w); y = Mul (m, s)"), {"x": half(9, 64) * np.float16(60000)}, ["y"],
        {"w": np.sign(half(64, 24)), "s": np.float16([1e-4])}),
    "small numbers": lambda: Small(parsed("y = MatMul (x, w)"), {"x": half(13, 128) * np.float16(1e-3)}, ["y"],
                                   {"w": half(128, 24) * np.float16(1e-2)}),
}  # fmt: skip


def computed(bench: Bench, small: Small, tile: tuple[int, int]) -> dict[str, Array]:
    """Its results by the instruction, as one kernel, on this CPU."""
    target = local_device().target()
    graph = from_model(small.model(), "small")
    group = bind_workload(graph, [operator.name for operator in graph.operators], {}, float16=True)
    schedule = SUMS | {"contraction.vectors": tile[0], "contraction.pixels": tile[1]}
    kernel = build_kernel(group.workload, schedule, target)
    assert re.search(MULTIPLY_ADD, assembly(kernel.function, target))
    return bench.run(small, group, kernel, target)


@needs_float16
@pytest.mark.parametrize("tile", [(2, 6), (1, 14), (8, 1)])
@pytest.mark.parametrize("name", SMALLS)
def test_results_are_those_of_onnx_runtime(bench: Bench, name: str, tile: tuple[int, int]) -> None:
    small = SMALLS[name]()
    wanted = small.reference()
    for output, array in computed(bench, small, tile).items():
        verdict = compare(array, wanted[output], LIMITS["float16"])
        assert verdict.ok, f"{name}, {output}: {verdict.reason}"


@needs_float16
@pytest.mark.parametrize("depth", [64, 512, 4096])
def test_no_random_sum_is_off_by_a_tenth_of_the_bound(bench: Bench, depth: int) -> None:
    """The bound is STRETCH + 1 roundings of the sum of the sizes of the products."""
    small = Small(parsed("y = MatMul (x, w)"), {"x": real(60, depth).astype("float16").astype("float32")}, ["y"],
                  {"w": half(depth, 64).astype("float32")})  # fmt: skip
    marked = replace(from_model(small.model(), "small"), float16=frozenset("y"))
    group = bind_workload(marked, [operator.name for operator in marked.operators], {}, float16=True)
    target = local_device().target()
    (found,) = bench.run(small, group, build_kernel(group.workload, SUMS, target), target).values()
    x, w = small.inputs["x"].astype("float64"), small.constants["w"].astype("float64")
    worst = np.abs(found - x @ w).max() / (np.abs(x) @ np.abs(w)).min()
    assert worst <= (STRETCH + 1) * 2.0**-11 / 10


@needs_float16
def test_the_largest_sum_stays_finite(bench: Bench) -> None:
    """Numbers of one sign, the largest of float16: each stretch is as large as the scale lets it be."""
    small = Small(parsed("m = MatMul (x, w); y = Mul (m, s)"), {"x": np.full((3, 128), 65504, "float16")}, ["y"],
                  {"w": np.ones((128, 16), "float16"), "s": np.float16([1e-3])})  # fmt: skip
    (found,) = computed(bench, small, (1, 14)).values()
    exact = 128 * 65504.0 * float(np.float16(1e-3))
    np.testing.assert_allclose(found.astype("float64"), exact, rtol=STRETCH * 2.0**-11)
