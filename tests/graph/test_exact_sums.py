"""A reference adds many numbers in float64: what it says of a mean does not depend on the order of the sum."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autofuse.graph.loading.load import from_model
from autofuse.graph.own.exact_sums import MANY, exact_sum, is_exact_sum
from autofuse.measure.checking.reference import run_reference

CASES = [
    ("GlobalAveragePool", 17, {}, None, (1, 3, 56, 56), (2, 3), True),
    ("ReduceMean", 17, {"axes": [2, 3], "keepdims": 0}, None, (1, 3, 56, 56), (2, 3), False),
    ("ReduceMean", 18, {"keepdims": 1}, [1, -1], (5, 40, 3, 60), (1, 3), True),
    ("ReduceMean", 18, {"keepdims": 0}, None, (4, 500), (0, 1), False),
    ("ReduceSum", 11, {"axes": [0], "keepdims": 1}, None, (3000, 2), (0,), True),
    ("ReduceSum", 13, {"keepdims": 0}, [0], (3000, 2), (0,), False),
]


def model(kind, opset, attributes, axes, shape):
    constants = [] if axes is None else [numpy_helper.from_array(np.array(axes, np.int64), "axes")]
    node = helper.make_node(kind, ["x", *(["axes"] if constants else [])], ["y"], **attributes)
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph([node], "sums", [given], [onnx.ValueInfoProto(name="y")], constants)
    return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), "sums")


@pytest.mark.parametrize(("kind", "opset", "attributes", "axes", "shape", "over", "kept"), CASES)
def test_a_reference_is_the_exact_sum_rounded_once(kind, opset, attributes, axes, shape, over, kept):
    graph = model(kind, opset, attributes, axes, shape)
    x = np.random.default_rng(1).uniform(0.572, 0.573, shape).astype("float32")
    exact = x.astype("float64").sum(over, keepdims=kept)
    exact = exact if kind == "ReduceSum" else exact / (x.size / exact.size)
    found = run_reference(graph, {"x": x})["y"]
    assert found.dtype == np.float32 and np.array_equal(found, exact.astype("float32"))


def test_short_sums_and_other_types_stay_as_they_are():
    for graph in (model("GlobalAveragePool", 17, {}, None, (1, 3, 4, 4)), model(*CASES[-1][:4], (MANY - 1, 2))):
        assert [exact_sum(one, graph.tensors) for one in graph.operators] == list(graph.operators)
    long = model(*CASES[-1][:4], (MANY, 2))
    assert all(is_exact_sum(exact_sum(one, long.tensors)) for one in long.operators)
