"""Every value of every knob builds a right kernel; open knobs are those that matter; canonical ones change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse.backend.compile.function import tvm_target
from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.errors import InputError
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.protocol import vector_lanes
from autofuse.kernels.families.registry import knobs, nests_of
from autofuse.kernels.families.windowed.family import WINDOWED
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import canonical, declared_names, fits_registers, open_knobs, tile_knobs
from tests.kernels.conftest import Bench, Small, parsed, real

DECLARED = knobs()
AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)
AVX512 = Target("znver4", 16, 32, 2, 32768, 1 << 20)
NEON = Target("cortex-a76", 4, 32, 4, 65536, 524288, mtriple="aarch64-linux-gnu", mattr=("+neon",))

WINOGRAD = Small(
    parsed("c = Conv <pads=[1, 1, 1, 1]> (x, w, b); y = Relu (c)"),
    {"x": real(1, 16, 6, 9)},
    ["y"],
    {"w": real(32, 16, 3, 3), "b": real(32)},
)
POINT = Small(
    parsed("c = Conv (x, w, b); y = Relu (c)"), {"x": real(1, 8, 6, 8)}, ["y"], {"w": real(40, 8, 1, 1), "b": real(40)}
)
PRODUCT = Small(parsed("c = MatMul (x, w); y = Tanh (c)"), {"x": real(1, 40, 16)}, ["y"], {"w": real(16, 44)})
STRIDED = Small(
    parsed("y = Conv <pads=[1, 1, 1, 1], strides=[2, 2]> (x, w)"),
    {"x": real(1, 8, 15, 17)},
    ["y"],
    {"w": real(24, 8, 3, 3)},
)
DEPTHWISE = Small(
    parsed("y = Conv <pads=[1, 1, 1, 1], group=16> (x, w)"), {"x": real(1, 16, 14, 9)}, ["y"], {"w": real(16, 1, 3, 3)}
)
POOL = Small(parsed("y = MaxPool <kernel_shape=[3, 3]> (x)"), {"x": real(1, 16, 16, 11)}, ["y"])
ROWS = Small(parsed("y = Softmax <axis=-1> (x)"), {"x": real(5, 7, 40)}, ["y"])
BATCHED = Small(parsed("y = MatMul (x, w)"), {"x": real(3, 24, 16), "w": real(3, 16, 20)}, ["y"])
TRANSPOSED = Small(
    parsed("c = ConvTranspose <strides=[2, 2], pads=[1, 1, 1, 1]> (x, w, b); y = Relu (c)"),
    {"x": real(1, 16, 7, 9)},
    ["y"],
    {"w": real(16, 24, 4, 4), "b": real(24)},
)
VOLUME = Small(
    parsed("y = Conv <pads=[1, 1, 1, 1, 1, 1]> (x, w)"),
    {"x": real(1, 16, 3, 5, 6)},
    ["y"],
    {"w": real(16, 16, 3, 3, 3)},
)
ADD = Small(parsed("y = Add (x, x)"), {"x": real(1, 32, 64, 70)}, ["y"])
MODELS = {
    "winograd": WINOGRAD,
    "point": POINT,
    "product": PRODUCT,
    "strided": STRIDED,
    "depthwise": DEPTHWISE,
    "pool": POOL,
    "rows": ROWS,
    "batched": BATCHED,
    "transposed": TRANSPOSED,
    "add": ADD,
}
LAYOUTS = {"x": "c8", "y": "c8"}


def covering(family: str, isa: str) -> list[dict[str, int | str]]:
    """Schedules in which each value that is declared, or shipped for a target class, stands at least once."""
    space = load_space("default", isa).schedule.get(family, {})
    lists = {f"{family}.{knob}": (*one.values, *space.get(knob, ())) for knob, one in DECLARED[family].items()}
    values = {name: tuple(dict.fromkeys(given)) for name, given in lists.items()}
    most = max(map(len, values.values()))
    return [{name: given[number % len(given)] for name, given in values.items()} for number in range(most)]


FAMILY = {"depthwise": "windowed", "pool": "windowed", "rows": "last_axis", "add": "elementwise"}
RUNS = [(name, number) for name in MODELS for number in range(len(covering(FAMILY.get(name, "contraction"), "avx2")))]


@pytest.mark.parametrize(("name", "number"), RUNS)
def test_every_value_builds_a_kernel_that_agrees(bench: Bench, name: str, number: int) -> None:
    family = FAMILY.get(name, "contraction")
    schedule = covering(family, "avx2")[number]
    if name != "winograd" and family == "contraction":
        schedule["contraction.algorithm"] = "direct"
    layouts = LAYOUTS if number % 2 and name not in ("product", "rows", "batched") else {}
    bench.check(MODELS[name], layouts, schedule, limit=5e-5)


def assembly(small: Small, layouts: dict[str, str], schedule: dict[str, int | str], target: Target) -> str:
    """What LLVM makes of a kernel for a target that need not be this machine."""
    bound = Bench().bind(small, layouts)
    function = build_kernel(bound.workload, schedule, target).function.with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": function}), target=tvm_target(target))
    return str(next(part for part in (library.mod, *library.mod.imports) if part.kind == "llvm").inspect_source("asm"))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("target", "block", "register"), [(AVX512, 16, "zmm"), (NEON, 4, ".4s")], ids=["avx512", "neon"]
)
def test_kernels_for_other_machines_use_their_vectors(name: str, target: Target, block: int, register: str) -> None:
    small = MODELS[name]
    shapes = {"x": small.inputs["x"].shape, "y": small.reference()["y"].shape}
    layouts = {key: f"c{block}" for key, shape in shapes.items() if len(shape) == 4 and shape[1] % block == 0}
    schedule = {"contraction.algorithm": "winograd4"} if name == "winograd" else {}
    assert register in assembly(small, layouts, schedule, target)


@pytest.mark.parametrize("target", [AVX512, NEON], ids=["avx512", "neon"])
@pytest.mark.parametrize("family", ["contraction", "windowed"])
def test_every_value_can_be_emitted_for_other_machines(bench: Bench, target: Target, family: str) -> None:
    model = MODELS["winograd" if family == "contraction" else "depthwise"]
    for schedule in covering(family, target.isa):
        assert build_kernel(bench.bind(model).workload, schedule, target).function is not None


def test_the_accumulators_of_a_product_are_whole_vectors() -> None:
    whole = Small(parsed("y = MatMul (x, w)"), {"x": real(40, 16)}, ["y"], {"w": real(16, 48)})
    text = assembly(whole, {}, {"contraction.vectors": 2, "contraction.pixels": 4}, AVX2)
    products = [line for line in text.splitlines() if "vfmadd" in line]
    assert len(products) >= 8
    assert all("ymm" in line for line in products)


def space(isa: str = "avx2") -> Any:
    return load_space("default", isa).schedule


@pytest.mark.parametrize("target", [AVX2, AVX512, NEON], ids=["avx2", "avx512", "neon"])
@pytest.mark.parametrize("name", MODELS)
def test_open_knobs_are_choices_of_the_space(bench: Bench, name: str, target: Target) -> None:
    given = space(target.isa)
    for knob, values in open_knobs(bench.bind(MODELS[name]).workload, target, given).items():
        family, short = knob.split(".")
        allowed = given.get(family, {}).get(short, DECLARED[family][short].values)
        assert set(values) <= set(allowed)
        assert len(values) > 1
        assert values[0] == next(value for value in allowed if value in values)


def test_what_makes_no_difference_is_not_open(bench: Bench) -> None:
    def names(small: Small) -> set[str]:
        return set(open_knobs(bench.bind(small).workload, AVX2, space()))

    assert "contraction.tiles" in names(WINOGRAD)
    assert "contraction.tiles" in names(VOLUME)
    assert {"contraction.pixels", "contraction.vectors", "contraction.rows_per_task"} <= names(TRANSPOSED)
    assert not {"contraction.algorithm", "contraction.pixel_rows"} & names(TRANSPOSED)
    assert not {"contraction.algorithm", "contraction.tiles", "contraction.stage"} & names(STRIDED)
    assert "contraction.pixel_rows" in names(POINT)
    assert "contraction.pixel_rows" not in names(STRIDED)
    assert names(DEPTHWISE) <= {"windowed.algorithm", "windowed.pixels", "windowed.rows_per_task"}
    assert names(ADD) == {"elementwise.tasks"}
    assert names(Small(parsed("y = Add (x, x)"), {"x": real(2, 3)}, ["y"])) == set()
    assert names(Small(parsed("y = CumSum (x, a)"), {"x": real(2, 3)}, ["y"], {"a": np.array(1)})) == set()


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_canonical_schedule_builds_the_same_kernel(bench: Bench, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(MODELS)))
    workload = bench.bind(MODELS[name]).workload
    knobs = open_knobs(workload, AVX2, space())
    schedule = {knob: data.draw(st.sampled_from(values)) for knob, values in knobs.items()}
    kept = canonical(schedule, knobs)
    assert set(kept.items()) <= set(schedule.items())
    assert canonical(kept, knobs) == kept
    functions = [build_kernel(workload, each, AVX2).function for each in (schedule, kept)]
    assert tvm_ffi.structural_equal(*functions)


@pytest.mark.parametrize("target", [AVX2, AVX512, NEON], ids=["avx2", "avx512", "neon"])
@pytest.mark.parametrize("name", MODELS)
def test_first_schedules_are_legal_distinct_and_fit_the_registers(bench: Bench, name: str, target: Target) -> None:
    workload = bench.bind(MODELS[name]).workload
    knobs = open_knobs(workload, target, space(target.isa))
    guesses = first_schedules(workload, knobs, target)
    assert guesses
    assert len({str(sorted(guess.items())) for guess in guesses}) == len(guesses)
    for guess in guesses:
        assert all(value in knobs[knob] for knob, value in guess.items())
        assert fits_registers(guess, target)


def test_a_schedule_that_spills_is_told_from_one_that_fits() -> None:
    assert fits_registers({"contraction.vectors": 2, "contraction.pixels": 6}, AVX2)
    assert not fits_registers({"contraction.vectors": 4, "contraction.pixels": 4}, AVX2)
    assert fits_registers({"contraction.vectors": 4, "contraction.pixels": 6}, AVX512)


def test_vectors_are_as_wide_as_the_smallest_block(bench: Bench) -> None:
    assert vector_lanes(bench.bind(POINT).workload, AVX2) == 8
    assert vector_lanes(bench.bind(POINT, {"x": "c4", "y": "c8"}).workload, AVX2) == 4
    assert vector_lanes(bench.bind(POINT, {"x": "c8"}).workload, NEON) == 4


def test_a_missing_knob_takes_its_first_declared_value() -> None:
    found = WINDOWED.chosen({"windowed.pixels": 7})
    rows = DECLARED["windowed"]["rows_per_task"].values[0]
    assert found == {"algorithm": "direct", "pixels": 7, "rows_per_task": rows}
    assert declared_names()["windowed"] == frozenset(found)


def test_the_sides_of_a_register_tile_belong_together() -> None:
    assert {("windowed.pixels",), ("contraction.vectors", "contraction.pixels")} <= set(tile_knobs())


def test_an_operator_of_the_importer_has_no_nests(bench: Bench) -> None:
    small = Small(parsed("r = Relu (x); y = CumSum (r, a)"), {"x": real(2, 3)}, ["y"], {"a": np.array(1)})
    assert nests_of(bench.bind(small).workload) == []


def test_a_block_that_does_not_divide_the_channels_is_refused(bench: Bench) -> None:
    with pytest.raises(InputError, match="does not fit a tensor of shape"):
        build_kernel(bench.bind(ADD, {"x": "c5"}).workload, {}, AVX2)


@pytest.mark.parametrize("name", MODELS)
def test_vectors_wider_than_the_registers_agree(bench: Bench, name: str) -> None:
    schedule = {"contraction.algorithm": "winograd4"} if name == "winograd" else {}
    shapes = {key: array.shape for key, array in (MODELS[name].inputs | MODELS[name].reference()).items()}
    layouts = {key: "c16" for key, shape in shapes.items() if len(shape) == 4 and shape[1] % 16 == 0}
    bench.check(MODELS[name], layouts, schedule, lanes=16, limit=5e-5)
