"""One operator as a kernel of TVM's importer, compared with ONNX Runtime."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

from autofuse.device.target import Target
from autofuse.kernels.importer.fallback import imported_function
from autofuse.kernels.workload.workload import (
    CODE_INPUTS,
    MAX_LITERAL_ELEMENTS,
    Value,
    Workload,
    WorkloadOperator,
)

Array = NDArray[Any]
TARGET = Target("x86-64-v2", lanes=4, registers=16, cores=2, l1_bytes=32768, l2_bytes=262144)


def real(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype("float32")


def whole(*shape: int, below: int = 5, seed: int = 0, dtype: str = "int64") -> Array:
    return np.random.default_rng(seed).integers(0, below, shape).astype(dtype)


def flags(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


def ints(*values: int) -> Array:
    return np.array(values, "int64")


@dataclass(frozen=True)
class Case:
    """One operator: `arguments` are activations; `fixed` holds the positions that are constants."""

    op_type: str
    arguments: tuple[Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    fixed: tuple[int, ...] = ()
    results: int = 1
    opset: int = 17
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.op_type} {self.note}".strip()


def case(op_type: str, *arguments: Array | None, fixed: tuple[int, ...] = (), **rest: Any) -> Case:
    known = {key: rest.pop(key) for key in ("results", "opset", "note") if key in rest}
    return Case(op_type, arguments, rest, fixed, **known)


def reference(item: Case) -> list[Array]:
    """What ONNX Runtime makes of the case."""
    names = [f"i{position}" if value is not None else "" for position, value in enumerate(item.arguments)]
    outputs = [f"o{position}" for position in range(item.results)]
    node = helper.make_node(item.op_type, names, outputs, **item.attributes)
    given = [(name, value) for name, value in zip(names, item.arguments, strict=True) if value is not None]
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given]
    graph = helper.make_graph([node], "case", infos, [onnx.ValueInfoProto(name=name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", item.opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, dict(given))]


def workload_of(item: Case, results: Sequence[Array]) -> Workload:
    values: list[Value] = []
    indices: list[int] = []
    for position, array in enumerate(item.arguments):
        if array is None:
            indices.append(-1)
            continue
        small = array.dtype.kind in "iub" or position in CODE_INPUTS.get(item.op_type, ())
        literal = position in item.fixed and (array.size == 1 or (small and array.size <= MAX_LITERAL_ELEMENTS))
        kind = "literal" if literal else "constant" if position in item.fixed else "input"
        indices.append(len(values))
        values.append(Value(kind, array.shape, array.dtype.name, literal=json.dumps(array.tolist()) if literal else ""))
    outputs = tuple(range(len(values), len(values) + len(results)))
    values.extend(Value("output", result.shape, result.dtype.name) for result in results)
    attributes = tuple(
        sorted((key, tuple(value) if isinstance(value, list) else value) for key, value in item.attributes.items())
    )
    operator = WorkloadOperator(item.op_type, tuple(indices), outputs, attributes)
    return Workload(tuple(values), (operator,), item.opset)


def run(workload: Workload, arrays: Sequence[Array], constants: Sequence[Array]) -> list[Array]:
    """The outputs of the workload's fallback kernel, filled with a sentinel beforehand."""
    import tvm

    function, pack = imported_function(workload, TARGET)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    library = tvm.compile(module, target=tvm.target.Target({"kind": "llvm", "mcpu": TARGET.mcpu})).jit()
    outputs = []
    for index in workload.of_kind("output"):
        value = workload.values[index]
        fill = np.nan if value.dtype.startswith("float") else 77 if value.dtype != "bool" else True
        outputs.append(tvm.runtime.tensor(np.full(value.shape, fill, value.dtype)))
    given = [tvm.runtime.tensor(np.array(array, order="C")) for array in (*arrays, *pack(constants))]
    library["main"](*given, *outputs)
    return [np.asarray(output.numpy()) for output in outputs]


def check(item: Case) -> None:
    expected = reference(item)
    workload = workload_of(item, expected)
    kinds = [value.kind for value in workload.values]
    present = [array for array in item.arguments if array is not None]
    inputs = [array for array, kind in zip(present, kinds, strict=False) if kind == "input"]
    constants = [array for array, kind in zip(present, kinds, strict=False) if kind == "constant"]
    for made, wanted in zip(run(workload, inputs, constants), expected, strict=True):
        assert made.shape == wanted.shape and made.dtype == wanted.dtype
        np.testing.assert_allclose(
            made.astype("float64"), wanted.astype("float64"), rtol=2e-4, atol=2e-5, err_msg=item.name
        )
