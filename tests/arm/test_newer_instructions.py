"""Instructions of newer ARM cores (i8mm, bf16) on an emulated core that has them all, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from autofuse.device.target import Target
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import from_model
from autofuse.graph.own.bfloat16 import rounded
from autofuse.kernels.families.narrow.instructions import ALGORITHMS, BFLOAT16_ALGORITHMS
from autofuse.kernels.workload.workload import bind_workload
from autofuse.measure.checking.reference import capture
from autofuse.measure.cluster.farm import BuildFarm
from autofuse.measure.measurement import MeasureRequest
from autofuse.measure.remote.link import Link, describe_device
from autofuse.measure.remote.remote_runner import RemoteRunner
from experiments.arm_emulator.device import EmulatedDevice
from experiments.arm_emulator.recipe import Emulator
from tests.arm.test_arm_kernels import LINK, QUICK, SLOW
from tests.kernels.conftest import Small, parsed, real
from tests.kernels.kernel_sample import ROUNDED
from tests.kernels.test_integer import levels

TOLERANCE = 1e-6
"""Largest error of a sum in bfloat16 as a part of the range of the results."""
TILES = ((2, 4), (1, 3), (3, 8))
"""Vectors and pixels: whole pairs of them, and such that leave one over."""


def integers(left: str, right: str, zeros: bool, computed: bool = False) -> Small:
    """A product of 13 rows of all bytes."""
    x, w = levels(left, 13, 35), levels(right, 35, 41, seed=1)
    constants = {} if computed else {"w": w}
    if zeros:
        constants |= {"zx": np.array(17, left), "zw": np.array(120 if right == "uint8" else 3, right)}
    names = "x, w, zx, zw" if zeros else "x, w"
    return Small(parsed(f"y = MatMulInteger ({names})"), {"x": x} | ({"w": w} if computed else {}), ["y"], constants)


def window(left: str, attributes: str, columns: int = 13) -> Small:
    """A convolution of bytes whose rows of results are of an odd number of pixels."""
    zero = np.array(201 if left == "uint8" else -77, left)
    constants = {"w": levels("int8", 24, 12, 3, 3), "z": zero}
    x = levels(left, 1, 12, 7, columns)
    return Small(parsed(f"y = ConvInteger <{attributes}> (x, w, z)"), {"x": x}, ["y"], constants)


INTEGERS: dict[str, Callable[[], Small]] = {
    "unsigned by signed": lambda: integers("uint8", "int8", False),
    "signed by signed": lambda: integers("int8", "int8", False),
    "zero points on both sides": lambda: integers("uint8", "uint8", True),
    "zero points on both sides, signed": lambda: integers("int8", "int8", True),
    "computed weights": lambda: integers("uint8", "int8", False, True),
    "convolution": lambda: window("uint8", "pads=[1, 2, 0, 1], strides=[2, 1]"),
    "convolution of signed bytes": lambda: window("int8", "dilations=[1, 2], pads=[2, 2, 2, 2]"),
}
BFLOAT16: dict[str, Callable[[], Small]] = {
    "product": lambda: Small(parsed(ROUNDED + "y = MatMul (r, w)"), {"x": real(13, 300)}, ["y"],
                             {"w": rounded(real(300, 41))}),
    "convolution": lambda: Small(parsed(ROUNDED + "y = Conv <pads=[1, 1, 1, 1]> (r, w, b)"), {"x": real(1, 10, 7, 9)},
                                 ["y"], {"w": rounded(real(24, 10, 3, 3)), "b": real(24)}),
}  # fmt: skip


@pytest.fixture(scope="module")
def newest(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedDevice]:
    """A core without a name that has what QEMU knows."""
    with EmulatedDevice(emulator, tmp_path_factory.mktemp("newest") / "serve.log", "max") as made:
        yield made


@pytest.fixture(scope="module")
def target(newest: EmulatedDevice) -> Target:
    return describe_device(newest.address, LINK).host.target()


@pytest.fixture(scope="module")
def runner(newest: EmulatedDevice, target: Target) -> Iterator[RemoteRunner]:
    farm = BuildFarm(target, limits=SLOW)
    with RemoteRunner(Link(newest.address, LINK), farm, target, limits=SLOW, policy=QUICK) as made:
        yield made


def worst(smalls: dict[str, Callable[[], Small]], family: str, names: tuple[str, ...], runner: RemoteRunner,
          target: Target, folder: Path) -> tuple[float, int]:  # fmt: skip
    """(largest error, different kernels) of all models under all instructions and tiles; each is right."""
    requests = []
    for name, make in smalls.items():
        graph, small = from_model(make().model(), name), make()
        bound = bind_workload(graph, [operator.name for operator in graph.operators], {})
        tensors = [output for operator in graph.operators for output in operator.outputs]
        reference = capture(graph, generate_inputs(graph, 0) | dict(small.inputs), folder / str(len(requests)), tensors)
        for algorithm in names:
            for vectors, pixels in TILES:
                schedule: dict[str, int | str] = {f"{family}.algorithm": algorithm, f"{family}.vectors": vectors,
                                                  f"{family}.pixels": pixels}  # fmt: skip
                case, constants = (reference.case(bound),), reference.constants(graph, bound)
                requests.append(MeasureRequest(bound.workload, schedule, case, constants))
    measured = runner.measure(requests)
    wrong = [f"{request.workload.label} {dict(request.schedule)}: {found.failure}"
             for request, found in zip(requests, measured, strict=True) if found.failure]  # fmt: skip
    assert not wrong
    return max(found.max_rel_error or 0.0 for found in measured), len({found.code for found in measured})


def test_a_core_without_a_name_is_used_with_what_it_has(newest: EmulatedDevice) -> None:
    host = describe_device(newest.address, LINK).host
    assert host.mcpu == "generic"
    assert {"+bf16", "+dotprod", "+i8mm"} <= set(host.mattr)


def test_integers_are_exact(runner: RemoteRunner, target: Target, tmp_path: Path) -> None:
    names = tuple(name for name in ALGORITHMS if name != "pairs")
    kernels = len(INTEGERS) * len(names) * len(TILES)
    assert worst(INTEGERS, "integer", names, runner, target, tmp_path) == (0.0, kernels)


def test_sums_in_bfloat16_are_those_of_float32_up_to_their_rounding(
    runner: RemoteRunner, target: Target, tmp_path: Path
) -> None:
    error, kernels = worst(BFLOAT16, "bfloat16", BFLOAT16_ALGORITHMS, runner, target, tmp_path)
    assert error <= TOLERANCE
    assert kernels == len(BFLOAT16) * len(BFLOAT16_ALGORITHMS) * len(TILES)
