"""Small models on which rewrite rules apply: a builder, and the left-hand side of every rule written as text."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.loading.canonical import canonicalise
from autofuse.graph.loading.draft import Draft
from autofuse.graph.model import AttributeValue, Graph, Operator, Tensor
from autofuse.rewrite.pattern import Call, Name, Number, Term, parse
from autofuse.rewrite.rule import Rule

Array = NDArray[np.generic]


@dataclass
class Model:
    """A graph under construction; `rng` draws shapes and values."""

    rng: np.random.Generator
    operators: list[Operator] = field(default_factory=list)
    inputs: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)

    def input(self, *shape: int, dtype: str = "float32") -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = Tensor(name, shape, dtype)
        return name

    def constant(self, value: object, dtype: str = "float32") -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype=dtype)
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape))

    def ints(self, *values: int) -> str:
        return self.constant(values, "int64")

    def op(self, op_type: str, *inputs: str, **attributes: AttributeValue) -> str:
        return self.many(op_type, inputs, 1, **attributes)[0]

    def many(self, op_type: str, inputs: tuple[str, ...], count: int, **attributes: AttributeValue) -> tuple[str, ...]:
        name = f"{op_type}{len(self.operators)}"
        outputs = tuple(f"{name}.{n}" for n in range(count))
        self.operators.append(Operator(name, op_type, inputs, outputs, attributes))
        return outputs

    def graph(self, *outputs: str) -> Graph:
        """The graph in canonical form, not simplified; an Identity stands before each output."""
        outputs = tuple(self.op("Identity", name) for name in outputs)
        draft = Draft("sample", self.inputs, outputs, list(self.operators), dict(self.constants), 18)
        draft.infer()
        while canonicalise(draft):
            draft.infer()
        used = list(self.inputs)
        used += [n for op in draft.operators for n in (*op.inputs, *op.outputs) if n]
        tensors = {name: draft.tensors[name] for name in dict.fromkeys(used)}
        constants = {name: draft.constants[name] for name in tensors if name in draft.constants}
        return Graph("sample", tuple(self.inputs), outputs, tuple(draft.operators), tensors, constants, draft.opset)


def values(graph: Graph, rng: np.random.Generator) -> dict[str, Array]:
    """Random values of the graph's inputs, away from the places where a function jumps."""
    found: dict[str, Array] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if tensor.dtype == "bool":
            found[name] = rng.random(tensor.shape) < 0.5
        elif tensor.dtype.startswith("float"):
            drawn = rng.uniform(0.2, 2.0, tensor.shape) * rng.choice([-1.0, 1.0], tensor.shape)
            found[name] = drawn.astype(tensor.dtype)
        else:
            found[name] = rng.integers(0, 50, tensor.shape).astype(tensor.dtype)
    return found


class PatternSample:
    """The left-hand side of a rule written as text, over random shapes."""

    def __init__(self, rule: Rule, model: Model) -> None:
        self.model, self.rule = model, rule
        self.before, _ = parse(rule.text)
        self.names: dict[str, str] = {}
        self.shared: dict[str, tuple[tuple[str, ...], dict[str, AttributeValue]]] = {}
        rng = model.rng
        image = any(word in rule.text for word in ("Pool", "Conv"))
        self.shape = tuple(int(n) for n in rng.integers(2, 5, 4 if image else rng.integers(2, 4)))
        self.logical = any(word in rule.name for word in ("not_twice", "and_of", "or_of"))

    def graph(self) -> Graph:
        """The graph that ends in the pattern's root."""
        return self.model.graph(self.emit(self.before))

    def emit(self, term: Term) -> str:
        model = self.model
        match term:
            case Number(value):
                return model.constant(np.full(model.rng.choice([0, 1]) * (1,), value))
            case Name(name, fixed):
                if name not in self.names:
                    self.names[name] = self.constant(name) if fixed else self.variable(name)
                return self.names[name]
            case Call("Square", (inner,)):
                tensor = self.emit(inner)
                return model.op("Mul", tensor, tensor) if model.rng.random() < 0.5 else self.power(tensor)
            case Call("MatMul", (left, right)):
                return model.op("MatMul", self.matrix(left, False), self.matrix(right, True))
            case Call(op_type, args, label, attributes):
                tensors = [self.emit(arg) for arg in args]
                if model.rng.random() < 0.5 and op_type in ("Add", "Mul", "Max", "Min") and len(tensors) == 2:
                    tensors.reverse()
                more, given = self.parameters(op_type, label) if label else ((), dict(attributes))
                return model.op(op_type, *tensors, *more, **given)
        raise AssertionError(term)

    def power(self, tensor: str) -> str:
        return self.model.op("Pow", tensor, self.model.constant(2.0))

    def matrix(self, term: Term, right: bool) -> str:
        """Operands of products are square, so that every sum of products fits."""
        self.shape = (*self.shape[:-2], 3, 3)
        return self.emit(term)

    def guarded(self, name: str, sign: str) -> bool:
        return any(name in part.split(sign)[0] for part in self.rule.guard.split(";") if sign in part)

    def variable(self, name: str) -> str:
        model = self.model
        if ("Where" in self.rule.text and name == "C") or self.logical:
            return model.input(*self.shape, dtype="bool")
        if "BitShift" in self.rule.text:
            return model.input(*self.shape, dtype="uint64")
        small = "smaller than A" in self.rule.guard and name != "A"
        tensor = model.input(*(1,) * small, *self.shape[small:])
        inner = f"Log({name})" in self.rule.text or f"Sqrt({name})" in self.rule.text
        if self.guarded(name, ">") or inner:
            tensor = model.op("Add", model.op("Abs", tensor), model.constant(0.5))
        return tensor

    def constant(self, name: str) -> str:
        model, rng = self.model, self.model.rng
        if "BitShift" in self.rule.text:
            return model.constant(3, "uint64")
        shape: tuple[int, ...] = ()
        if "of one element" not in self.rule.guard and "MatMul" not in self.rule.text:
            shape = tuple(n if rng.random() < 0.5 else 1 for n in self.shape)
            if "broadcast to one" in self.rule.guard and len(self.names) > 1:
                shape = ()
        drawn = rng.uniform(0.5, 1.5, shape)
        return model.constant(drawn if self.guarded(name, ">") or "**" in self.rule.text else -drawn)

    def parameters(self, op_type: str, label: str) -> tuple[tuple[str, ...], dict[str, AttributeValue]]:
        if label not in self.shared:
            self.shared[label] = self.drawn(op_type)
        return self.shared[label]

    def drawn(self, op_type: str) -> tuple[tuple[str, ...], dict[str, AttributeValue]]:
        rng, rank = self.model.rng, len(self.shape)
        if op_type.startswith("Reduce"):
            count = int(rng.integers(1, rank + 1))
            axes = sorted(int(axis) for axis in rng.choice(rank, count, replace=False))
            keep = 1 if self.rule.name == "variance_in_one_pass" else int(rng.integers(0, 2))
            return (self.model.ints(*axes),), {"keepdims": keep}
        if op_type == "MaxPool":
            return (), {"kernel_shape": (2, 2), "strides": (1, 1), "pads": (0, 0, 1, 1)}
        if op_type in ("Softmax", "LogSoftmax"):
            return (), {"axis": int(rng.integers(0, rank))}
        return (), {}
