"""Transposes that move the innermost axis: tiles of vectors, turned in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tvm import tirx

from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import tiles_per_task
from autofuse.kernels.tir.emit import Emitter, Expr, const, smaller
from autofuse.kernels.tir.offsets import delinear

VECTORS = {"float32": 4, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "int8": 1, "uint8": 1}
"""Bytes of the elements that are moved in vectors."""
LEAST_SIDE = 4
"""Tiles of fewer rows and columns are not worth it."""


@dataclass(frozen=True)
class Axis:
    """An axis that is moved: its size, and the elements from one position to the next in the source and the result."""

    size: int
    source: int
    result: int


@dataclass(frozen=True)
class Move:
    """A transpose as memory sees it. `inner`: innermost in the result, `source_inner`: in the source; `sides`: of a
    tile of both, a square, or as narrow as one of them."""

    outer: tuple[Axis, ...]
    inner: Axis
    source_inner: Axis
    sides: tuple[int, int]

    @property
    def tiles(self) -> tuple[int, int]:
        """How many stand along both inner axes; the last ones overlap those before them where sizes are odd."""
        return -(-self.inner.size // self.sides[0]), -(-self.source_inner.size // self.sides[1])


def move_of(scope: Scope, nest: Nest) -> Move | None:
    """The transpose that a nest is; None for any other, and for one that keeps its rows, or has short ones."""
    operators = scope.workload.operators
    if len(operators) != 1 or operators[0].op_type != "Transpose" or nest.start >= 0:
        return None
    (source,), (result,) = operators[0].inputs, operators[0].outputs
    dtype, arrays = scope.workload.values[source].dtype, scope.arrays
    if source not in scope.ready or arrays[source].block or arrays[result].block or dtype not in VECTORS:
        return None
    if not all(arrays[value].in_one_piece and not arrays[value].half for value in (source, result)):
        return None
    shape, perm = scope.shape(source), operators[0].attribute("perm")
    order = tuple(reversed(range(len(shape)))) if perm is None else tuple(int(axis) for axis in perm)  # type: ignore
    axes = merged(shape, order)
    column = next((axis for axis in axes if axis.source == 1), None)
    if len(axes) < 2 or column is None or column is axes[-1]:
        return None
    inner = axes[-1]
    outer = tuple(axis for axis in axes[:-1] if axis is not column)
    sides = sides_of(inner, column, scope.emitter.lanes * 4 // max(4, VECTORS[dtype]))
    return Move(outer, inner, column, sides) if sides else None


def sides_of(inner: Axis, column: Axis, lanes: int) -> tuple[int, int] | None:
    """The sides of a tile, see `Move`; None where there is none that is worth it."""
    high, wide = (min(lanes, 1 << axis.size.bit_length() - 1) for axis in (inner, column))
    if min(high, wide) >= LEAST_SIDE:
        return min(high, wide), min(high, wide)
    if column.result == inner.size < LEAST_SIDE <= wide:
        return inner.size, wide
    return (high, column.size) if inner.source == column.size < LEAST_SIDE <= high else None


def merged(shape: Sequence[int], order: Sequence[int]) -> list[Axis]:
    """The axes of a transpose in the order of its result; those that stay neighbours are one."""
    found: list[Axis] = []
    stride = 1
    for axis in reversed(order):
        size, step = shape[axis], prod(shape[axis + 1 :])
        if size > 1 and found and step == found[0].size * found[0].source:
            found[0] = Axis(found[0].size * size, found[0].source, found[0].result)
        elif size > 1:
            found.insert(0, Axis(size, step, stride))
        stride *= size
    return found


class MoveEmitter:
    """Walks the tiles of a move, those along a row of the result one after the other.

    The other way round, results a power of two apart would take the same places of the caches.
    """

    def __init__(self, scope: Scope, nest: Nest, move: Move, knobs: Mapping[str, int | str]) -> None:
        operator = scope.workload.operators[0]
        self.move, self.knobs = move, knobs
        self.emitter: Emitter = scope.emitter
        self.source, self.result = (scope.arrays[value].buffer for value in (operator.inputs[0], nest.stores[0]))

    def emit(self) -> None:
        """Emits the whole nest."""
        move, emitter = self.move, self.emitter
        extents = (*(axis.size for axis in move.outer), *reversed(move.tiles))
        total = prod(extents)
        per_task = tiles_per_task(total, int(self.knobs["tasks"]), prod(move.sides))
        with emitter.parallel(total // per_task) as task, emitter.serial(per_task) as step:
            *outer, column, row = delinear(emitter.simplify(task * per_task + step), extents)
            source: Expr = 0
            result: Expr = 0
            for axis, position in zip(move.outer, outer, strict=True):
                source, result = source + position * axis.source, result + position * axis.result
            for axis, place, side in zip((move.inner, move.source_inner), (row, column), move.sides, strict=True):
                first = place * side if axis.size % side == 0 else smaller(place * side, axis.size - side)
                source, result = source + first * axis.source, result + first * axis.result
            self._tile(emitter.bind(emitter.simplify(source)), emitter.bind(emitter.simplify(result)))

    def _tile(self, source: Expr, result: Expr) -> None:
        """Turns one tile; a narrow one lies together in memory on one side."""
        high, wide = self.move.sides
        down, across = self.move.inner.source, self.move.source_inner.result
        if high == wide:
            self._store(result, across, wide, turned(self.emitter, self._rows(source, down, high, wide)))
        elif high < wide:
            self._store(result, wide, wide, dealt(self.emitter, self._rows(source, down, high, wide), wide))
        else:
            self._store(result, across, high, gathered(self.emitter, self._rows(source, high, wide, high), high))

    def _rows(self, source: Expr, step: int, count: int, lanes: int) -> list[Expr]:
        emitter = self.emitter
        return [emitter.bind(emitter.vector_at(self.source, source + row * step, lanes)) for row in range(count)]

    def _store(self, result: Expr, step: int, lanes: int, rows: list[Expr]) -> None:
        for number, row in enumerate(rows):
            self.emitter.put_vector(self.result, result + number * step, row, lanes)


def dealt(emitter: Emitter, rows: list[Expr], lanes: int) -> list[Expr]:
    """Few rows of a tile as they stand in the result: the first element of each, the second of each, and so on."""
    count = len(rows)
    places = [place % count * lanes + place // count for place in range(count * lanes)]
    return [emitter.bind(_taken(rows, places[first : first + lanes])) for first in range(0, count * lanes, lanes)]


def gathered(emitter: Emitter, rows: list[Expr], lanes: int) -> list[Expr]:
    """The other way round: every so many elements of what stands together."""
    count = len(rows)
    return [emitter.bind(_taken(rows, range(first, count * lanes, count))) for first in range(count)]


def turned(emitter: Emitter, rows: list[Expr]) -> list[Expr]:
    """The columns of a square of vectors: blocks of 1, 2, 4 ... elements change places between pairs of rows."""
    side, block = len(rows), 1
    while block < side:
        low = [lane if lane % (2 * block) < block else side + lane - block for lane in range(side)]
        high = [lane + block if lane % (2 * block) < block else side + lane for lane in range(side)]
        for first in range(side):
            if first % (2 * block) < block:
                pair = rows[first], rows[first + block]
                rows[first], rows[first + block] = (emitter.bind(_taken(pair, order)) for order in (low, high))
        block *= 2
    return rows


def _taken(rows: Sequence[Expr], order: Sequence[int]) -> Expr:
    return tirx.Shuffle(list(rows), [const(place, "int32") for place in order])
