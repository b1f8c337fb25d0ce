"""Products by tile registers (AMX): their machine code, and their arithmetic on registers as Intel defines them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse.backend.compile.function import assembly
from autofuse.backend.compile.jit import JitKernel, tensor
from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from autofuse.graph.own.rounding import rounded
from autofuse.graph.transform.open_sizes.open_graph import open_graph
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.narrow import tiles
from autofuse.kernels.families.narrow.instructions import bfloat16_multipliers, multipliers
from autofuse.kernels.families.narrow.tiles import TILES, TileShape, bfloat16_tiles, integer_tiles, rows_of_tiles
from autofuse.kernels.open_sizes.open_rows import TILES as SIZES
from autofuse.kernels.open_sizes.open_rows import Tile, open_kernel
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import canonical, open_knobs
from autofuse.kernels.schedule.transfer import schedule_fault
from autofuse.kernels.tir import emit
from autofuse.kernels.tir.digest import code_key
from tests.kernels import test_bfloat16 as halves
from tests.kernels.conftest import Array, Bench, Guarded, Small, parsed, real
from tests.kernels.kernel_sample import SAMPLES, TARGETS
from tests.kernels.test_integer import BYTES, exact, levels, product
from tests.kernels.test_open_rows import rows_of
from tests.kernels.tile_double import TileDouble

FEATURES = ("+amx-tile", "+amx-int8", "+amx-bf16", "+avx512vnni")
AMX = Target("sapphirerapids", 16, 32, 2, 49152, 2 << 20)
Schedule = dict[str, int | str]
PRODUCTS = {"integer": "integer product", "bfloat16": "product of bfloat16"}


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> TileDouble:
    """Kernels of this test run on registers in numpy, by one thread: Python's functions are none of TVM's threads'."""
    made = TileDouble()
    monkeypatch.setattr(tiles, "UNIT", made.unit)
    monkeypatch.setattr(emit.builder, "parallel", emit.builder.serial)
    return made


def able(bench: Bench) -> Target:
    """This machine, with tiles."""
    target = bench.target(16, mattr=FEATURES)
    if not {"quads", TILES} <= {**multipliers(target), **integer_tiles(target, False)}.keys():
        pytest.skip("this machine is no x86-64")
    return target


def by_tiles(**knobs: int | str) -> Schedule:
    return {"integer.algorithm": TILES} | {f"integer.{name}": value for name, value in knobs.items()}


def of_halves(**knobs: int | str) -> Schedule:
    return {name.replace("integer", "bfloat16"): value for name, value in by_tiles(**knobs).items()}


def convolution(attributes: str, x: Array, w: Array, groups: int = 1, **zeros: Any) -> Small:
    names = ["x", "w", "zx" if "zx" in zeros else "", "zw" if "zw" in zeros else ""]
    while not names[-1]:
        names.pop()
    constants = {"w": w} | {name: np.asarray(array) for name, array in zeros.items()}
    return Small(
        parsed(f"y = ConvInteger <group={groups}, {attributes}> ({', '.join(names)})"), {"x": x}, ["y"], constants
    )


def test_a_shape_fits_the_registers_and_their_rules() -> None:
    for vectors in (1, 2, 3, 4, 5, 6):
        for rows in range(1, rows_of_tiles(vectors) + 1):
            shape = TileShape("tdpbusd", rows, vectors, 9, 64, 64)
            assert sum(height for _, height in shape.parts) == rows
            assert max(height for _, height in shape.parts) <= 16
            assert len(shape.parts) * (vectors + 1) + 1 <= 8
            bits = shape.configuration
            assert len(bits) == 64 and bits[0] == 1 and not any(bits[1:16]) and not any(bits[32:48])


@pytest.mark.parametrize(("left", "instruction"), [("uint8", "tdpbusd"), ("int8", "tdpbssd"), ("float32", "tdpbf16ps")])
def test_the_machine_code_has_the_instructions(bench: Bench, left: str, instruction: str) -> None:
    if left == "float32":
        small, schedule = halves.product(real(37, 70), real(70, 41)), of_halves(vectors=2)
    else:
        zeros = {"zx": np.array(9, left)}
        small, schedule = product(levels(left, 37, 70), levels("int8", 70, 41, seed=1), zeros), by_tiles(vectors=2)
    code = assembly(build_kernel(bench.bind(small).workload, schedule, AMX).function, AMX)
    count = {name: len(re.findall(rf"^\s*{name}\s", code, re.MULTILINE)) for name in
             (instruction, "ldtilecfg", "tilerelease", "tileloadd", "tilestored", "syscall")}  # fmt: skip
    assert all(count.values()), count
    assert count["ldtilecfg"] == 4  # two panels, rows in two sizes; LLVM may join the ends of branches
    assert count[instruction] % 2 == 0
    assert not re.search(r"autofuse_tiles_tdp\w+_(shape|zero|load|add|store|release)", code), "a function is called"


@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
@pytest.mark.parametrize("shape", [(1, 4, 16, 1), (13, 35, 41, 2), (50, 130, 70, 3), (49, 96, 15, 4)], ids=str)
def test_bytes_of_all_types(
    bench: Bench, double: TileDouble, shape: tuple[int, int, int, int], left: str, right: str
) -> None:
    rows, depth, columns, vectors = shape
    zeros = {
        "zx": np.array(17 if left == "uint8" else -128, left),
        "zw": np.array(200 if right == "uint8" else 3, right),
    }
    small = product(levels(left, rows, depth), levels(right, depth, columns, seed=1), zeros)
    exact(bench, small, able(bench), by_tiles(vectors=vectors))
    double.check()
    assert double.ran["tdpbssd" if left == "int8" else "tdpbusd"] and double.ran["ldtilecfg"]


FORMS: dict[str, Callable[[], Small]] = {
    "no zero points": lambda: product(levels("uint8", 40, 64), levels("int8", 64, 48), {}),
    "a zero point for each column": lambda: product(
        levels("uint8", 21, 50), levels("int8", 50, 33), {"zx": np.uint8(3), "zw": levels("int8", 33, seed=3)}
    ),
    "computed weights": lambda: product(
        levels("int8", 21, 50), levels("int8", 50, 33), {"zx": np.int8(-7)}, computed=True
    ),
    "a batch": lambda: product(levels("uint8", 3, 18, 72), levels("int8", 72, 20), {"zx": np.uint8(128)}),
    "products that share no side": lambda: product(
        levels("uint8", 3, 18, 24), levels("int8", 3, 24, 20), {"zx": np.uint8(1)}, computed=True
    ),
    "a window": lambda: convolution(
        "pads=[1, 1, 1, 1]", levels("uint8", 2, 20, 9, 11), levels("int8", 24, 20, 3, 3), zx=np.uint8(130)
    ),
    "a window of signed bytes with zero points": lambda: convolution(
        "pads=[1, 0, 1, 2], strides=[2, 2]", levels("int8", 1, 7, 13, 20), levels("uint8", 18, 7, 3, 5), zx=np.int8(-5),
        zw=np.uint8(77),
    ),
    "few channels": lambda: convolution(
        "pads=[3, 3, 3, 3], strides=[2, 2]", levels("uint8", 1, 3, 20, 22), levels("int8", 17, 3, 7, 7), zx=np.uint8(4)
    ),
    "a window with gaps": lambda: convolution(
        "pads=[2, 2, 2, 2], dilations=[2, 2]", levels("uint8", 1, 8, 9, 9), levels("int8", 16, 8, 3, 3), zx=np.uint8(4)
    ),
    "groups": lambda: convolution(
        "pads=[1, 1, 1, 1]", levels("uint8", 1, 12, 6, 7), levels("int8", 20, 6, 3, 3), groups=2, zx=np.uint8(4)
    ),
    "two products of one shape": lambda: Small(
        parsed("r = MatMulInteger (x, w); s = MatMulInteger (z, w); y = Add (r, s)"),
        {"x": levels("uint8", 33, 64), "z": levels("uint8", 33, 64, seed=4)}, ["y"], {"w": levels("int8", 64, 20)},
    ),
    "points": lambda: convolution(
        "strides=[1, 1]", levels("uint8", 1, 70, 5, 13), levels("int8", 33, 70, 1, 1), zx=np.uint8(99)
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_all_forms(bench: Bench, double: TileDouble, form: str) -> None:
    exact(bench, FORMS[form](), able(bench), by_tiles(vectors=2, rows_per_task=1, pixel_rows=2))
    double.check()
    assert double.ran["tdpbssd"] + double.ran["tdpbusd"]


def test_maps_in_blocks_of_channels(bench: Bench, double: TileDouble) -> None:
    small = convolution("strides=[1, 1]", levels("uint8", 1, 32, 6, 7), levels("int8", 48, 32, 1, 1), zx=np.uint8(5))
    exact(bench, small, able(bench), by_tiles(vectors=2), x="c16", y="c16")
    double.check()
    assert double.ran["tdpbusd"]


def test_any_number_of_rows_of_an_open_size(bench: Bench, double: TileDouble) -> None:
    """In one kernel with tiles for 1 to 32 rows; computed before and behind the product is part of it."""
    body = "r = MatMulInteger (x, w, zx); c = Cast <to=1> (r); y = Relu (c)"
    w, zero, target = levels("int8", 70, 40), np.uint8(9), able(bench)

    def of(rows: int) -> Small:
        return Small(parsed(body), {"x": levels("uint8", rows, 70)}, ["y"], {"w": w, "zx": np.asarray(zero)})

    opened = open_graph("n", 19, from_model(of(19).model(), "rows"), 23, from_model(of(23).model(), "rows"))
    bounds = {rows: bench.bind(of(rows)) for rows in SIZES}
    pieces = [Tile(rows, bound.workload, by_tiles(vectors=2)) for rows, bound in bounds.items()]
    kernel = open_kernel(pieces, rows_of(opened, bounds[1]), target)
    jit, packed = JitKernel(kernel.function, target), kernel.pack([bench.constants(of(1), bounds[1])] * len(SIZES))
    for rows in (1, 2, 15, 16, 33, 100):
        small, result = of(rows), Guarded(np.zeros((rows, 40), "float32"))
        jit(Guarded(small.inputs["x"]).tensor, *map(tensor, packed), result.tensor)
        assert result.intact
        np.testing.assert_array_equal(result.array, small.reference()["y"])
    double.check()
    assert double.ran["tdpbusd"]


def test_sums_do_not_saturate(bench: Bench, double: TileDouble) -> None:
    x, w = np.full((3, 4096), 255, "uint8"), np.full((4096, 33), -128, "int8")
    w[:, ::2] = 127
    exact(bench, product(x, w, {}), able(bench), by_tiles(vectors=2))
    double.check()


@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
def test_a_kernel_is_right_where_the_system_refuses(bench: Bench, double: TileDouble, left: str, right: str) -> None:
    double.gives = False
    zeros = {"zx": np.array(17, left), "zw": np.array(101, right)}
    small = product(levels(left, 19, 70), levels(right, 70, 41, seed=1), zeros)
    exact(bench, small, able(bench), by_tiles(vectors=2))
    double.check()
    assert dict(double.ran) == {"system": 1}


def test_the_real_instructions_are_run_only_where_the_system_gives_them(bench: Bench) -> None:
    """On a core without tiles this ended the process if it were not so."""
    small = product(levels("uint8", 19, 70), levels("int8", 70, 41, seed=1), {"zx": np.uint8(7)})
    target = able(bench)
    assert "tdpbusd" in assembly(build_kernel(bench.bind(small).workload, by_tiles(), target).function, target)
    exact(bench, small, target, by_tiles())
    x, w = (np.random.default_rng(3).integers(-9, 9, shape).astype("float32") for shape in ((7, 31), (31, 40)))
    half = halves.product(x, w)
    bound = bench.bind(half)
    found = bench.run(half, bound, build_kernel(bound.workload, of_halves(), target), target)["y"]
    np.testing.assert_array_equal(found, x @ w)


HALVES: dict[str, Callable[[], Small]] = {
    "one row": lambda: halves.product(real(1, 70), real(70, 33)),
    "many rows": lambda: halves.product(real(45, 130), real(130, 70)),
    "computed weights": lambda: halves.computed(real(18, 34), real(34, 40)),
    "a window": lambda: halves.convolution("pads=[1, 1, 1, 1]", real(1, 20, 9, 11), real(24, 20, 3, 3), b=real(24)),
    "a stride": lambda: halves.convolution(
        "pads=[3, 3, 3, 3], strides=[2, 2]", real(1, 3, 20, 22), real(17, 3, 7, 7), b=real(17)
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", HALVES)
@pytest.mark.parametrize("gives", [True, False], ids=["given", "refused"])
def test_bfloat16(bench: Bench, double: TileDouble, form: str, gives: bool) -> None:
    double.gives = gives
    small, target = HALVES[form](), able(bench)
    bound = bench.bind(small)
    found = bench.run(small, bound, build_kernel(bound.workload, of_halves(vectors=2), target), target)["y"]
    double.check()
    assert bool(double.ran["tdpbf16ps"]) == gives
    wanted = small.reference()["y"]
    assert np.abs(found - wanted).max() <= halves.TOLERANCE * np.abs(wanted).max()


def test_bfloat16_sums_that_float32_holds_are_exact(bench: Bench, double: TileDouble) -> None:
    rng, target = np.random.default_rng(5), able(bench)
    x, w = (rng.integers(-128, 129, shape).astype("float32") for shape in ((37, 67), (67, 40)))
    small = halves.product(x, rounded(w))
    bound = bench.bind(small)
    found = bench.run(small, bound, build_kernel(bound.workload, of_halves(vectors=2), target), target)["y"]
    double.check()
    np.testing.assert_array_equal(found, x @ w)


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_random_shapes(data: st.DataObject) -> None:
    rows, depth, columns = (data.draw(st.integers(1, most)) for most in (70, 150, 90))
    left, right = data.draw(st.sampled_from(BYTES)), data.draw(st.sampled_from(BYTES))
    zeros = {"zx": levels(left, seed=5), "zw": levels(right, columns, seed=6)}
    bench, made = Bench(), TileDouble()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "UNIT", made.unit)
        patch.setattr(emit.builder, "parallel", emit.builder.serial)
        small = product(levels(left, rows, depth), levels(right, depth, columns, seed=1), zeros)
        exact(bench, small, able(bench), by_tiles(vectors=data.draw(st.integers(1, 4))))
    made.check()


@pytest.mark.parametrize("family", PRODUCTS)
@pytest.mark.parametrize(
    ("target", "reason"),
    [(TARGETS["avx512"], "the target lacks"), (TARGETS["avx2"], "vectors of 16 lanes"),
     (Target("sapphirerapids", 16, 32, 2, 49152, 2 << 20, mattr=("-amx-tile",)), "the target lacks"),
     (Target("sapphirerapids", 16, 32, 2, 49152, 2 << 20, mtriple="x86_64-apple-macos"), "asked of Linux")],
    ids=["no AMX", "narrow", "removed", "another system"],
)  # fmt: skip
def test_a_target_without_tiles_is_not_offered_them_and_refuses_them(
    bench: Bench, family: str, target: Target, reason: str
) -> None:
    workload = bench.bind(SAMPLES[PRODUCTS[family]].small).workload
    name = f"{family}.algorithm"
    assert TILES not in open_knobs(workload, target, load_space("default", target.isa).schedule).get(name, ())
    assert reason in (schedule_fault({name: TILES}, target) or "")
    with pytest.raises(InputError, match=rf"{name}: .*{reason}"):
        build_kernel(workload, {name: TILES}, target)


@pytest.mark.parametrize("family", PRODUCTS)
def test_tiles_are_reached_by_a_search_alone(bench: Bench, family: str) -> None:
    """No default and no first guess has what was never timed, wherever a space names it."""
    workload, name = bench.bind(SAMPLES[PRODUCTS[family]].small).workload, f"{family}.algorithm"
    space = dict(load_space("default", AMX.isa).schedule)
    space[family] = {**space[family], "algorithm": (TILES, *space[family]["algorithm"][:-1])}
    knobs = open_knobs(workload, AMX, space)
    assert knobs[name][-1] == TILES and len(knobs[name]) > 1
    assert schedule_fault({name: TILES}, AMX) is None
    assert all(guess.get(name) != TILES for guess in first_schedules(workload, knobs, AMX, threads=2))
    kept = canonical({knob: values[0] for knob, values in knobs.items()} | {name: TILES}, knobs)
    assert kept[name] == TILES and f"{family}.pixels" not in kept


def test_no_such_kernel_changes_unnoticed(bench: Bench, golden: Callable[[str, str], None]) -> None:
    samples = {
        "product of bytes": (product(levels("uint8", 37, 70), levels("int8", 70, 41), {}), by_tiles(vectors=2)),
        "signed, with zero points": (FORMS["a window of signed bytes with zero points"](), by_tiles(vectors=1)),
        "product of bfloat16": (halves.product(real(37, 70), real(70, 41)), of_halves(vectors=2)),
    }
    keys = {name: code_key(build_kernel(bench.bind(small).workload, schedule, AMX).function)
            for name, (small, schedule) in samples.items()}  # fmt: skip
    golden("kernels-amx.txt", "".join(f"{name:<24}  {key[:12]}\n" for name, key in keys.items()))


def test_what_is_shared_with_vectors_is_the_first_of_them() -> None:
    assert next(iter(multipliers(AMX))) == "quads" and next(iter(bfloat16_multipliers(AMX))) == "dots"
    assert list(integer_tiles(AMX, True)) == list(bfloat16_tiles(AMX)) == [TILES]
