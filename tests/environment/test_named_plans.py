"""Plans by name: each is legal, and what is neither a name nor a plan file says what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from autofuse.environment.named_plans import NAMES, named_plan
from autofuse.errors import InputError, PlanError
from autofuse.fusion.legality import check_plan
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph


@pytest.fixture(scope="module")
def graph() -> Graph:
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Exp", ["a"], ["b"], name="exp"),
        helper.make_node("Softmax", ["b"], ["y"], name="softmax", axis=-1),
    ]
    shape = [2, 8]
    body = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, shape)], [value("y", TensorProto.FLOAT, shape)])
    return from_model(helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)]), "g")


@pytest.mark.parametrize("name", NAMES)
def test_every_named_plan_is_legal(name: str, graph: Graph) -> None:
    check_plan(graph, named_plan(graph, name))


def test_no_fusion_means_one_kernel_an_operator(graph: Graph) -> None:
    assert [group.operators for group in named_plan(graph, "none").groups] == [("relu",), ("exp",), ("softmax",)]


def test_a_plan_file_gives_the_plan_that_was_written(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(named_plan(graph, "default").to_json(), encoding="utf-8")
    assert named_plan(graph, str(path)) == named_plan(graph, "default")


def test_what_is_neither_a_name_nor_a_file_says_what_is_allowed(graph: Graph) -> None:
    allowed = "none, tvm-partition, dnnfusion, default, always, best"
    with pytest.raises(InputError, match=f"'fastest': No such file .*allowed: {allowed}"):
        named_plan(graph, "fastest")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "plan is not JSON"),
        ('{"schema": 1, "folds": [], "groups": [["relu"], ["exp"]]}', "plan leaves out"),
        ('{"schema": 1, "folds": [], "groups": [["relu"], ["exp"], ["other"]]}', "unknown operator, 'other'"),
    ],
)
def test_a_file_that_holds_no_plan_of_the_graph_is_refused(
    text: str, message: str, graph: Graph, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        named_plan(graph, str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
