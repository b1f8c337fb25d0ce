"""FLOPs and bytes, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.graph.cost import Cost, flops, group_cost, intermediate_bytes, operator_cost


def weight(*shape):
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("text", "weights", "expected"),
    [
        (
            "f (float[1,4,8,8] x) => (float[1,6,8,8] y) { y = Conv<pads=[1,1,1,1]>(x, w) }",
            {"w": weight(6, 4, 3, 3)},
            2 * 6 * 64 * 4 * 9,
        ),
        (
            "f (float[1,4,8,8] x) => (float[1,4,4,4] y) { y = Conv<pads=[1,1,1,1], strides=[2,2], group=4>(x, w, b) }",
            {"w": weight(4, 1, 3, 3), "b": weight(4)},
            2 * 4 * 16 * 9 + 4 * 16,
        ),
        (
            "f (float[1,4,5,5] x) => (float[1,6,10,10] y) { y = ConvTranspose<strides=[2,2]>(x, w) }",
            {"w": weight(4, 6, 2, 2)},
            2 * 100 * 6 * 4,
        ),
        ("f (float[3,5] x) => (float[3,7] y) { y = Gemm(x, w, b) }", {"w": weight(5, 7), "b": weight(7)}, 21 * 11),
        (
            "f (float[5,2,3] x) => (float[5,1,2,4] y) { y = LSTM<hidden_size=4>(x, w, r) }",
            {"w": weight(1, 16, 3), "r": weight(1, 16, 4)},
            5 * 2 * 16 * (2 * 4 + 3),
        ),
        ("f (float[2,3,5] x, float[2,5,4] z) => (float[2,3,4] y) { y = MatMul(x, z) }", {}, 2 * 2 * 3 * 5 * 4),
        ("f (float[5] x, float[5] z) => (float y) { y = MatMul(x, z) }", {}, 10),
        ('f (float[2,3] x, float[3,4] z) => (float[2,4] y) { y = Einsum<equation="ij,jk->ik">(x, z) }', {}, 48),
        ("f (float[1,2,8,8] x) => (float[1,2,4,4] y) { y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }", {}, 128),
        ("f (float[1,2,8,8] x) => (float[1,2,1,1] y) { y = GlobalAveragePool(x) }", {}, 128),
        ("f (float[2,8] x) => (float[2,8] y) { y = Softmax(x) }", {}, 80),
        ("f (float[2,8] x) => (float[2,8] y) { y = Gelu(x) }", {}, 16),
        ("f (float[2,8] x, float[8] z) => (float[2,8] y) { y = Add(x, z) }", {}, 16),
        ("f (float[2,8] x, float[8] z) => (float[2,8] y) { y = Max(x, z, x) }", {}, 32),
        ("f (float[2,8] x) => (float[8,2] y) { y = Transpose(x) }", {}, 0),
        ("f (float[2,8] x) => (float[2,8] y) { y = Identity(x) }", {}, 0),
        ("f (float[2,8] x) => (float[2,1] y) { a = Constant<value_ints=[1]>() y = ReduceSum(x, a) }", {}, 16),
    ],
)
def test_flops(graph_of, text, weights, expected):
    graph = graph_of(text, 20, weights)
    assert flops(graph, graph.operators[-1]) == expected


def test_bytes_of_one_operator(graph_of):
    graph = graph_of("f (float[4,6] x) => (float[4,6] y) { y = Add(x, b) }", weights={"b": weight(6)})
    assert operator_cost(graph, graph.operators[0]) == Cost(24, 96 + 24, 96)


def test_a_gather_reads_only_the_rows_it_picks(graph_of):
    graph = graph_of("f (int64[2] i) => (float[2,8] y) { y = Gather(w, i) }", weights={"w": weight(1000, 8)})
    assert operator_cost(graph, graph.operators[0]) == Cost(0, 64 + 16, 64)
    assert group_cost(graph, ["Gather_0"]) == operator_cost(graph, graph.operators[0])


def test_a_group_moves_only_its_boundary(graph_of):
    graph = graph_of("f (float[10] x) => (float[10] y) { a = Exp(x) b = Neg(a) y = Mul(b, a) }")
    assert group_cost(graph, ["Exp_0", "Neg_1", "Mul_2"]) == Cost(30, 40, 40)
    assert group_cost(graph, ["Exp_0", "Neg_1"]) == Cost(20, 40, 80)


def test_intermediate_bytes_leave_out_inputs_weights_and_outputs(graph_of):
    graph = graph_of(
        "f (float[10] x) => (float[10] y) { a = Add(x, w) b = Neg(a) y = Exp(b) }", weights={"w": weight(10)}
    )
    assert intermediate_bytes(graph) == 80
