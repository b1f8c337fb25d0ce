"""NEON schedules of every kernel family on an emulated core, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autofuse.device.profile import load_profile, require_measurable, shipped_profiles
from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.errors import DeviceError
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.baselines import default_plan, none_plan
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.kernels.families.registry import FAMILIES, kind_of, nests_of
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.workload.levels import rounds_to_bytes, rounds_to_float16
from autofuse.kernels.workload.workload import BoundWorkload
from autofuse.measure.checking.reference import capture
from autofuse.measure.cluster.farm import BuildFarm
from autofuse.measure.measurement import Limits, MeasureRequest
from autofuse.measure.remote.link import Link, LinkLimits, describe_device
from autofuse.measure.remote.remote_runner import RemoteRunner
from autofuse.measure.timing.sampling import SamplingPolicy
from experiments.arm_emulator.device import EmulatedDevice

QUICK = SamplingPolicy(cap_s=0.02, settle_probes=1, good_slices=1)
SLOW = Limits(build_s=120, run_s=60)
LINK = LinkLimits(connect_s=60, start_s=120)


class Net:
    """A small model with random weights, operator by operator."""

    def __init__(self, *shape: int, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shape = shape
        self.last = "x"
        self.random = np.random.default_rng(0)

    def constant(self, array: Any, dtype: str = "") -> str:
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype or self.dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.random.standard_normal(shape) * 0.3)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs) or [self.last], [result], name=result, **attributes))
        self.last = result
        return result

    def conv(self, channels: tuple[int, int], kernel: int, stride: int = 1, group: int = 1) -> str:
        weights, bias = self.weights(channels[1], channels[0] // group, kernel, kernel), self.weights(channels[1])
        pads, strides = [kernel // 2] * 4, [stride] * 2
        return self.op("Conv", self.last, weights, bias, pads=pads, strides=strides, group=group)

    def graph(self) -> Graph:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        described = [helper.make_tensor_value_info("x", kind, self.shape)]
        outputs = [onnx.ValueInfoProto(name=self.last)]
        body = helper.make_graph(self.nodes, "net", described, outputs, self.constants)
        return from_model(
            helper.make_model(
                body,
                opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
                ir_version=10,
            ),
            "net",
        )


def convolutions() -> Graph:
    """Plain to blocked, 1x1, 3x3 (all algorithms), strided, depthwise, pooled, added, and a classifier."""
    net = Net(1, 3, 30, 26)
    net.conv((3, 18), 3, stride=2)
    first = net.op("Relu")
    net.conv((18, 36), 1)
    net.op("Clip", net.last, net.constant(0.0), net.constant(6.0))
    net.conv((36, 36), 3, group=36)
    net.op("Sigmoid")
    net.conv((36, 18), 1)
    net.op("Add", net.last, first)
    net.conv((18, 21), 3)
    net.op("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    net.op("AveragePool", kernel_shape=[2, 2], strides=[1, 1])
    net.op("GlobalAveragePool")
    net.op("Flatten")
    net.op("Gemm", net.last, net.weights(10, 21), net.weights(10), transB=1)
    return net.graph()


def attention() -> Graph:
    """Scattered rows; products with constant and computed right sides, softmax, layer normalisation, means, moves."""
    net = Net(1, 24, 40)
    places = net.constant(np.array([[0, 3], [0, 5], [0, 3]]), "int64")
    rows = net.op("ScatterND", "x", places, net.weights(3, 40), reduction="add")
    queries = net.op("MatMul", rows, net.weights(40, 40))
    keys = net.op("Transpose", net.op("MatMul", "x", net.weights(40, 40)), perm=[0, 2, 1])
    net.op("Softmax", net.op("MatMul", queries, keys), axis=-1)
    net.op("MatMul", net.last, "x")
    net.op("LayerNormalization", net.op("Add", net.last, "x"), net.weights(40), net.weights(40), axis=-1)
    net.op("Tanh", net.op("MatMul", net.last, net.weights(40, 56)))
    net.op("Softmax", axis=1)
    net.op("ReduceMean", axes=[1], keepdims=1)
    net.op("Concat", net.last, net.last, axis=1)
    return net.graph()


def recurrent() -> Graph:
    """An LSTM, a GRU in both directions and an RNN, each reading the one before."""
    net = Net(6, 2, 20)
    axis = net.constant(np.array([1]), "int64")
    for kind, gates, directions, wide, hidden in (("LSTM", 4, 1, 20, 12), ("GRU", 3, 2, 12, 9), ("RNN", 1, 1, 18, 8)):
        weights = net.weights(directions, gates * hidden, wide), net.weights(directions, gates * hidden, hidden)
        direction = "bidirectional" if directions == 2 else "forward"
        net.op(kind, net.last, *weights, hidden_size=hidden, direction=direction)
        if directions == 1:
            net.op("Squeeze", net.last, axis)
        else:
            net.op("Transpose", perm=[0, 2, 1, 3])
            net.op("Reshape", net.last, net.constant(np.array([6, 2, 2 * hidden]), "int64"))
    return net.graph()


def quantised() -> Graph:
    """Convolutions, depthwise ones among them, a swish and a product of bytes, between numbers rounded to levels."""
    net = Net(1, 6, 10, 9)

    def levelled(scale: float) -> None:
        given = net.constant(scale), net.constant(7, "uint8")
        net.op("DequantizeLinear", net.op("QuantizeLinear", net.last, *given), *given)

    def weights(*shape: int) -> str:
        levels = net.constant(net.random.integers(-127, 127, shape), "int8")
        return net.op("DequantizeLinear", levels, net.constant(0.01), net.constant(0, "int8"))

    levelled(0.02)
    maps = net.last
    net.op("Conv", maps, weights(18, 6, 3, 3), pads=[1, 1, 1, 1])
    net.op("Relu")
    levelled(0.05)
    for stride in (1, 2):
        net.op("Conv", net.last, weights(18, 1, 3, 3), pads=[1, 1, 1, 1], strides=[stride] * 2, group=18)
        levelled(0.05)
    maps = net.last
    net.op("Sigmoid")
    levelled(1 / 256)
    net.op("Mul", maps, net.last)
    levelled(0.05)
    net.op("Transpose", perm=[0, 2, 3, 1])
    levelled(0.05)
    rows = net.last
    net.op("MatMul", rows, weights(18, 21))
    levelled(0.1)
    return net.graph()


def weight_only(level: int = 0) -> Graph:
    """Weights of 4 and 8 bits, with zero points and without, for a few rows and for more."""
    net = Net(1, 9, 64)
    for bits, columns, depth in ((4, 48, 64), (8, 40, 48)):
        codes = net.random.integers(0, 256, (columns, -(-depth // 32), 4 * bits))
        inputs = [
            net.last,
            net.constant(codes, "uint8"),
            net.constant(0.01 * net.random.random((columns, -(-depth // 32)))),
        ]
        zeros = net.random.integers(0, 256, (columns, -(-depth // 32) * bits // 8))
        inputs += [net.constant(zeros, "uint8")] if bits == 4 else []
        net.op("MatMulNBits", *inputs, domain="com.microsoft", K=depth, N=columns, bits=bits, block_size=32,
               accuracy_level=level)  # fmt: skip
        net.op("Tanh")
    net.op("ReduceMean", axes=[1], keepdims=1)
    codes = net.random.integers(0, 256, (24, 2, 16))
    scales = net.constant(net.random.random((24, 2)))
    net.op("MatMulNBits", net.last, net.constant(codes, "uint8"), scales, domain="com.microsoft", K=40, N=24, bits=4,
           block_size=32)  # fmt: skip
    return net.graph()


def rounded_to_bfloat16() -> Graph:
    """A convolution and a product whose operands are rounded to bfloat16."""
    net = Net(1, 6, 10, 9)

    def rounded(name: str) -> str:
        return net.op("Cast", net.op("Cast", name, to=TensorProto.BFLOAT16), to=TensorProto.FLOAT)

    maps, weights = rounded("x"), rounded(net.weights(18, 6, 3, 3))
    net.op("Relu", net.op("Conv", maps, weights, pads=[1, 1, 1, 1]))
    rows = rounded(net.op("Transpose", perm=[0, 2, 3, 1]))
    net.op("MatMul", rows, rounded(net.weights(18, 21)))
    return net.graph()


def in_float16() -> Graph:
    """Convolutions that take Winograd's algorithm first, and such that do not, a product, and one of two sides."""
    net = Net(1, 8, 10, 9, dtype="float16")
    net.conv((8, 18), 3)
    net.op("Relu")
    net.conv((18, 18), 3, stride=2, group=2)
    net.conv((18, 24), 1)
    net.op("Reshape", net.last, net.constant(np.array([1, 24, 25]), "int64"))
    rows = net.op("Transpose", perm=[0, 2, 1])
    net.op("Softmax", net.op("MatMul", rows, net.weights(24, 40)), axis=-1)
    net.op("MatMul", net.op("Transpose", perm=[0, 2, 1]), rows)
    return net.graph()


NETS: dict[str, Callable[[], Graph]] = {
    "convolutions": convolutions,
    "attention": attention,
    "recurrent": recurrent,
    "quantised": quantised,
    "weight only": weight_only,
    "weight only, rows in bytes": partial(weight_only, level=4),
    "rounded to bfloat16": rounded_to_bfloat16,
    "in float16": in_float16,
}


@pytest.fixture(scope="module")
def target(emulated: EmulatedDevice) -> Target:
    return describe_device(emulated.address, LINK).host.target()


@pytest.fixture(scope="module")
def runner(emulated: EmulatedDevice, target: Target) -> Iterator[RemoteRunner]:
    farm = BuildFarm(target, limits=SLOW)
    with RemoteRunner(Link(emulated.address, LINK), farm, target, limits=SLOW, policy=QUICK) as made:
        yield made


def kernels(graph: Graph, plan: FusionPlan, target: Target) -> list[tuple[Graph, BoundWorkload]]:
    """Every distinct workload of a plan, with the graph that holds its constants."""
    lowered = lower(graph, plan, target, [group.operators for group in plan.groups])
    return [(lowered.graph, bound) for bound in {b.workload.key: b for b in lowered.kernels}.values()]


def test_the_emulated_core_says_what_it_is(emulated: EmulatedDevice) -> None:
    host = describe_device(emulated.address, LINK).host
    assert (host.architecture, host.mcpu, host.mtriple) == ("aarch64", "cortex-a76", "aarch64-linux-gnu")
    assert (host.lanes, host.registers) == (4, 32)
    assert set(host.features) == {"neon", "dotprod", "fullfp16"}
    require_measurable(load_profile(shipped_profiles()["raspberry-pi-5"]), host)
    with pytest.raises(DeviceError, match="for cortex-a72, the CPU is cortex-a76"):
        require_measurable(load_profile(shipped_profiles()["raspberry-pi-4"]), host)


@pytest.mark.parametrize("net", NETS)
def test_neon_schedules_compute_what_onnx_runtime_computes(
    net: str, runner: RemoteRunner, target: Target, tmp_path: Path
) -> None:
    graph = NETS[net]()
    tensors = [name for op in graph.operators for name in op.outputs if name and name not in graph.constants]
    reference = capture(graph, generate_inputs(graph, 0), tmp_path, tensors)
    space = load_space(None, target.isa).schedule
    requests = []
    for plan in (default_plan(graph), none_plan(graph)):
        for owner, bound in kernels(graph, plan, target):
            knobs = open_knobs(bound.workload, target, space)
            reference.complete(owner, (*bound.inputs, *bound.outputs))
            case, constants = (reference.case(bound),), reference.constants(owner, bound)
            for schedule in first_schedules(bound.workload, knobs, target):
                requests.append(MeasureRequest(bound.workload, schedule, case, constants))
    unique = {(r.workload.key, str(sorted(r.schedule.items()))): r for r in requests}
    measured = runner.measure(list(unique.values()))
    wrong = [
        f"{request.workload.label} {dict(request.schedule)}: {found.failure}"
        for request, found in zip(unique.values(), measured, strict=True)
        if found.failure
    ]
    assert not wrong
    assert len(measured) >= 5
    assert any(rounds_to_float16(one.workload, one.schedule) for one in requests) == (net == "in float16")
    assert any(rounds_to_bytes(one.schedule) for one in requests) == net.endswith("rows in bytes")


def test_the_nets_have_kernels_of_every_family(target: Target) -> None:
    found = set()
    for make in NETS.values():
        graph = make()
        for _, bound in kernels(graph, default_plan(graph), target):
            found |= {kind_of(bound.workload, nest) for nest in nests_of(bound.workload)}
    assert found >= {kind for family in FAMILIES for kind in family.kinds}
