"""A workload: one group freed of its names, so that equal groups of any model share one measurement."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.graph.model import AttributeValue, Graph, Operator
from autofuse.graph.own.names import FLOAT16, FLOAT16_CONTRACTIONS

PLAIN, HALF = "plain", "bf16"
MAX_LITERAL_ELEMENTS = 64
CODE_INPUTS = {"OneHot": (1, 2), "Resize": (1, 2, 3), "Upsample": (1,)}
"""Inputs, by position, whose small constants are literals also when they are real numbers (scales, on and off)."""

Literal = int | float | bool | list["Literal"]


@dataclass(frozen=True)
class Value:
    """A tensor of a workload.

    `kind`: "input" (an activation), "constant" (data known at compile time, packed freely),
    "literal" (a small constant whose value shapes the code), "inner" or "output".
    `layout`: "plain" (row-major), or "c8": axis 1 split by 8, the block innermost (NCHW8c). "bf16" and "c8-bf16" are
    those of numbers that are all bfloat16: their 16 bits are stored.
    """

    kind: str
    shape: tuple[int, ...]
    dtype: str
    layout: str = PLAIN
    literal: str = ""

    @property
    def block(self) -> int:
        """Channels of a block; 0 in the plain layout."""
        order = self.layout.partition("-")[0]
        return 0 if order in (PLAIN, HALF) else int(order[1:])

    @property
    def is_half(self) -> bool:
        """Whether float32 numbers are stored as the 16 bits of a bfloat16."""
        return self.layout.endswith(HALF)

    @property
    def stored_dtype(self) -> str:
        """Element type of the stored array."""
        return "uint16" if self.is_half else self.dtype

    @property
    def physical_shape(self) -> tuple[int, ...]:
        """Shape of the stored array."""
        if not self.block:
            return self.shape
        head, channels, *tail = self.shape
        return (head, channels // self.block, *tail, self.block)

    def literal_array(self) -> NDArray[np.generic]:
        """The value of a literal."""
        return np.asarray(json.loads(self.literal), dtype=self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class WorkloadOperator:
    """An operator over value indices; -1 stands for an absent input or output."""

    op_type: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    domain: str = ""

    def attribute(self, name: str, default: AttributeValue | None = None) -> AttributeValue | None:
        """Value of an attribute, or `default`."""
        return dict(self.attributes).get(name, default)


@dataclass(frozen=True)
class Workload:
    """Operators over `values`; arguments of the kernel are inputs, then constants, then outputs."""

    values: tuple[Value, ...]
    operators: tuple[WorkloadOperator, ...]
    opset: int

    def of_kind(self, kind: str) -> tuple[int, ...]:
        """Indices of the values of one kind, ascending."""
        return tuple(index for index, value in enumerate(self.values) if value.kind == kind)

    def array_of(self, value: int, constants: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """The array behind a constant or a literal; `constants`: those of the workload, in their order."""
        spec = self.values[value]
        if spec.kind == "literal":
            return spec.literal_array()
        return np.asarray(constants[self.of_kind("constant").index(value)])

    @cached_property
    def text(self) -> str:
        """Canonical JSON: what `key` is the SHA-256 of, and what the database stores."""
        values = [[v.kind, list(v.shape), v.dtype, v.layout, v.literal] for v in self.values]
        operators = [
            [op.domain, op.op_type, list(op.inputs), list(op.outputs), {k: _plain(v) for k, v in op.attributes}]
            for op in self.operators
        ]
        body = {"operators": operators, "opset": self.opset, "values": values}
        return json.dumps(body, sort_keys=True, separators=(",", ":"))

    @cached_property
    def key(self) -> str:
        """Content key of the workload."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def label(self) -> str:
        """Short human name: `Conv+Relu 1x64x56x56`."""
        names = "+".join(operator.op_type for operator in self.operators[:5])
        more = f"+{len(self.operators) - 5}" if len(self.operators) > 5 else ""
        shape = "x".join(map(str, self.values[self.of_kind("output")[0]].shape))
        return f"{names}{more} {shape}"

    @classmethod
    def from_text(cls, text: str) -> Workload:
        """The workload that `text` describes; InputError when it describes none."""
        try:
            body = json.loads(text)
            values = tuple(Value(k, tuple(s), d, lay, lit) for k, s, d, lay, lit in body["values"])
            operators = tuple(
                WorkloadOperator(kind, tuple(i), tuple(o), tuple((k, _frozen(v)) for k, v in sorted(a.items())), dom)
                for dom, kind, i, o, a in body["operators"]
            )
            return cls(values, operators, int(body["opset"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"workload text is malformed: {error}") from error


@dataclass(frozen=True)
class BoundWorkload:
    """A workload and the names of the graph's tensors behind its inputs, constants and outputs."""

    workload: Workload
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def arguments(self) -> list[tuple[int, str]]:
        """The inputs and outputs of the workload, by their index, and their names in the graph."""
        indices = (*self.workload.of_kind("input"), *self.workload.of_kind("output"))
        return [*zip(indices, (*self.inputs, *self.outputs), strict=True)]


def bind_workload(
    graph: Graph, operators: Sequence[str], layouts: Mapping[str, str], float16: bool = False
) -> BoundWorkload:
    """The workload of a group of `graph`.

    `layouts`: layout of each boundary tensor that is not plain. `float16`: whether contractions that the model computes
    in float16 are marked, for a target that can do so, too. Small integer constants and scalars
    become literals, since they shape the code (axes, target shapes, exponents, clip bounds).
    """
    ordered = sorted(operators, key=graph.position.__getitem__)
    _, writes = graph.boundary(ordered)
    code = {op.inputs[i] for op in map(graph.by_name.__getitem__, ordered) for i in _code_positions(op)}
    index: dict[str, int] = {}
    values: list[Value] = []
    names: dict[str, list[str]] = {"input": [], "constant": [], "output": []}

    def number(name: str, produced: bool) -> int:
        if not name:
            return -1
        if name not in index:
            tensor = graph.tensors[name]
            kind, literal = _kind(graph, name, produced, name in writes, name in code)
            layout = layouts.get(name, PLAIN) if kind in ("input", "output") else PLAIN
            index[name] = len(values)
            values.append(Value(kind, tensor.shape, tensor.dtype, layout, literal))
            names.get(kind, []).append(name)
        return index[name]

    nodes = []
    for operator in (graph.by_name[name] for name in ordered):
        inputs = tuple(number(name, False) for name in operator.inputs)
        outputs = tuple(number(name, True) for name in operator.outputs)
        marked = float16 and operator.op_type in FLOAT16_CONTRACTIONS and operator.outputs[0] in graph.float16
        attributes = tuple(sorted({**operator.attributes, **({FLOAT16: 1} if marked else {})}.items()))
        nodes.append(WorkloadOperator(operator.op_type, inputs, outputs, attributes, operator.domain))
    workload = Workload(tuple(values), tuple(nodes), graph.opset)
    return BoundWorkload(workload, *(tuple(names[kind]) for kind in ("input", "constant", "output")))


def _code_positions(operator: Operator) -> list[int]:
    return [position for position in CODE_INPUTS.get(operator.op_type, ()) if position < len(operator.inputs)]


def _kind(graph: Graph, name: str, produced: bool, written: bool, code: bool) -> tuple[str, str]:
    if produced:
        return ("output" if written else "inner"), ""
    if name not in graph.constants:
        return "input", ""
    array = np.asarray(graph.constants[name])
    small = (code or array.dtype.kind in "iub") and array.size <= MAX_LITERAL_ELEMENTS
    if small or array.size == 1:
        return "literal", json.dumps(array.tolist())
    return "constant", ""


def _plain(value: AttributeValue) -> object:
    if isinstance(value, bytes):
        return {"sha256": hashlib.sha256(value).hexdigest()}
    return list(value) if isinstance(value, tuple) else value


def _frozen(value: object) -> AttributeValue:
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]
