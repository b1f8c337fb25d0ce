"""Kernels that look bytes up and do nothing else: vectors of bytes, whatever the order in which they lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from autofuse.graph.own.names import BYTE_LOOKUP
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.quantized.byte_tables import TableInstruction, table_instruction
from autofuse.kernels.nest.tiles import MIN_TASK_ELEMENTS
from autofuse.kernels.tir.emit import Emitter, Expr

TOGETHER = 4
"""Vectors of a step: each waits for itself through a chain of instructions."""


@dataclass(frozen=True)
class Lookup:
    """Two buffers of so many bytes each, which lie alike, and the table between them."""

    source: Any
    result: Any
    dtype: str
    table: Any
    size: int
    instruction: TableInstruction


def lookup_of(scope: Scope, nest: Nest) -> Lookup | None:
    """The lookup that a nest is; None for any other, for few bytes, and where the target has no vectors for it."""
    instruction = table_instruction(scope.emitter.target)
    if instruction is None or nest.start >= 0 or len(nest.stores) != 1:
        return None
    (result,) = nest.stores
    operator = scope.producer[result]
    source = operator.inputs[0]
    if operator.op_type != BYTE_LOOKUP or source not in scope.ready:
        return None
    arrays = [scope.arrays[value] for value in (source, result)]
    size = prod(arrays[0].shape)
    if arrays[0].block != arrays[1].block or not all(array.in_one_piece for array in arrays):
        return None
    if size < instruction.size * TOGETHER:
        return None
    table = scope.table(operator.inputs[1]).buffer
    return Lookup(arrays[0].buffer, arrays[1].buffer, arrays[1].dtype, table, size, instruction)


class LookupEmitter:
    """Walks the bytes in the order of memory; the last vectors overlap those before them."""

    def __init__(self, scope: Scope, lookup: Lookup, knobs: Mapping[str, int | str]) -> None:
        self.emitter: Emitter = scope.emitter
        self.lookup, self.tasks = lookup, int(knobs["tasks"])

    def emit(self) -> None:
        """Emits the whole nest."""
        emitter, size = self.emitter, self.lookup.size
        step = self.lookup.instruction.size * TOGETHER
        tasks = max(1, min(self.tasks, size // max(step, MIN_TASK_ELEMENTS)))
        each = size // (step * tasks)
        with emitter.parallel(tasks) as task, emitter.serial(each) as place:
            self.vectors((task * each + place) * step, TOGETHER)
        done = tasks * each * step
        whole, rest = divmod(size - done, self.lookup.instruction.size)
        with emitter.serial(whole) as place:
            self.vectors(place * self.lookup.instruction.size + done, 1)
        if rest:
            self.vectors(size - self.lookup.instruction.size, 1)

    def vectors(self, start: Expr, count: int) -> None:
        """So many neighbouring vectors, side by side."""
        emitter, of = self.emitter, self.lookup
        places = [emitter.simplify(start + number * of.instruction.size) for number in range(count)]
        levels = [emitter.bind(emitter.vector_at(of.source, place, of.instruction.size)) for place in places]
        for place, one in zip(places, levels, strict=True):
            found = of.instruction.look_up(emitter, of.table, one, of.dtype)
            emitter.put_vector(of.result, place, found, of.instruction.size)
