"""ScatterND at places that make up a box: slices and joins, with the values of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import from_model
from autofuse.measure.checking.reference import run_reference

DATA = (4, 6, 5)


def _model(indices: np.ndarray, updates: tuple[int, ...], **attributes: str) -> ModelProto:
    node = helper.make_node("ScatterND", ["x", "places", "u"], ["y"], **attributes)
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", DATA), ("u", updates))]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, DATA)
    graph = helper.make_graph([node], "g", inputs, [output], [numpy_helper.from_array(indices, "places")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _box(*ranges: range) -> np.ndarray:
    return np.stack(np.meshgrid(*ranges, indexing="ij"), -1).astype(np.int64)


def _check(model: ModelProto, expected: set[str]) -> None:
    """The loaded graph has just these operators, and computes what ONNX Runtime does on the model."""
    graph = from_model(model, "scattered")
    assert {operator.op_type for operator in graph.operators} == expected
    inputs = generate_inputs(graph, 0)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(run_reference(graph, inputs)["y"], session.run(["y"], inputs)[0])


@pytest.mark.parametrize(
    ("indices", "updates"),
    [
        (_box(range(1, 3)), (2, 6, 5)),
        (_box(range(-2, 0)), (2, 6, 5)),
        (_box(range(4), range(2, 6)), (4, 4, 5)),
        (_box(range(1, 4), range(6), range(1, 4)), (3, 6, 3)),
    ],
)
def test_a_box_of_places_is_sliced_and_joined(indices: np.ndarray, updates: tuple[int, ...]) -> None:
    _check(_model(indices, updates), {"Slice", "Concat"})


@pytest.mark.parametrize(
    ("indices", "attributes"),
    [
        (_box(range(3, 1, -1)), {}),
        (_box(range(0, 4, 2)), {}),
        (_box(range(-1, 1)), {}),
        (_box(range(1, 3)), {"reduction": "add"}),
    ],
)
def test_places_in_another_order_are_left(indices: np.ndarray, attributes: dict[str, str]) -> None:
    _check(_model(indices, (2, 6, 5), **attributes), {"ScatterND"})


def test_places_that_are_too_many_to_be_folded_are_known_before_they_are_broadcast() -> None:
    grid, size = (64, 64, 33), (64, 64, 64)
    names, nodes, constants = [], [], []
    for axis, start in enumerate((0, 0, 31)):
        steps = start + np.arange(grid[axis]).reshape(-1, *(1,) * (2 - axis))
        constants += [numpy_helper.from_array(steps, f"steps{axis}")]
        nodes += [
            helper.make_node("Expand", [f"steps{axis}", "grid"], [f"wide{axis}"]),
            helper.make_node("Unsqueeze", [f"wide{axis}", "last"], [f"place{axis}"]),
        ]
        names.append(f"place{axis}")
    nodes += [
        helper.make_node("Concat", names, ["places"], axis=-1),
        helper.make_node("ScatterND", ["x", "places", "u"], ["y"]),
    ]
    constants += [numpy_helper.from_array(np.array(grid), "grid"), numpy_helper.from_array(np.array([-1]), "last")]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", size), ("u", grid))]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, size)
    graph = helper.make_graph(nodes, "g", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    _check(model, {"Slice", "Concat"})
