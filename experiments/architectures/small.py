"""Small models of a few operators, for experiments on single fusions."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper


class SmallModel:
    """A model under construction; `node` returns the name of the result."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.constants: list[TensorProto] = []
        self.random = np.random.default_rng(0)

    def input(self, name: str, *shape: int) -> str:
        """A float input."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def constant(self, value: Any) -> str:
        """A weight (real numbers) or a parameter (integers)."""
        array = np.asarray(value)
        name = f"k{len(self.constants)}"
        self.constants.append(
            numpy_helper.from_array(array.astype(np.float32) if array.dtype.kind == "f" else array, name)
        )
        return name

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """An operator, named after its type and place."""
        name = f"{op_type.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [f"{name}.out"], name, **attributes))
        return f"{name}.out"

    def build(self, result: str, *shape: int) -> ModelProto:
        """The model with one output."""
        output = helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, self.name, self.inputs, [output], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
