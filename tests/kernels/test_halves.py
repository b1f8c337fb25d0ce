"""Tensors of bfloat16 between kernels: every kind of nest writes the bits of a Cast, and reads the numbers of one."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from autofuse.backend.compile.function import assembly
from autofuse.device.target import Target
from autofuse.graph.loading.load import from_model
from autofuse.graph.own.rounding import bits_of, is_rounded, numbers_of, rounded
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.lowering.halves import half_tensors
from autofuse.kernels.lowering.layout import assign_layouts
from autofuse.kernels.tir.bfloat16 import rounds_vectors
from autofuse.kernels.tir.digest import code_text
from autofuse.kernels.workload.levels import ambiguous_outputs
from autofuse.kernels.workload.packing import to_logical, to_physical
from autofuse.kernels.workload.workload import PLAIN, Value, Workload
from autofuse.measure.checking.tolerance import compare
from tests.kernels.conftest import Array, Bench, Small, parsed, real
from tests.kernels.kernel_sample import NEWEST_ARM, ROUNDED, TARGETS
from tests.kernels.test_bfloat16 import TOO_SMALL, edges, same_bits

PAIR = "h = Cast <to=16> (v); y = Cast <to=1> (h)"
MAP, KERNEL, DEEP = (2, 16, 7, 9), rounded(real(32, 16, 1, 1)), rounded(real(16, 16, 3, 3))
WITHOUT = ("-avx512bf16",)


def half(*shape: int, seed: int = 0) -> Array:
    return rounded(real(*shape, seed=seed))


def agree(bench: Bench, small: Small, target: Target, **layouts: str) -> dict[str, Array]:
    """The results of the whole model as one kernel of ours; a number between two bfloat16 may be either."""
    bound = bench.bind(small, layouts)
    assert is_own(bound.workload), bound.workload.label
    used = {name: value.layout for name, value in zip(
        (*bound.inputs, *bound.outputs),
        [bound.workload.values[i] for kind in ("input", "output") for i in bound.workload.of_kind(kind)],
        strict=True,
    )}  # fmt: skip
    assert used == dict.fromkeys(used, PLAIN) | layouts
    found, wanted = bench.run(small, bound, build_kernel(bound.workload, {}, target), target), small.reference()
    unclear = dict(zip(bound.outputs, bound.workload.of_kind("output"), strict=True))
    for name, array in found.items():
        verdict = compare(array, wanted[name], 1e-5, unclear[name] in ambiguous_outputs(bound.workload))
        assert verdict.ok, f"{bound.workload.label}, {name}: {verdict.reason}"
        assert is_rounded(array) or not layouts.get(name, "").endswith("bf16")
    return found


WRITTEN = {
    "elementwise": ("v = Add (x, b)", {"x": real(5, 37)}, {"b": real(37)}, ""),
    "blocks": ("v = Relu (x)", {"x": real(*MAP)}, {}, "c8-"),
    "product": ("v = MatMul (x, w)", {"x": real(9, 21)}, {"w": real(21, 35)}, ""),
    "convolution": (
        "v = Conv <pads=[1, 1, 1, 1]> (x, w)", {"x": real(1, 16, 8, 8)}, {"w": real(16, 16, 3, 3)}, "c16-"
    ),
    "depthwise": ("v = Conv <group=16, pads=[1, 1, 1, 1]> (x, w)", {"x": real(*MAP)}, {"w": real(16, 1, 3, 3)}, "c8-"),
    "pool": ("v = AveragePool <kernel_shape=[3, 3]> (x)", {"x": real(*MAP)}, {}, "c8-"),
    "normalisation": ("v = LayerNormalization (x, s)", {"x": real(6, 45)}, {"s": real(45)}, ""),
    "softmax": ("v = Softmax (x)", {"x": real(6, 45)}, {}, ""),
    "turned": ("a = MatMul (x, w); v = Transpose <perm=[1, 0]> (a)", {"x": real(9, 21)}, {"w": real(21, 35)}, ""),
    "mean": ("v = ReduceMean <axes=[1]> (x)", {"x": real(6, 45)}, {}, ""),
}  # fmt: skip


@pytest.mark.parametrize("attributes", [(), WITHOUT])
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("kind", WRITTEN)
def test_every_nest_writes_bfloat16(bench: Bench, kind: str, lanes: int, attributes: tuple[str, ...]) -> None:
    text, inputs, constants, block = WRITTEN[kind]
    target = bench.target(lanes, mattr=attributes)
    agree(bench, Small(parsed(f"{text}; {PAIR}"), inputs, ["y"], constants), target, y=f"{block}bf16")


READ = {
    "elementwise": ("y = Add (x, z)", {"x": half(5, 37), "z": half(5, 37, seed=1)}, {}, {"x": "bf16", "z": "bf16"}),
    "another order": ("y = Add (x, z)", {"x": half(*MAP), "z": real(*MAP)}, {}, {"x": "c8-bf16", "y": "c8"}),
    "turn": ("y = Transpose <perm=[1, 0]> (x)", {"x": half(32, 48)}, {}, {"x": "bf16"}),
    "turn to such": ("y = Transpose <perm=[1, 0]> (x)", {"x": half(32, 48)}, {}, {"x": "bf16", "y": "bf16"}),
    "parts": ("y = Concat <axis=1> (x, z)", {"x": half(2, 8, 5, 5), "z": half(2, 16, 5, 5)}, {}, {"x": "c8-bf16"}),
    "pool": (
        "y = MaxPool <kernel_shape=[3, 3], pads=[1, 1, 1, 1]> (x)", {"x": half(*MAP)}, {},
        {"x": "c8-bf16", "y": "c8-bf16"},
    ),
    "depthwise": (
        "y = Conv <group=16, pads=[1, 1, 1, 1]> (x, w)", {"x": half(*MAP)}, {"w": real(16, 1, 3, 3)}, {"x": "c8-bf16"}
    ),
    "small groups": (
        "y = Conv <group=4, pads=[1, 1, 1, 1]> (x, w)", {"x": half(*MAP)}, {"w": real(16, 4, 3, 3)},
        {"x": "c16-bf16", "y": "c16"},
    ),
    "float32 convolution": (
        "y = Conv <pads=[1, 1, 1, 1]> (x, w)", {"x": half(*MAP)}, {"w": real(16, 16, 3, 3)},
        {"x": "c8-bf16", "y": "c8"},
    ),
    "float32 product": ("y = MatMul (x, w)", {"x": half(9, 24)}, {"w": real(24, 35)}, {"x": "bf16"}),
    "softmax": ("y = Softmax (x)", {"x": half(6, 45)}, {}, {"x": "bf16"}),
    "means": ("y = ReduceMean <axes=[2, 3]> (x)", {"x": half(*MAP)}, {}, {"x": "c8-bf16"}),
    "product in place": ("; y = MatMul (r, w)", {"x": half(9, 24)}, {"w": half(24, 35)}, {"x": "bf16"}),
    "product of odd depth": ("; y = MatMul (r, w)", {"x": half(9, 21)}, {"w": half(21, 35)}, {"x": "bf16"}),
    "two computed operands": (
        "; g = Cast <to=16> (w); u = Cast <to=1> (g); y = MatMul (r, u)",
        {"x": half(2, 9, 24), "w": half(2, 24, 35)}, {}, {"x": "bf16", "w": "bf16"},
    ),
    "window of one tap in place": (
        "; y = Conv <strides=[2, 2]> (r, w)", {"x": half(*MAP)}, {"w": KERNEL}, {"x": "c8-bf16", "y": "c8"}
    ),
    "window that is copied": (
        "; y = Conv <pads=[1, 1, 1, 1]> (r, w)", {"x": half(*MAP)}, {"w": DEEP}, {"x": "c16-bf16", "y": "c16"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("attributes", [(), WITHOUT])
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("kind", READ)
def test_every_nest_reads_bfloat16(bench: Bench, kind: str, lanes: int, attributes: tuple[str, ...]) -> None:
    text, inputs, constants, layouts = READ[kind]
    blocks = [int(found) for layout in layouts.values() for found in re.findall(r"c(\d+)", layout)]
    if any(block > lanes for block in blocks):
        lanes = max(blocks)
    whole = ROUNDED + text.removeprefix("; ") if text.startswith(";") else text
    agree(bench, Small(parsed(whole), inputs, ["y"], constants), bench.target(lanes, mattr=attributes), **layouts)


def test_a_residual_may_be_written_as_both(bench: Bench) -> None:
    text = f"v = LayerNormalization (x, s); {PAIR}"
    small = Small(parsed(text), {"x": real(6, 48)}, ["v", "y"], {"s": real(48)})
    found = agree(bench, small, bench.target(16), y="bf16")
    assert not is_rounded(found["v"])


@pytest.mark.parametrize("attributes", [(), WITHOUT])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_what_is_stored_are_the_bits_of_a_cast(bench: Bench, lanes: int, attributes: tuple[str, ...]) -> None:
    """But for the tiny where an instruction rounds, which takes them as 0."""
    drawn = np.random.default_rng(1).integers(0, 1 << 32, 4000, dtype="uint32").view("float32")
    small = Small(parsed(PAIR), {"v": np.concatenate([edges(), drawn])}, ["y"])
    target, bound = bench.target(lanes, mattr=attributes), bench.bind(small, {"y": "bf16"})
    found = bench.run(small, bound, build_kernel(bound.workload, {}, target), target)["y"]
    wanted = small.reference()["y"]
    if rounds_vectors(target, lanes):
        tiny = np.abs(wanted) < TOO_SMALL
        assert (np.abs(found[tiny]) <= TOO_SMALL).all()
        found, wanted = found[~tiny], wanted[~tiny]
    same_bits(found, wanted)


@pytest.mark.parametrize("isa", TARGETS)
def test_an_instruction_rounds_where_the_target_has_it(bench: Bench, isa: str) -> None:
    small = Small(parsed(f"v = Relu (x); {PAIR}"), {"x": real(8, 64)}, ["y"])
    workload = bench.bind(small, {"y": "bf16"}).workload
    text = code_text(build_kernel(workload, {}, TARGETS[isa]).function)
    assert ("cvtneps2bf16" in text) == (isa == "avx512")
    older = Target("cascadelake", 16, 32, 2, 32768, 1 << 20)
    assert "cvtneps2bf16" not in code_text(build_kernel(workload, {}, older).function)


@pytest.mark.parametrize(("layout", "columns"), [("bf16", 64), ("bf16", 61), ("c8-bf16", 64)])
def test_newer_arm_cores_round_by_an_instruction(bench: Bench, layout: str, columns: int) -> None:
    small = Small(parsed(f"v = Relu (x); {PAIR}"), {"x": real(1, 16, 4, columns)}, ["y"])
    workload = bench.bind(small, {"y": layout}).workload
    assert "bfcvtn" in assembly(build_kernel(workload, {}, NEWEST_ARM).function, NEWEST_ARM)
    older = replace(NEWEST_ARM, mattr=("+neon", "-bf16"))
    assert "bfcvt" not in assembly(build_kernel(workload, {}, older).function, older)


@pytest.mark.parametrize("layout", ["bf16", "c8-bf16"])
def test_what_is_stored_comes_back(layout: str) -> None:
    value = Value("output", MAP, "float32", layout)
    array = half(*MAP)
    physical = to_physical(array, value)
    assert physical.dtype == value.stored_dtype == "uint16"
    assert physical.shape == value.physical_shape
    np.testing.assert_array_equal(to_logical(physical, value), array)
    np.testing.assert_array_equal(numbers_of(bits_of(array)), array)
    assert not Value("output", MAP, "float32", "c8").is_half


CHAIN = (
    "a = Relu (x); h = Cast <to=16> (a); r = Cast <to=1> (h); t = MaxPool <kernel_shape=[2, 2], strides=[2, 2]> (r); "
    "u = Concat <axis=1> (t, t); m = Conv (u, w); n = Add (t, t); y = Concat <axis=1> (m, n)"
)


def test_which_tensors_hold_nothing_else() -> None:
    """What moves or chooses among bfloat16 is bfloat16; sums are not, nor what leaves the model."""
    small = Small(parsed(CHAIN), {"x": real(1, 16, 8, 8)}, ["y"], {"w": real(32, 32, 1, 1)})
    graph = from_model(small.model(), "small")
    assert half_tensors(graph) == {"h", "t", "u"}
    groups = [[operator.name] for operator in graph.operators]
    layouts = assign_layouts(graph, groups, dict.fromkeys(range(len(groups)), True), Bench().target(16))
    assert {name: layout for name, layout in layouts.items() if "bf16" in layout} == {
        "h": "bf16", "t": "c16-bf16", "u": "c16-bf16"
    }  # fmt: skip
    foreign = assign_layouts(graph, groups, dict.fromkeys(range(len(groups)), False), Bench().target(16))
    assert foreign == {}


def test_a_workload_keeps_how_it_is_stored(bench: Bench) -> None:
    small = Small(parsed(f"v = Relu (x); {PAIR}"), {"x": real(*MAP)}, ["y"])
    plain, stored = (bench.bind(small, layouts).workload for layouts in ({}, {"y": "c8-bf16"}))
    assert plain.key != stored.key
    assert Workload.from_text(stored.text) == stored
