"""Attention over an open number of tokens: which operators make one, and that each reads what it does at any size.

Between the operators of one attention the open size is in other axes than the first, and may be in two at a time:
scores are heads x queries x keys. What it reads and what it makes are rows of tokens, so that one kernel for all of it
leaves nothing but rows between kernels.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod

from autofuse.graph.mapping import POINTWISE, QUANTISATION, names
from autofuse.graph.model import Operator
from autofuse.graph.own.byte_lookup import is_byte_lookup
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis, OpenGraph, constant_integers, refused

VIEWS = names("Flatten Identity Reshape Squeeze Unsqueeze")
ELEMENTWISE = POINTWISE - names("BiasGelu BitCast CastLike FastGelu Identity SwiGLU") | names("PRelu")
"""Operators that compute each element of what stands at the same place."""
REDUCTIONS = names(
    """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare"""
)
_PLACING = names("Concat GatherElements Slice Transpose")
"""Operators that put scores elsewhere, which the kernel changes where they are."""
LONG = 1 << 30
"""Ends of slices from here on stand for the end."""
ROWS, COLUMNS = -2, -1
"""Axes of a matrix."""


@dataclass(frozen=True)
class Attention:
    """softmax(queries x keys) x values, with all that is done to each of them between rows and rows.

    `operators`: names, in topological order. `scores`, `softmax`, `product`: names of the three that mix tokens.
    `after`: names of those behind the product, in turn. `result`: the rows that it makes. `queries`, `keys`: the axis
    of the scores that counts them, where the open size says how many there are; None where their number is fixed, as of
    the queries that read a cache, or the keys of a context. `beside`: names of products of tokens with what has none,
    as of relative positions, from which scores are picked.
    """

    operators: tuple[str, ...]
    scores: str
    softmax: str
    product: str
    after: tuple[str, ...]
    result: str
    queries: OpenAxis | None
    keys: OpenAxis | None
    beside: tuple[str, ...] = ()


def attentions(opened: OpenGraph) -> tuple[Attention, ...]:
    """Every attention of a graph. InputError that names the operator by which a softmax over tokens is none."""
    found = []
    for operator in opened.graph.operators:
        if operator.op_type == "Softmax" and not operator.domain and operator.inputs[0] in opened.grids:
            found.append(attention_around(opened, operator))
    return tuple(found)


def attention_around(opened: OpenGraph, softmax: Operator, stops: Collection[str] | None = None) -> Attention:
    """The attention of one softmax over tokens. InputError that names the operator by which it is none.

    `stops`: given where other kernels can make and read tensors that have tokens in any one axis, so that it need not
    begin and end with rows; such tensors that it reads, and does not make.
    """
    return _Finder(opened, softmax, stops).find()


class _Finder:
    """Follows the tensors around one softmax to the rows before and behind it."""

    def __init__(self, opened: OpenGraph, softmax: Operator, stops: Collection[str] | None = None) -> None:
        self.opened, self.graph, self.softmax, self.stops = opened, opened.graph, softmax, stops
        self.taken: dict[str, Operator] = {}
        self.scores: list[Operator] = []
        self.beside: list[Operator] = []
        self.queries, self.keys = (self._axis(softmax.outputs[0], place) for place in (ROWS, COLUMNS))
        self.places = tuple(place for place, one in ((ROWS, self.queries), (COLUMNS, self.keys)) if one is not None)

    @property
    def cached(self) -> bool:
        """Whether a fixed number of queries reads keys of an open number."""
        return self.queries is None

    def find(self) -> Attention:
        softmax = self.softmax
        rank = len(self._shape(softmax.outputs[0]))
        axis = softmax.attributes.get("axis", -1 if self.graph.opset >= 13 else 1)
        if axis not in (-1, rank - 1) or not self._is_open(softmax.outputs[0], *self.places):
            raise self._refused(softmax, "it is no softmax of a row of scores, over tokens")
        product = self._product()
        self._take(softmax)
        self._take(product)
        self._before(product.inputs[0], scores=True)
        self._before(softmax.inputs[0], scores=True)
        if len(self.scores) != 1:
            raise self._refused(softmax, "its scores are not those of one product")
        self._before(product.inputs[1])
        after, result = self._after(product)
        self._check_leads(product)
        ordered = sorted(self.taken, key=self.graph.position.__getitem__)
        beside = tuple(name for name in ordered if any(name == operator.name for operator in self.beside))
        names = self.scores[0].name, softmax.name, product.name
        return Attention(tuple(ordered), *names, after, result, self.queries, self.keys, beside)

    def _product(self) -> Operator:
        """The one product with values that reads the softmax, or what is made of each of its elements."""
        wanted, found = [self.softmax.outputs[0]], dict[str, Operator]()
        while wanted:
            name = wanted.pop()
            if name in self.graph.returned:
                raise self._refused(self.softmax, f"{name!r} is an output, whose size grows with the square of it")
            for reader in self.graph.consumers.get(name, ()):
                if reader.op_type == "MatMul" and reader.inputs[0] == name and self._is_counted(reader.inputs[1], ROWS):
                    found[reader.name] = reader
                elif reader.op_type in ELEMENTWISE | QUANTISATION | VIEWS and _is_known(reader):
                    wanted += reader.outputs
                else:
                    raise self._refused(reader, "it reads a softmax over tokens, and only its product with values may")
        if len(found) != 1:
            raise self._refused(self.softmax, f"{len(found)} products with values read it, and one must")
        return next(iter(found.values()))

    def _before(self, name: str, *, scores: bool = False) -> None:
        """Takes what makes tensor `name` of rows. `scores`: one product of queries and keys is among it."""
        if name in self.opened.tails and not self.cached:
            raise refused(self.opened.symbol, self.softmax, f"{name!r} is the end of a constant, not its beginning")
        operator = self.graph.producers.get(name)
        if name not in self.opened.grids or name in self.opened.parts:
            if self.keys is None and not scores:
                self._fixed(operator)
            return
        if self._is_given(name, operator):
            return
        assert operator is not None
        if scores and self._is_beside(operator):
            self._take(operator)
            self.beside.append(operator)
            self._before(operator.inputs[0])
            return
        if scores and operator.op_type == "MatMul" and not operator.domain:
            self._take_scores(operator)
            return
        reason = self._moves(operator, scores=scores)
        if reason and self._may_lie(name):
            return
        if reason:
            raise self._refused(operator, reason)
        self._take(operator)
        for read in operator.inputs:
            if read:
                self._before(read, scores=scores)

    def _fixed(self, operator: Operator | None) -> None:
        """Takes what only moves keys or values of a fixed number."""
        if operator is not None and self._only_moves(operator):
            self._take(operator)
            self._before(operator.inputs[0])

    def _is_given(self, name: str, operator: Operator | None) -> bool:
        """Whether the attention reads a tensor that is not in rows, and that `operator` makes, if any does; or has made
        it already. InputError where it can do neither."""
        if self.cached and (operator is None or appends(self.opened, operator)):
            return True
        if self._may_lie(name) and (operator is None or name in (self.stops or ())):
            return True
        if operator is None:
            raise refused(self.opened.symbol, self.softmax, f"{name!r} is no tensor of rows")
        return operator.name in self.taken

    def _take_scores(self, operator: Operator) -> None:
        """Takes the product of queries and keys, and what makes these of rows."""
        queries, keys = operator.inputs
        fits = not self.opened.has(queries) if self.cached else self._is_open(queries, ROWS)
        if not fits or not self._is_counted(keys, COLUMNS):
            raise self._refused(operator, "it is no product of queries and keys")
        self._take(operator)
        self.scores.append(operator)
        self._before(queries)
        self._before(keys)

    def _only_moves(self, operator: Operator) -> bool:
        """Whether an operator does nothing but to move keys or values of a fixed number, for this attention alone."""
        name = operator.outputs[0]
        moves = operator.op_type == "Transpose" or operator.op_type in VIEWS
        own = len(self.graph.consumers.get(name, ())) == 1 and name not in self.graph.returned
        return moves and own and not operator.domain and not any(map(self.opened.has, operator.inputs))

    def _is_beside(self, operator: Operator) -> bool:
        """Whether an operator is a product of the tokens of each head with what has none of them."""
        if operator.op_type != "MatMul" or operator.domain or self._dtype(operator) != "float32":
            return False
        if self.queries is None or self.keys is None:
            return False
        tokens, others = operator.inputs
        heads = self._shape(self.softmax.outputs[0])[:ROWS]
        alike = prod(self._shape(operator.outputs[0])[:ROWS]) == prod(heads)
        return alike and self._is_open(tokens, ROWS) and not self.opened.has(others)

    def _moves(self, operator: Operator, *, scores: bool) -> str:
        """Why it is not known what an operator before a product does at any size; empty where it is."""
        kind = operator.op_type
        if not _is_known(operator) or len([name for name in operator.outputs if name]) != 1:
            return "nothing is known of it inside attention"
        if kind in ELEMENTWISE or kind == "Expand" or (kind in QUANTISATION and self._reads_one(operator)):
            return ""
        if scores and kind in _PLACING and len(self.places) == 1 and self._has_product(operator):
            return "it moves scores"
        if kind in VIEWS:
            return "" if self._same_runs(operator) else "it joins tokens with something else"
        if kind == "Transpose":
            both = scores and self._is_open(operator.outputs[0], ROWS, COLUMNS)
            return "it turns the scores" if both and self._has_product(operator) else ""
        if kind == "Concat":
            axis = operator.attributes.get("axis", 0)
            return "it joins tokens" if self.opened.factors(operator.outputs[0])[int(axis)] else ""  # type: ignore[arg-type]
        if kind == "Slice":
            return "" if self._from_the_start(operator) else "it cuts tokens off"
        if kind == "GatherElements":
            return "" if self._picks_beside_tokens(operator) else "it picks along tokens"
        return "nothing is known of it inside attention"

    def _picks_beside_tokens(self, operator: Operator) -> bool:
        """Whether GatherElements picks along an axis that has no tokens."""
        data, axis = operator.inputs[0], operator.attributes.get("axis", 0)
        assert isinstance(axis, int)
        factors = self.opened.factors(data)
        along = axis % len(factors)
        others = [place for place in range(len(factors)) if place != along]
        picked = self._shape(operator.outputs[0])
        return not factors[along] and all(self._shape(data)[place] == picked[place] for place in others)

    def _reads_one(self, operator: Operator) -> bool:
        """Whether one tensor alone that an operator reads has the open size."""
        return sum(map(self.opened.has, operator.inputs)) == 1

    def _has_product(self, operator: Operator) -> bool:
        """Whether the product of queries and keys is among what makes the result of an operator, back to rows."""
        wanted = [name for name in operator.inputs if name in self.opened.grids]
        seen: set[str] = set()
        while wanted:
            name = wanted.pop()
            maker = self.graph.producers.get(name)
            if maker is None or name in seen:
                continue
            if maker.op_type == "MatMul" and not self._is_beside(maker):
                return True
            seen.add(name)
            wanted += [read for read in maker.inputs if read in self.opened.grids]
        return False

    def _same_runs(self, operator: Operator) -> bool:
        """Whether a view has the same elements before, between and behind the open axes of its two shapes."""
        return self._runs(operator.inputs[0]) == self._runs(operator.outputs[0])

    def _runs(self, name: str) -> list[int]:
        runs = [1]
        axes = zip(self._shape(name), self.opened.factors(name), self.opened.beyond(name), strict=True)
        for extent, factor, more in axes:
            if factor:
                runs += [-factor, -more, 1]
            else:
                runs[-1] *= extent
        return runs

    def _from_the_start(self, operator: Operator) -> bool:
        starts, axes, steps = (constant_integers(self.graph, operator, place) for place in (1, 3, 4))
        if starts is None or (len(operator.inputs) > 3 and operator.inputs[3] and axes is None):
            return False
        axes = axes or tuple(range(len(starts)))
        factors = self.opened.factors(operator.inputs[0])
        if factors != self.opened.factors(operator.outputs[0]):
            return False
        cuts = zip(axes, starts, steps or (1,) * len(starts), strict=True)
        return all((start, step) == (0, 1) for axis, start, step in cuts if factors[axis])

    def _after(self, product: Operator) -> tuple[tuple[str, ...], str]:
        """Takes what moves the result of a product until it stands in rows."""
        name, found = product.outputs[0], []
        if not self.opened.has(name):
            return (), name
        while name not in self.opened.axes:
            operator = self._moving(name)
            if operator is None:
                if self._may_lie(name):
                    break
                raise self._stuck(name, product)
            self._take(operator)
            found.append(operator.name)
            name = operator.outputs[0]
        place = self.opened.place(name)
        if place is None or place.factor != 1:
            raise self._refused(product, "a token is several rows of its result")
        return tuple(found), name

    def _may_lie(self, name: str) -> bool:
        """Whether other kernels than that of the attention may make or read a tensor that is not in rows."""
        return self.stops is not None and self.opened.place(name) is not None

    def _stuck(self, name: str, product: Operator) -> Exception:
        """The error for what reads the result of a product before it stands in rows."""
        readers = self.graph.consumers.get(name, ())
        if len(readers) != 1 or name in self.graph.returned:
            return self._refused(product, "several read its result, and none may but attention")
        return self._refused(readers[0], "it reads the product of attention, which does not stand in rows")

    def _moving(self, name: str) -> Operator | None:
        """The only operator that reads a tensor, if all that it does is to move or to compute each element."""
        readers = self.graph.consumers.get(name, ())
        if len(readers) != 1 or name in self.graph.returned:
            return None
        (reader,) = readers
        if not self.opened.has(reader.outputs[0]):
            return None
        fits = reader.op_type == "Transpose" or (reader.op_type in VIEWS and self._same_runs(reader))
        fits = fits or (reader.op_type in ELEMENTWISE | QUANTISATION and self._reads_one(reader))
        return reader if fits and _is_known(reader) and len(reader.outputs) == 1 else None

    def _check_leads(self, product: Operator) -> None:
        """All three that mix tokens must repeat over the same heads, and see the same keys."""
        three = self.scores[0], self.softmax, product
        counts = {prod(self._shape(op.outputs[0])[:ROWS]) for op in three}
        if len(counts) != 1 or any(self._dtype(op) != "float32" for op in three):
            raise self._refused(self.softmax, "its products repeat over other heads, or are not of float32")
        scores, softmax = (self._shape(op.outputs[0]) for op in three[:2])
        if scores[ROWS:] != softmax[ROWS:] or softmax[COLUMNS] != self._shape(product.inputs[1])[ROWS]:
            raise self._refused(self.softmax, "its products see other queries or keys than it does")

    def _take(self, operator: Operator) -> None:
        self.taken[operator.name] = operator

    def _is_open(self, name: str, *places: int) -> bool:
        """Whether exactly these axes of a tensor are the open size, and once each."""
        if name not in self.graph.tensors:
            return False
        factors = self.opened.factors(name)
        if any(self.opened.beyond(name)) and not self.cached:
            return False
        wanted = {place % len(factors) for place in places} if len(factors) > 1 else set()
        return bool(wanted) and factors == tuple(int(axis in wanted) for axis in range(len(factors)))

    def _is_counted(self, name: str, place: int) -> bool:
        """Whether this axis of keys or values is the number of keys: the open size alone, where that says it."""
        return not self.opened.has(name) if self.keys is None else self._is_open(name, place)

    def _axis(self, name: str, place: int) -> OpenAxis | None:
        """One axis of a tensor, where it has the open size."""
        factors = self.opened.factors(name)
        axis = place % len(factors) if len(factors) > 1 else 0
        return OpenAxis(axis, factors[axis], self.opened.beyond(name)[axis]) if factors[axis] else None

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.graph.tensors[name].shape

    def _dtype(self, operator: Operator) -> str:
        return self.graph.tensors[operator.outputs[0]].dtype

    def _refused(self, operator: Operator, reason: str) -> Exception:
        return refused(self.opened.symbol, operator, reason)


def _is_known(operator: Operator) -> bool:
    """Whether an operator is ONNX's own, or looks bytes up."""
    return not operator.domain or is_byte_lookup(operator)


def appends(opened: OpenGraph, operator: Operator) -> bool:
    """Whether an operator puts new rows behind those of a cache: two tensors that stand in memory, along the axis whose
    length is open."""
    if operator.op_type != "Concat" or operator.domain or len(operator.inputs) != 2:
        return False
    past, new = operator.inputs
    where, made = opened.place(past), opened.place(operator.outputs[0])
    if where is None or made is None or where.more or opened.has(new) or new in opened.graph.constants:
        return False
    added = opened.graph.tensors[new].shape[made.axis]
    axis = operator.attributes.get("axis", 0)
    along = axis in (made.axis, made.axis - len(opened.graph.tensors[new].shape))
    given = past in opened.graph.inputs and past not in opened.parts
    return given and along and made == replace(where, more=added)
