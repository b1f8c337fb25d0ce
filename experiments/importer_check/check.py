"""One application of an operator: TVM's result beside ONNX's reference and ONNX Runtime's, on random values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from autofuse.device.target import Target
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import from_model
from autofuse.graph.mapping import POINTWISE, names
from autofuse.graph.model import Graph
from autofuse.kernels.importer.fallback import imported_function
from autofuse.kernels.importer.relax_import import UnsupportedOperatorError
from autofuse.kernels.importer.variant import variant_of
from autofuse.kernels.workload.onnx_model import workload_model
from autofuse.kernels.workload.workload import Workload
from autofuse.measure.checking.tolerance import compare

Array = NDArray[Any]
Judge = Callable[[Mapping[str, Array]], list[Any]]
TARGET = Target("x86-64-v2", lanes=4, registers=16, cores=2, l1_bytes=32768, l2_bytes=262144)
VALUES = ("plain", "plain", "infinite", "masked")
"""What the first input holds: numbers; some infinities and -0 among them; nothing but -infinity in some rows."""


_FINITE = names("AffineGrid DynamicQuantizeLinear GridSample LRN QuantizeLinear Resize RoiAlign Upsample")
"""Operators whose result is open for infinities: they interpolate (infinity times 0), round to integers, or ONNX
Runtime adds and subtracts in turn."""


@dataclass(frozen=True)
class Finding:
    """What one application showed. `state`: "right", "wrong", "none" (no importer, or nobody to compare with)."""

    operator: str
    variant: str
    state: str
    reason: str = ""
    text: str = ""

    def record(self) -> dict[str, object]:
        """The finding as a JSON object."""
        return asdict(self)


def check(text: str) -> Finding:
    """The finding on the workload of one operator that `text` describes."""
    workload = Workload.from_text(text)
    operator = workload.operators[0]
    try:
        state, reason = _judged(workload)
    except Exception as error:  # noqa: BLE001 no values could be made, or the results cannot be compared
        state, reason = "none", f"{type(error).__name__}: {error}"
    return Finding(operator.op_type, str(variant_of(workload, operator)), state, reason[:160], text)


def _judged(workload: Workload) -> tuple[str, str]:
    try:
        function, pack = imported_function(workload, TARGET)
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        library = tvm.compile(module, target=tvm.target.Target({"kind": "llvm", "mcpu": TARGET.mcpu})).jit()
    except UnsupportedOperatorError as error:
        return "none", error.reason
    except Exception as error:  # noqa: BLE001 TVM raises whatever it likes
        return "none", f"no code: {type(error).__name__}"
    judges = _judges(workload)
    graph = from_model(workload_model(workload), "check")
    reason = ""
    for seed, kind in enumerate(VALUES):
        feeds = _values(workload, graph, seed, kind)
        expected = {name: wanted for name, judge in judges.items() if (wanted := _tried(judge, feeds)) is not None}
        if not expected:
            return "none", "nobody to compare with"
        results = _run(workload, library, feeds, pack)
        found = {name: _difference(results, wanted) for name, wanted in expected.items()}
        reason = next(iter(found.values()))
        judges = {name: judge for name, judge in judges.items() if not found.get(name, "it failed")}
        if not judges:
            return "wrong", f"on {kind} values: {reason or 'ONNX and ONNX Runtime differ'}"
    return "right", ""


def _values(workload: Workload, graph: Graph, seed: int, kind: str) -> dict[str, Array]:
    """An array for each input and constant, within the ranges that the operator allows."""
    feeds = {name: np.array(array) for name, array in generate_inputs(graph, seed).items()}
    chance = np.random.default_rng(seed)
    operator = workload.operators[0]
    for index in (*workload.of_kind("input"), *workload.of_kind("constant")):
        value, name = workload.values[index], f"v{index}"
        if name not in feeds:
            feeds[name] = chance.integers(0, 2, value.shape).astype(value.dtype)
        place = operator.inputs.index(index)
        if operator.op_type in ("Div", "Mod") and place == 1 and value.dtype[0] in "iu":
            feeds[name] = np.where(feeds[name] == 0, 1, feeds[name]).astype(value.dtype)
        if operator.op_type == "RoiAlign" and place == 1:
            corner = chance.uniform(0, 3, (value.shape[0], 2))
            feeds[name] = np.hstack([corner, corner + chance.uniform(0.5, 6, corner.shape)]).astype(value.dtype)
        if operator.op_type == "RoiAlign" and place == 2:
            images = workload.values[operator.inputs[0]].shape[0]
            feeds[name] = chance.integers(0, images, value.shape).astype(value.dtype)
        if place == 0 and value.dtype.startswith("float") and feeds[name].ndim and operator.op_type not in _FINITE:
            feeds[name] = _special(feeds[name], kind, chance)
        if place == 1 and value.dtype.startswith("float") and operator.op_type in POINTWISE and kind == "infinite":
            feeds[name] = np.asarray(chance.choice([0.0, -0.0, np.inf, -np.inf, 1.0, -2.5], value.shape), value.dtype)
    return feeds


def _special(array: Array, kind: str, chance: np.random.Generator) -> Array:
    array = array.copy()
    if kind == "infinite":
        places = chance.random(array.shape)
        array[places < 0.1], array[places > 0.9] = np.inf, -0.0
        array[(places > 0.5) & (places < 0.55)] = -np.inf
    if kind == "masked":
        array.reshape(-1, array.shape[-1])[0] = -np.inf
        if array.ndim > 1:
            array[..., :1, :] = -np.inf
    return array


def _judges(workload: Workload) -> dict[str, Judge]:
    """Who can say what the workload's result is, by name."""
    model = workload_model(workload)
    found: dict[str, Judge] = {}
    with contextlib.suppress(Exception):  # the reference lacks it
        reference = ReferenceEvaluator(model)
        found["ONNX"] = lambda feeds: list(reference.run(None, dict(feeds)))
    import onnxruntime  # late: autofuse switches its telemetry off first

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with contextlib.suppress(Exception):  # ONNX Runtime lacks it
        given = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found["ONNX Runtime"] = lambda feeds: given.run(None, dict(feeds))
    return found


def _tried(judge: Judge, feeds: Mapping[str, Array]) -> list[Array] | None:
    with contextlib.suppress(Exception), np.errstate(all="ignore"):
        return [np.asarray(array) for array in judge(feeds)]
    return None


def _run(workload: Workload, library: Any, feeds: Mapping[str, Array], pack: Any) -> list[Array]:
    inputs = [feeds[f"v{index}"] for index in workload.of_kind("input")]
    constants = pack([feeds[f"v{index}"] for index in workload.of_kind("constant")])
    outputs = []
    for index in workload.of_kind("output"):
        value = workload.values[index]
        fill = np.nan if value.dtype.startswith("float") else 1 if value.dtype == "bool" else 77
        outputs.append(tvm.runtime.tensor(np.full(value.shape, fill, value.dtype)))
    given = [tvm.runtime.tensor(np.array(array, order="C")) for array in (*inputs, *constants)]
    library["main"](*given, *outputs)
    return [np.asarray(output.numpy()) for output in outputs]


def _difference(results: list[Array], wanted: list[Array]) -> str:
    pairs = zip(results, wanted, strict=True)
    return next((verdict.reason for a, b in pairs if not (verdict := compare(a, np.asarray(b))).ok), "")
