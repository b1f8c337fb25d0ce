"""Rules written as text: `A * C + A * B -> A * (B + C)`.

The text is an expression in Python's syntax. `+ - * / **` and unary `-` are Add, Sub, Mul, Div, Pow and Neg; a call
is an operator, its keywords are attributes it must have (or gets). An upper-case name stands for any tensor, a
lower-case one for a constant, a number for a constant whose elements all equal it. `ReduceSum[r](A)` calls the
operator's parameters (attributes, and inputs beyond the first) `r`; the right-hand side uses them again. `Square(A)`
is A * A or A ** 2. Operands of commutative operators match in any order; a `*` or `+` at the root matches any
of the factors or terms of a whole chain of them, and the others stay. Constants on the right are computed at once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from autofuse.graph.model import AttributeValue, Operator
from autofuse.rewrite.chain import chain
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.shapes import parameter_shape
from autofuse.rewrite.work import Work

COMMUTATIVE = frozenset(("Add", "Mul", "Max", "Min", "And", "Or", "Xor", "Equal"))
CHAINS = frozenset(("Add", "Mul"))
MAX_FACTORS = 8
_BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow",
}  # fmt: skip


@dataclass(frozen=True)
class Name:
    """A tensor, or a constant (`fixed`)."""

    name: str
    fixed: bool


@dataclass(frozen=True)
class Number:
    """A constant whose elements all have this value."""

    value: float


@dataclass(frozen=True)
class Call:
    """An operator on terms; `label` names its parameters."""

    op_type: str
    args: tuple[Term, ...]
    label: str = ""
    attributes: tuple[tuple[str, AttributeValue], ...] = ()


Term = Name | Number | Call


@dataclass(frozen=True)
class Binding:
    """The findings of a match: tensor of each name, operator of each label."""

    work: Work
    tensors: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Operator] = field(default_factory=dict)

    def with_tensor(self, name: str, tensor: str) -> Binding | None:
        """The binding that also holds `name`; None when it stands for another tensor already."""
        known = self.tensors.get(name)
        if known is not None:
            return self if known == tensor or self._equal(known, tensor) else None
        return replace(self, tensors={**self.tensors, name: tensor})

    def _equal(self, left: str, right: str) -> bool:
        """Whether two constants hold the same scalar."""
        value = self.work.scalar(left)
        return value is not None and value == self.work.scalar(right)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of what a name stands for."""
        return self.work.shape(self.tensors[name])

    def elements(self, name: str) -> int:
        """Number of elements of what a name stands for."""
        return self.work.tensors[self.tensors[name]].elements


@dataclass(frozen=True)
class Guard:
    """A condition beyond the pattern, with its text."""

    text: str
    holds: Callable[[Binding], bool]


def parse(text: str) -> tuple[Term, Term]:
    """Both sides of a rule."""
    before, _, after = text.partition("->")
    return _term(ast.parse(before.strip(), mode="eval").body), _term(ast.parse(after.strip(), mode="eval").body)


def _term(node: ast.expr) -> Term:
    match node:
        case ast.Name(id=name):
            return Name(name, name[0].islower())
        case ast.Constant(value=int() | float() as value):
            return Number(float(value))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return Number(-float(value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Call("Neg", (_term(operand),))
        case ast.BinOp(left=left, op=op, right=right):
            return Call(_BINARY[type(op)], (_term(left), _term(right)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=words):
            return Call(name, tuple(map(_term, args)), "", _attributes(words))
        case ast.Call(func=ast.Subscript(value=ast.Name(id=name), slice=ast.Name(id=label)), args=args):
            return Call(name, tuple(map(_term, args)), label)
    raise ValueError(f"not a pattern: {ast.unparse(node)}")


def _attributes(words: Sequence[ast.keyword]) -> tuple[tuple[str, AttributeValue], ...]:
    return tuple((str(word.arg), ast.literal_eval(word.value)) for word in words)


def flattened(op_type: str, term: Term) -> tuple[Term, ...]:
    """Operands of nested sums or products."""
    if isinstance(term, Call) and term.op_type == op_type:
        return tuple(part for arg in term.args for part in flattened(op_type, arg))
    return (term,)


def matches(work: Work, term: Term, tensor: str, bound: Binding) -> Iterator[Binding]:
    """Every way in which `tensor` is what `term` says."""
    match term:
        case Name(name, fixed):
            found = None if fixed and not work.is_constant(tensor) else bound.with_tensor(name, tensor)
            if found is not None:
                yield found
        case Number(value):
            scalar = work.scalar(tensor)
            if scalar is not None and abs(scalar - value) <= 1e-6 * abs(value):
                yield bound
        case Call("Square", (inner,)):
            yield from _square(work, inner, tensor, bound)
        case Call():
            yield from _call(work, term, tensor, bound)


def _call(work: Work, term: Call, tensor: str, bound: Binding) -> Iterator[Binding]:
    operator = work.producer(tensor, term.op_type)
    if operator is None or operator.outputs != (tensor,):
        return
    if any(operator.attributes.get(name) != value for name, value in term.attributes):
        return
    if term.label:
        known = bound.labels.get(term.label)
        if known is not None and not same_parameters(work, known, operator, len(term.args)):
            return
        bound = replace(bound, labels={**bound.labels, term.label: operator})
    read = operator.inputs[: len(term.args)]
    if len(read) < len(term.args) or (not term.label and len(operator.inputs) > len(term.args)):
        return
    for order in permutations(read) if term.op_type in COMMUTATIVE and len(read) == 2 else (read,):
        yield from _all(work, term.args, order, bound)


def _all(work: Work, terms: Sequence[Term], tensors: Sequence[str], bound: Binding) -> Iterator[Binding]:
    if not terms:
        yield bound
        return
    for found in matches(work, terms[0], tensors[0], bound):
        yield from _all(work, terms[1:], tensors[1:], found)


def _square(work: Work, inner: Term, tensor: str, bound: Binding) -> Iterator[Binding]:
    operator = work.producer(tensor, "Mul", "Pow")
    if operator is None:
        return
    left, right = operator.inputs
    if (operator.op_type == "Mul" and left == right) or (operator.op_type == "Pow" and work.scalar(right) == 2.0):
        yield from matches(work, inner, left, bound)


def same_parameters(work: Work, a: Operator, b: Operator, data: int) -> bool:
    """Whether two operators differ in their first `data` inputs only."""
    first, second = a.inputs[data:], b.inputs[data:]
    if len(first) != len(second) or dict(a.attributes) != dict(b.attributes):
        return False
    pairs = zip(first, second, strict=True)
    return all(x == y or _same_integers(work, x, y) for x, y in pairs)


def _same_integers(work: Work, first: str, second: str) -> bool:
    """Whether two constants hold the same integers; weights are told apart by name alone."""
    if not first or not second or work.shape(first) != work.shape(second):
        return False
    values = work.integers(first) if work.is_constant(first) else None
    return values is not None and work.is_constant(second) and values == work.integers(second)


@dataclass(frozen=True)
class Pattern:
    """A rule as text, with conditions beyond it: see the module."""

    before: Term
    after: Term
    guards: tuple[Guard, ...] = ()
    any_type: bool = False

    def find(self, work: Work, operator: Operator, maker: Maker) -> bool:
        """Whether the pattern ends in `operator`; then `maker` holds the right-hand side. See `rule.Finder`."""
        if len(operator.outputs) != 1 or not (self.any_type or work.is_float(operator.outputs[0])):
            return False
        for bound, rest in self._found(work, operator):
            if not all(guard.holds(bound) for guard in self.guards):
                continue
            result = build(self.after, bound, maker)
            for other in rest:
                result = maker.op(operator.op_type, result, other)
            maker.become(operator.outputs[0], result)
            return True
        return False

    def _found(self, work: Work, operator: Operator) -> Iterator[tuple[Binding, tuple[str, ...]]]:
        assert isinstance(self.before, Call)
        kind = self.before.op_type
        if kind not in CHAINS or operator.op_type != kind:
            yield from ((bound, ()) for bound in matches(work, self.before, operator.outputs[0], Binding(work)))
            return
        terms = flattened(kind, self.before)
        parts = chain(work, operator)
        if not len(terms) <= len(parts) <= MAX_FACTORS:
            return
        for bound, used in _subsets(work, terms, parts, Binding(work), ()):
            rest = [part for place, part in enumerate(parts) if place not in used]
            yield bound, tuple(sorted(rest, key=lambda name: work.tensors[name].elements))


def _subsets(
    work: Work, terms: Sequence[Term], parts: Sequence[str], bound: Binding, used: tuple[int, ...]
) -> Iterator[tuple[Binding, tuple[int, ...]]]:
    """Ways to match each term with another part; the most specific terms are tried first."""
    if not terms:
        yield bound, used
        return
    first = min(
        terms,
        key=lambda term: (isinstance(term, Name) and term.name not in bound.tensors, not isinstance(term, Number)),
    )
    others = [term for term in terms if term is not first]
    for place, part in enumerate(parts):
        if place not in used:
            for found in matches(work, first, part, bound):
                yield from _subsets(work, others, parts, found, (*used, place))


def build(term: Term, bound: Binding, maker: Maker) -> str:
    """Tensor that a right-hand side stands for."""
    match term:
        case Name(name):
            return bound.tensors[name]
        case Number(value):
            return maker.number(value, next(iter(bound.tensors.values())))
        case Call("Square", (inner,)):
            tensor = build(inner, bound, maker)
            return maker.op("Mul", tensor, tensor)
        case Call(op_type, args, label, attributes):
            tensors = [build(arg, bound, maker) for arg in args]
            if not label:
                return maker.op(op_type, *tensors, given=dict(attributes))
            like = bound.labels[label]
            more = like.inputs[len(args) :]
            shape = parameter_shape(maker, op_type, like, maker.shape(tensors[0]))
            return maker.op(op_type, *tensors, *more, shape=shape, given=like.attributes)
    raise AssertionError(term)
