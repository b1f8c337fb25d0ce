"""A program as the tables that the C runtime walks: where each tensor lies, and the kernels with their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.backend.compile.assemble import AssembledProgram
from autofuse.backend.container.container import ALIGNMENT, aligned
from autofuse.backend.container.metadata import Program
from autofuse.backend.container.open_spec import AxisSpec
from autofuse.backend.freestanding.memory import Lifetime, placed
from autofuse.values.names import numpy_dtype

ARENA, WEIGHTS, INPUT, OUTPUT, KEPT = "AF_ARENA", "AF_WEIGHTS", "AF_INPUT", "AF_OUTPUT", "AF_KEPT"
"""`af_place` of runtime.h."""


@dataclass(frozen=True)
class Row:
    """A tensor, with its `shape` at the largest size. `offset`: bytes into the arena, the weights or what is kept
    between calls; of an input or output, its number. `open`: its axes that follow an open size."""

    place: str
    offset: int
    shape: tuple[int, ...]
    dtype: str
    open: tuple[AxisSpec, ...] = ()


@dataclass(frozen=True)
class Tables:
    """One program. `rows`: those in inputs and outputs first, `bound` of them.

    `steps`: (kernel, positions of its arguments in `rows`). `copies`: (output, where it lies, offset there). `kept`:
    where each cache that a session has between calls lies among the bytes of all.
    """

    rows: tuple[Row, ...]
    bound: int
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    copies: tuple[tuple[int, str, int], ...]
    arena_bytes: int
    kept: tuple[int, ...] = ()
    kept_bytes: int = 0


def tables_of(program: AssembledProgram, described: Program, offsets: Sequence[int]) -> Tables:
    """The tables of `program`; `offsets`: where each weight of the library starts (bytes)."""
    made = _Places(program, described, offsets)
    in_place = set(dict(described.opened.caches)) if described.opened else set()
    rows: dict[Row, None] = {}
    steps = []
    for step in program.steps:
        arguments = [
            *map(made.row, step.inputs),
            *(made.weight(place) for place in step.weights),
            *(made.row(name) for name in step.outputs if name not in in_place),
        ]
        rows |= dict.fromkeys(arguments)
        steps.append((step.symbol, arguments))
    ordered = sorted(rows, key=lambda row: row.place not in (INPUT, OUTPUT))
    numbers = {row: number for number, row in enumerate(ordered)}
    return Tables(
        rows=tuple(ordered),
        bound=sum(row.place in (INPUT, OUTPUT) for row in ordered),
        steps=tuple((symbol, tuple(numbers[row] for row in arguments)) for symbol, arguments in steps),
        copies=tuple(
            (place, *made.of(spec.name))
            for place, spec in enumerate(described.outputs)
            if made.of(spec.name) != (OUTPUT, place)
        ),
        arena_bytes=made.arena_bytes,
        kept=made.kept,
        kept_bytes=made.kept_bytes,
    )


def kept_offsets(described: Program) -> tuple[dict[str, int], int]:
    """Where each cache that a session keeps lies in its block for them, and the size of the block (bytes)."""
    specs = {spec.name: spec for spec in described.inputs}
    found: dict[str, int] = {}
    size_bytes = 0
    for name in described.opened.kept if described.opened else ():
        found[name] = size_bytes
        bytes_of_one = math.prod(specs[name].shape) * numpy_dtype(specs[name].dtype).itemsize
        size_bytes = aligned(size_bytes + bytes_of_one, ALIGNMENT)
    return found, size_bytes


class _Places:
    """Where the tensors of a program lie."""

    def __init__(self, program: AssembledProgram, described: Program, offsets: Sequence[int]) -> None:
        self._program = program
        self._highs = [size.high for size in described.opened.sizes] if described.opened else []
        self._weights = [offsets[position] for position in program.weights]
        kept, self.kept_bytes = kept_offsets(described)
        self.kept = tuple(kept.values())
        self._known: dict[str, tuple[str, int]] = {name: (KEPT, offset) for name, offset in kept.items()}
        if described.opened:
            self._known |= {output: self._known[given] for output, given in described.opened.caches}
        for number, spec in enumerate(spec for spec in described.inputs if spec.name not in kept):
            self._known[spec.name] = INPUT, number
        for name, place in program.constants.items():
            self._known[name] = WEIGHTS, self._weights[place]
        for number, output in enumerate(described.outputs):
            self._known.setdefault(program.storage[output.name], (OUTPUT, number))
        inside, self.arena_bytes = placed(self._lifetimes())
        self._known |= {name: (ARENA, offset) for name, offset in inside.items()}

    def of(self, name: str) -> tuple[str, int]:
        """Place of a tensor, and its offset there."""
        return self._known[self._program.storage[name]]

    def row(self, name: str) -> Row:
        """The tensor `name`. Of a constant that depends on the size there is all at any size."""
        if name in self._program.constants:
            return self.weight(self._program.constants[name])
        place, offset = self.of(name)
        stored = self._program.stored[name].stored_dtype
        return Row(place, offset, self._shape(name), stored, self._program.axes.get(name, ()))

    def weight(self, place: int) -> Row:
        """The weight at that place of the program's."""
        value = self._program.weight_values[place]
        return Row(WEIGHTS, self._weights[place], value.physical_shape, value.stored_dtype)

    def _shape(self, name: str) -> tuple[int, ...]:
        """How a tensor is stored at the largest size."""
        shape = list(self._program.stored[name].physical_shape)
        if name in self._program.repeated:
            shape.insert(0, 1)
        for one in self._program.axes.get(name, ()):
            shape[one.axis] = one.at(self._highs)
        return tuple(shape)

    def _lifetimes(self) -> list[Lifetime]:
        """Of the results that lie in no input, output or weight: from the step that writes to the last that reads."""
        spans: dict[str, tuple[int, int]] = {}
        for number, step in enumerate(self._program.steps):
            for name in (*step.inputs, *step.outputs):
                root = self._program.storage[name]
                if root not in self._known:
                    spans[root] = spans.get(root, (number, number))[0], number
        return [Lifetime(root, self._size_bytes(root), *span) for root, span in spans.items()]

    def _size_bytes(self, name: str) -> int:
        """Bytes of a tensor as it is stored."""
        return math.prod(self._shape(name)) * np.dtype(self._program.stored[name].stored_dtype).itemsize
