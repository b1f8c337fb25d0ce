"""Each elementwise operator against ONNX Runtime: random and special values, several element types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from numpy.typing import NDArray
from onnx import helper
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as builder

from autofuse.graph.own.names import BYTE_LOOKUP, ROUND
from autofuse.kernels.nest.scalar import SCALAR, supported
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator

COUNT, LANES = 256, 8
Array = NDArray[Any]
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-30, 88.5, -120.0, 3e38, -3e38]
)


def floats(dtype: str = "float32", low: float = -8.0, high: float = 8.0, special: bool = True) -> Array:
    values = np.random.default_rng(7).uniform(low, high, COUNT)
    if special:
        values[: SPECIAL.size] = SPECIAL
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def others(dtype: str = "float32") -> Array:
    """A second operand: other values, with special ones beside ordinary and special first operands."""
    values = np.random.default_rng(8).uniform(-4.0, 4.0, COUNT)
    values[8 : 8 + SPECIAL.size] = SPECIAL
    values[0:3] = (1.0, np.nan, 2.0)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def integers(dtype: str, low: int = -100, high: int = 100) -> Array:
    return np.random.default_rng(9).integers(max(low, np.iinfo(dtype).min), high, COUNT).astype(dtype)


def positive(dtype: str, high: int = 9) -> Array:
    return np.random.default_rng(10).integers(1, high, COUNT).astype(dtype)


def booleans(seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, 2, COUNT).astype(bool)


def constant(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


@dataclass(frozen=True)
class Case:
    """`inputs`: vectors (streamed) and 0-d arrays (constants); None: absent. `out`: numpy type of the result."""

    op: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    out: str = ""
    opset: int = 20
    rtol: float = 1e-6
    atol: float = 0.0

    @property
    def out_dtype(self) -> str:
        first = self.inputs[0]
        assert first is not None
        return self.out or first.dtype.name

    def __str__(self) -> str:
        kinds = ",".join("-" if a is None else f"{a.dtype}{'' if a.ndim else f'={a}'}" for a in self.inputs)
        return f"{self.op}({kinds}{''.join(f' {k}={v}' for k, v in self.attributes.items())})->{self.out_dtype}"


def floats_64() -> Array:
    return floats("float64", special=False)


UNARY = ("Neg", "Abs", "Sign", "Sqrt", "Reciprocal", "Floor", "Ceil", "Round", "Relu", "Softsign", "Identity")
SMOOTH = ("Exp", "Erf", "Tanh", "Sigmoid", "Softplus", "Mish", "Gelu", "Elu", "Selu", "Celu", "HardSwish")
RAMPS = ("HardSigmoid", "LeakyRelu", "ThresholdedRelu")
CURVES = ("Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh")
BINARY = ["Add", "Sub", "Mul", "Div", "Min", "Max", "PRelu"]
COMPARE = ["Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"]
BOOLEAN = ["And", "Or", "Xor", "Equal"]


def cases() -> list[Case]:
    found = [Case(op, [floats()]) for op in UNARY]
    found += [Case(op, [floats()], rtol=2e-6, atol=1e-6) for op in (*SMOOTH, *RAMPS)]
    found += [Case(op, [floats(low=-1.5, high=1.5)], rtol=2e-6, atol=2e-7) for op in CURVES]
    found += [Case("Tan", [floats(low=-1.5, high=1.5, special=False)], rtol=2e-6), Case("Log", [floats()])]
    found += [Case(op, [floats(special=False)], rtol=2e-6, atol=1e-7) for op in ("Sin", "Cos")]
    found += [Case("Gelu", [floats()], {"approximate": "tanh"}, rtol=2e-6, atol=1e-6)]
    found += [Case(op, [floats(), others()]) for op in BINARY]
    found += [Case(op, [floats(), others()], out="bool") for op in COMPARE]
    found += [Case(op, [integers("int32"), integers("int32")[::-1].copy()], out="bool") for op in COMPARE]
    found += [Case(op, [booleans(1), booleans(2)]) for op in BOOLEAN] + [Case("Not", [booleans(1)])]
    found += [Case(op, [floats(), others(), floats()[::-1].copy()]) for op in ("Sum", "Mean", "Min", "Max")]
    found += [Case(op, [floats(), constant(0.75)]) for op in ("Min", "Max")]
    found += [
        Case("Clip", [floats(), constant(-1), constant(2)]),
        Case("Clip", [floats(), constant(1), constant(-2)]),
        Case("Clip", [floats(special=False), None, constant(2)]),
        Case("Clip", [floats(special=False), constant(-1)]),
        Case("Clip", [floats()], {"min": -1.0, "max": 0.25}, opset=10),
        Case("Clip", [integers("int64"), constant(-3, "int64"), constant(7, "int64")]),
        Case("LeakyRelu", [floats()], {"alpha": 0.3}),
        Case("Elu", [floats()], {"alpha": 0.3}, atol=1e-7),
        Case("Celu", [floats()], {"alpha": 2.5}, atol=3e-7),
        Case("HardSigmoid", [floats()], {"alpha": 0.1, "beta": 0.4}, atol=1e-7),
        Case("Where", [booleans(1), floats(), others()], out="float32"),
        Case("Where", [booleans(1), integers("int64"), positive("int64")], out="int64"),
        Case("IsNaN", [floats()], out="bool"),
        Case("IsNaN", [floats("float64")], out="bool"),
        Case("IsInf", [floats()], out="bool"),
        Case("IsInf", [floats()], {"detect_negative": 0}, out="bool"),
        Case("IsInf", [floats()], {"detect_positive": 0}, out="bool"),
        Case("Mod", [integers("int32"), integers("int32", 1, 9)]),
        Case("Mod", [integers("int64"), -positive("int64")]),
        Case("Mod", [integers("int32"), -positive("int32")], {"fmod": 1}),
        Case("Mod", [floats(special=False), constant(0.7)], {"fmod": 1}),
        Case("Mod", [floats(), constant(0.0)], {"fmod": 1}),
        *(Case("Div", [floats(), constant(zero)]) for zero in (0.0, -0.0)),
        Case("Dropout", [floats()], opset=12),
        Case("Neg", [integers("int8")]),
        Case("Abs", [integers("int32")]),
        Case("Abs", [integers("uint8", 0)]),
        Case("Sign", [integers("int64", -3, 3)]),
        Case("Relu", [integers("int32")]),
        Case("BitShift", [integers("uint8", 0), integers("uint8", 0, 8)], {"direction": "LEFT"}),
        Case("BitShift", [integers("uint32", 0), integers("uint32", 0, 31)], {"direction": "RIGHT"}),
    ]
    for kind in ("And", "Or", "Xor"):
        found.append(Case(f"Bitwise{kind}", [integers("int32"), integers("int32")[::-1].copy()]))
    found.append(Case("BitwiseNot", [integers("uint8", 0)]))
    for dtype in ("int32", "int64"):
        found += [Case(op, [integers(dtype), integers(dtype, -9)]) for op in ("Add", "Sub", "Mul", "Min", "Max")]
        found += [Case("Div", [integers(dtype), positive(dtype)]), Case("Div", [integers(dtype), -positive(dtype)])]
    return found + powers() + casts() + doubles() + halves()


def powers() -> list[Case]:
    base = floats(special=False)
    found = [Case("Pow", [floats(), constant(k)]) for k in (0, 1, 2, 3, 4, -1, -2, 2.5, 0.3)]
    found += [Case("Pow", [np.abs(base), constant(k)]) for k in (0.5, -0.5)]
    found += [
        Case("Pow", [floats(), others()]),
        Case("Pow", [floats(), integers("int64", -4, 5)]),
        Case("Pow", [integers("int32", -9, 9), constant(3, "int32")]),
        Case("Pow", [integers("int64", -9, 9), integers("int64", 0, 5)]),
        Case("Pow", [np.abs(floats_64()), floats_64()], rtol=1e-12),
    ]
    return found


def casts() -> list[Case]:
    names = ("float16", "float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")
    to = {name: helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in names}
    pairs = [("float32", target) for target in to] + [
        ("float64", "float32"),
        ("float64", "int64"),
        ("float16", "float32"),
    ]
    pairs += [("int64", target) for target in to] + [("int32", "uint8"), ("uint8", "float32"), ("uint8", "int32")]
    found = []
    for source, target in pairs:
        whole = target not in ("bool", "float16", "float32", "float64")
        values = floats(source, -90, 90, special=not whole) if source[0] == "f" else integers(source, -1000, 1000)
        found.append(Case("Cast", [values], {"to": to[target]}, out=target))
    found += [Case("Cast", [booleans(1)], {"to": to[target]}, out=target) for target in ("float32", "int64", "uint8")]
    return found


def doubles() -> list[Case]:
    x = floats_64()
    found = [Case(op, [x], rtol=1e-12) for op in UNARY if op != "Softsign"]
    found += [Case(op, [x], rtol=1e-12) for op in ("Exp", "Sigmoid", "Sin", "Cos")]
    found += [Case("Log", [np.abs(x)], rtol=1e-12)]
    return found + [Case(op, [x, x[::-1].copy()], rtol=1e-12) for op in BINARY if op != "PRelu"]


def halves() -> list[Case]:
    """float16, for the operators ONNX Runtime has it for on CPUs."""
    x, y = floats("float16", special=False), others("float16")
    return [Case(op, [x, y], rtol=2e-3) for op in ("Add", "Mul")] + [Case("Relu", [x])]


def reference(case: Case) -> Array:
    names = ["" if array is None else f"i{k}" for k, array in enumerate(case.inputs)]
    given = [(name, array) for name, array in zip(names, case.inputs, strict=True) if array is not None]
    out = helper.np_dtype_to_tensor_dtype(np.dtype(case.out_dtype))
    node = helper.make_node(case.op, names, ["o"], **case.attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("o", out, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(given))[0])


def operator_of(case: Case) -> WorkloadOperator:
    places = tuple(-1 if array is None else k for k, array in enumerate(case.inputs))
    return WorkloadOperator(case.op, places, (len(places),), tuple(sorted(case.attributes.items())))


def workload_of(case: Case) -> Workload:
    values = [Value("input", (COUNT,), "float32" if array is None else array.dtype.name) for array in case.inputs]
    return Workload((*values, Value("output", (COUNT,), case.out_dtype)), (operator_of(case),), case.opset)


def evaluate(case: Case, after: str = "") -> Array:
    """What the definition of `case` gives, put through the operator `after` where one is named."""
    vectors = [array for array in case.inputs if array is not None and array.ndim]
    with IRBuilder() as current, builder.prim_func():
        builder.func_name("main")
        builder.func_attr({"tirx.noalias": True, "global_symbol": "main"})
        names = [builder.arg(f"x{k}", builder.buffer((COUNT,), a.dtype.name)) for k, a in enumerate(vectors)]
        result = builder.arg("y", builder.buffer((COUNT,), case.out_dtype))
        with builder.serial(0, COUNT // LANES) as block, builder.vectorized(0, LANES) as lane:
            loads = iter([name[block * LANES + lane] for name in names])
            args = [
                None if a is None else next(loads) if a.ndim else tirx.const(a.item(), a.dtype.name)
                for a in case.inputs
            ]
            value = SCALAR[case.op](args, operator_of(case), case.out_dtype, builder.bind)
            if after:
                value = SCALAR[after]([value], WorkloadOperator(after, (0,), (1,)), case.out_dtype, builder.bind)
            builder.buffer_store(result, value, [block * LANES + lane])
    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
    library = tvm.compile(tvm.IRModule({"main": current.get()}), target=target)
    output = tvm.runtime.tensor(np.full((COUNT,), 77).astype(case.out_dtype))
    library["main"](*(tvm.runtime.tensor(array) for array in vectors), output)
    return np.asarray(output.numpy())


@pytest.mark.parametrize("case", cases(), ids=str)
def test_an_operator_computes_what_onnx_runtime_computes(case: Case) -> None:
    assert supported(operator_of(case), workload_of(case)) is None
    expected = reference(case)
    assert expected.dtype == np.dtype(case.out_dtype)
    np.testing.assert_allclose(evaluate(case), expected, rtol=case.rtol, atol=case.atol)


def test_every_operator_of_the_table_is_tested() -> None:
    elsewhere = {"BatchNormalization", "Swish", "QuantizeLinear", "DequantizeLinear", BYTE_LOOKUP, ROUND}
    assert {case.op for case in cases()} | elsewhere == set(SCALAR)


def test_swish_is_x_times_the_sigmoid_of_alpha_x() -> None:
    x = floats()
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        expected = (wide / (1.0 + np.exp(-1.5 * wide))).astype(np.float32)
    np.testing.assert_allclose(evaluate(Case("Swish", [x], {"alpha": 1.5})), expected, rtol=1e-6, atol=1e-36)


def test_batch_normalization_agrees_with_onnx_runtime() -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(1, 4, COUNT)).astype(np.float32)
    scale, bias, mean, var = (random.uniform(0.1, 2.0, 4).astype(np.float32) for _ in range(4))
    case = Case("BatchNormalization", [x, scale, bias, mean, var], {"epsilon": 1e-3})
    expected = reference(case)
    channel = [constant(float(part[2])) for part in (scale, bias, mean, var)]
    got = evaluate(Case("BatchNormalization", [x[0, 2], *channel], {"epsilon": 1e-3}))
    np.testing.assert_allclose(got, expected[0, 2], rtol=1e-5, atol=1e-6)


def test_quotients_by_255_have_every_bit_of_onnx_runtime_as_scales_of_dynamic_levels_are_made_so() -> None:
    case = Case("Div", [floats(special=False), constant(255.0)])
    np.testing.assert_array_equal(evaluate(case), reference(case))


def test_shifting_by_the_width_or_more_gives_zero() -> None:
    amounts = np.full(COUNT, 8, np.uint8)
    got = evaluate(Case("BitShift", [integers("uint8", 1), amounts], {"direction": "LEFT"}))
    assert not got.any()


def test_not_of_a_comparison_keeps_nan_apart() -> None:
    """TVM's simplifier would make of `not (x < 1)` an `x >= 1`, which is false for NaN."""
    x = floats()
    got = evaluate(Case("Less", [x, constant(1.0)], out="bool"), after="Not")
    np.testing.assert_array_equal(got, ~(x < 1.0))


ONLY_NUMPY_64 = {
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0.0, 1.0),
    "HardSwish": lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "LeakyRelu": lambda x: np.where(x < 0, 0.01 * x, x),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "Celu": lambda x: np.where(x < 0, np.expm1(x), x),
    "Selu": lambda x: 1.05070102214813232421875 * np.where(x < 0, 1.67326319217681884765625 * np.expm1(x), x),
    "ThresholdedRelu": lambda x: np.where(x > 1.0, x, 0.0),
    "Softsign": lambda x: x / (1.0 + np.abs(x)),
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
}


@pytest.mark.parametrize("op", ONLY_NUMPY_64)
def test_float64_is_exact_where_onnx_runtime_has_no_kernel(op: str) -> None:
    x = floats_64()
    x[COUNT // 2 :] *= 10.0 ** -np.arange(COUNT // 2)
    with np.errstate(invalid="ignore"):
        expected = ONLY_NUMPY_64[op](x)
    np.testing.assert_allclose(evaluate(Case(op, [x])), expected, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize(
    ("operator", "dtype", "reason"),
    [
        (WorkloadOperator("Softmax", (0,), (1,)), "float32", "no elementwise definition"),
        (WorkloadOperator("Relu", (0,), (1,), domain="my.own"), "float32", "domain 'my.own'"),
        (WorkloadOperator("Exp", (0,), (1,)), "int32", "element type int32"),
        (WorkloadOperator("Add", (0, 0), (1,)), "bfloat16", "element type bfloat16"),
        (WorkloadOperator("Dropout", (0,), (1, 1)), "float32", "first output"),
        (WorkloadOperator("Dropout", (0, -1, 2), (1,)), "float32", "training"),
        (WorkloadOperator("BatchNormalization", (0,) * 5, (1,), (("training_mode", 1),)), "float32", "training"),
        (WorkloadOperator("Gelu", (0,), (1,), (("approximate", "cubic"),)), "float32", "cubic"),
    ],
    ids=lambda part: part.op_type if isinstance(part, WorkloadOperator) else str(part),
)
def test_a_variant_without_a_definition_is_refused_with_its_reason(
    operator: WorkloadOperator, dtype: str, reason: str
) -> None:
    values = (Value("input", (4,), dtype), Value("output", (4,), dtype), Value("literal", (), "bool", literal="true"))
    refusal = supported(operator, Workload(values, (operator,), 20))
    assert refusal is not None
    assert reason in refusal


def test_onnx_knows_every_operator_of_the_table() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    assert set(SCALAR) - known <= {"Swish", BYTE_LOOKUP, ROUND}
