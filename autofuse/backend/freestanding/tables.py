"""A program as the tables that the C runtime walks: where each tensor lies, and the kernels with their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.backend.compile.assemble import AssembledProgram, Assembly, Step
from autofuse.backend.container.container import ALIGNMENT, aligned
from autofuse.backend.container.metadata import Metadata, Program
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
class Calls:
    """What a plan calls. `steps`: (kernel, positions of its arguments among the rows). `copies`: (output, where it
    lies, offset there). `most`: see `Program`."""

    steps: tuple[tuple[str, tuple[int, ...]], ...]
    copies: tuple[tuple[int, str, int], ...]
    most: int | None = None


@dataclass(frozen=True)
class Tables:
    """One program, or several plans of one: then their results lie in the same memory, as only one of them runs.

    `rows`: those in inputs and outputs first, `bound` of them. `plans`: the calls of each. `kept`: where each cache
    that a session has between calls lies among the bytes of all.
    """

    rows: tuple[Row, ...]
    bound: int
    plans: tuple[Calls, ...]
    arena_bytes: int
    kept: tuple[int, ...] = ()
    kept_bytes: int = 0

    @property
    def steps(self) -> list[tuple[str, tuple[int, ...]]]:
        """The calls of all plans, one plan behind the other."""
        return [step for plan in self.plans for step in plan.steps]

    @property
    def copies(self) -> list[tuple[int, str, int]]:
        """The copies of all plans."""
        return [copy for plan in self.plans for copy in plan.copies]


def tables_of(assembly: Assembly, metadata: Metadata, offsets: Sequence[int]) -> list[Tables]:
    """The tables of a library, one for each of the forms of its inputs; `offsets`: where each of its weights starts
    (bytes)."""
    both = [*zip(assembly.programs, metadata.programs, strict=True)]
    apart = [both] if len(metadata.forms) < len(both) else [[pair] for pair in both]
    return [_tables(pairs, offsets) for pairs in apart]


def _tables(plans: Sequence[tuple[AssembledProgram, Program]], offsets: Sequence[int]) -> Tables:
    """The tables of a program, or of all plans of one."""
    made = [_Places(*pair, offsets) for pair in plans]
    calls = [[(step.symbol, one.arguments(step)) for step in one.program.steps] for one in made]
    rows = dict.fromkeys(row for steps in calls for _, arguments in steps for row in arguments)
    ordered = sorted(rows, key=lambda row: row.place not in (INPUT, OUTPUT))
    numbers = {row: number for number, row in enumerate(ordered)}
    return Tables(
        rows=tuple(ordered),
        bound=sum(row.place in (INPUT, OUTPUT) for row in ordered),
        plans=tuple(
            Calls(
                tuple((symbol, tuple(numbers[row] for row in arguments)) for symbol, arguments in steps),
                one.copies,
                one.described.most,
            )
            for one, steps in zip(made, calls, strict=True)
        ),
        arena_bytes=max(one.arena_bytes for one in made),
        kept=made[0].kept,
        kept_bytes=made[0].kept_bytes,
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
        self.program, self.described = program, described
        self._in_place = set(dict(described.opened.caches)) if described.opened else set()
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

    def arguments(self, step: Step) -> list[Row]:
        """The tensors that a call is given, in their order."""
        outputs = [self.row(name) for name in step.outputs if name not in self._in_place]
        return [*map(self.row, step.inputs), *map(self.weight, step.weights), *outputs]

    @property
    def copies(self) -> tuple[tuple[int, str, int], ...]:
        """Outputs that hold what lies elsewhere: their number, the place, the offset there."""
        found = ((number, *self.of(spec.name)) for number, spec in enumerate(self.described.outputs))
        return tuple((number, place, at) for number, place, at in found if (place, at) != (OUTPUT, number))

    def of(self, name: str) -> tuple[str, int]:
        """Place of a tensor, and its offset there."""
        return self._known[self.program.storage[name]]

    def row(self, name: str) -> Row:
        """The tensor `name`. Of a constant that depends on the size there is all at any size."""
        if name in self.program.constants:
            return self.weight(self.program.constants[name])
        place, offset = self.of(name)
        stored = self.program.stored[name].stored_dtype
        return Row(place, offset, self._shape(name), stored, self.program.axes.get(name, ()))

    def weight(self, place: int) -> Row:
        """The weight at that place of the program's."""
        value = self.program.weight_values[place]
        return Row(WEIGHTS, self._weights[place], value.physical_shape, value.stored_dtype)

    def _shape(self, name: str) -> tuple[int, ...]:
        """How a tensor is stored at the largest size."""
        shape = list(self.program.stored[name].physical_shape)
        if name in self.program.repeated:
            shape.insert(0, 1)
        for one in self.program.axes.get(name, ()):
            shape[one.axis] = one.at(self._highs)
        return tuple(shape)

    def _lifetimes(self) -> list[Lifetime]:
        """Of the results that lie in no input, output or weight: from the step that writes to the last that reads."""
        spans: dict[str, tuple[int, int]] = {}
        for number, step in enumerate(self.program.steps):
            for name in (*step.inputs, *step.outputs):
                root = self.program.storage[name]
                if root not in self._known:
                    spans[root] = spans.get(root, (number, number))[0], number
        return [Lifetime(root, self._size_bytes(root), *span) for root, span in spans.items()]

    def _size_bytes(self, name: str) -> int:
        """Bytes of a tensor as it is stored."""
        return math.prod(self._shape(name)) * np.dtype(self.program.stored[name].stored_dtype).itemsize
