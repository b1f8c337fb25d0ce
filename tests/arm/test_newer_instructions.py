"""Instructions of newer ARM cores (i8mm, bf16), and float16, on an emulated core that has all, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from autofuse.backend.compile.function import assembly
from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import from_model
from autofuse.graph.own.rounding import rounded
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.narrow.float16.instructions import float16_multipliers
from autofuse.kernels.families.narrow.instructions import bfloat16_multipliers, multipliers
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.workload.workload import HALF, PLAIN, Workload, bind_workload
from autofuse.measure.checking.reference import capture
from autofuse.measure.checking.tolerance import LIMITS
from autofuse.measure.cluster.farm import BuildFarm
from autofuse.measure.measurement import MeasureRequest
from autofuse.measure.remote.link import Link, describe_device
from autofuse.measure.remote.remote_runner import RemoteRunner
from experiments.arm_emulator.device import EmulatedDevice
from experiments.arm_emulator.recipe import Emulator
from tests.arm.test_arm_kernels import LINK, QUICK, SLOW
from tests.kernels.conftest import Array, Small, parsed, real
from tests.kernels.kernel_sample import ROUNDED
from tests.kernels.test_integer import levels

TOLERANCE = 1e-6
"""Largest error of a sum in bfloat16 as a part of the range of the results."""
TILES = ((2, 4), (1, 3))
"""Vectors and pixels: whole pairs of them, and such that leave one over."""


def integers(left: str, right: str, zeros: bool, computed: bool = False, depth: int = 35) -> Small:
    """A product of 13 rows of all bytes; they are multiplied where they lie if `depth` is a whole number of steps."""
    x, w = levels(left, 13, depth), levels(right, depth, 41, seed=1)
    constants = {} if computed else {"w": w}
    if zeros:
        constants |= {"zx": np.array(17, left), "zw": np.array(120 if right == "uint8" else 3, right)}
    names = "x, w, zx, zw" if zeros else "x, w"
    return Small(parsed(f"y = MatMulInteger ({names})"), {"x": x} | ({"w": w} if computed else {}), ["y"], constants)


def window(left: str, attributes: str, columns: int = 13, channels: int = 12, taps: int = 3) -> Small:
    """A convolution of bytes whose rows of results are of an odd number of pixels."""
    zero = np.array(201 if left == "uint8" else -77, left)
    constants = {"w": levels("int8", 24, channels, taps, taps), "z": zero}
    x = levels(left, 1, channels, 7, columns)
    return Small(parsed(f"y = ConvInteger <{attributes}> (x, w, z)"), {"x": x}, ["y"], constants)


def half(*shape: int) -> Array:
    return real(*shape).astype("float16")


INTEGERS: dict[str, Callable[[], Small]] = {
    "unsigned by signed": lambda: integers("uint8", "int8", False),
    "signed by signed": lambda: integers("int8", "int8", False),
    "zero points on both sides": lambda: integers("uint8", "uint8", True),
    "zero points on both sides, signed": lambda: integers("int8", "int8", True),
    "in place": lambda: integers("uint8", "int8", False, depth=72),
    "in place, signed, zero points on both sides": lambda: integers("int8", "uint8", True, depth=72),
    "computed weights": lambda: integers("uint8", "int8", False, True),
    "convolution": lambda: window("uint8", "pads=[1, 2, 0, 1], strides=[2, 1]"),
    "convolution of an image": lambda: window("uint8", "pads=[3, 3, 3, 3], strides=[2, 2]", 21, channels=3, taps=7),
    "convolution of signed bytes": lambda: window("int8", "dilations=[1, 2], pads=[2, 2, 2, 2]"),
}
BFLOAT16: dict[str, Callable[[], Small]] = {
    "product": lambda: Small(parsed(ROUNDED + "y = MatMul (r, w)"), {"x": real(13, 300)}, ["y"],
                             {"w": rounded(real(300, 41))}),
    "convolution": lambda: Small(parsed(ROUNDED + "y = Conv <pads=[1, 1, 1, 1]> (r, w, b)"), {"x": real(1, 10, 7, 9)},
                                 ["y"], {"w": rounded(real(24, 10, 3, 3)), "b": real(24)}),
    "convolution of an image": lambda: Small(
        parsed(ROUNDED + "y = Conv <pads=[3, 3, 3, 3], strides=[2, 2]> (r, w)"), {"x": real(1, 3, 9, 21)}, ["y"],
        {"w": rounded(real(24, 3, 7, 7))}),
}  # fmt: skip
FLOAT16: dict[str, Callable[[], Small]] = {
    "product": lambda: Small(parsed("m = MatMul (x, w); y = Relu (m)"), {"x": half(13, 300)}, ["y"],
                             {"w": half(300, 41)}),
    "both sides computed": lambda: Small(parsed("y = MatMul (x, z)"), {"x": half(2, 13, 70), "z": half(2, 70, 24)},
                                         ["y"]),
    "transposed": lambda: Small(parsed("y = Gemm <transB=1> (x, w, b)"), {"x": half(9, 64)}, ["y"],
                                {"w": half(40, 64), "b": half(40)}),
    "one by one": lambda: Small(parsed("y = Conv (x, w, b)"), {"x": half(1, 37, 5, 9)}, ["y"],
                                {"w": half(20, 37, 1, 1), "b": half(20)}),
    "convolution": lambda: Small(parsed("c = Conv <pads=[1, 1, 1, 1]> (x, w); y = Sigmoid (c)"),
                                 {"x": half(1, 8, 9, 9)}, ["y"], {"w": half(16, 8, 3, 3)}),
    "strided groups": lambda: Small(parsed("y = Conv <group=2, pads=[2, 0, 1, 2], strides=[1, 2]> (x, w)"),
                                    {"x": half(1, 12, 7, 10)}, ["y"], {"w": half(24, 6, 3, 3)}),
    "too large for sums of float16": lambda: Small(parsed("m = MatMul (x, w); y = Mul (m, s)"),
                                                   {"x": half(9, 64) * np.float16(60000)}, ["y"],
                                                   {"w": np.sign(half(64, 24)), "s": np.float16([1e-4])}),
    "small numbers": lambda: Small(parsed("y = MatMul (x, w)"), {"x": half(13, 128) * np.float16(1e-3)}, ["y"],
                                   {"w": half(128, 24) * np.float16(1e-2)}),
}  # fmt: skip
OTHERS: dict[str, Callable[[], Small]] = {
    "softmax": lambda: Small(parsed("s = Softmax <axis=-1> (x); y = Mul (s, x)"), {"x": half(5, 33)}, ["y"]),
}


@pytest.fixture(scope="module")
def newest(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedDevice]:
    """A core without a name that has what QEMU knows."""
    with EmulatedDevice(emulator, tmp_path_factory.mktemp("newest") / "serve.log", "max") as made:
        yield made


@pytest.fixture(scope="module")
def target(newest: EmulatedDevice) -> Target:
    return describe_device(newest.address, LINK).host.target()


@contextmanager
def running(target: Target, device: EmulatedDevice) -> Iterator[RemoteRunner]:
    """What builds for a target, and runs on the device."""
    farm = BuildFarm(target, limits=SLOW)
    with RemoteRunner(Link(device.address, LINK), farm, target, limits=SLOW, policy=QUICK) as made:
        yield made


Schedules = Callable[[Workload], Iterable[dict[str, int | str]]]


def tiles(family: str, names: tuple[str, ...]) -> Schedules:
    """Schedules of all instructions and tiles of a family."""
    return lambda _: [{f"{family}.algorithm": name, f"{family}.vectors": vectors, f"{family}.pixels": pixels}
                      for name in names for vectors, pixels in TILES]  # fmt: skip


def worst(
    smalls: dict[str, Callable[[], Small]],
    schedules: Schedules,
    runner: RemoteRunner,
    folder: Path,
    layout: str = PLAIN,
) -> tuple[float, int]:
    """(largest error, different kernels) of all models under all schedules; each is right. `layout`: of the result."""
    requests = []
    for name, make in smalls.items():
        graph, small = from_model(make().model(), name), make()
        bound = bind_workload(graph, [one.name for one in graph.operators], {"y": layout}, float16=True)
        tensors = [output for operator in graph.operators for output in operator.outputs]
        reference = capture(graph, generate_inputs(graph, 0) | dict(small.inputs), folder / str(len(requests)), tensors)
        case, constants = (reference.case(bound),), reference.constants(graph, bound)
        requests += [MeasureRequest(bound.workload, one, case, constants) for one in schedules(bound.workload)]
    measured = runner.measure(requests)
    wrong = [f"{request.workload.label} {dict(request.schedule)}: {found.failure}"
             for request, found in zip(requests, measured, strict=True) if found.failure]  # fmt: skip
    assert not wrong
    return max(found.max_rel_error or 0.0 for found in measured), len({found.code for found in measured})


def test_a_core_without_a_name_is_used_with_what_it_has(newest: EmulatedDevice) -> None:
    host = describe_device(newest.address, LINK).host
    assert host.mcpu == "generic"
    assert {"+bf16", "+dotprod", "+fp16fml", "+fullfp16", "+i8mm"} <= set(host.mattr)


@pytest.mark.parametrize("removed", ["", "+i8mm"])
def test_integers_are_exact(removed: str, newest: EmulatedDevice, target: Target, tmp_path: Path) -> None:
    """Without i8mm, unsigned bytes are flipped to signed ones."""
    able = replace(target, mattr=tuple(name for name in target.mattr if name != removed))
    names = tuple(name for name in multipliers(able) if name != "single")
    assert names == (("quads",) if removed else ("matrices", "quads"))
    with running(able, newest) as runner:
        kernels = len(INTEGERS) * len(names) * len(TILES)
        assert worst(INTEGERS, tiles("integer", names), runner, tmp_path) == (0.0, kernels)


def test_sums_in_bfloat16_are_those_of_float32_up_to_their_rounding(
    newest: EmulatedDevice, target: Target, tmp_path: Path
) -> None:
    names = tuple(bfloat16_multipliers(target))
    assert len(names) == 3
    with running(target, newest) as runner:
        error, kernels = worst(BFLOAT16, tiles("bfloat16", names), runner, tmp_path)
    assert error <= TOLERANCE
    assert kernels == len(BFLOAT16) * len(names) * len(TILES)


def test_rounding_to_bfloat16_gives_its_bits(newest: EmulatedDevice, target: Target, tmp_path: Path) -> None:
    """Also of numbers below the normal ones, halfway between two, and without an end."""
    halfway = (np.arange(0x3F800000, 0x3F800000 + 67 * 0x8000, 0x8000, dtype=np.uint32)).view(np.float32)
    tiny = np.arange(1, 0x900000, 0x21001, dtype=np.uint32).view(np.float32)
    odd = np.array([np.inf, -np.inf, 3.4e38, -3.4e38, -0.0, 1.0], np.float32)
    kinds = {"halfway": halfway, "below the normal ones": np.concatenate([tiny, -tiny]), "without an end": odd}
    smalls = {name: partial(Small, parsed("h = Cast <to=16> (x); y = Cast <to=1> (h)"), {"x": numbers}, ["y"])
              for name, numbers in kinds.items()}  # fmt: skip
    with running(target, newest) as runner:
        assert worst(smalls, lambda _: [{}], runner, tmp_path, HALF)[0] == 0.0
    workload = bind_workload(from_model(smalls["halfway"]().model(), "x"), ["Cast_0"], {"y": HALF}).workload
    assert "bfcvtn" in assembly(build_kernel(workload, {}, target).function, target)


def test_float16_is_computed_in_float16_where_the_core_can(
    newest: EmulatedDevice, target: Target, tmp_path: Path
) -> None:
    """Each answer is as near to ONNX Runtime's, which computes in float32, as results in float16 have to be; one that
    sums in float16 has other bits than one that sums products of float16 in float32."""
    names = tuple(float16_multipliers(target))
    assert names == ("float16_sums", "float16_products")
    with running(target, newest) as runner:
        error, kernels = worst(FLOAT16, tiles("contraction", names), runner, tmp_path)
    assert error <= LIMITS["float16"]
    assert kernels == len(FLOAT16) * len(names) * len(TILES)


def test_float16_is_computed_in_float32_without_the_instructions(
    newest: EmulatedDevice, target: Target, tmp_path: Path
) -> None:
    old = replace(target, mattr=tuple(name for name in target.mattr if name not in ("+fullfp16", "+fp16fml")))
    assert not float16_multipliers(old)
    space = load_space(None, target.isa).schedule

    def guessed(workload: Workload) -> Iterable[dict[str, int | str]]:
        return map(dict, first_schedules(workload, open_knobs(workload, old, space), old))

    some = {name: FLOAT16[name] for name in ("product", "convolution")}
    with running(old, newest) as runner:
        error, _ = worst(some | OTHERS, guessed, runner, tmp_path)
    assert error <= LIMITS["float16"]
