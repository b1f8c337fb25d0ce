"""How many channels the values have that ONNX Runtime's optimiser keeps in blocks, which are filled up with zeros.

Values that an operator ties together have one number: that of the value that they come from, else as many as somebody
reads. So a filter loses the rows that were added to it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

DOMAIN = "com.microsoft.nchwc"
_ALIGNED = 4
"""ONNX Runtime takes channels into blocks only in such numbers."""
_TIED = frozenset(("Add", "Sum", "Mul", "Sub", "Div", "Max", "Min", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu",
                   "Clip", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Selu", "ThresholdedRelu", "Identity",
                   "Gelu", "QuickGelu", "FastGelu", "Erf", "Abs", "Exp", "Sqrt", "Neg"))  # fmt: skip
"""Operators on each channel alone that are left in ONNX's own domain, or in com.microsoft."""


class MisfitError(Exception):
    """A model that is not as ONNX Runtime's optimiser writes it."""


class Channels:
    """The channels of the values of `nodes`. `filters`: those of each convolution, by its result, all their rows.

    `entering`: channels of the values that are turned into blocks, as far as they are known.
    """

    def __init__(
        self, nodes: Sequence[NodeProto], filters: Mapping[str, NDArray[Any]], entering: Mapping[str, int]
    ) -> None:
        self._nodes, self.filters, self._entering = nodes, filters, entering
        self._parents: dict[str, str] = {}
        self._tie()

    def is_blocked(self, name: str) -> bool:
        """Whether a value has its channels in blocks."""
        return name in self._parents

    def is_depthwise(self, node: NodeProto) -> bool:
        """Whether each channel has a filter of its own, and no other channel is read."""
        filters = self.filters[node.output[0]]
        group = next((one.i for one in node.attribute if one.name == "group"), 1)
        return filters.shape[1] == 1 and group == len(filters) > 1

    def of(self, name: str) -> int:
        """The channels of a value that is in blocks."""
        root = self._root(name)
        found = self._fixed.get(root) or self._needed.get(root)
        if not found:
            raise MisfitError
        return found

    def _root(self, name: str) -> str:
        while self._parents[name] != name:
            name = self._parents[name]
        return name

    def _join(self, names: Sequence[str]) -> None:
        for name in names:
            self._parents.setdefault(name, name)
        first = self._root(names[0])
        for name in names[1:]:
            self._parents[self._root(name)] = first

    def _tie(self) -> None:
        for node in self._nodes:
            if node.domain == DOMAIN:
                self._join(self._tied(node))
            elif any(name in self._parents for name in node.input):
                if node.op_type == "Concat":
                    self._join(node.output)
                elif node.op_type in _TIED:
                    known = [name for name in node.input if name in self._parents]
                    self._join([*node.output, *known])
                else:
                    raise MisfitError

    def _tied(self, node: NodeProto) -> list[str]:
        """Values in blocks that have as many channels as one another."""
        x, y = node.input[0], node.output[0]
        if node.op_type == "ReorderInput":
            return [y]
        if node.op_type == "ReorderOutput":
            return [x]
        if node.op_type != "Conv":
            return [y, x]
        total = [node.input[3]] if len(node.input) > 3 else []
        return [y, *total, *([x] if self.is_depthwise(node) else [])]

    @cached_property
    def _rows(self) -> dict[str, int]:
        """Rows of the filters that make the values of a class, those that were added among them."""
        return {self._root(name): len(filters) for name, filters in self.filters.items()}

    @cached_property
    def _fixed(self) -> dict[str, int]:
        """Numbers that are given by what comes in, and by what is joined: there nothing was filled up."""
        found: dict[str, int] = {}
        for node in self._nodes:
            if node.domain == DOMAIN and node.op_type == "ReorderInput" and node.input[0] in self._entering:
                self._fix(found, node.output[0], self._entering[node.input[0]])
            elif node.op_type == "Concat" and node.output[0] in self._parents:
                for name in node.input:
                    root = self._root(name)
                    self._fix(found, name, found.get(root) or self._rows.get(root, 0))
                self._fix(found, node.output[0], sum(found[self._root(name)] for name in node.input))
        return found

    def _fix(self, found: dict[str, int], name: str, number: int) -> None:
        if not number or found.setdefault(self._root(name), number) != number:
            raise MisfitError

    @cached_property
    def _needed(self) -> dict[str, int]:
        """The channels that are read, of each class."""
        found: dict[str, int] = {}
        for node in self._nodes:
            if node.domain == DOMAIN and (number := self._read(node)):
                root = self._root(node.input[0])
                found[root] = max(found.get(root, 0), number)
        return {root: min(number, self._rows.get(root, number)) for root, number in found.items()}

    def _read(self, node: NodeProto) -> int:
        """How many channels of its first input a node reads; 0 where that is said of its result."""
        if node.op_type == "ReorderOutput":
            return next(int(one.i) for one in node.attribute if one.name == "channels")
        if node.op_type != "Conv" or node.input[0] not in self._parents or self.is_depthwise(node):
            return 0
        filters = self.filters[node.output[0]]
        group = next((one.i for one in node.attribute if one.name == "group"), 1)
        if group > 1:
            return int(filters.shape[1] * group)
        used = np.flatnonzero(filters.any(axis=(0, 2, 3)))
        return -(-(int(used[-1]) + 1 if len(used) else 1) // _ALIGNED) * _ALIGNED
