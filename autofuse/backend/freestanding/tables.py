"""A program as the tables that the C runtime walks: where each tensor lies, and the kernels with their arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.backend.compile.assemble import AssembledProgram
from autofuse.backend.container.metadata import Program
from autofuse.backend.freestanding.memory import Lifetime, placed

ARENA, WEIGHTS, INPUT, OUTPUT = "AF_ARENA", "AF_WEIGHTS", "AF_INPUT", "AF_OUTPUT"
"""`af_place` of runtime.h."""


@dataclass(frozen=True)
class Row:
    """A tensor. `offset`: bytes into the arena or the weights; of an input or output, its number."""

    place: str
    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Tables:
    """One program. `rows`: those in inputs and outputs first, `bound` of them.

    `steps`: (kernel, positions of its arguments in `rows`). `copies`: (output, where it lies, offset there).
    """

    rows: tuple[Row, ...]
    bound: int
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    copies: tuple[tuple[int, str, int], ...]
    arena_bytes: int


def tables_of(program: AssembledProgram, described: Program, offsets: Sequence[int]) -> Tables:
    """The tables of `program`; `offsets`: where each weight of the library starts (bytes)."""
    made = _Places(program, described, offsets)
    rows: dict[Row, None] = {}
    steps = []
    for step in program.steps:
        arguments = [
            *map(made.row, step.inputs),
            *(made.weight(place) for place in step.weights),
            *map(made.row, step.outputs),
        ]
        rows |= dict.fromkeys(arguments)
        steps.append((step.symbol, arguments))
    ordered = sorted(rows, key=lambda row: row.place not in (INPUT, OUTPUT))
    numbers = {row: number for number, row in enumerate(ordered)}
    return Tables(
        rows=tuple(ordered),
        bound=sum(row.place in (INPUT, OUTPUT) for row in ordered),
        steps=tuple((symbol, tuple(numbers[row] for row in arguments)) for symbol, arguments in steps),
        copies=tuple((place, *made.of(described.outputs[place].name)) for place in program.copied),
        arena_bytes=made.arena_bytes,
    )


class _Places:
    """Where the tensors of a program lie."""

    def __init__(self, program: AssembledProgram, described: Program, offsets: Sequence[int]) -> None:
        self._program = program
        self._weights = [offsets[position] for position in program.weights]
        self._known: dict[str, tuple[str, int]] = {}
        for number, spec in enumerate(described.inputs):
            self._known[spec.name] = INPUT, number
        for name, place in program.constants.items():
            self._known[name] = WEIGHTS, self._weights[place]
        for number, output in enumerate(described.outputs):
            self._known.setdefault(program.storage[output.name], (OUTPUT, number))
        inside, self.arena_bytes = placed(_lifetimes(program, self._known))
        self._known |= {name: (ARENA, offset) for name, offset in inside.items()}

    def of(self, name: str) -> tuple[str, int]:
        """Place of a tensor, and its offset there."""
        return self._known[self._program.storage[name]]

    def row(self, name: str) -> Row:
        """The tensor `name`, which is no weight."""
        value = self._program.stored[name]
        return Row(*self.of(name), value.physical_shape, value.dtype)

    def weight(self, place: int) -> Row:
        """The weight at that place of the program's."""
        value = self._program.weight_values[place]
        return Row(WEIGHTS, self._weights[place], value.physical_shape, value.dtype)


def _lifetimes(program: AssembledProgram, elsewhere: Mapping[str, object]) -> list[Lifetime]:
    """Of the results that lie in no input, output or weight: from the step that writes to the last that reads."""
    spans: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(program.steps):
        for name in (*step.inputs, *step.outputs):
            root = program.storage[name]
            if root not in elsewhere:
                spans[root] = spans.get(root, (number, number))[0], number
    return [Lifetime(root, _size_bytes(program, root), *span) for root, span in spans.items()]


def _size_bytes(program: AssembledProgram, name: str) -> int:
    """Bytes of a tensor as it is stored."""
    value = program.stored[name]
    return math.prod(value.physical_shape) * np.dtype(value.dtype).itemsize
