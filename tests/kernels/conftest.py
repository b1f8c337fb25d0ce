"""Small ONNX models as one kernel each, run between guards and compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.printer
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from autofuse.backend.compile.host_cpu import llvm_host_cpu
from autofuse.backend.compile.jit import JitKernel
from autofuse.device.target import Target
from autofuse.graph.loading.load import from_model
from autofuse.kernels.build import Kernel, build_kernel
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.workload.packing import as_stored, to_logical, to_physical
from autofuse.kernels.workload.workload import BoundWorkload, Value, bind_workload
from autofuse.measure.checking.tolerance import compare, poisoned

Array = NDArray[Any]
GUARD_BYTES = 512
ALIGNMENT = 64


def real(*shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> Array:
    """Uniform float32 values, the same for the same shape and seed."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype("float32")


def parsed(text: str) -> list[onnx.NodeProto]:
    """Nodes in ONNX's own text form, separated by semicolons: `s = Sigmoid (x); y = Mul (x, s)`."""
    return [onnx.parser.parse_node(part.strip()) for part in text.split(";")]


@dataclass(frozen=True, repr=False)
class Small:
    """A model: `inputs` are fed (arrays), `constants` are initializers; `outputs` in the model's order."""

    nodes: Sequence[onnx.NodeProto]
    inputs: Mapping[str, Array]
    outputs: Sequence[str]
    constants: Mapping[str, Array] = field(default_factory=dict)
    opset: int = 17

    def __repr__(self) -> str:
        shapes = {name: array.shape for name, array in (dict(self.inputs) | dict(self.constants)).items()}
        lines = [onnx.printer.to_text(node).strip() for node in self.nodes]
        return f"{shapes} -> {list(self.outputs)}: " + "; ".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def model(self) -> onnx.ModelProto:
        """The ONNX model."""
        return helper.make_model(
            helper.make_graph(
                list(self.nodes),
                "small",
                [
                    helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                    for name, array in self.inputs.items()
                ],
                [onnx.ValueInfoProto(name=name) for name in self.outputs],
                [numpy_helper.from_array(np.asarray(array), name) for name, array in self.constants.items()],
            ),
            opset_imports=[helper.make_opsetid("", self.opset), *self._domains()],
            ir_version=10,
        )

    def _domains(self) -> list[onnx.OperatorSetIdProto]:
        return [helper.make_opsetid(domain, 1) for domain in sorted({node.domain for node in self.nodes} - {""})]

    def reference(self) -> dict[str, Array]:
        """What ONNX Runtime computes."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        serialized = self.model().SerializeToString()
        session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
        results = session.run(list(self.outputs), dict(self.inputs))
        return dict(zip(self.outputs, map(np.asarray, results), strict=True))


class Guarded:
    """`array` in aligned memory between two guards: NaN (or 0xFF), so that a stray read or write shows."""

    def __init__(self, array: Array) -> None:
        import tvm

        size = array.nbytes
        raw = np.full(2 * GUARD_BYTES + ALIGNMENT + size, 0xFF, "uint8")
        start = GUARD_BYTES + (-(raw.ctypes.data + GUARD_BYTES)) % ALIGNMENT
        self._edges = (raw[:start], raw[start + size :])
        self.array = raw[start : start + size].view(array.dtype).reshape(array.shape)
        self.array[...] = array
        self.tensor = tvm.runtime.from_dlpack(self.array)

    @property
    def intact(self) -> bool:
        """Whether nothing was written outside the array."""
        return all(bool((edge == 0xFF).all()) for edge in self._edges)


class Bench:
    """Builds, runs and judges groups. The target's vectors have 8 lanes unless told otherwise."""

    def __init__(self) -> None:
        self.mcpu = llvm_host_cpu().mcpu

    def target(self, lanes: int = 8, **other: Any) -> Target:
        """A target that this machine can run (LLVM splits vectors that its registers cannot hold)."""
        return Target(other.pop("mcpu", self.mcpu), lanes, 16, 2, 32768, 262144, **other)

    def bind(self, small: Small, layouts: Mapping[str, str] | None = None) -> BoundWorkload:
        """The whole model as one group."""
        graph = from_model(small.model(), "small")
        return bind_workload(graph, [operator.name for operator in graph.operators], layouts or {})

    def constants(self, small: Small, bound: BoundWorkload) -> list[Array]:
        """Constants of the group as the graph holds them (loading may have folded some)."""
        graph = from_model(small.model(), "small")
        return [np.asarray(graph.constants[name]) for name in bound.constants]

    def run(
        self,
        small: Small,
        bound: BoundWorkload,
        kernel: Kernel,
        target: Target,
        constants: Sequence[Array] | None = None,
    ) -> dict[str, Array]:
        """Outputs of the kernel in logical order; every element must be written, nothing beside them."""
        known = self.constants(small, bound) if constants is None else constants
        values = bound.workload.values
        inputs = [values[index] for index in bound.workload.of_kind("input")]
        outputs = [values[index] for index in bound.workload.of_kind("output")]
        given = [to_physical(small.inputs[name], value) for name, value in zip(bound.inputs, inputs, strict=True)]
        reads = [Guarded(array) for array in (*given, *kernel.pack(known))]
        writes = [Guarded(_poison(value)) for value in outputs]
        before = [item.array.copy() for item in reads]
        JitKernel(kernel.function, target)(*(item.tensor for item in (*reads, *writes)))
        assert all(item.intact for item in (*reads, *writes)), "the kernel wrote beside an argument"
        for item, copy in zip(reads, before, strict=True):
            assert item.array.tobytes() == copy.tobytes(), "the kernel wrote to an input"
        pairs = zip(bound.outputs, outputs, writes, strict=True)
        return {name: to_logical(item.array, value) for name, value, item in pairs}

    def check(
        self,
        small: Small,
        layouts: Mapping[str, str] | None = None,
        schedule: Mapping[str, int | str] | None = None,
        lanes: int = 8,
        limit: float = 1e-5,
        own: bool = True,
    ) -> None:
        """The model as one kernel of our own computes what ONNX Runtime computes."""
        bound = self.bind(small, layouts)
        assert is_own(bound.workload) == own, bound.workload.label
        target = self.target(lanes)
        results = self.run(small, bound, build_kernel(bound.workload, schedule or {}, target), target)
        expected = small.reference()
        assert set(results) <= set(expected)
        for name, result in results.items():
            verdict = compare(result, expected[name], limit)
            assert verdict.ok, f"{bound.workload.label}, {name}: {verdict.reason}"


def _poison(value: Value) -> Array:
    return as_stored(poisoned(np.zeros(value.physical_shape, value.dtype)), value)


@pytest.fixture(scope="session")
def bench() -> Bench:
    return Bench()
