"""What every kernel family of the tuple keeps, whatever it computes: see `autofuse/kernels/families/protocol.py`."""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest
from onnx import helper

from autofuse.device.target import Target
from autofuse.environment.space import FOLDER, ISAS, load_space
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.protocol import FusedFamily, Schedule
from autofuse.kernels.families.registry import FAMILIES, family_of, is_own, knobs, nests_of, refusal
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import canonical, declared_names, fits_registers, open_knobs, packing
from autofuse.kernels.tir.digest import code_key
from autofuse.kernels.workload.workload import Workload
from autofuse.values.resources import data_path
from tests.kernels.conftest import Bench, Small, parsed, real
from tests.kernels.kernel_sample import SAMPLES, TARGETS

ALL_KNOBS = [(family, knob) for family, own in knobs().items() for knob in own]
DRAWS = 12


def workload_of(name: str, target: Target) -> Workload:
    sample = SAMPLES[name]
    return Bench().bind(sample.small, dict.fromkeys(sample.blocked, f"c{target.lanes}")).workload


def opened(workload: Workload, target: Target) -> dict[str, tuple[int | str, ...]]:
    return open_knobs(workload, target, load_space("default", target.isa).schedule)


def code(workload: Workload, schedule: Schedule, target: Target) -> str:
    return code_key(build_kernel(workload, schedule, target).function)


def test_names_are_distinct_and_say_what_they_mean() -> None:
    assert max(Counter(family.name for family in FAMILIES).values()) == 1
    assert max(Counter(kind for family in FAMILIES for kind in family.kinds).values()) == 1
    assert declared_names() == {family.name: frozenset(family.knobs) for family in FAMILIES if family.knobs}
    for family, knob in ALL_KNOBS:
        declared = knobs()[family][knob]
        assert knob.isidentifier() and family.isidentifier()
        assert len(declared.meaning) > 20
        assert len(set(declared.values)) == len(declared.values) > 1
        assert len({type(value) for value in declared.values}) == 1


def test_each_knob_has_one_row_in_the_search_space_and_each_row_is_a_knob() -> None:
    body = tomllib.loads((data_path(FOLDER) / "default.toml").read_text(encoding="utf-8"))
    rows = [(family, knob) for family, table in body["schedule"].items() for knob in table]
    assert sorted(rows) == sorted(ALL_KNOBS)
    lines = (data_path(FOLDER) / "default.toml").read_text(encoding="utf-8").splitlines()
    assert sum(" = " in line for line in lines[lines.index("[schedule.contraction]") :]) == len(ALL_KNOBS)


@pytest.mark.parametrize("isa", ISAS)
def test_the_row_of_a_knob_is_of_its_type(isa: str) -> None:
    space = load_space("default", isa, declared_names()).schedule
    for family, knob in ALL_KNOBS:
        kinds = {type(value) for value in knobs()[family][knob].values}
        assert {type(value) for value in space.get(family, {}).get(knob, ())} <= kinds


@pytest.mark.parametrize("name", SAMPLES)
def test_just_one_family_takes_a_nest(name: str) -> None:
    workload = workload_of(name, TARGETS["avx2"])
    for nest in nests_of(workload):
        (family,) = (family for family in FAMILIES if family.takes(workload, nest))
        assert family is family_of(workload, nest)
        assert family.kind(nest) in family.kinds
        assert nest.anchor is None or nest.anchor.op_type in family.anchors
    for family in FAMILIES:
        if isinstance(family, FusedFamily):
            joined = family.joined(workload, nests_of(workload))
            parts = [nest for unit in joined for nest in getattr(unit, "nests", (unit,))]
            assert parts == nests_of(workload)


@pytest.mark.parametrize("isa", TARGETS)
@pytest.mark.parametrize("name", SAMPLES)
def test_guesses_are_legal_canonical_and_distinct(name: str, isa: str) -> None:
    target = TARGETS[isa]
    workload = workload_of(name, target)
    found = opened(workload, target)
    guesses = first_schedules(workload, found, target, threads=2)
    assert guesses
    assert len({repr(sorted(guess.items())) for guess in guesses}) == len(guesses)
    for guess in guesses:
        assert all(value in found[knob] for knob, value in guess.items())
        assert canonical(guess, found) == guess
        assert fits_registers(guess, target)


@pytest.mark.parametrize("isa", TARGETS)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_canonical_schedule_is_its_own_canonical_form(name: str, isa: str) -> None:
    target, rng = TARGETS[isa], random.Random(7)
    found = opened(workload_of(name, target), target)
    for _ in range(DRAWS):
        kept = canonical({knob: rng.choice(values) for knob, values in found.items()}, found)
        assert canonical(kept, found) == kept
        assert set(kept) <= set(found)


@pytest.mark.parametrize("name", SAMPLES)
def test_idle_knobs_do_not_change_the_code(name: str) -> None:
    target, rng = TARGETS["avx2"], random.Random(11)
    workload = workload_of(name, target)
    found = opened(workload, target)
    draws = [{knob: rng.choice(values) for knob, values in found.items()} for _ in range(DRAWS)]
    idle = [schedule for schedule in draws if canonical(schedule, found) != schedule]
    for schedule in idle[:2]:
        assert code(workload, schedule, target) == code(workload, canonical(schedule, found), target)


@pytest.mark.parametrize("name", SAMPLES)
def test_schedules_with_the_same_packing_read_the_same_packed_constants(name: str) -> None:
    """Tiles of an open size share a constant by its name, shape and type, and the knobs that pack."""
    target, rng, bench = TARGETS["avx512"], random.Random(13), Bench()
    workload, sample = workload_of(name, target), SAMPLES[name]
    found = opened(workload, target)
    others = [knob for knob in found if knob not in packing({})]
    base = canonical({knob: values[0] for knob, values in found.items()} | dict(sample.schedule), found)
    constants = bench.constants(sample.small, bench.bind(sample.small))
    known: dict[str, bytes] = {}
    for _ in range(4):
        drawn = base | {knob: rng.choice(found[knob]) for knob in others}
        assert packing(drawn) == packing(base)
        kernel = build_kernel(workload, drawn, target)
        packed = kernel.pack(constants)
        first = len(workload.of_kind("input"))
        for parameter, array in zip(kernel.function.params[first : first + len(packed)], packed, strict=True):
            key = f"{parameter.name} {array.shape} {array.dtype}"
            assert known.setdefault(key, array.tobytes()) == array.tobytes()


@pytest.mark.parametrize(("family", "knob"), ALL_KNOBS)
def test_a_useful_knob_changes_the_code_of_some_workload(family: str, knob: str) -> None:
    name = f"{family}.{knob}"
    for target, sample in product((TARGETS["avx2"], TARGETS["avx512"]), SAMPLES):
        workload = workload_of(sample, target)
        found = opened(workload, target)
        fitting = {other: value for other, value in SAMPLES[sample].schedule.items() if value in found.get(other, ())}
        base = {other: values[0] for other, values in found.items()} | fitting
        kept = [canonical(base | {name: value}, found) for value in found.get(name, ())]
        if not any(name in schedule for schedule in kept):
            continue
        first = code(workload, kept[0], target)
        if any(code(workload, schedule, target) != first for schedule in kept[1:] if schedule != kept[0]):
            return
    pytest.fail("no sample has other code under another value")


X, IMAGE, W = real(2, 6), real(1, 4, 6, 6), real(4, 4, 3, 3)
REFUSED: Mapping[str, Small] = {
    "Conv": Small(parsed("y = Conv <pads=[3, 3, 3, 3], strides=[9, 9]> (x, w)"), {"x": real(1, 4, 1, 1)}, ["y"],
                  {"w": W}),
    "ConvTranspose": Small(parsed("y = ConvTranspose <strides=[1, 4097]> (x, w)"), {"x": real(1, 4, 1, 2)}, ["y"],
                           {"w": W}),
    "MaxPool": Small(parsed("y, i = MaxPool <kernel_shape=[2, 2]> (x)"), {"x": IMAGE}, ["y", "i"]),
    "AveragePool": Small(parsed("y = AveragePool <kernel_shape=[2, 2], dilations=[2, 2], pads=[1, 1, 1, 1]> (x)"),
                         {"x": real(1, 4, 1, 1)}, ["y"], opset=19),
    "ReduceSum": Small(parsed("y = ReduceSum <noop_with_empty_axes=1> (x)"), {"x": X}, ["y"]),
    "MatMul": Small(parsed("y = MatMul (x, x)"), {"x": np.ones((3, 3), "float64")}, ["y"]),
    "ScatterND": Small(parsed("y = ScatterND (x, i, u)"), {"x": np.ones((3, 4), "float64"),
                       "i": np.ones((1, 1), "int64"), "u": np.ones((1, 4), "float64")}, ["y"]),
    "Softmax": Small(parsed("y = Softmax <axis=-1> (x)"), {"x": X.astype("float64")}, ["y"]),
    "RNNRecurrence": Small(parsed('y = RNN <hidden_size=8, activations=["Sine"]> (x, w, r)'), {"x": real(3, 1, 4)},
                           ["y"], {"w": real(1, 8, 4), "r": real(1, 8, 8)}),
    "MatMulInteger": Small(parsed("y = MatMulInteger (x, w, z)"), {"x": np.ones((3, 4), "uint8")}, ["y"],
                           {"w": np.ones((4, 5), "int8"), "z": np.arange(3, dtype="uint8")}),
    "ConvInteger": Small(parsed("y = ConvInteger <group=4> (x, w, z)"), {"x": np.ones((1, 4, 6, 6), "uint8")}, ["y"],
                         {"w": np.ones((4, 1, 3, 3), "int8"), "z": np.arange(4, dtype="uint8")}),
    "WeightOnlyMatMul": Small(
        [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=32, N=8, block_size=32)],
        {"x": np.ones((3, 32), "float64")}, ["y"], {"w": np.ones((8, 1, 16), "uint8"), "s": np.ones((8, 1), "float32")}
    ),
    "Bfloat16Conv": Small(
        parsed("h = Cast <to=16> (x); r = Cast <to=1> (h); y = Conv <pads=[3, 3, 3, 3], strides=[9, 9]> (r, w)"),
        {"x": real(1, 8, 1, 1)}, ["y"], {"w": np.ones((8, 8, 3, 3), "float32")}
    ),
    "LayerNormalization": Small(parsed("y = LayerNormalization <axis=-1> (x, g)"), {"x": X.astype("float64")}, ["y"],
                                {"g": np.ones(6, "float64")}),
}  # fmt: skip


@pytest.mark.parametrize("op_type", REFUSED)
def test_a_refusal_says_which_operator_and_why(bench: Bench, op_type: str) -> None:
    workload = bench.bind(REFUSED[op_type]).workload
    operator = next(one for one in workload.operators if one.op_type == op_type)
    reason = refusal(workload, operator)
    assert reason is not None and reason.startswith(op_type) and "has no definition here" in reason
    assert not is_own(workload)


def test_every_anchor_belongs_to_a_family_that_can_refuse_it() -> None:
    refused = {family.name for family in FAMILIES if family.anchors & set(REFUSED)}
    assert refused == {family.name for family in FAMILIES if family.anchors}


def test_the_samples_have_nests_of_every_kind() -> None:
    met = {
        family_of(workload, nest).kind(nest)
        for workload in (workload_of(name, TARGETS["avx2"]) for name in SAMPLES)
        for nest in nests_of(workload)
    }
    assert met == {kind for family in FAMILIES for kind in family.kinds}
