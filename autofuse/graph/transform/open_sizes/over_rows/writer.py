"""A graph that is written anew, operator by operator, with operators of ours among those of the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.model import AttributeValue, Graph, Operator, Tensor

Array = NDArray[np.generic]


class Writer:
    """Tensors and constants of a graph, and the operators that are written so far. `root`: the operator of the model
    that is written, by which what is new is named."""

    def __init__(self, graph: Graph) -> None:
        self.tensors, self.constants = dict(graph.tensors), dict(graph.constants)
        self.operators: list[Operator] = []
        self.root = ""

    def op(
        self, kind: str, label: str, inputs: Sequence[str], made: tuple[tuple[int, ...], str],
        **attributes: AttributeValue,
    ) -> str:  # fmt: skip
        """An operator of ours, whose result has such a shape and element type."""
        name = f"{self.root}@{label}"
        self.tensors[name] = Tensor(name, *made)
        self.operators.append(Operator(name, kind, tuple(inputs), (name,), attributes))
        return name

    def add(self, name: str, kind: str, inputs: Sequence[str], made: str, **attributes: AttributeValue) -> None:
        """An operator of ours that makes a tensor of the model."""
        self.operators.append(Operator(name, kind, tuple(inputs), (made,), attributes))

    def view(self, name: str, shape: tuple[int, ...], label: str) -> str:
        """A tensor in another shape."""
        target = self.integers(f"{label}.shape", shape)
        return self.op("Reshape", label, (name, target), (shape, self.tensors[name].dtype))

    def integers(self, label: str, values: Sequence[int]) -> str:
        """A constant vector of ours."""
        return self.constant(f"{label}.values", np.asarray(values, np.int64))

    def number(self, label: str, value: int) -> str:
        """A constant number of ours."""
        return self.constant(label, np.asarray(value, np.int64))

    def constant(self, label: str, array: Array) -> str:
        """A constant of ours."""
        name = f"{self.root}@{label}"
        self.constants[name] = array
        self.tensors[name] = Tensor(name, array.shape, str(array.dtype))
        return name
