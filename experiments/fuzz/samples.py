"""What is damaged: small sound models of many kinds of operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper

from experiments.fuzz.bombs import model

node = helper.make_node


def models() -> Mapping[str, bytes]:
    """The models by name."""
    real = np.random.default_rng(0).standard_normal
    weights: dict[str, Any] = {"w": real((4, 2, 3, 3)).astype(np.float32), "v": real((4, 4)).astype(np.float32)}
    convolution = model(
        [
            node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            node("Relu", ["a"], ["b"]),
            node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Reshape", ["c", "s"], ["d"]),
            node("MatMul", ["d", "v"], ["e"]),
            node("Softmax", ["e"], ["y"], axis=-1),
        ],
        {"x": [1, 2, 4, 4]}, "y", s=np.array([4, 4]), **weights,
    )  # fmt: skip
    shapes = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "i"], ["g"]),
            node("Concat", ["g", "m"], ["t"], axis=0),
            node("Reshape", ["x", "t"], ["a"]),
            node("Transpose", ["a"], ["b"], perm=[1, 0]),
            node("Slice", ["b", "i", "k", "i", "o"], ["c"]),
            node("ReduceMean", ["c", "i"], ["d"], keepdims=1),
            node("Expand", ["d", "e"], ["y"]),
        ],
        {"x": [2, 3, 4]}, "y", i=np.array([0]), m=np.array([-1]), k=np.array([3]), o=np.array([1]), e=np.array([2, 2]),
    )  # fmt: skip
    return {"convolution": convolution.SerializeToString(), "shapes": shapes.SerializeToString()}
