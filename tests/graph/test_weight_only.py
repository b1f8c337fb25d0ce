"""Weights in blocks, from ONNX Runtime's operators and from QDQ form, become one form; what is refused says why."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autofuse.errors import InputError, UncoveredError
from autofuse.graph.loading.load import from_model
from autofuse.graph.submodel import to_model
from autofuse.kernels.lowering.coverage import without_kernel

RNG = np.random.default_rng(3)
NUMPY = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16, np.int64: TensorProto.INT64}


def model_of(nodes, feeds, initializers, opset=21, kind=np.float32):
    inputs = [helper.make_tensor_value_info(k, NUMPY[v.dtype.type], v.shape) for k, v in feeds.items()]
    outputs = [helper.make_tensor_value_info("y", NUMPY[kind], None)]
    graph = helper.make_graph(nodes, "one", inputs, outputs, initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def nbits(names, initializers, kind=np.float32, columns=24, **attributes):
    sizes = {"K": 80, "N": columns, "bits": 4, "block_size": 32, **attributes}
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **sizes)
    feeds = {"x": RNG.standard_normal((2, 3, 80)).astype(kind)}
    made = [numpy_helper.from_array(array, name) for name, array in initializers.items()]
    return model_of([node], feeds, made, kind=kind), feeds


def blocks(columns=24, bits=4, kind=np.float32):
    return {
        "w": RNG.integers(0, 256, (columns, 3, 4 * bits), dtype=np.uint8),
        "s": RNG.uniform(0.01, 0.02, (columns, 3)).astype(kind),
    }


def kinds(graph):
    return [operator.op_type for operator in graph.operators]


def same(run, model, feeds, limit=1e-5):
    graph = from_model(model, "one")
    assert without_kernel(graph) == {}
    (wanted,), (got,) = run(model, feeds), run(to_model(graph), feeds)
    assert wanted.dtype == got.dtype and wanted.shape == got.shape
    assert np.abs(wanted.astype("float64") - got).max() <= limit * np.abs(wanted).max()
    return graph


@pytest.mark.parametrize("bits", [4, 8])
def test_a_product_with_a_bias(run, bits):
    arrays = blocks(bits=bits) | {"z": RNG.integers(0, 256, (24, -(-3 * bits // 8)), dtype=np.uint8)}
    arrays |= {"b": RNG.standard_normal(24).astype("float32")}
    model, feeds = nbits(["x", "w", "s", "z", "", "b"], arrays, bits=bits, accuracy_level=1)
    graph = same(run, model, feeds)
    assert kinds(graph) == ["WeightOnlyMatMul", "Add"]
    assert graph.tensors["y"].shape == (2, 3, 24)


def test_flat_scales_and_zero_points_of_older_models(run):
    arrays = blocks() | {"z": RNG.integers(0, 256, (24, 2), dtype=np.uint8)}
    flat = {name: array if name == "w" else array.reshape(-1) for name, array in arrays.items()}
    same(run, *nbits(["x", "w", "s", "z"], flat))


def test_float16_is_storage(run):
    model, feeds = nbits(["x", "w", "s"], blocks(kind=np.float16), np.float16)
    graph = same(run, model, feeds, 2e-3)
    assert graph.tensors[next(op for op in graph.operators if op.domain).outputs[0]].dtype == "float32"


def test_the_level_of_a_rival_is_that_of_the_model():
    model, _ = nbits(["x", "w", "s"], blocks(), accuracy_level=4)
    (node,) = to_model(from_model(model, "one")).graph.node
    assert (node.op_type, {a.name: a.i for a in node.attribute}["accuracy_level"]) == ("MatMulNBits", 4)


REFUSED = {
    "weights of 2 bits": (["x", "w", "s"], {"bits": 2}),
    "blocks of 24": (["x", "w", "s"], {"block_size": 24}),
    "computed weights": (["x", "w", "x"], {}),
    "an order of its own": (["x", "w", "s", "", "g"], {}),
    "codes of shape": (["x", "w", "s"], {"columns": 25}),
    "real zero points": (["x", "w", "s", "s"], {"bits": 8}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refusal_says_why(why):
    names, attributes = REFUSED[why]
    bits = 8 if attributes.get("bits") == 8 else 4
    model, _ = nbits(names, blocks(bits=bits) | {"g": np.zeros(80, "int32")}, **attributes)
    with pytest.raises(UncoveredError, match=why):
        from_model(model, "one")


def narrow(name, array, kind):
    """An initializer of 4 bits."""
    return helper.make_tensor(name, kind, array.shape, array.reshape(-1).astype(int).tolist())


FOUR = {TensorProto.INT4: (-8, 8), TensorProto.UINT4: (0, 16)}
EIGHT = {TensorProto.INT8: (-128, 128), TensorProto.UINT8: (0, 256)}


def dequantised(kind, axis, shape, block, zeros=True):
    """Initializers and node of weights in blocks."""
    low, high = (FOUR | EIGHT)[kind]
    counts = [-(-size // block) if place == axis else size for place, size in enumerate(shape)]
    scale = RNG.uniform(0.01, 0.02, counts).astype("float32")
    made = [narrow("w", RNG.integers(low, high, shape), kind), numpy_helper.from_array(scale, "s")]
    made += [narrow("z", RNG.integers(low, high, counts), kind)] if zeros else []
    names = ["w", "s", "z"] if zeros else ["w", "s"]
    return made, helper.make_node("DequantizeLinear", names, ["r"], axis=axis, block_size=block)


@pytest.mark.parametrize("kind", [*FOUR, *EIGHT])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("form", ["plain", "turned", "gemm"])
def test_weights_dequantised_in_blocks(run, kind, zeros, form):
    axis, shape = (0, (96, 20)) if form == "plain" else (1, (20, 96))
    made, node = dequantised(kind, axis, shape, 32, zeros)
    nodes = {
        "plain": [node, helper.make_node("MatMul", ["x", "r"], ["y"])],
        "turned": [node, helper.make_node("Transpose", ["r"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])],
        "gemm": [node, helper.make_node("Gemm", ["x", "r", "b"], ["y"], transB=1)],
    }[form]
    made += [numpy_helper.from_array(RNG.standard_normal(20).astype("float32"), "b")] if form == "gemm" else []
    feeds = {"x": RNG.standard_normal((3, 96)).astype("float32")}
    model = model_of(nodes, feeds, made)
    graph = from_model(model, "one")
    assert kinds(graph) == ["WeightOnlyMatMul", "Add"][: 2 if form == "gemm" else 1]
    assert graph.by_name[graph.operators[0].name].attributes["bits"] == (4 if kind in FOUR else 8)
    (wanted,), (got,) = run(model, feeds), run(to_model(in_full_graph(graph)), feeds)
    assert np.abs(wanted - got).max() <= 1e-5 * np.abs(wanted).max()


def in_full_graph(graph):
    from dataclasses import replace

    from autofuse.graph.own.weight_only import in_full

    return replace(graph, operators=tuple(map(in_full, graph.operators)))


def test_larger_blocks_are_cut_and_odd_ones_folded(run):
    feeds = {"x": RNG.standard_normal((3, 1100)).astype("float32")}
    for block, bits in ((512, 4), (100, 0)):
        made, node = dequantised(TensorProto.INT4, 0, (1100, 20), block)
        model = model_of([node, helper.make_node("MatMul", ["x", "r"], ["y"])], feeds, made)
        graph = in_full_graph(from_model(model, "one"))
        assert kinds(graph) == ["WeightOnlyMatMul" if bits else "MatMul"]
        (wanted,), (got,) = run(model, feeds), run(to_model(graph), feeds)
        assert np.abs(wanted - got).max() <= 1e-5 * np.abs(wanted).max()


def test_weights_of_4_bits_that_something_else_reads_are_refused():
    made = [narrow("w", RNG.integers(-8, 8, (96, 20)), TensorProto.INT4)]
    nodes = [helper.make_node("Cast", ["w"], ["r"], to=1), helper.make_node("MatMul", ["x", "r"], ["y"])]
    model = model_of(nodes, {"x": RNG.standard_normal((3, 96)).astype("float32")}, made)
    with pytest.raises(InputError, match="int4"):
        from_model(model, "one")


@pytest.mark.parametrize("kind", [*FOUR, "packed", "bytes"])
@pytest.mark.parametrize("zeros", [True, False])
def test_tables_in_blocks(run, kind, zeros):
    at, width = np.array([[5, 0, 2], [1, 1, 4]]), {"packed": 32}.get(kind, 64)
    bits = 8 if kind == "bytes" else 4
    scale = numpy_helper.from_array(RNG.uniform(0.01, 0.02, (6, 4)).astype("float32"), "s")
    if kind in FOUR:
        low, high = FOUR[kind]
        made = [narrow("w", RNG.integers(low, high, (6, 64)), kind), scale]
        made += [narrow("z", RNG.integers(low, high, (6, 4)), kind)] if zeros else []
    else:
        made = [numpy_helper.from_array(RNG.integers(0, 256, (6, width), dtype=np.uint8), "w"), scale]
        points = RNG.integers(0, 256, (6, width // 16), dtype=np.uint8)
        made += [numpy_helper.from_array(points, "z")] if zeros else []
    node = helper.make_node("GatherBlockQuantized", ["w", "at", "s", "z"][: 4 if zeros else 3], ["y"], bits=bits,
                            domain="com.microsoft", block_size=16, gather_axis=0, quantize_axis=1)  # fmt: skip
    graph = same(run, model_of([node], {"at": at}, made), {"at": at}, 1e-6)
    assert "Gather" in kinds(graph)


def test_a_table_whose_blocks_lie_across_rows(run):
    at = np.array([[5, 0, 2], [1, 1, 4]])
    made = [narrow("w", RNG.integers(-8, 8, (3, 32, 6)), TensorProto.INT4)]
    made += [numpy_helper.from_array(RNG.uniform(0.01, 0.02, (3, 2, 6)).astype("float32"), "s")]
    for axes in ({"gather_axis": 2, "quantize_axis": 1}, {"gather_axis": 0, "quantize_axis": 1}):
        node = helper.make_node("GatherBlockQuantized", ["w", "at", "s"], ["y"], domain="com.microsoft", block_size=16,
                                **axes)  # fmt: skip
        within = at % 3 if axes["gather_axis"] == 0 else at
        same(run, model_of([node], {"at": within}, made), {"at": within}, 1e-6)


def test_a_rival_is_right_within_the_level_that_the_model_grants_it():
    """Alone, ONNX Runtime quantises the rows at this level; the reference does not."""
    from autofuse.measure.checking.reference import run_reference
    from autofuse.measure.networks.judgement import WHOLE_LIMIT, whole_limit

    limits = []
    for level in (1, 4):
        model, feeds = nbits(["x", "w", "s"], blocks(), accuracy_level=level)
        graph = from_model(model, "one")
        limits.append(whole_limit(graph, feeds))
        (exact,), (shipped,) = (run_reference(graph, feeds, optimise=way).values() for way in (False, True))
        assert np.abs(exact - shipped).max() <= limits[-1] * np.ptp(exact)
    assert limits[0] <= 2 * WHOLE_LIMIT
