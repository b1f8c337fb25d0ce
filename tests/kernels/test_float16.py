"""Contractions of models in float16, for targets that compute in it: which are, by what, and how they are packed.

Their results are compared with ONNX Runtime's on an emulated core, in `tests/arm`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from autofuse.backend.compile.function import assembly
from autofuse.backend.compile.host_cpu import device_named
from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.fusion.plan import ScheduleLimits
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import from_model
from autofuse.graph.own.names import FLOAT16
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.narrow.float16.family import ANY_CONTRACTION
from autofuse.kernels.families.narrow.float16.instructions import STRETCH, float16_multipliers
from autofuse.kernels.families.narrow.products.right import column_scales
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import canonical, open_knobs
from autofuse.kernels.schedule.limits import keeps
from autofuse.kernels.workload.levels import rounds_to_float16
from autofuse.kernels.workload.onnx_model import workload_model
from autofuse.kernels.workload.workload import Workload, bind_workload
from autofuse.measure.checking.tolerance import LIMITS, limit_of
from autofuse.measure.measurement import MeasureRequest
from tests.kernels.conftest import Array, Small, parsed, real

ALGORITHM = "contraction.algorithm"
NEWER, OLDER, OLDEST = "graviton3", "raspberry-pi-5", "raspberry-pi-4"


def half(*shape: int, seed: int = 0) -> Array:
    return real(*shape, seed=seed).astype("float16")


def product(columns: int = 40, depth: int = 64) -> Small:
    return Small(parsed("y = MatMul (x, w)"), {"x": half(24, depth)}, ["y"], {"w": half(depth, columns)})


def bound(small: Small) -> Workload:
    graph = from_model(small.model(), "small")
    return bind_workload(graph, [operator.name for operator in graph.operators], {}, float16=True).workload


def algorithms(workload: Workload, device: str) -> set[int | str]:
    """What a search may choose from; nothing where there is no choice."""
    target = device_named(device).target()
    return set(open_knobs(workload, target, load_space(None, target.isa).schedule).get(ALGORITHM, ()))


def lowered(small: Small, target: Target) -> list[Workload]:
    graph = from_model(small.model(), "small")
    plan = default_plan(graph)
    made = lower(graph, plan, target, [group.operators for group in plan.groups])
    return [group.workload for group in made.kernels]


def marks(workloads: list[Workload]) -> list[object]:
    return [operator.attribute(FLOAT16) for workload in workloads for operator in workload.operators
            if operator.op_type in ("MatMul", "Gemm", "Conv")]  # fmt: skip


def test_only_a_target_with_the_instructions_is_told_what_a_model_computes_in_float16() -> None:
    assert marks(lowered(product(), device_named(NEWER).target())) == [1]
    assert marks(lowered(product(), device_named(OLDER).target())) == [1]
    assert marks(lowered(product(), device_named(OLDEST).target())) == [None]
    assert marks(lowered(product(), device_named("generic-avx512").target())) == [None]


def test_what_a_model_computes_in_float32_stays_in_it() -> None:
    mixed = Small(
        parsed("m = MatMul (x, w); c = Cast <to=1> (m); r = Relu (c); y = MatMul (r, v)"), {"x": half(9, 32)}, ["y"],
        {"w": half(32, 16), "v": real(16, 24)},
    )  # fmt: skip
    assert sorted(marks(lowered(mixed, device_named(NEWER).target())), key=str) == [1, None]


def test_what_is_joined_or_rewritten_stays_what_it_was() -> None:
    text = "m = MatMul (x, w); n = MatMul (x, v); a = Relu (m); b = Tanh (n); y = Add (a, b)"
    weights = {"w": half(32, 24), "v": half(32, 24, seed=1)}
    siblings = Small(parsed(text), {"x": half(9, 32)}, ["y"], weights)
    assert marks(lowered(siblings, device_named(NEWER).target())) == [1], "one product makes both"
    wide = Small(parsed(text), {"x": real(9, 32)}, ["y"], {k: w.astype("float32") for k, w in weights.items()})
    assert marks(lowered(wide, device_named(NEWER).target())) == [None]


def test_each_target_has_the_instructions_of_its_features() -> None:
    assert list(float16_multipliers(device_named(NEWER).target())) == ["float16_sums", "float16_products"]
    assert list(float16_multipliers(device_named(OLDER).target())) == ["float16_sums"]
    assert not float16_multipliers(device_named(OLDEST).target())
    assert not float16_multipliers(device_named("generic-avx512").target())


@pytest.mark.parametrize(("small", "found"), [
    (product(), {"float16_sums", "float16_products"}),
    (product(columns=7), set()),
    (Small(parsed("y = MatMul (x, z)"), {"x": half(2, 9, 16), "z": half(2, 16, 24)}, ["y"]), {"float16_products"}),
    (Small(parsed("y = Gemm <alpha=2.0> (x, w)"), {"x": half(9, 16)}, ["y"], {"w": half(16, 24)}), set()),
    (Small(parsed("y = MatMul (x, w)"), {"x": real(9, 16)}, ["y"], {"w": real(16, 24)}), set()),
    (Small(parsed("y = ConvTranspose (x, w)"), {"x": half(1, 16, 5, 5)}, ["y"], {"w": half(16, 24, 3, 3)}), set()),
], ids=["product", "few columns", "computed", "scaled", "float32", "transposed"])  # fmt: skip
def test_float16_is_a_choice_where_it_keeps_its_bound(small: Small, found: set[str]) -> None:
    assert {name for name in algorithms(bound(small), NEWER) if str(name).startswith("float16")} == found


def test_the_mark_is_no_part_of_the_onnx_model() -> None:
    workload = bound(product())
    assert marks([workload]) == [1]
    onnx.checker.check_model(workload_model(workload))


def first(small: Small, device: str, threads: int = 1) -> Mapping[str, int | str]:
    target, workload = device_named(device).target(), bound(small)
    knobs = open_knobs(workload, target, load_space(None, target.isa).schedule)
    return first_schedules(workload, knobs, target, threads)[0]


def test_short_sums_are_the_first_guess_where_nothing_saves_more() -> None:
    assert first(product(), NEWER)[ALGORITHM] == "float16_sums"
    assert first(product(depth=4), NEWER).get(ALGORITHM, "direct") == "direct"
    square = Small(parsed("y = Conv <pads=[1, 1, 1, 1]> (x, w)"), {"x": half(1, 32, 28, 28)}, ["y"],
                   {"w": half(32, 32, 3, 3)})  # fmt: skip
    assert str(first(square, NEWER)[ALGORITHM]).startswith("winograd")


def test_threads_share_the_rows_of_a_single_panel() -> None:
    assert first(product(columns=16), NEWER, threads=2)["contraction.pixel_rows"] == 2


def test_knobs_of_float32_are_idle() -> None:
    target, workload = device_named(NEWER).target(), bound(product())
    knobs = open_knobs(workload, target, load_space(None, target.isa).schedule)
    plain = {ALGORITHM: "float16_sums", "contraction.vectors": 4, "contraction.pixels": 6}
    more = {"contraction.split_k": 2, "contraction.order": "pixels", "contraction.panels_per_task": 4}
    assert canonical(plain | more, knobs) == canonical(plain, knobs)


def test_a_tile_fits_the_registers_by_what_its_sums_take() -> None:
    target = device_named(NEWER).target()
    tile = {"contraction.vectors": 4, "contraction.pixels": 5}
    assert ANY_CONTRACTION.fits(tile | {ALGORITHM: "float16_sums"}, target)
    assert not ANY_CONTRACTION.fits(tile | {ALGORITHM: "float16_products"}, target)


def test_a_kernel_in_float16_is_held_to_the_tolerance_of_float16() -> None:
    workload, plain = bound(product()), bound(Small(parsed("y = MatMul (x, w)"), {"x": real(9, 16)}, ["y"],
                                                    {"w": real(16, 24)}))  # fmt: skip
    schedule = {ALGORITHM: "float16_sums"}
    assert limit_of(MeasureRequest(workload, schedule, ())) == LIMITS["float16"]
    assert limit_of(MeasureRequest(workload, {ALGORITHM: "direct"}, ())) is None
    assert limit_of(MeasureRequest(workload, schedule, (), limit=1e-6)) == 1e-6
    assert not rounds_to_float16(plain, schedule), "no instruction on float16 computes a model in float32"


def test_exact_schedules_round_to_no_float16() -> None:
    assert keeps(ScheduleLimits(), {ALGORITHM: "float16_sums"})
    assert not keeps(ScheduleLimits(exact=True), {ALGORITHM: "float16_products"})


@pytest.mark.parametrize(("algorithm", "instruction"), [
    ("float16_sums", r"\tfmla\s+v\d+\.8h, v\d+\.8h, v\d+\.h\["),
    ("float16_products", r"\tfmlal2?\s+v\d+\.4s, v\d+\.4h, v\d+\.h\["),
    ("direct", r"\tfmla\s+v\d+\.4s"),
])  # fmt: skip
def test_the_instruction_takes_the_left_numbers_from_lanes(algorithm: str, instruction: str) -> None:
    target = device_named(NEWER).target()
    tile = {ALGORITHM: algorithm, "contraction.vectors": 2, "contraction.pixels": 4}
    assert re.search(instruction, assembly(build_kernel(bound(product()), tile, target).function, target))


def test_a_schedule_of_another_target_is_computed_in_float32() -> None:
    target = device_named(OLDEST).target()
    text = assembly(build_kernel(bound(product()), {ALGORITHM: "float16_sums"}, target).function, target)
    assert not re.search(r"\.8h", text)
    assert re.search(r"fmla\s+v\d+\.4s", text)


def test_no_stretch_of_scaled_weights_overflows() -> None:
    weights = real(2, 5, 70, 3, low=-9e4, high=9e4)
    weights[0, 2], weights[1, 3] = 0, 1e-41
    scale = column_scales(weights, STRETCH)
    assert (np.frexp(scale)[0] == 0.5).all(), "scaling by a power of two is exact"
    assert (scale[0, 2] == 1).all() and (scale[1, 3] == 1).all()
    largest = np.abs((weights / scale).astype("float16").astype("float64")).max(axis=(2, 3))
    assert (largest * STRETCH <= 0.5).all()
    others = np.ones((2, 5), bool)
    others[0, 2] = others[1, 3] = False
    assert (largest[others] * STRETCH >= 0.24).all(), "no more is given away than that takes"
