"""TVM's own partition, read back as a plan."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autofuse.backend.tvm import partition as tvm_partition
from autofuse.backend.tvm.partition import operator_classes, tvm_plan
from autofuse.fusion.legality import Refusal, check_plan
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph

pytest.importorskip("tvm")


def model(nodes: list[Any], inputs: dict[str, tuple[int, ...]], outputs: list[str], **weights: Any) -> Graph:
    """A graph read from ONNX; weights are zeros of the given shape, or arrays."""
    values = {
        name: np.zeros(value, np.float32) if isinstance(value, tuple) else value for name, value in weights.items()
    }
    proto = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in values.items()],
    )
    opset = helper.make_opsetid("", 18)
    return from_model(helper.make_model(proto, opset_imports=[opset], ir_version=9), "test")


def node(op_type: str, name: str, inputs: str, **attributes: Any) -> Any:
    outputs = attributes.pop("outputs", name)
    return helper.make_node(op_type, inputs.split(), outputs.split(), name, **attributes)


def groups(graph: Graph) -> list[str]:
    plan = tvm_plan(graph)
    check_plan(graph, plan)
    return ["+".join(group.operators) for group in plan.groups]


def conv_bn_relu(last: str = "relu") -> Graph:
    nodes = [
        node("Conv", "conv", "x w", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "bn", "conv scale bias mean var"),
        node("Relu", "relu", "bn"),
        node("Conv", "conv2", "relu w2"),
    ]
    ones = np.ones(8, np.float32)
    return model(
        nodes[: 3 if last == "relu" else 4],
        {"x": (1, 8, 8, 8)},
        [last],
        w=np.ones((8, 8, 3, 3), np.float32),
        w2=np.ones((8, 8, 3, 3), np.float32),
        scale=ones,
        bias=ones,
        mean=ones,
        var=ones,
    )


def test_convolution_batchnorm_and_relu_are_one_kernel_and_nothing_is_folded() -> None:
    graph = conv_bn_relu()
    assert groups(graph) == ["conv+bn+relu"]
    assert tvm_plan(graph).folds == ()


def test_two_convolutions_are_two_kernels() -> None:
    assert groups(conv_bn_relu("conv2")) == ["conv+bn+relu", "conv2"]


def test_a_transpose_after_a_matrix_product_is_not_fused_by_tvm() -> None:
    nodes = [
        node("MatMul", "matmul", "x w"),
        node("Add", "add", "matmul b"),
        node("Transpose", "t", "add", perm=[1, 0]),
    ]
    graph = model(nodes, {"x": (16, 32)}, ["t"], w=np.ones((32, 64), np.float32), b=np.ones(64, np.float32))
    assert groups(graph) == ["matmul+add", "t"]


def test_a_chain_with_fan_out_is_one_kernel_with_two_results() -> None:
    nodes = [node("Relu", "a", "x"), node("Exp", "b", "a"), node("Tanh", "c", "a"), node("Add", "d", "b c")]
    assert groups(model(nodes, {"x": (16, 32)}, ["d"])) == ["a+b+c+d"]


def test_an_operator_with_several_results_keeps_its_wires() -> None:
    nodes = [
        node("Split", "split", "x", outputs="left right", axis=1, num_outputs=2),
        node("Relu", "relu", "left"),
        node("Add", "add", "relu right"),
    ]
    graph = model(nodes, {"x": (16, 32)}, ["add"])
    assert sorted(name for group in groups(graph) for name in group.split("+")) == ["add", "relu", "split"]


def test_an_operator_that_tvm_cannot_import_is_opaque_and_runs_alone() -> None:
    nodes = [
        node("Relu", "relu", "x"),
        node("LSTM", "lstm", "relu w r", outputs="y", hidden_size=4),
        node("Exp", "exp", "y"),
    ]
    weights = {"w": np.ones((1, 16, 8), np.float32), "r": np.ones((1, 16, 4), np.float32)}
    graph = model(nodes, {"x": (3, 2, 8)}, ["exp"], **weights)
    assert operator_classes(graph)["lstm"] == tvm_partition.OPAQUE
    assert groups(graph)[-2:] == ["lstm", "exp"]


def test_equal_operators_are_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    original = tvm_partition._operator_class

    def counted(graph: Graph, operator: Any) -> int:
        imported.append(operator.name)
        return original(graph, operator)

    monkeypatch.setattr(tvm_partition, "_operator_class", counted)
    nodes = [node("Relu", "a", "x"), node("Exp", "b", "a"), node("Relu", "c", "b"), node("Exp", "d", "c")]
    tvm_plan(model(nodes, {"x": (16, 32)}, ["d"]))
    assert imported == ["a", "b"]


def test_a_group_that_legality_refuses_is_split_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: Any, operators: tuple[str, ...], connected: bool = True) -> Refusal | None:
        return Refusal("unsupported_operator", "no kernel for bn") if "bn" in operators and len(operators) > 1 else None

    monkeypatch.setattr(tvm_partition.Legality, "refusal", refuse)
    with caplog.at_level(logging.WARNING):
        plan = tvm_plan(conv_bn_relu("conv2"))
    assert [group.operators for group in plan.groups] == [("conv",), ("bn",), ("relu",), ("conv2",)]
    assert "no kernel for bn" in caplog.text
