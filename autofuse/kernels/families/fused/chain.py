"""Nests that hand rows to one another, computed a block of rows at a time: what stands between them stays in cache.

Attention is the chain matmul -> softmax -> matmul: of its score matrix only a block of rows ever exists. A dense
layer with the normalisation behind it is another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import ClassVar

from autofuse.kernels.families.contraction.direct import ContractionEmitter
from autofuse.kernels.families.contraction.family import CONTRACTION, PRODUCTS
from autofuse.kernels.families.contraction.form import Product, contraction_form
from autofuse.kernels.families.protocol import Case, Declared, FusedFamily, Joined, Knob, Schedule, Unit, Values
from autofuse.kernels.families.reductions.last_axis import LastAxisEmitter, Rows, row_axis
from autofuse.kernels.families.reductions.softmax import LAST_AXIS, NORMALISATIONS, SOFTMAX
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index
from autofuse.kernels.tir.offsets import delinear, linear
from autofuse.kernels.workload.workload import Workload

Knobs = Mapping[str, int | str]

ROWS = SOFTMAX | NORMALISATIONS


@dataclass(frozen=True)
class Chain(Joined):
    """Nests each of which reads the rows that the one before it makes, in the same order.

    `lead`: extents over which the products repeat with other operands; `rows`: rows within each.
    """

    lead: tuple[int, ...]
    rows: int


@dataclass(frozen=True)
class RowBlock(Array):
    """The rows from number `base` on of a tensor that never exists as a whole."""

    base: Expr = 0

    def offset(self, index: Index) -> Expr:
        """See Array."""
        row = linear(index[:-1], self.shape[:-1]) - self.base
        return row * self.shape[-1] + index[-1]


def chained(workload: Workload, units: Sequence[Unit]) -> list[Unit]:
    """`units` with every longest run of linked nests as one chain."""
    found: list[Unit] = []
    place = 0
    while place < len(units):
        end = place + 1
        while end < len(units) and _chain(workload, units[place : end + 1]) is not None:
            end += 1
        chain = _chain(workload, units[place:end])
        found.append(chain or units[place])
        place = end
    return found


def _chain(workload: Workload, units: Sequence[Unit]) -> Chain | None:
    """The units as one chain; None when they are none."""
    nests = [unit for unit in units if isinstance(unit, Nest)]
    products = [nest for nest in nests if nest.anchor is not None and nest.anchor.op_type in PRODUCTS]
    if len(nests) < max(2, len(units)) or not products:
        return None
    if not all(_linked(workload, *pair) for pair in pairwise(nests)):
        return None
    forms = [contraction_form(workload, nest.anchor) for nest in products if nest.anchor is not None]
    spaces = {
        ((), prod(form.out_shape[:-1])) if _flat(form) else (form.out_shape[:-2], form.out_shape[-2]) for form in forms
    }
    if len(spaces) > 1:
        return None
    return Chain(tuple(nests), *spaces.pop())


def _flat(form: object) -> bool:
    return isinstance(form, Product) and form.flat


def _linked(workload: Workload, first: Nest, second: Nest) -> bool:
    """Whether `second` reads nothing of `first` but its rows, as they are, and nobody else does."""
    return _by_rows(workload, first) and _by_rows(workload, second) and hands_on(workload, first, second)


def hands_on(workload: Workload, first: Nest, second: Nest) -> bool:
    """Whether `first` makes one tensor, as it computes it, that the anchor of `second` reads first, and nobody else."""
    if second.anchor is None or len(first.stores) != 1:
        return False
    link = first.stores[0]
    value = workload.values[link]
    readers = [operator for operator in workload.operators if link in operator.inputs]
    moved = any(workload.values[step.outputs[0]].shape != first.space for step, _ in first.epilogue)
    moved = moved or any(step.op_type in ("Transpose", "Concat") for step, _ in first.epilogue)
    alone = readers == [second.anchor] and second.anchor.inputs[0] == link and link not in second.anchor.inputs[1:]
    return alone and value.kind == "inner" and value.dtype == "float32" and not moved


def _by_rows(workload: Workload, nest: Nest) -> bool:
    """Whether a nest makes its result row by row from the rows of its first input."""
    if nest.anchor is None:
        return False
    if nest.anchor.op_type in ROWS:
        return len(nest.space) > 1 and row_axis(nest.anchor, len(nest.space)) == len(nest.space) - 1
    if nest.anchor.op_type not in PRODUCTS:
        return False
    form = contraction_form(workload, nest.anchor)
    return isinstance(form, Product) and not form.transposed[0] and not any(form.vector)


class ChainEmitter:
    """Emits a chain under a schedule, `together` rows at a time."""

    def __init__(self, scope: Scope, chain: Chain, schedule: Schedule, together: int) -> None:
        self.scope, self.chain, self.schedule, self.together = scope, chain, schedule, together
        self.emitter: Emitter = scope.emitter
        self.links = [nest.stores[0] for nest in chain.nests[:-1]]

    def emit(self) -> None:
        """Emits blocks of rows in parallel, then the rows that fill no block."""
        chain, scope = self.chain, self.scope
        self.products = {
            number: ContractionEmitter(
                scope, nest, contraction_form(scope.workload, nest.anchor), CONTRACTION.chosen(self.schedule)
            )
            for number, nest in enumerate(chain.nests)
            if nest.anchor is not None and nest.anchor.op_type in PRODUCTS
        }
        for product in self.products.values():
            product.prepare()
        width = min(self.together, chain.rows)
        full, rest = divmod(chain.rows, width)
        for first, blocks, rows in ((0, full, width), (full * width, 1, rest)):
            if rows:
                self.blocks(first, blocks, rows)

    def blocks(self, first: int, blocks: int, rows: int) -> None:
        """`blocks` blocks of `rows` rows, from row `first` on, of every batch."""
        emitter, chain = self.emitter, self.chain
        with emitter.parallel(prod(chain.lead) * blocks) as task:
            batch = tuple(emitter.simplify(part) for part in delinear(task // blocks, chain.lead)) if chain.lead else ()
            start = emitter.simplify(first + task % blocks * rows)
            outer = self.scope.ready
            self.scope.ready = set(outer)
            self.hold(batch, start, rows)
            for number, nest in enumerate(chain.nests):
                if number in self.products:
                    self.products[number].rows(batch or (0,), start, rows)
                else:
                    self.normalise(nest, batch, start, rows)
                self.scope.ready |= set(self.links[number : number + 1])
            self.scope.ready = outer

    def hold(self, batch: Index, start: Expr, rows: int) -> None:
        """Memory for the rows between the nests; a normalisation works in the place of what it reads."""
        base = linear((*batch, start), (*self.chain.lead, self.chain.rows))
        for number, link in enumerate(self.links):
            shape = self.scope.shape(link)
            if number and number not in self.products:
                buffer = self.scope.arrays[self.links[number - 1]].buffer
            else:
                buffer = self.emitter.scratch(rows * shape[-1])
            self.scope.arrays[link] = RowBlock(buffer, shape, "float32", 0, base)

    def normalise(self, nest: Nest, batch: Index, start: Expr, rows: int) -> None:
        """A softmax or a normalisation of the rows of one block."""
        emitter = self.emitter
        family = LastAxisEmitter(self.scope, nest, LAST_AXIS.chosen(self.schedule))
        lead = (*self.chain.lead, self.chain.rows)
        together = min(family.rows, rows)
        for first, count, width in ((0, rows // together, together), (rows // together * together, 1, rows % together)):
            if not width:
                continue
            held = Rows(family, width)
            with emitter.serial(count) as step:
                numbers = [emitter.simplify(start + first + step * width + row) for row in range(width)]
                flat = [linear((*batch, number), lead) for number in numbers]
                held.run([self.outer(nest, batch, *pair) for pair in zip(numbers, flat, strict=True)])

    def outer(self, nest: Nest, batch: Index, row: Expr, flat: Expr) -> Index:
        """Index of a row in the tensor that a nest makes."""
        shape = nest.space[:-1]
        if shape == (*self.chain.lead, self.chain.rows):
            return (*batch, row)
        return tuple(self.emitter.simplify(part) for part in delinear(flat, shape))


class ChainFamily(FusedFamily):
    """Chains of products and normalisations, a block of rows at a time."""

    name = "chain"
    knobs: ClassVar[Declared] = {
        "rows": Knob(
            (32, 0, 16, 64), "rows that a chain of products and normalisations computes together (0: all, in turn)"
        )
    }

    def joined(self, workload: Workload, units: Sequence[Unit]) -> Sequence[Unit]:
        """See FusedFamily."""
        return chained(workload, units)

    def takes(self, workload: Workload, unit: Unit) -> bool:
        """See Family."""
        return isinstance(unit, Chain)

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family: no more rows than the chain has."""
        assert isinstance(unit, Chain)
        return tuple(value for value in values if int(value) <= unit.rows) or values[:1]

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Chain)
        ChainEmitter(scope, unit, schedule, int(self.chosen(schedule)["rows"])).emit()


CHAIN = ChainFamily()
