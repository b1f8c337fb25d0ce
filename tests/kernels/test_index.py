"""Each data movement against ONNX Runtime, read through its index function and written through its forward map."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as builder

from autofuse.device.target import Target
from autofuse.kernels.nest.index import FORWARD, READ, supported
from autofuse.kernels.nest.rearrange import regroup
from autofuse.kernels.nest.resize import Sampler
from autofuse.kernels.tir.emit import Emitter
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator

Array = NDArray[Any]
POISON = -777.0


@dataclass(frozen=True)
class Case:
    """`inputs`: tensors in memory; `literals`: by position, values known when compiling (None: absent)."""

    op: str
    inputs: Sequence[Array]
    literals: Mapping[int, Array | None] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 18
    rtol: float = 0.0

    @property
    def operands(self) -> list[Array | None]:
        """All operands in the operator's order."""
        places = range(len(self.inputs) + len(self.literals))
        rest = iter(self.inputs)
        return [self.literals[place] if place in self.literals else next(rest) for place in places]

    def __str__(self) -> str:
        shapes = ",".join("x".join(map(str, array.shape)) for array in self.inputs)
        values = " ".join(str(None if v is None else v.tolist()) for v in self.literals.values())
        words = " ".join(f"{key}={value}" for key, value in self.attributes.items())
        return f"{self.op}[{shapes}] {values} {words} v{self.opset}"


def data(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(4).permutation(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def views() -> list[Case]:
    found = [
        Case("Reshape", [data(2, 6, 4)], {1: ints(4, 3, 4)}),
        Case("Reshape", [data(2, 3, 4, 5)], {1: ints(2, 3, 20)}),
        Case("Reshape", [data(1, 8, 6)], {1: ints(1, 2, 4, 1, 6)}),
        Case("Reshape", [data(6, 10)], {1: ints(4, 15)}),
        Case("Flatten", [data(2, 3, 4)], attributes={"axis": 2}),
        Case("Squeeze", [data(2, 1, 3, 1)], {1: ints(1, -1)}),
        Case("Unsqueeze", [data(2, 3)], {1: ints(0, 3)}),
        Case("Identity", [data(2, 3)]),
        Case("Transpose", [data(2, 3, 4)]),
        Case("Transpose", [data(2, 3, 4, 5)], attributes={"perm": [0, 2, 3, 1]}),
        Case("Transpose", [data(3, 4, dtype="bool")], attributes={"perm": [1, 0]}),
    ]
    for mode in ("DCR", "CRD"):
        found.append(Case("DepthToSpace", [data(2, 12, 2, 3)], attributes={"blocksize": 2, "mode": mode}))
    return [*found, Case("SpaceToDepth", [data(2, 3, 4, 6)], attributes={"blocksize": 2})]


def selections() -> list[Case]:
    return [
        Case("Expand", [data(3, 1, 4)], {1: ints(2, 3, 5, 4)}),
        Case("Tile", [data(2, 3)], {1: ints(2, 3)}),
        Case("Slice", [data(8, 9)], {1: ints(1, 2), 2: ints(7, 100), 3: ints(0, 1), 4: ints(2, 3)}),
        Case("Slice", [data(8, 9)], {1: ints(-3), 2: ints(-1), 3: ints(-1)}),
        Case("Slice", [data(8, 9)], {1: ints(100, -2), 2: ints(-100, 1), 3: ints(1, 0), 4: ints(-2, -1)}),
        Case("Slice", [data(8, 9)], {1: ints(1, 2), 2: ints(3, 4)}),
        Case("Slice", [data(8, 9)], attributes={"starts": [2], "ends": [-1], "axes": [1]}, opset=9),
        Case("Split", [data(7, 4)], {1: ints(2, 4, 1)}, {"axis": 0}, outputs=3),
        Case("Split", [data(3, 8)], attributes={"axis": -1, "num_outputs": 3}, outputs=3),
        Case("Split", [data(3, 8)], attributes={"axis": 1}, outputs=2, opset=13),
        Case("Split", [data(3, 8)], attributes={"axis": 1, "split": [3, 5]}, outputs=2, opset=11),
        Case("Concat", [data(2, 3), data(2, 4), data(2, 1)], attributes={"axis": 1}),
        Case("Concat", [data(2, 3, dtype="int64"), data(5, 3, dtype="int64")], attributes={"axis": -2}),
        Case("Gather", [data(5, 6)], {1: np.array(-2, np.int64)}, {"axis": 1}),
        Case("Gather", [data(5, 6), np.array([[0, -1], [3, 4]], np.int64)]),
        Case("Gather", [data(5, 6, 2), np.array([5, 0, -6], np.int32)], attributes={"axis": 1}),
        Case("GatherElements", [data(4, 3), np.array([[0, -1, 3], [2, 1, 0]], np.int64)], attributes={"axis": 0}),
    ]


def paddings() -> list[Case]:
    found = [
        Case("Pad", [data(3, 4)], {1: ints(1, 0, 2, 3), 2: np.array(2.5, np.float32)}),
        Case("Pad", [data(3, 4)], {1: ints(1, -1, -2, 3)}),
        Case("Pad", [data(3, 4)], {1: ints(2, 1), 2: None, 3: ints(-1)}),
        Case("Pad", [data(2, 3, dtype="int32")], {1: ints(0, 1, 0, 1), 2: np.array(7, np.int32)}),
        Case("Pad", [data(3, 4)], attributes={"pads": [1, 2, 0, 1], "value": 1.5}, opset=10),
        Case("Pad", [data(3, 4), np.array(4.25, np.float32)], {1: ints(1, 1, 1, 1)}),
    ]
    for mode in ("edge", "reflect"):
        found.append(Case("Pad", [data(2, 4, 5)], {1: ints(0, 2, 3, 0, 1, 4)}, {"mode": mode}))
    return [*found, Case("Pad", [data(4, 5)], {1: ints(2, 3, 1, 4)}, {"mode": "wrap"}, opset=19)]


COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SIZES = ((10, 14), (5, 7), (7, 3), (1, 20), (15, 1))


def resized(height: int, width: int, mode: str, coordinates: str, rounding: str = "") -> Case:
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if rounding:
        attributes["nearest_mode"] = rounding
    literals: dict[int, Array | None] = {1: None, 2: None, 3: ints(1, 2, height, width)}
    return Case("Resize", [data(1, 2, 5, 7)], literals, attributes, opset=19, rtol=2e-6)


def scaled(mode: str, scales: Sequence[float], coordinates: str, **attributes: Any) -> Case:
    literals: dict[int, Array | None] = {1: None, 2: np.array(scales, np.float32)}
    words = {"mode": mode, "coordinate_transformation_mode": coordinates, **attributes}
    return Case("Resize", [data(1, 2, 6, 7)], literals, words, opset=19, rtol=2e-6)


def resizes() -> list[Case]:
    found = [resized(h, w, "nearest", c, r) for h, w in SIZES for c in COORDINATES for r in ROUNDINGS]
    found += [resized(h, w, "linear", c) for h, w in SIZES for c in COORDINATES]
    found += [replace(resized(h, w, "cubic", c), rtol=1e-5) for h, w in SIZES for c in COORDINATES]
    found += [replace(scaled("cubic", (1, 1, 1.5, 0.6), "half_pixel", cubic_coeff_a=-0.5), rtol=1e-5)]
    found += [
        scaled(mode, (1, 1, 1.5, 2.0 if c == "align_corners" else 2.6), c)
        for mode in ("nearest", "linear")
        for c in COORDINATES
    ]
    found += [scaled("linear", (1, 1, 0.6, 0.5), c) for c in ("half_pixel", "asymmetric")]
    found += [scaled("nearest", (2.0, 0.7), "asymmetric", axes=[2, 3], nearest_mode="floor")]
    found += [scaled("nearest", (1, 1, 2.3, 0.9), "half_pixel_symmetric")]
    for scales in ((1, 1, 2, 3), (1, 1, 1.5, 2.5), (1, 1, 0.5, 0.6)):
        for mode in ("nearest", "linear"):
            floats = np.array(scales, np.float32)
            if min(scales) >= 1:
                found.append(Case("Upsample", [data(1, 2, 4, 5)], {1: floats}, {"mode": mode}, opset=9, rtol=2e-6))
            found.append(Case("Resize", [data(1, 2, 4, 5)], {1: floats}, {"mode": mode}, opset=10, rtol=2e-6))
    attributes = {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 2.0]}
    return [*found, Case("Upsample", [data(1, 2, 4, 5)], {}, attributes, opset=7)]


def choices() -> list[Case]:
    """Data movements that choose between reads."""
    return [case for case in (*selections(), *paddings()) if case.op in ("Concat", "Pad")]


def cases() -> list[Case]:
    return [*views(), *selections(), *paddings(), *resizes()]


def reference(case: Case) -> list[Array]:
    names = ["" if array is None else f"i{place}" for place, array in enumerate(case.operands)]
    outputs = [f"o{k}" for k in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, **case.attributes)
    streamed = [
        (n, a) for place, (n, a) in enumerate(zip(names, case.operands, strict=True)) if place not in case.literals
    ]
    fixed = [numpy_helper.from_array(a, f"i{place}") for place, a in case.literals.items() if a is not None]
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in streamed if array is not None}
    inputs = [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in streamed if a is not None]
    first = next(iter(kinds.values()), TensorProto.FLOAT)
    results = [helper.make_tensor_value_info(name, first, None) for name in outputs]
    graph = helper.make_graph([node], "g", inputs, results, fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, dict(streamed))]


def workload_of(case: Case, results: Sequence[Array]) -> Workload:
    values, inputs = [], []
    for place, array in enumerate(case.operands):
        if array is None:
            inputs.append(-1)
            continue
        literal = json.dumps(array.tolist()) if place in case.literals else ""
        inputs.append(len(values))
        values.append(Value("literal" if literal else "input", array.shape, array.dtype.name, literal=literal))
    outputs = tuple(range(len(values), len(values) + len(results)))
    values += [Value("output", result.shape, result.dtype.name) for result in results]
    attributes = {k: tuple(v) if isinstance(v, list) else v for k, v in case.attributes.items()}
    operator = WorkloadOperator(case.op, tuple(inputs), outputs, tuple(sorted(attributes.items())))
    return Workload(tuple(values), (operator,), case.opset)


def load(buffer: Any, array: Array, checked: bool, index: tuple[Any, ...]) -> Any:
    """The element at `index`; when `checked`, a poison where the index function leaves the bounds."""
    inside = tirx.const(True, "bool")
    offset: Any = tirx.const(0, "int32")
    assert len(index) == array.ndim
    for position, extent in zip(index, array.shape, strict=True):
        inside = tirx.all(inside, tirx.const(0, "int32") <= position, tirx.const(extent, "int32") > position)
        offset = offset * extent + position
    if not checked:
        return buffer[offset]
    poison = tirx.const(True if array.dtype == bool else POISON, array.dtype.name)
    return tirx.if_then_else(inside, buffer[offset], poison)


def constant(array: Array, index: tuple[Any, ...]) -> Any:
    assert len(index) == array.ndim
    return tirx.const(array.reshape(-1)[0].item(), array.dtype.name)


def compile_and_run(results: Sequence[Array], inputs: Sequence[Array], emit: Any) -> list[Array]:
    """Runs what `emit(input buffers, output buffers)` emits; all buffers are flat."""
    with IRBuilder() as current, builder.prim_func():
        builder.func_name("main")
        builder.func_attr({"tirx.noalias": True, "global_symbol": "main"})
        sources = [builder.arg(f"x{k}", builder.buffer((a.size,), a.dtype.name)) for k, a in enumerate(inputs)]
        targets = [builder.arg(f"y{k}", builder.buffer((a.size,), a.dtype.name)) for k, a in enumerate(results)]
        emit(sources, targets)
    library = tvm.compile(tvm.IRModule({"main": current.get()}), target=tvm.target.Target("llvm"))
    fill = [np.full(result.size, 1 if result.dtype == bool else POISON).astype(result.dtype) for result in results]
    made = [tvm.runtime.tensor(array) for array in fill]
    library["main"](*(tvm.runtime.tensor(array.reshape(-1)) for array in inputs), *made)
    return [np.asarray(tensor.numpy()).reshape(result.shape) for tensor, result in zip(made, results, strict=True)]


def store(target: Any, shape: Sequence[int], index: Sequence[Any], value: Any) -> None:
    offset: Any = tirx.const(0, "int32")
    for position, extent in zip(index, shape, strict=True):
        offset = offset * extent + position
    builder.buffer_store(target, value, [offset])


def loops(stack: ExitStack, shape: Sequence[int], vector: bool = False) -> tuple[Any, ...]:
    """Serial loops over `shape`; when `vector`, the innermost is a vector loop of the emitter's."""
    kinds = [partial(builder.serial, 0)] * (len(shape) - 1)
    innermost = Emitter(Target("x86-64-v2", 4, 16, 1, 32768, 262144)).vector if vector else partial(builder.serial, 0)
    return tuple(stack.enter_context(kind(extent)) for kind, extent in zip([*kinds, innermost], shape, strict=True))


def read_and_compare(case: Case, vector: bool, after: Callable[..., Any]) -> None:
    """Compares with ONNX Runtime; `vector`: the innermost loop is one; `after(value, bind)`: what follows the read."""
    expected = reference(case)
    workload = workload_of(case, expected)
    operator = workload.operators[0]
    assert supported(operator, workload) is None

    def emit(sources: list[Any], targets: list[Any]) -> None:
        buffers = iter(sources)
        reads = [
            partial(constant, array) if place in case.literals else partial(load, next(buffers), array, not vector)
            for place, array in enumerate(case.operands)
        ]
        for output, result in enumerate(expected):
            with ExitStack() as stack:
                index = loops(stack, result.shape, vector)
                value = READ[case.op](reads, operator, workload, index, output, builder.bind)
                store(targets[output], result.shape, index, after(value, builder.bind))

    for got, wanted in zip(compile_and_run(expected, case.inputs, emit), expected, strict=True):
        np.testing.assert_allclose(got, after(wanted, lambda value: value), rtol=case.rtol, atol=20 * case.rtol)


def same(value: Any, bind: Any) -> Any:
    return value


def square(value: Any, bind: Any) -> Any:
    named = bind(value)
    return named * named


@pytest.mark.parametrize("case", cases(), ids=str)
def test_reading_through_the_index_function_gives_what_onnx_runtime_gives(case: Case) -> None:
    read_and_compare(case, False, same)


@pytest.mark.parametrize("case", [*choices(), *views()[:4], *selections()[-4:], *resizes()[99:105]], ids=str)
def test_in_a_vector_loop_the_value_may_be_named_and_used_twice(case: Case) -> None:
    read_and_compare(case, True, square)


@pytest.mark.parametrize("case", views(), ids=str)
def test_writing_through_the_forward_map_gives_what_onnx_runtime_gives(case: Case) -> None:
    expected = reference(case)
    workload = workload_of(case, expected)

    def emit(sources: list[Any], targets: list[Any]) -> None:
        with ExitStack() as stack:
            index = loops(stack, case.inputs[0].shape)
            target = FORWARD[case.op](workload.operators[0], workload, index)
            store(targets[0], expected[0].shape, target, load(sources[0], case.inputs[0], True, index))

    np.testing.assert_array_equal(compile_and_run(expected, case.inputs, emit)[0], expected[0])


def test_every_data_movement_is_tested() -> None:
    assert {case.op for case in cases()} == set(READ)
    assert {case.op for case in views()} == set(FORWARD)


def test_an_index_known_when_compiling_stays_a_python_integer() -> None:
    for case in (*views(), *paddings()[:5], *resizes()[::7]):
        expected = reference(case)[0]
        workload = workload_of(case, [expected])
        last = tuple(extent - 1 for extent in expected.shape)
        seen: list[Any] = []

        def read(index: tuple[Any, ...], seen: list[Any] = seen) -> Any:
            seen.append(index)
            return tirx.const(0.0, "float32")

        READ[case.op]([read] * 4, workload.operators[0], workload, last, 0, lambda value: value)
        assert all(isinstance(position, int) for index in seen for position in index), str(case)


def test_regrouping_leaves_common_dimensions_alone() -> None:
    n, c, h, w = (tirx.Var(name, "int32") for name in "nchw")
    first, second, _ = regroup((n, c, h, w), (2, 8, 4, 5), (2, 8, 20))
    assert first.same_as(n)
    assert second.same_as(c)
    assert regroup((1, 5, 3), (2, 6, 4), (4, 3, 4)) == (3, 2, 3)


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (WorkloadOperator("Relu", (0,), (1,)), "no index function"),
        (WorkloadOperator("Transpose", (0,), (1,), domain="my.own"), "domain 'my.own'"),
        (WorkloadOperator("Slice", (0, 2, 2), (1,)), "input 1 is not known"),
        (WorkloadOperator("Pad", (0, 3), (1,), (("mode", "mirror"),)), "mode = 'mirror'"),
        (WorkloadOperator("Transpose", (4,), (4,)), "empty"),
        (WorkloadOperator("Transpose", (5,), (5,)), "element type bfloat16"),
        (WorkloadOperator("Resize", (0,), (1,), (("mode", "area"),)), "mode = 'area'"),
        (WorkloadOperator("Resize", (0,), (1,), (("mode", "cubic"), ("exclude_outside", 1))), "exclude_outside"),
        (WorkloadOperator("Resize", (0,), (1,), (("antialias", 1),)), "antialias"),
        (WorkloadOperator("Resize", (0, -1, 2), (1,)), "scales"),
        (
            WorkloadOperator("Resize", (0,), (1,), (("coordinate_transformation_mode", "tf_crop_and_resize"),)),
            "tf_crop_and_resize",
        ),
        (WorkloadOperator("Resize", (0,), (1,), (("keep_aspect_ratio_policy", "not_larger"),)), "keep_aspect"),
        (WorkloadOperator("Resize", (6,), (6,), (("mode", "linear"),)), "uint8"),
        (
            WorkloadOperator("Resize", (0, -1, 7), (1,), (("coordinate_transformation_mode", "align_corners"),)),
            "no whole number of elements",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_variant_without_an_index_function_is_refused(operator: WorkloadOperator, reason: str) -> None:
    values = (
        Value("input", (4, 4), "float32"),
        Value("output", (4, 4), "float32"),
        Value("input", (2,), "int64"),
        Value("literal", (4,), "int64", literal="[0, 0, 0, 0]"),
        Value("input", (0, 4), "float32"),
        Value("input", (4, 4), "bfloat16"),
        Value("input", (4, 4), "uint8"),
        Value("literal", (2,), "float32", literal="[1.0, 1.1]"),
    )
    refusal = supported(operator, Workload(values, (operator,), 18))
    assert refusal is not None
    assert reason in refusal


@pytest.mark.parametrize(
    ("sampler", "stretches"),
    [
        (Sampler(20, 2, -15, 32, cut=True, linear=True), (8, 16)),
        (Sampler(20, 1, 0, 16), (0, 16)),
        (Sampler(20, 2, -1, 4, cut=True, linear=True), (1, 2)),
        (Sampler(20, 3, 0, 5), None),
        (Sampler(20, 2, 0, 1), None),
        (Sampler(20), None),
        (Sampler(20, 1, 0, 65), None),
    ],
)
def test_stretches_of_results_take_the_same_elements(sampler: Sampler, stretches: tuple[int, int] | None) -> None:
    assert sampler.stretches(64) == stretches
    if stretches is not None:
        first, size = stretches
        low = [max(0, sampler.a * i + sampler.b) // sampler.c for i in range(first + 3 * size)]
        assert all(len(set(low[at : at + size])) == 1 for at in range(first, len(low), size))
