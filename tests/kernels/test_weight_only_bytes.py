"""Weight-only products of rows in bytes are those of ONNX Runtime at accuracy level 4, and asked for at no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.fusion.plan import ScheduleLimits
from autofuse.kernels.build import build_kernel
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.schedule.limits import knobs_within
from autofuse.kernels.tir.digest import code_text
from autofuse.kernels.tir.features import has_feature
from autofuse.measure.checking.tolerance import BYTES_LIMIT, compare
from tests.kernels.conftest import Bench, Small, real
from tests.kernels.kernel_sample import TARGETS
from tests.kernels.test_weight_only import product

ROUNDING = 2e-6
"""Largest error as a part of what a row's products and zero points add up to without their signs: whole numbers are
exact, but blocks are added in another order, and by ONNX Runtime their zero points by themselves."""
KINDS = [(4, ""), (4, "codes"), (8, "")]
"""Bits and zero points of what has such a kernel."""
CPUS = [(16, ""), (8, ""), (8, "haswell"), (16, "skylake-avx512")]
"""Lanes and LLVM's name of the CPU ("": this one's): with an instruction that sums four bytes, and with two for it."""
Schedule = dict[str, int | str]


def schedule(vectors: int = 2, rows: int = 4, **more: int) -> Schedule:
    found: Schedule = {"weight_only.algorithm": "bytes", "weight_only.vectors": vectors, "weight_only.rows": rows}
    return found | {f"weight_only.{name}": value for name, value in more.items()}


def asked(bench: Bench, small: Small, target: Target) -> dict[str, tuple[int | str, ...]]:
    """The open knobs of a product."""
    return open_knobs(bench.bind(small).workload, target, load_space("default", target.isa).schedule)


def machine(bench: Bench, lanes: int, cpu: str) -> Target:
    return bench.target(lanes, **({"mcpu": cpu} if cpu else {}))


def computed(bench: Bench, small: Small, knobs: Schedule, target: Target) -> NDArray[Any]:
    bound = bench.bind(small)
    (found,) = bench.run(small, bound, build_kernel(bound.workload, knobs, target), target).values()
    return found


def levels(x: NDArray[Any], block: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """(levels [row, block, number], scales [row, block]) of rows, by float32 arithmetic as ONNX Runtime has it."""
    rows = x.reshape(-1, x.shape[-1])
    cut = np.pad(rows, ((0, 0), (0, -rows.shape[1] % block))).reshape(len(rows), -1, block)
    largest = np.abs(cut).max(axis=2)
    inverse = np.where(largest > 0, np.float32(127) / np.where(largest > 0, largest, 1), 0).astype("float32")
    return np.rint(cut * inverse[..., None]).astype("int64"), (largest / np.float32(127)).astype("float32")


def exact(small: Small, bits: int, block: int) -> tuple[NDArray[Any], float]:
    """The product of a MatMulNBits' weights and the levels of its rows, in float64; what `ROUNDING` is a part of."""
    whole, scales = levels(small.inputs["x"], block)
    codes, wide = small.constants["w"], small.constants["s"]
    zeros: Any = 1 << (bits - 1)
    if bits == 4:
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*wide.shape, block)
    if "z" in small.constants:
        both = np.stack([small.constants["z"] & 15, small.constants["z"] >> 4], axis=-1)
        zeros = both.reshape(len(wide), -1)[:, : wide.shape[1], None].astype("int64")
    factors = scales[:, None].astype("float64") * wide[None]
    codes = codes.astype("int64")
    size = float((np.einsum("rbk,nbk->rnb", np.abs(whole), codes + zeros) * factors).sum(axis=2).max())
    found = (np.einsum("rbk,nbk->rnb", whole, codes - zeros) * factors).sum(axis=2)
    return found.reshape(*small.inputs["x"].shape[:-1], len(wide)), size


def check(bench: Bench, small: Small, kind: tuple[int, int], knobs: Schedule, target: Target) -> None:
    found, (wanted, size) = computed(bench, small, knobs, target), exact(small, *kind)
    assert np.abs(found - wanted).max() <= ROUNDING * size
    assert np.abs(found - small.reference()["y"]).max() <= 2 * ROUNDING * size


@pytest.mark.parametrize(("lanes", "cpu"), CPUS)
@pytest.mark.parametrize(("bits", "zeros"), KINDS)
def test_rows_in_bytes_give_what_onnx_runtime_gives_at_level_4(
    bench: Bench, bits: int, zeros: str, lanes: int, cpu: str
) -> None:
    target = machine(bench, lanes, cpu)
    small = product(real(7, 100), 40, bits, 32, zeros, level=4)
    offered = "bytes" in asked(bench, small, target)["weight_only.algorithm"]
    assert offered == (bits == 4 or not cpu), "two instructions sum bytes of 8 bits beyond int16"
    if offered:
        check(bench, small, (bits, 32), schedule(), target)


def drawn(data: st.DataObject) -> None:
    draw = data.draw
    (bits, zeros), block = draw(st.sampled_from(KINDS)), draw(st.sampled_from([16, 32, 64, 128, 256]))
    depth, columns, rows = draw(st.integers(1, 300)), draw(st.integers(1, 90)), draw(st.integers(5, 40))
    lanes, cpu = draw(st.sampled_from(CPUS if bits == 4 else CPUS[:2]))
    lead = draw(st.sampled_from([(rows,), (1, rows), (rows, 2), (2, 1, rows)]))
    x = real(*lead, depth, high=draw(st.sampled_from([1.0, 30.0])))
    x[x > 28] *= 1000  # a block with a number far beyond the others
    x[..., : draw(st.integers(0, depth))] = 0
    small = product(x, columns, bits, block, zeros, level=4)
    knobs = schedule(draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4, 6])))
    check(Bench(), small, (bits, block), knobs, machine(Bench(), lanes, cpu))


@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_some_shapes_and_blocks(data: st.DataObject) -> None:
    drawn(data)


@pytest.mark.long
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_random_shapes_and_blocks(data: st.DataObject) -> None:
    drawn(data)


@pytest.mark.parametrize(("lanes", "cpu"), CPUS)
def test_no_sum_of_the_largest_bytes_overflows(bench: Bench, lanes: int, cpu: str) -> None:
    """Levels of 127 and -127 alone, times codes at both ends of their range, with the zero point at the other one."""
    columns, depth = 24, 256
    x = np.where(np.arange(6 * depth).reshape(6, depth) % 3, 1.0, -1.0).astype("float32")
    x[0], x[1] = 1, -1
    codes = np.zeros((columns, 1, 128), np.uint8)
    codes[columns // 2 :] = 0xFF
    points = np.where(np.arange(columns) < columns // 2, 15, 0).astype(np.uint8)[:, None]
    small = product(x, columns, 4, depth, "codes", level=4, w=codes, z=points)
    found, (wanted, _) = computed(bench, small, schedule(), machine(bench, lanes, cpu)), exact(small, 4, depth)
    assert np.abs(wanted).max() > 15 * 250
    assert np.abs(found - wanted).max() <= 1e-2


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_below_level_4_no_row_is_rounded(bench: Bench, level: int) -> None:
    """Not even where a schedule, of another model's product, asks for it."""
    small, target = product(real(9, 64), 40, 4, 32, level=level), bench.target(8)
    assert "bytes" not in asked(bench, small, target)["weight_only.algorithm"]
    wanted = product(real(9, 64), 40, 4, 32, level=1).reference()["y"]
    assert np.abs(computed(bench, small, schedule(), target) - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_model_that_only_dequantises_its_weights_rounds_no_row(bench: Bench) -> None:
    """ONNX Runtime would, by its own choice; the drop that `autofuse quantize` certifies is that of float32 rows."""
    codes = np.random.default_rng(0).integers(0, 255, (64, 40), dtype=np.uint8)
    before = helper.make_node("DequantizeLinear", ["w", "s"], ["r"], axis=0, block_size=32)
    constants = {"w": codes, "s": real(2, 40)}
    nodes = [before, helper.make_node("MatMul", ["x", "r"], ["y"])]
    small = Small(nodes, {"x": real(9, 64)}, ["y"], constants, opset=21)
    operator = bench.bind(small).workload.operators[0]
    assert (operator.op_type, operator.attribute("accuracy_level")) == ("WeightOnlyMatMul", 4)
    assert "bytes" not in asked(bench, small, bench.target(8))["weight_only.algorithm"]


@pytest.mark.parametrize(("bits", "zeros", "rows"), [(4, "reals", 9), (8, "codes", 9), (4, "", 4)])
def test_other_zero_points_and_few_rows_stay_real(bench: Bench, bits: int, zeros: str, rows: int) -> None:
    small = product(real(rows, 64), 40, bits, 32, zeros, level=4)
    assert "bytes" not in asked(bench, small, bench.target(8)).get("weight_only.algorithm", ())


def test_what_is_computed_before_and_behind_is_part_of_the_kernel(bench: Bench) -> None:
    plain = product(real(9, 64), 40, 4, 32, level=4, b=real(40))
    before = helper.make_node("Sigmoid", ["a"], ["x"])
    behind = helper.make_node("Relu", ["y"], ["r"])
    small = Small([before, *plain.nodes, behind], {"a": real(9, 64)}, ["r"], plain.constants, opset=21)
    verdict = compare(computed(bench, small, schedule(), bench.target(8)), small.reference()["r"], 1e-3)
    assert verdict.ok, verdict.reason  # a number between two levels may go to the other one: 1/127 of a block's largest


def test_more_than_a_few_rows_are_rounded_first_where_the_model_allows_it(bench: Bench) -> None:
    for rows, way in ((4, None), (5, "bytes"), (128, "bytes")):
        small, target = product(real(rows, 64), 48, 4, 32, level=4), bench.target(8)
        workload, knobs = bench.bind(small).workload, asked(bench, small, target)
        assert first_schedules(workload, knobs, target)[0].get("weight_only.algorithm") == way


def test_exact_kernels_round_no_rows(bench: Bench) -> None:
    knobs = asked(bench, product(real(9, 64), 48, 4, 32, level=4), bench.target(8))
    assert knobs["weight_only.algorithm"] == ("stream", "unpacked", "bytes")
    assert knobs_within(knobs, ScheduleLimits(exact=True))["weight_only.algorithm"] == ("stream", "unpacked")


def test_a_rounded_product_is_within_its_limit_of_the_exact_one(bench: Bench) -> None:
    rows = np.random.default_rng(0).standard_normal((40, 512)).astype("float32")
    for block in (16, 32, 128):
        small = product(rows, 72, 4, block, level=4)
        wanted = product(rows, 72, 4, block, level=1).reference()["y"]
        off = compare(computed(bench, small, schedule(), bench.target(8)), wanted, BYTES_LIMIT)
        assert off.ok and off.max_rel_error > BYTES_LIMIT / 100, "the limit would find no other error"


@pytest.mark.parametrize("isa", TARGETS)
def test_only_instructions_of_the_target_are_asked_for(bench: Bench, isa: str) -> None:
    target = TARGETS[isa]
    workload = bench.bind(product(real(9, 64), 48, 4, 32, level=4)).workload
    code = code_text(build_kernel(workload, schedule(), target).function)
    assert ("vpdpbusd" in code) == (has_feature(target, "avx512vnni") or has_feature(target, "avxvnni"))
    assert ("sdot" in code) == has_feature(target, "dotprod")
    assert ("llvm.x86" in code) == (isa in ("avx2", "avx512"))
