"""Small models that were really trained, by numpy: a network of convolutions, and a layer that int8 breaks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]
SIDE, CLASSES, FIRST, SECOND = 10, 4, 6, 12


def images(count: int, seed: int) -> tuple[Array, Array]:
    """Generated images [count, 1, 10, 10] with bars of four directions somewhere in noise, and which each has."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    found = rng.normal(0, 0.35, (count, 1, SIDE, SIDE))
    for number, label in enumerate(labels):
        row, column = rng.integers(1, SIDE - 6, 2)
        steps = np.arange(6)
        rows, columns = ((row + 0 * steps, column + steps), (row + steps, column + 0 * steps),
                         (row + steps, column + steps), (row + steps, column + 5 - steps))[label]  # fmt: skip
        found[number, 0, rows, columns] += rng.uniform(1.2, 2.0)
    return found.astype(np.float32), labels


def _patches(x: Array, stride: int) -> Array:
    """The 3 x 3 windows of padded images, as [images, rows, columns, channels * 9]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::stride, ::stride]
    return np.ascontiguousarray(views.transpose(0, 2, 3, 1, 4, 5)).reshape(*_moved(views.shape), -1)


def _moved(shape: tuple[int, ...]) -> tuple[int, int, int]:
    return shape[0], shape[2], shape[3]


@dataclass
class Network:
    """Conv, Relu, Conv (stride 2), Relu, mean over the pixels, Gemm; weights as matrices [in, out]."""

    w1: Array
    b1: Array
    w2: Array
    b2: Array
    w3: Array
    b3: Array

    def forward(self, x: Array) -> tuple[Array, ...]:
        """All that training needs: patches and results of each layer."""
        p1 = _patches(x, 1)
        h1 = np.maximum(p1 @ self.w1 + self.b1, 0)
        p2 = _patches(h1.transpose(0, 3, 1, 2), 2)
        h2 = np.maximum(p2 @ self.w2 + self.b2, 0)
        pooled = h2.mean((1, 2))
        return p1, h1, p2, h2, pooled, pooled @ self.w3 + self.b3

    def gradients(self, x: Array, labels: Array) -> list[Array]:
        """Of the cross entropy, in the order of the fields."""
        p1, h1, p2, h2, pooled, scores = self.forward(x)
        share = np.exp(scores - scores.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        share[np.arange(len(labels)), labels] -= 1
        d3 = share / len(labels)
        d2 = (d3 @ self.w3.T)[:, None, None, :] / (h2.shape[1] * h2.shape[2]) * (h2 > 0)
        windows = (d2 @ self.w2.T).reshape(*d2.shape[:3], FIRST, 3, 3)
        back = np.zeros((len(x), SIDE + 2, SIDE + 2, FIRST), x.dtype)
        for row in range(3):
            for column in range(3):
                back[:, row : row + SIDE : 2, column : column + SIDE : 2] += windows[..., row, column]
        d1 = back[:, 1:-1, 1:-1] * (h1 > 0)
        flat = [(p1.reshape(-1, p1.shape[-1]), d1.reshape(-1, FIRST)), (p2.reshape(-1, p2.shape[-1]),
                d2.reshape(-1, SECOND)), (pooled, d3)]  # fmt: skip
        return [one for left, right in flat for one in (left.T @ right, right.sum(0))]


@cache
def trained(seed: int = 0) -> Network:
    """Trained by Adam on 1,200 generated images, in less than a second."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> Array:
        return (rng.normal(0, np.sqrt(2 / shape[0]), shape)).astype(np.float32)

    network = Network(weights(9, FIRST), np.zeros(FIRST, "f"), weights(9 * FIRST, SECOND), np.zeros(SECOND, "f"),
                      weights(SECOND, CLASSES), np.zeros(CLASSES, "f"))  # fmt: skip
    values = [getattr(network, name) for name in ("w1", "b1", "w2", "b2", "w3", "b3")]
    _train(network, values, *images(1200, 1000 + seed), rng, 120)
    return network


def _train(network: Any, values: list[Array], x: Array, labels: Array, rng: np.random.Generator, steps: int) -> None:
    """Adam on `values`, in place."""
    first, second = ([np.zeros_like(value) for value in values] for _ in range(2))
    for step in range(1, steps + 1):
        chosen = rng.integers(0, len(x), 48)
        gradients = network.gradients(x[chosen], labels[chosen])
        for value, m, v, gradient in zip(values, first, second, gradients, strict=True):
            m += 0.1 * (gradient - m)
            v += 0.01 * (gradient**2 - v)
            value -= (0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)).astype(np.float32)


def accuracy(network: Network, x: Array, labels: Array) -> float:
    """Part of right answers."""
    return float((network.forward(x)[-1].argmax(1) == labels).mean())


def save(network: Network, path: Path, fragile: bool = False, scaled: bool = False) -> Path:
    """The network as an ONNX model of one image.

    `fragile`: with a layer that numbers pass unchanged, but not bytes: it adds a large number to one channel of each
    vector, as some transformers do, and takes it off again behind a product. `scaled`: it multiplies by that number
    instead, and divides; bfloat16 passes it, whose error is a part of each number.
    """
    arrays = {
        "w1": network.w1.T.reshape(FIRST, 1, 3, 3), "b1": network.b1,
        "w2": network.w2.T.reshape(SECOND, FIRST, 3, 3), "b2": network.b2, "w3": network.w3, "b3": network.b3,
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], "conv2", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
    ]
    last = "flat"
    if fragile or scaled:
        large = np.full((1, SECOND), 0.0 if fragile else 1.0, np.float32)
        large[0, 0] = 3000.0
        product = np.eye(SECOND, dtype=np.float32)
        there, back = ("Add", "Add") if fragile else ("Mul", "Div")
        arrays |= {"large": large, "same": product, "off": -large if fragile else large}
        nodes += [
            helper.make_node(there, [last, "large"], ["shifted"], "shift"),
            helper.make_node("MatMul", ["shifted", "same"], ["turned"], "fragile"),
            helper.make_node(back, ["turned", "off"], ["back"], "unshift"),
        ]
        last = "back"
    nodes.append(helper.make_node("Gemm", [last, "w3", "b3"], ["scores"], "dense"))
    graph = helper.make_graph(
        nodes, "bars",
        [helper.make_tensor_value_info("image", 1, (1, 1, SIDE, SIDE))],
        [helper.make_tensor_value_info("scores", 1, (1, CLASSES))],
        [numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name) for name, array in arrays.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


TOKENS, KEY, WIDTH = 6, 8, 16


def questions(count: int, seed: int) -> tuple[Array, Array]:
    """Sequences [count, 6, 12] of tokens, each a key and a value; the first has the key of another one, and asks for
    its value, which is the label."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(0, 1, (count, TOKENS, KEY))
    values = rng.integers(0, CLASSES, (count, TOKENS))
    asked = rng.integers(1, TOKENS, count)
    rows = np.arange(count)
    keys[:, 0] = keys[rows, asked] + rng.normal(0, 0.1, (count, KEY))
    told = np.eye(CLASSES)[values]
    told[:, 0] = 0
    return np.concatenate([keys, told], 2).astype(np.float32), values[rows, asked]


@dataclass
class Attention:
    """One layer of attention, whose first token asks the others, and a layer of classes."""

    wq: Array
    wk: Array
    wv: Array
    w: Array
    b: Array

    def forward(self, x: Array) -> tuple[Array, ...]:
        """All that training needs."""
        q, k, v = x[:, 0] @ self.wq, x @ self.wk, x @ self.wv
        scores = np.einsum("bd,btd->bt", q, k) / np.sqrt(WIDTH)
        share = np.exp(scores - scores.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        found = np.einsum("bt,btd->bd", share, v)
        return q, k, v, share, found, found @ self.w + self.b

    def gradients(self, x: Array, labels: Array) -> list[Array]:
        """Of the cross entropy, in the order of the fields."""
        q, k, v, share, found, scores = self.forward(x)
        top = np.exp(scores - scores.max(1, keepdims=True))
        top /= top.sum(1, keepdims=True)
        top[np.arange(len(labels)), labels] -= 1
        top /= len(labels)
        back = top @ self.w.T
        shares = np.einsum("bd,btd->bt", back, v)
        logits = share * (shares - (share * shares).sum(1, keepdims=True)) / np.sqrt(WIDTH)
        dk, dq = np.einsum("bt,bd->btd", logits, q), np.einsum("bt,btd->bd", logits, k)
        dv = np.einsum("bt,bd->btd", share, back)
        flat = x.reshape(-1, x.shape[-1])
        return [
            x[:, 0].T @ dq,
            flat.T @ dk.reshape(-1, WIDTH),
            flat.T @ dv.reshape(-1, WIDTH),
            found.T @ top,
            top.sum(0),
        ]

    def save(self, path: Path) -> Path:
        """As an ONNX model of one sequence, whose attention is a product of two computed tensors."""
        arrays = {"wq": self.wq, "wk": self.wk, "wv": self.wv, "w": self.w, "b": self.b,
                  "root": np.float32(1 / np.sqrt(WIDTH))}  # fmt: skip
        ends = {"first": [0], "second": [1], "axis": [1]}
        nodes = [
            helper.make_node("Slice", ["tokens", "first", "second", "axis"], ["asking"], "slice"),
            helper.make_node("MatMul", ["asking", "wq"], ["q"], "queries"),
            helper.make_node("MatMul", ["tokens", "wk"], ["k"], "keys"),
            helper.make_node("MatMul", ["tokens", "wv"], ["v"], "values"),
            helper.make_node("Transpose", ["k"], ["turned"], "turn", perm=[0, 2, 1]),
            helper.make_node("MatMul", ["q", "turned"], ["agreed"], "agreement"),
            helper.make_node("Mul", ["agreed", "root"], ["scaled"], "scale"),
            helper.make_node("Softmax", ["scaled"], ["share"], "softmax", axis=-1),
            helper.make_node("MatMul", ["share", "v"], ["found"], "found"),
            helper.make_node("MatMul", ["found", "w"], ["classes"], "classes"),
            helper.make_node("Add", ["classes", "b"], ["scores"], "bias"),
        ]
        graph = helper.make_graph(
            nodes, "attention",
            [helper.make_tensor_value_info("tokens", 1, (1, TOKENS, KEY + CLASSES))],
            [helper.make_tensor_value_info("scores", 1, (1, 1, CLASSES))],
            [*(numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in arrays.items()),
             *(numpy_helper.from_array(np.array(array), name) for name, array in ends.items())],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString())
        return path


@cache
def trained_attention(seed: int = 0) -> Attention:
    """Trained by Adam on 4,000 generated sequences."""
    rng = np.random.default_rng(seed)
    shapes = [(KEY + CLASSES, WIDTH)] * 3 + [(WIDTH, CLASSES)]
    values = [(rng.normal(0, np.sqrt(1 / rows), (rows, columns))).astype(np.float32) for rows, columns in shapes]
    values.append(np.zeros(CLASSES, np.float32))
    network = Attention(*values)
    _train(network, values, *questions(4000, 3000 + seed), rng, 1500)
    return network
