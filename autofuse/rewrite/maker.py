"""Making the operators of a rewrite: names that say where they come from, shapes, constants computed late."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autofuse.graph.model import AttributeValue, Operator, Tensor
from autofuse.rewrite.work import Array, Change, Work

FOLD: Mapping[str, Callable[..., Array]] = {
    "Abs": np.abs, "Add": np.add, "Div": np.divide, "Exp": np.exp, "MatMul": np.matmul, "Max": np.maximum,
    "Min": np.minimum, "Mul": np.multiply, "Neg": np.negative, "Pow": np.power, "Reciprocal": np.reciprocal,
    "Sqrt": np.sqrt, "Sub": np.subtract,
}  # fmt: skip
"""Operators that are computed at once when all their operands are constants."""


class Refused(Exception):  # noqa: N818 how a rule that is half made says that it does not apply
    """The rewrite cannot be made here."""


@dataclass
class Maker:
    """A maker of new operators at one place. A tensor's name follows from what computes it, so equal names mean equal
    values.

    `root`: the operator that gives new names their prefix.
    """

    work: Work
    rule: str
    root: Operator
    operators: list[Operator] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    made: dict[str, Callable[[], Array]] = field(default_factory=dict)
    alias: dict[str, str] = field(default_factory=dict)
    replaced: list[str] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict)

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Shape of an old or a new tensor."""
        return self._tensor(tensor).shape

    def dtype(self, tensor: str) -> str:
        """Element type of an old or a new tensor."""
        return self._tensor(tensor).dtype

    def _tensor(self, name: str) -> Tensor:
        return self.tensors[name] if name in self.tensors else self.work.tensors[name]

    def op(
        self,
        op_type: str,
        *inputs: str,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
        given: Mapping[str, AttributeValue] | None = None,
        **attributes: AttributeValue,
    ) -> str:
        """Result of a new operator, or a new constant when all inputs are.

        `shape`: by default that of a matrix product, else what the inputs broadcast to; `dtype`: the first input's.
        `given`: attributes besides those that are named.
        """
        if op_type in FOLD and all(name in self.made or self.work.is_constant(name) for name in inputs):
            return self._folded(op_type, inputs)
        return self.split(op_type, inputs, [shape], dtype, {**(given or {}), **attributes})[0]

    def split(
        self,
        op_type: str,
        inputs: Sequence[str],
        shapes: Sequence[Sequence[int] | None],
        dtype: str | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> tuple[str, ...]:
        """Results of a new operator with several of them."""
        if not self.work.allows(op_type):
            raise Refused
        key = self._digest(op_type, tuple(inputs), sorted((attributes or {}).items()), len(shapes))
        names = tuple(f"{self.root.name}/{self.rule}/{key}{f'.{n}' if n else ''}" for n in range(len(shapes)))
        if key not in self._known:
            self._known[key] = names[0]
            for name, shape in zip(names, shapes, strict=True):
                if shape is None:
                    shape = self._result_shape(op_type, inputs)
                self.tensors[name] = Tensor(
                    name, tuple(shape), dtype or self.dtype(inputs[1 if op_type == "Where" else 0])
                )
            self.operators.append(Operator(names[0], op_type, tuple(inputs), names, dict(attributes or {})))
        return names

    def _result_shape(self, op_type: str, inputs: Sequence[str]) -> tuple[int, ...]:
        shapes = [self.shape(name) for name in inputs if name]
        if op_type != "MatMul":
            return np.broadcast_shapes(*shapes)
        if min(map(len, shapes)) < 2:
            raise Refused
        return (*np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2]), shapes[0][-2], shapes[1][-1])

    def _folded(self, op_type: str, inputs: Sequence[str]) -> str:
        """An operator on constants, computed in float64 when the result is wanted."""
        dtype = self.dtype(inputs[0])

        def computed() -> Array:
            wide = [self.values(name) for name in inputs]
            if dtype.startswith("float"):
                wide = [array.astype(np.float64) for array in wide]
            with np.errstate(all="ignore"):
                return np.asarray(FOLD[op_type](*wide))

        return self.weight(op_type.lower(), inputs, self._result_shape(op_type, inputs), dtype, computed)

    def constant(self, label: str, array: Array) -> str:
        """Name of a small new constant."""
        array = np.asarray(array)
        content = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()[:10]
        name = f"{self.root.name}/{self.rule}/{label}-{content}"
        self.tensors[name] = Tensor(name, array.shape, array.dtype.name)
        self.made[name] = lambda: np.array(array)
        return name

    def integers(self, label: str, values: Sequence[int]) -> str:
        """Name of a new int64 vector."""
        return self.constant(label, np.asarray(tuple(values), dtype=np.int64))

    def number(self, value: float, like: str) -> str:
        """Name of a new scalar with the element type of `like`."""
        return self.constant("number", np.asarray(value, dtype=self.dtype(like)))

    def weight(
        self, label: str, sources: Sequence[object], shape: Sequence[int], dtype: str, thunk: Callable[[], Array]
    ) -> str:
        """Name of a new constant that is computed when it is wanted; `sources` say what it follows from."""
        name = f"{self.root.name}/{self.rule}/{label}-{self._digest(label, *sources)}"
        shape = tuple(shape)

        def computed() -> Array:
            return np.ascontiguousarray(np.asarray(thunk(), dtype=dtype)).reshape(shape)

        self.tensors[name] = Tensor(name, shape, dtype)
        self.made[name] = computed
        return name

    def values(self, tensor: str) -> Array:
        """Value of an old or a new constant."""
        if tensor in self.made:
            return self.made[tensor]()
        array = self.work.array(tensor)
        if array is None:
            raise Refused
        return array

    def become(self, old: str, new: str) -> None:
        """The tensor `old` is now what `new` is. Refused when an output of the graph would lose its name."""
        maker = next((op for op in self.operators if new in op.outputs), None)
        if self.work.shape(old) != self.shape(new) or self.work.tensors[old].dtype != self.dtype(new):
            raise Refused
        self.replaced.append(old)
        if maker is None:
            if old in self.work.outputs:
                raise Refused
            self.alias[old] = new
            return
        operator = self.work.producers[old]
        renamed = replace(maker, outputs=tuple(old if out == new else out for out in maker.outputs))
        if len(operator.outputs) == 1 and len(maker.outputs) == 1:
            renamed = replace(renamed, name=operator.name)
        index = self.operators.index(maker)
        self.operators = [
            replace(op, inputs=tuple(old if name == new else name for name in op.inputs)) for op in self.operators
        ]
        self.operators[index] = renamed
        del self.tensors[new]

    def change(self) -> Change:
        """The finished rewrite."""
        reads = {name for op in self.operators for name in op.inputs if name} | set(self.alias.values())
        removed = self.work.dead_after(self.replaced, reads)
        gone = {self.work.producers[old].name for old in self.replaced}
        if not gone <= set(removed):
            raise Refused
        used = {name: made for name, made in self.made.items() if name in reads}
        tensors = {k: v for k, v in self.tensors.items() if k not in self.made or k in used}
        return Change(removed, tuple(self.operators), tensors, used, self.alias)

    @staticmethod
    def _digest(*parts: object) -> str:
        return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:10]
