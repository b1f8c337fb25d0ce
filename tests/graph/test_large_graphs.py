"""Graphs of very many operators: every step takes time in proportion to them, in whatever order they stand.

Bounds are of processor time, far above what a step takes (1 to 4 s) and far below what quadratic ones took.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import pytest
from onnx import TensorProto, helper

from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from autofuse.views.inspect import inspect

node, value = helper.make_node, helper.make_tensor_value_info
MOST_CPU_S = 40.0


@contextmanager
def bounded() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < MOST_CPU_S


def model_of(nodes: list[onnx.NodeProto], output: str) -> onnx.ModelProto:
    shape = [value("x", TensorProto.FLOAT, [2])], [value(output, TensorProto.FLOAT, [2])]
    graph = helper.make_graph(nodes, "large", *shape)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def chain_of(count: int) -> list[onnx.NodeProto]:
    kinds = ("Relu", "Exp", "Neg", "Tanh")
    return [node(kinds[i % 4], [f"t{i - 1}" if i else "x"], [f"t{i}"], name=f"op{i}") for i in range(count)]


@pytest.mark.parametrize("order", ["shuffled", pytest.param("reversed", marks=pytest.mark.long)])
def test_twenty_thousand_operators_load_in_any_order(order: str) -> None:
    nodes = chain_of(20_000)
    if order == "reversed":
        nodes.reverse()
    elif order == "shuffled":
        random.Random(0).shuffle(nodes)
    with bounded():
        graph = from_model(model_of(nodes, "t19999"), "large")
    assert [operator.name for operator in graph.operators] == [f"op{i}" for i in range(20_000)]


def test_operators_that_may_stand_in_several_orders_keep_the_models() -> None:
    nodes = [node("Add", ["a", "b"], ["y"], name="last"), *(node("Exp", ["x"], [n], name=n) for n in ("b", "a"))]
    graph = from_model(model_of([*nodes, node("Relu", ["y"], ["z"], name="end")], "z"), "small")
    assert [operator.name for operator in graph.operators] == ["b", "a", "last", "end"]


def test_a_long_cycle_is_named_by_its_first_operators() -> None:
    nodes = chain_of(5_000)
    nodes[0].input[0] = "t4999"
    with bounded(), pytest.raises(InputError, match="cycle through .* and 4992 more; export the model again"):
        from_model(model_of(nodes, "t4999"), "large")


@pytest.mark.long
def test_a_sum_of_very_many_terms_is_inspected() -> None:
    """A chain of 3,000 additions, each term another reader of one input."""
    count = 3_000
    nodes = [node(("Relu", "Exp", "Neg")[i % 3], ["x"], [f"r{i}"], name=f"r{i}") for i in range(count)]
    nodes += [node("Add", [f"t{i - 1}" if i else "x", f"r{i}"], [f"t{i}"], name=f"op{i}") for i in range(count)]
    with bounded():
        summary = inspect(from_model(model_of(nodes, f"t{count - 1}"), "wide"))
    assert len(summary.operators) == 2 * count
