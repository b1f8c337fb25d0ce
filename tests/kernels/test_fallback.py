"""Every operator that TVM's importer knows becomes one kernel that agrees with ONNX Runtime, or is refused by name."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.kernels.importer.fallback import fallback_function, imported_function
from autofuse.kernels.importer.relax_import import UnsupportedOperatorError
from autofuse.kernels.workload.workload import (
    Value,
    Workload,
    WorkloadOperator,
    bind_workload,
)
from tests.kernels.one_operator import (
    TARGET,
    Case,
    case,
    check,
    flags,
    ints,
    real,
    reference,
    run,
    whole,
    workload_of,
)

IMAGE = real(1, 8, 9, 10)
SMALL = real(2, 3, 4)
UNARY = [
    "Abs",
    "Atan",
    "Ceil",
    "Cos",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LeakyRelu",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Cosh",
    "Asinh",
    "Softplus",
    "Softsign",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Shrink",
]
BINARY = ["Add", "Sub", "Mul", "Div", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal", "Max", "Min"]
REDUCE = [
    "ReduceMax",
    "ReduceMin",
    "ReduceMean",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSumExp",
    "ReduceSumSquare",
]

CASES = (
    *(case(name, SMALL, opset=18) for name in UNARY),
    *(case(name, real(2, 3, 4), real(3, 1, seed=1)) for name in BINARY),
    *(case(name, SMALL, axes=[1], keepdims=0, opset=13) for name in REDUCE),
    *(case(name, real(3, 40), axes=[1], opset=13, note="rows") for name in REDUCE),
    case("Log", real(2, 3, low=0.1)),
    case("Sqrt", real(2, 3, low=0.1)),
    case("Acos", real(2, 3, low=-0.9, high=0.9)),
    case("Asin", real(2, 3, low=-0.9, high=0.9)),
    case("Atanh", real(2, 3, low=-0.9, high=0.9)),
    case("Acosh", real(2, 3, low=1.1, high=3)),
    case("ReduceLogSum", real(2, 3, low=0.1), axes=[1], opset=13),
    case("ReduceSum", SMALL, ints(0, 2), fixed=(1,), keepdims=0),
    case("ReduceSum", whole(4, 5), ints(1), fixed=(1,), note="int64"),
    case("ReduceMean", SMALL, keepdims=1, opset=13, note="all axes"),
    case("Gelu", SMALL, opset=20),
    case("Gelu", SMALL, approximate="tanh", opset=20, note="tanh"),
    case("Not", flags(3, 4)),
    case("And", flags(3, 4), flags(4, seed=1)),
    case("Or", flags(3, 4), flags(4, seed=1)),
    case("Xor", flags(3, 4), flags(4, seed=1)),
    case("Mod", whole(3, 4, below=50), whole(4, below=5, seed=1) + 1),
    case("Div", whole(3, 4, below=50), whole(4, below=5, seed=1) + 1, note="int64"),
    case("Div", whole(3, 4, below=50) - 25, whole(4, below=5, seed=1) + 1, note="negative int64"),
    case("Pow", real(3, 4, low=0.1), np.array(2.0, "float32"), fixed=(1,)),
    case("Pow", real(3, 4), np.array(3.0, "float32"), fixed=(1,), note="cube of negatives"),
    case("PRelu", IMAGE, real(8, 1, 1), fixed=(1,)),
    case("Clip", SMALL, np.array(0.0, "float32"), np.array(1.0, "float32"), fixed=(1, 2)),
    case("Clip", SMALL, None, np.array(1.0, "float32"), fixed=(2,), note="upper only"),
    case("Sum", real(3, 4), real(4, seed=1), real(3, 1, seed=2)),
    case("Mean", real(3, 4), real(4, seed=1), real(3, 1, seed=2)),
    case("Max", real(3, 4), real(4, seed=1), real(3, 1, seed=2), note="three"),
    case("Where", flags(3, 4), real(3, 4), real(4, seed=1)),
    case("Cast", SMALL * 3, to=onnx.TensorProto.INT64, note="to int64"),
    case("Cast", whole(3, 4), to=onnx.TensorProto.FLOAT, note="to float"),
    case("Cast", whole(3, 4, below=2), to=onnx.TensorProto.BOOL, note="to bool"),
    case("Cast", flags(3, 4), to=onnx.TensorProto.FLOAT, note="from bool"),
    case("IsNaN", np.array([1.0, np.nan, 2.0], "float32")),
    case("IsInf", np.array([1.0, np.inf, -np.inf], "float32")),
    case("Trilu", real(4, 5), upper=0),
    case("Softmax", SMALL, axis=-1),
    case("Softmax", SMALL, axis=1, note="middle axis"),
    case("LogSoftmax", SMALL, axis=-1),
    case("Hardmax", SMALL, axis=-1),
    case("LayerNormalization", real(4, 16), real(16, seed=1), real(16, seed=2), fixed=(1, 2)),
    case("InstanceNormalization", IMAGE, real(8, seed=1), real(8, seed=2), fixed=(1, 2)),
    case("BatchNormalization", IMAGE, *(real(8, seed=i, low=0.5) for i in range(1, 5)), fixed=(1, 2, 3, 4)),
    case("LRN", IMAGE, size=3),
    case("MeanVarianceNormalization", IMAGE),
    case("MatMul", real(5, 16), real(16, 12, seed=1)),
    case("MatMul", real(2, 5, 16), real(16, 12, seed=1), fixed=(1,), note="constant right side"),
    case("MatMul", real(2, 3, 5, 8), real(2, 3, 8, 6, seed=1), note="batched"),
    case("Gemm", real(5, 16), real(12, 16, seed=1), real(12, seed=2), fixed=(1, 2), transB=1, alpha=0.5),
    case("Einsum", real(3, 4), real(4, 5, seed=1), equation="ij,jk->ik"),
    case("Conv", IMAGE, real(6, 8, 3, 3, seed=1), real(6, seed=2), fixed=(1, 2), pads=[1, 1, 1, 1]),
    case("Conv", IMAGE, real(8, 1, 3, 3, seed=1), fixed=(1,), group=8, strides=[2, 2], note="depthwise"),
    case("Conv", IMAGE, real(8, 2, 3, 3, seed=1), fixed=(1,), group=4, dilations=[2, 2], note="grouped, dilated"),
    case("Conv", real(1, 4, 20), real(6, 4, 3, seed=1), fixed=(1,), note="1d"),
    case("Conv", real(1, 2, 5, 6, 7), real(3, 2, 3, 3, 3, seed=1), fixed=(1,), note="3d"),
    case("Conv", IMAGE, real(6, 8, 3, 3, seed=1), fixed=(1,), auto_pad="SAME_UPPER", strides=[2, 2], note="same"),
    case("ConvTranspose", IMAGE, real(8, 4, 3, 3, seed=1), fixed=(1,), strides=[2, 2], pads=[1, 1, 1, 1]),
    case("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, note="ceil"),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1, note="with padding"),
    case("LpPool", IMAGE, kernel_shape=[2, 2], p=2),
    case("GlobalAveragePool", IMAGE),
    case("GlobalMaxPool", IMAGE),
    case("GlobalLpPool", IMAGE, p=2),
    case("Reshape", SMALL, ints(4, -1), fixed=(1,)),
    case("Flatten", SMALL, axis=2),
    case("Squeeze", real(1, 3, 1, 4), ints(0, 2), fixed=(1,)),
    case("Unsqueeze", SMALL, ints(0, 3), fixed=(1,)),
    case("Transpose", SMALL, perm=[2, 0, 1]),
    case("Concat", real(2, 3), real(2, 5, seed=1), axis=1),
    case("Slice", real(6, 8), ints(1, 0), ints(5, 8), ints(0, 1), ints(1, 2), fixed=(1, 2, 3, 4)),
    case("Slice", real(6, 8), ints(5), ints(-7), ints(0), ints(-2), fixed=(1, 2, 3, 4), note="backwards"),
    case("Split", real(6, 8), ints(2, 6), fixed=(1,), axis=1, results=2),
    case("Expand", real(3, 1), ints(2, 3, 4), fixed=(1,)),
    case("Tile", real(2, 3), ints(2, 2), fixed=(1,)),
    case("Pad", real(3, 4), ints(1, 0, 2, 1), np.array(1.5, "float32"), fixed=(1, 2)),
    case("Pad", real(3, 4), ints(1, 0, 2, 1), fixed=(1,), mode="reflect", note="reflect"),
    case("Pad", real(3, 4), ints(1, 0, 2, 1), fixed=(1,), mode="edge", note="edge"),
    case("Gather", real(10, 6), whole(2, 3, below=10), fixed=(0,)),
    case("Gather", real(4, 6), np.array(-1, "int64"), fixed=(1,), axis=1, note="one, from the end"),
    case("GatherElements", real(4, 6), whole(4, 2, below=6), axis=1),
    case("GatherND", real(4, 6), whole(3, 2, below=4)),
    case("OneHot", whole(3, 4), np.array(5, "int64"), np.array([0.0, 1.0], "float32"), fixed=(1, 2)),
    case("ArgMax", SMALL, axis=1, keepdims=0),
    case("ArgMin", SMALL, axis=-1),
    case("CumSum", real(3, 4), np.array(1, "int64"), fixed=(1,)),
    case("TopK", real(3, 8), ints(2), fixed=(1,), results=2),
    case("ScatterElements", real(4, 6), whole(2, 6, below=4, seed=3), real(2, 6, seed=1), axis=0),
    case("ScatterND", real(4, 6), ints(0, 2).reshape(2, 1), real(2, 6, seed=1)),
    case(
        "Resize",
        IMAGE,
        None,
        np.array([1, 1, 2, 2], "float32"),
        fixed=(2,),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    case("Resize", IMAGE, None, np.array([1, 1, 2, 2], "float32"), fixed=(2,), mode="linear", note="linear"),
    case(
        "Resize",
        IMAGE,
        None,
        np.array([1, 1, 2, 2], "float32"),
        fixed=(2,),
        mode="linear",
        coordinate_transformation_mode="align_corners",
        note="linear, aligned",
    ),
    case("DepthToSpace", IMAGE, blocksize=2),
    case("DepthToSpace", IMAGE, blocksize=2, mode="CRD", note="CRD"),
    case("SpaceToDepth", real(1, 2, 4, 6), blocksize=2),
    case("Dropout", SMALL),
    case("EyeLike", real(3, 5)),
    case("GroupNormalization", IMAGE, real(8, seed=1), real(8, seed=2), fixed=(1, 2), num_groups=4, opset=21),
    case("RMSNormalization", real(4, 16), real(16, seed=1), fixed=(1,), opset=23),
    case("GridSample", real(1, 2, 5, 6), real(1, 4, 4, 2, low=-0.9, high=0.9), opset=16),
    case(
        "RoiAlign",
        IMAGE,
        np.array([[0, 0, 6, 6]], "float32"),
        ints(0),
        output_height=2,
        output_width=2,
        fixed=(2,),
        sampling_ratio=2,
    ),
    case("QuantizeLinear", real(3, 4), np.array(0.1, "float32"), np.array(3, "uint8"), fixed=(1, 2)),
    case("DequantizeLinear", whole(3, 4, dtype="uint8"), np.array(0.1, "float32"), np.array(3, "uint8"), fixed=(1, 2)),
    case("MatMulInteger", whole(3, 4, dtype="uint8"), whole(4, 5, dtype="int8", seed=1)),
    case("BitwiseAnd", whole(3, 4, below=99), whole(3, 4, below=99, seed=1), opset=18),
    case("BitwiseNot", whole(3, 4, below=99), opset=18),
    case("Size", SMALL),
    case("CastLike", SMALL, whole(1)),
    case("ConstantOfShape", ints(2, 3), fixed=(0,)),
    case("Range", *(np.array(v, "int64") for v in (1, 9, 2)), fixed=(0, 1, 2)),
    case("BitShift", whole(3, 4, below=99, dtype="uint8"), np.array(2, "uint8"), fixed=(1,), direction="LEFT"),
    case("MaxUnpool", real(1, 1, 2, 2), ints(5, 7, 13, 15).reshape(1, 1, 2, 2), kernel_shape=[2, 2], strides=[2, 2]),
)


@pytest.mark.parametrize("item", CASES, ids=lambda item: item.name)
def test_operator_agrees_with_onnx_runtime(item: Case) -> None:
    check(item)


GROUPS = {
    "convolution, normalisation, activation": """(float[1,8,9,10] x, float[6,8,3,3] w, float[6] w1, float[6] w2,
        float[6] w3, float[6] w4) => (float[1,6,9,10] y)
        { c = Conv <pads=[1,1,1,1]> (x, w) n = BatchNormalization (c, w1, w2, w3, w4) y = Relu (n) }""",
    "residual block end": """(float[1,8,9,10] x, float[1,6,9,10] r, float[6,8,1,1] w, float[6] w1)
        => (float[1,6,9,10] y) { c = Conv (x, w, w1) s = Add (c, r) y = Relu (s) }""",
    "depthwise and pointwise": """(float[1,8,9,10] x, float[8,1,3,3] w, float[6,8,1,1] w1) => (float[1,6,7,8] y)
        { d = Conv <group=8> (x, w) a = Relu (d) y = Conv (a, w1) }""",
    "convolution and pooling": """(float[1,8,9,10] x, float[6,8,3,3] w) => (float[1,6,3,4] y)
        { c = Conv (x, w) y = MaxPool <kernel_shape=[2,2], strides=[2,2]> (c) }""",
    "three results": """(float[5,37] x) => (float[5,37] a, float[5,37] b, float[5,37] c)
        { a = Relu (x) b = Tanh (a) c = Mul (a, b) }""",
    "attention": """(float[2,3,7,8] q, float[2,3,8,7] k, float[2,3,7,8] v) => (float[2,3,7,8] y)
        { s = MatMul (q, k) p = Softmax <axis=-1> (s) y = MatMul (p, v) }""",
    "layer normalisation by hand": """(float[4,33] x, float[33] w, float[33] w1) => (float[4,33] y)
        { m = ReduceMean <axes=[-1]> (x) d = Sub (x, m) q = Mul (d, d) v = ReduceMean <axes=[-1]> (q)
          e = Constant <value_float=0.00001> () g = Add (v, e) r = Sqrt (g)
          n = Div (d, r) t = Mul (n, w) y = Add (t, w1) }""",
    "heads apart": """(float[6,32] x, float[32,32] w) => (float[4,6,8] y)
        { p = MatMul (x, w) s = Constant <value_ints=[6,4,8]> () r = Reshape (p, s)
          y = Transpose <perm=[1,0,2]> (r) }""",
    "concatenation and split": """(float[2,3] x, float[2,5] z) => (float[2,4] a, float[2,4] b)
        { c = Concat <axis=1> (x, z) r = Relu (c) a, b = Split <axis=1> (r) }""",
    "embedding": """(int64[1,6] i, float[30,8] w, float[6,8] w1) => (float[1,6,8] y)
        { e = Gather (w, i) y = Add (e, w1) }""",
    "results that are inputs and repeats": """(float[3,4] x) => (float[3,4] a, float[3,4] b, float[12] c)
        { a = Relu (x) b = Identity (a) s = Constant <value_ints=[12]> () c = Reshape (x, s) }""",
    "scatter inside": """(float[4,6] x, int64[2,6] i, float[2,6] u) => (float[4,6] y)
        { t = Tanh (u) s = ScatterElements (x, i, t) y = Relu (s) }""",
    "sort inside": """(float[3,9] x) => (float[3,2] y, int64[3,2] j)
        { t = Abs (x) k = Constant <value_ints=[2]> () v, j = TopK (t, k) y = Sqrt (v) }""",
    "running sum inside": """(float[3,9] x) => (float[3,9] y)
        { t = Abs (x) a = Constant <value_int=1> () s = CumSum (t, a) y = Sqrt (s) }""",
    "comparison and choice": """(float[3,9] x, float[9] z) => (float[3,9] y, bool[3,9] m)
        { m = Less (x, z) n = Not (m) y = Where (n, x, z) }""",
    "large and odd": """(float[3,57,113] x, float[57,1] w, float[113] w1) => (float[3,57,113] y, float[3,57] m)
        { a = Mul (x, w) y = Add (a, w1) m = ReduceMax <axes=[2], keepdims=0> (y) }""",
    "softmax over odd rows": """(float[131,197] x, float[197] w) => (float[131,197] y)
        { a = Add (x, w) y = Softmax <axis=-1> (a) }""",
    "sums of columns": """(float[197,131] x) => (float[131] y, float[197] z)
        { y = ReduceMean <axes=[0], keepdims=0> (x) z = ReduceMean <axes=[1], keepdims=0> (x) }""",
    "everything to one number": """(float[40,64] x) => (float y)
        { q = Mul (x, x) y = ReduceMean <keepdims=0> (q) }""",
}


def graph_of(text: str) -> tuple[Graph, onnx.ModelProto]:
    """A model from ONNX's text form; arguments called w, w1, ... are constants."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> group {text}')
    for value in [value for value in model.graph.input if value.name.startswith("w")]:
        model.graph.input.remove(value)
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = real(*shape, seed=len(value.name) + sum(shape), low=0.1, high=1.0)
        model.graph.initializer.append(numpy_helper.from_array(array, value.name))
    return from_model(model, "group"), model


@pytest.mark.parametrize("text", GROUPS.values(), ids=list(GROUPS))
def test_group_is_one_kernel_that_agrees_with_onnx_runtime(text: str) -> None:
    graph, model = graph_of(text)
    arrays = {
        name: real(*graph.tensors[name].shape, seed=place)
        if graph.tensors[name].dtype == "float32"
        else whole(*graph.tensors[name].shape, below=4, seed=place)
        for place, name in enumerate(graph.inputs)
    }
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = dict(zip(graph.outputs, session.run(list(graph.outputs), arrays), strict=True))
    bound = bind_workload(graph, [operator.name for operator in graph.operators], {})
    constants = [np.asarray(graph.constants[name]) for name in bound.constants]
    made = run(bound.workload, [arrays[name] for name in bound.inputs], constants)
    assert set(bound.outputs) <= set(wanted)
    for name, array in zip(bound.outputs, made, strict=True):
        np.testing.assert_allclose(array, wanted[name], rtol=2e-4, atol=2e-5, err_msg=name)


REFUSED = {
    "detect_positive": case("IsInf", real(3), detect_positive=0, opset=20),
    "cubic": case("Resize", IMAGE, None, np.array([1, 1, 2, 2], "float32"), fixed=(2,), mode="cubic", opset=19),
    "smaller": case("Resize", IMAGE, None, np.array([1, 1, 0.5, 0.5], "float32"), fixed=(2,), mode="linear", opset=19),
    "antialias": case(
        "Resize", IMAGE, None, np.array([1, 1, 0.5, 0.5], "float32"), fixed=(2,), mode="linear", antialias=1, opset=19
    ),
    "not checked": case("Mod", real(3).astype("float64"), np.array(0.0), fixed=(1,), fmod=1),
    "mode max": case("RoiAlign", IMAGE, np.array([[0, 0, 6, 6]], "float32"), ints(0), mode="max"),
    "without elements": case("ReduceMax", np.zeros((0, 3), "float32"), axes=[1], keepdims=0, opset=13),
}


@pytest.mark.parametrize("word", REFUSED)
def test_what_tvm_computes_wrongly_or_nobody_checked_is_refused_by_name(word: str) -> None:
    item = REFUSED[word]
    workload = workload_of(item, reference(item))
    with pytest.raises(UnsupportedOperatorError, match=word) as caught:
        fallback_function(workload, TARGET)
    assert item.op_type in str(caught.value)


def test_operator_without_a_converter_is_refused_by_name() -> None:
    weights = real(1, 12, 4), real(1, 12, 3, seed=1)
    item = case("LSTM", real(5, 2, 4), *weights, hidden_size=3, fixed=(1, 2), results=3)
    with pytest.raises(UnsupportedOperatorError, match="LSTM"):
        imported_function(workload_of(item, reference(item)), TARGET)


def test_blocked_layouts_are_refused() -> None:
    values = (Value("input", (1, 8, 4, 4), "float32", "c8"), Value("output", (1, 8, 4, 4), "float32"))
    workload = Workload(values, (WorkloadOperator("Relu", (0,), (1,)),), 17)
    with pytest.raises(UnsupportedOperatorError, match="layouts of blocks"):
        fallback_function(workload, TARGET)


def test_large_nests_are_parallel_and_vectorized() -> None:
    graph, _ = graph_of("(float[64,64,32] x) => (float[64,64,32] y) { a = Abs (x) y = Sqrt (a) }")
    bound = bind_workload(graph, [operator.name for operator in graph.operators], {})
    text = imported_function(bound.workload, TARGET)[0].script()
    assert "T.parallel" in text and "T.vectorized" in text
    assert text.count("T.sblock(") == 2, "the chain of two operators should be one nest under the root"
