"""ONNX models of parts of a graph, and of a workload."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from autofuse.graph.submodel import submodel, to_model
from autofuse.kernels.workload.onnx_model import workload_model
from autofuse.kernels.workload.workload import Workload, bind_workload

TEXT = """f (float[1,3,8,8] x, float[1,4,8,8] z, float[7] unused) => (float[1,4,8,8] y, float[1,4] p) {
    c = Conv<pads=[1,1,1,1]>(x, w, b) a = Add(c, z) y = Relu(a) low = Constant<value_float=0.1>()
    m = Clip(a, low) g = GlobalAveragePool(m) p = Flatten(g) }"""
WEIGHTS = {
    "w": np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32),
    "b": np.arange(4, dtype=np.float32),
}


@pytest.fixture
def graph(graph_of):
    """A convolution with two branches behind it."""
    return graph_of(TEXT, weights=WEIGHTS)


@pytest.fixture
def feeds():
    """Values of the graph's inputs."""
    generator = np.random.default_rng(1)
    shapes = {"x": (1, 3, 8, 8), "z": (1, 4, 8, 8), "unused": (7,)}
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def names(values):
    return [value.name for value in values]


def test_the_whole_graph_is_a_valid_model_that_computes_the_same(graph, model, run, feeds):
    proto = to_model(graph)
    onnx.checker.check_model(proto, full_check=True)
    assert names(proto.graph.input) == ["x", "z", "unused"]
    assert names(proto.graph.output) == ["y", "p"]
    for old, new in zip(run(model(TEXT, weights=WEIGHTS), feeds), run(proto, feeds), strict=True):
        assert np.array_equal(old, new)


def test_a_part_reads_its_boundary_and_writes_what_is_needed_outside(graph):
    proto = submodel(graph, ["Add_1", "Conv_0"])
    onnx.checker.check_model(proto, full_check=True)
    assert [node.op_type for node in proto.graph.node] == ["Conv", "Add"]
    assert names(proto.graph.input) == ["x", "z"]
    assert names(proto.graph.output) == ["a"]
    assert sorted(names(proto.graph.initializer)) == ["b", "w"]
    assert names(proto.graph.value_info) == ["c"]


def test_chosen_constants_become_inputs_and_chosen_tensors_outputs(graph, run, feeds):
    proto = submodel(graph, ["Conv_0", "Add_1"], outputs=["c", "a"], constants_as_inputs={"w", "elsewhere"})
    onnx.checker.check_model(proto, full_check=True)
    assert names(proto.graph.input) == ["x", "z", "w"]
    assert names(proto.graph.output) == ["c", "a"]
    c, a = run(proto, {**feeds, "w": graph.constants["w"]})
    assert np.allclose(a, c + feeds["z"])


def test_parts_run_one_after_another_equal_the_whole(graph, run, feeds):
    whole = run(to_model(graph), feeds)
    known = dict(feeds)
    for operator in graph.operators:
        proto = submodel(graph, [operator.name])
        known.update(zip(names(proto.graph.output), run(proto, known), strict=True))
    assert all(np.array_equal(known[name], value) for name, value in zip(graph.outputs, whole, strict=True))


@pytest.mark.parametrize(
    ("operators", "outputs", "words"),
    [
        ([], None, "no operators"),
        (["ghost"], None, "no such operator: 'ghost'"),
        (["Add_1"], ["c"], "'c' is not computed"),
    ],
)
def test_a_part_that_is_none_is_refused(graph, operators, outputs, words):
    with pytest.raises(InputError, match=words):
        submodel(graph, operators, outputs)


def test_a_workload_becomes_a_model_of_numbered_values(graph, run, feeds):
    bound = bind_workload(graph, ["Conv_0", "Add_1", "Relu_2", "Clip_4"], {"z": "c2", "y": "c2"})
    workload = Workload.from_text(bound.workload.text)
    proto = workload_model(workload)
    onnx.checker.check_model(proto, full_check=True)
    arguments = [*bound.inputs, *bound.constants]
    assert len(proto.graph.input) == len(arguments) == 4
    assert all(name.startswith("v") for name in names(proto.graph.input))
    values = {**feeds, **graph.constants}
    given = {value.name: values[name] for value, name in zip(proto.graph.input, arguments, strict=True)}
    expected = run(submodel(graph, ["Conv_0", "Add_1", "Relu_2", "Clip_4"], bound.outputs), feeds)
    for old, new in zip(expected, run(proto, given), strict=True):
        assert np.array_equal(old, new)


def test_tensor_attributes_and_subgraphs_survive_the_way_there_and_back(graph_of, run):
    graph = graph_of(
        """f (bool c, float[2] x) => (float[2] y) {
        a = Exp(x) b = RandomNormalLike<seed=1.0>(a) z = Sub(b, b) d = Add(a, z)
        y = If(c) <then_branch = g () => (float[2] p) { k = Constant<value=float[2] {1,2}>() p = Add(d, k) },
                   else_branch = h () => (float[2] q) { q = Identity(d) }> }"""
    )
    again = from_model(to_model(graph), "test")
    assert again.operators == graph.operators
    branch = next(op.name for op in graph.operators if op.op_type == "If")
    proto = submodel(graph, [branch])
    assert names(proto.graph.input) == ["c", "d"]
    feeds = {"c": np.array(True), "d": np.zeros(2, np.float32)}
    assert run(proto, feeds)[0].tolist() == [1, 2]
    bound = bind_workload(graph, [branch], {})
    renamed = workload_model(bound.workload)
    assert run(renamed, {"v0": feeds["c"], "v1": feeds["d"]})[0].tolist() == [1, 2]
