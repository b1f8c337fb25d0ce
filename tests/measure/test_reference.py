import dataclasses

import numpy as np
import onnx
import onnx.parser
import pytest

from autofuse.errors import InputError
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.kernels.workload.workload import bind_workload
from autofuse.measure.checking import reference
from autofuse.measure.checking.reference import capture, run_reference

WEIGHT = np.arange(12, dtype="float32").reshape(4, 3)
BIAS = np.array([1, -100, 2], "float32")


def network(last: str = "Relu") -> Graph:
    """y = last(x @ weight + bias); all tensors by name."""
    shapes = {"x": (2, 4), "weight": (4, 3), "bias": (3,), "product": (2, 3), "sum": (2, 3), "y": (2, 3)}
    return Graph(
        "tiny",
        ("x",),
        ("y",),
        (
            Operator("multiply", "MatMul", ("x", "weight"), ("product",)),
            Operator("shift", "Add", ("product", "bias"), ("sum",)),
            Operator("last", last, ("sum",), ("y",)),
        ),
        {name: Tensor(name, shape, "float32") for name, shape in shapes.items()},
        {"weight": WEIGHT, "bias": BIAS},
        17,
    )


def x() -> dict[str, np.ndarray]:
    return {"x": np.array([[1, 2, 3, 4], [-1, 0, 1, 0.5]], "float32")}


def test_the_tensors_asked_for_are_kept_with_inputs_and_outputs(tmp_path):
    store = capture(network(), x(), tmp_path, ["sum"])
    expected = x()["x"] @ WEIGHT + BIAS
    assert np.allclose(store.array("sum"), expected)
    assert np.allclose(store.array("y"), np.maximum(expected, 0))
    assert np.array_equal(store.array("x"), x()["x"])
    assert set(store.paths) == {"x", "sum", "y"}
    assert store.outputs == ("y",)


def test_big_captures_are_fetched_in_several_runs_with_the_same_result(tmp_path, monkeypatch):
    whole = capture(network(), x(), tmp_path / "whole", ["product", "sum"])
    monkeypatch.setattr(reference, "CHUNK_BYTES", 24)
    pieces = capture(network(), x(), tmp_path / "pieces", ["product", "sum"])
    for name in ("product", "sum", "y"):
        assert np.array_equal(whole.array(name), pieces.array(name))


def test_a_tensor_that_was_not_captured_is_named(tmp_path):
    with pytest.raises(InputError, match="'product' was not captured"):
        capture(network(), x(), tmp_path, []).path("product")


@pytest.mark.parametrize("name", ["nowhere", "weight"])
def test_only_what_an_operator_produces_can_be_captured(tmp_path, name):
    with pytest.raises(InputError, match=name):
        capture(network(), x(), tmp_path, [name])


def test_a_group_finds_its_case_and_its_constants(tmp_path):
    graph = network()
    store = capture(graph, x(), tmp_path, ["product", "sum"])
    bound = bind_workload(graph, ["multiply", "shift"], {})
    case = store.case(bound)
    assert [np.load(path).shape for path in case.inputs] == [(2, 4)]
    assert np.array_equal(np.load(case.outputs[0]), store.array("sum"))
    weight, bias = (np.load(path) for path in store.constants(graph, bound))
    assert np.array_equal(weight, WEIGHT)
    assert np.array_equal(bias, BIAS)


def test_equal_constants_share_a_file_and_different_ones_do_not(tmp_path):
    store = capture(network(), x(), tmp_path, [])
    assert store.constant(WEIGHT) == store.constant(WEIGHT.copy())
    assert store.constant(WEIGHT) != store.constant(WEIGHT.T)
    assert store.constant(WEIGHT) != store.constant(WEIGHT.astype("float64"))
    assert np.load(store.constant(np.float32(3))).shape == ()


def test_the_reference_runs_the_whole_model():
    (result,) = run_reference(network(), x()).values()
    assert np.allclose(result, np.maximum(x()["x"] @ WEIGHT + BIAS, 0))


def test_the_reference_is_onnx_runtime_without_its_optimiser_which_loses_zeros_that_are_padded_before_a_pool(tmp_path):
    onnx_text = """<ir_version: 8, opset_import: ["" : 13]> pool (float[1,1,2,2] x) => (float[1,1,2,3] y)
    <int64[8] pads = {0, 0, 0, 0, 0, 0, 0, 1}> {
      padded = Pad (x, pads)
      y = MaxPool <kernel_shape = [1, 1]> (padded)
    }"""
    onnx.save(onnx.parser.parse_model(onnx_text), tmp_path / "pool.onnx")
    (result,) = run_reference(load(tmp_path / "pool.onnx", {}), {"x": np.full((1, 1, 2, 2), -1, "float32")}).values()
    assert np.array_equal(result, [[[[-1, -1, 0], [-1, -1, 0]]]])


@pytest.mark.parametrize(
    "run", [lambda graph, folder: capture(graph, x(), folder, ["sum"]), lambda graph, _: run_reference(graph, x())]
)
def test_a_model_that_yields_nan_is_refused_with_the_output_and_the_count(tmp_path, run):
    with pytest.raises(InputError, match=r"model itself yields NaN in output 'y' \(\d of 6 elements\)"):
        run(network("Sqrt"), tmp_path)


def test_nan_is_traced_to_the_tensor_where_it_first_appears(tmp_path):
    graph = network("Log")
    tensors = {**graph.tensors, "z": Tensor("z", (2, 3), "float32")}
    operators = (*graph.operators, Operator("end", "Abs", ("y",), ("z",)))
    graph = dataclasses.replace(graph, tensors=tensors, operators=operators, outputs=("z",))
    with pytest.raises(InputError, match="NaN first appears in 'y'"):
        capture(graph, x(), tmp_path, ["y", "sum"])


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({}, "'x' is missing"),
        ({"x": np.zeros((2, 5), "float32")}, r"float32\[2, 5\].*float32\[2, 4\]"),
        ({"x": np.zeros((2, 4), "float64")}, "float64"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, says):
    with pytest.raises(InputError, match=says):
        run_reference(network(), inputs)


def test_a_model_that_onnx_runtime_refuses_is_an_input_error():
    with pytest.raises(InputError, match="ONNX Runtime cannot load"):
        run_reference(network("NoSuchOperator"), x())
