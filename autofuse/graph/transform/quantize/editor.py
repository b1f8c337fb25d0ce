"""A graph that is made from another: operators that are copied, and others between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.model import AttributeValue, Graph, Operator, Tensor
from autofuse.graph.own.names import DOMAIN, ROUND
from autofuse.graph.own.rounding import rounded


class Editor:
    """The operators of a new graph in the order in which they are put, with all that the old one has for them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = dict(graph.tensors)
        self.constants = dict(graph.constants)
        self.operators: list[Operator] = []
        self._names = set(graph.by_name)
        self._halves: dict[str, str] = {}

    def constant(self, base: str, array: NDArray[Any]) -> str:
        """Name of a new constant."""
        name = self._fresh(base)
        self.constants[name] = np.ascontiguousarray(array).reshape(array.shape)
        self.tensors[name] = Tensor(name, array.shape, array.dtype.name)
        return name

    def put(self, operator: Operator) -> None:
        """Put an operator whose tensors are known."""
        self.operators.append(operator)

    def op(
        self, op_type: str, base: str, inputs: Sequence[str], shape: tuple[int, ...], dtype: str,
        **attributes: AttributeValue,
    ) -> str:  # fmt: skip
        """Put an operator with one result of this shape and type, and give its name."""
        result = self._fresh(base)
        self.tensors[result] = Tensor(result, shape, dtype)
        name, count = result, 0
        while name in self._names:
            name, count = f"{result}_{count}", count + 1
        self._names.add(name)
        self.operators.append(Operator(name, op_type, tuple(inputs), (result,), attributes))
        return result

    def halves(self, name: str) -> str:
        """A tensor of numbers rounded to bfloat16, once for all that read it."""
        if name not in self._halves:
            shape = self.tensors[name].shape
            if name in self.constants:
                self._halves[name] = self.constant(f"{name}/rounded", rounded(self.constants[name]))
            else:
                self._halves[name] = self.op(ROUND, f"{name}/rounded", [name], shape, "float32")
                self.operators[-1] = replace(self.operators[-1], domain=DOMAIN)
        return self._halves[name]

    def finished(self, inputs: Sequence[str] = (), outputs: Sequence[str] | None = None) -> Graph:
        """The new graph. `inputs`: further ones; `outputs`: in place of the old ones."""
        wanted = self.graph.outputs if outputs is None else tuple(outputs)
        self._drop_unread(set(wanted))
        given = (*self.graph.inputs, *inputs)
        used = dict.fromkeys([*given, *wanted])
        used |= dict.fromkeys(name for op in self.operators for name in (*op.inputs, *op.outputs) if name)
        return replace(
            self.graph,
            inputs=given,
            outputs=wanted,
            operators=tuple(self.operators),
            tensors={name: self.tensors[name] for name in used},
            constants={name: array for name, array in self.constants.items() if name in used},
        )

    def _drop_unread(self, read: set[str]) -> None:
        """Take out the operators whose results nobody reads any more."""
        kept = []
        for operator in reversed(self.operators):
            if read.intersection(operator.outputs):
                read.update(operator.inputs)
                kept.append(operator)
        self.operators = kept[::-1]

    def _fresh(self, base: str) -> str:
        name, count = base, 0
        while name in self.tensors:
            name, count = f"{base}_{count}", count + 1
        return name
