"""Which program of a library answers inputs of given shapes, and how inputs are padded up to one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.container.metadata import Program
from autofuse.errors import InputError

Array = NDArray[np.generic]
Shapes = tuple[tuple[int, ...], ...]
Cut = tuple[slice, ...]


@dataclass(frozen=True)
class Dispatch:
    """The programs of one library, by the shapes of their inputs (in the model's order)."""

    programs: tuple[Program, ...]

    @cached_property
    def exact(self) -> dict[Shapes, int]:
        """Input shapes -> position of the program made for them. Shapes at other sizes that it takes may be added.

        None of several plans for an open size, which are all described at the largest: `of_open_size` knows them.
        """
        if self.programs[0].opened is not None and len(self.programs) > 1:
            return {}
        return {tuple(spec.shape for spec in program.inputs): i for i, program in reversed([*enumerate(self.programs)])}

    def of_open_size(self, shapes: Shapes) -> int | None:
        """The program that takes inputs of `shapes` at a size that it leaves open; None where all sizes are fixed.

        InputError where an input has another shape, or the size is outside of the range.
        """
        program = self.programs[0]
        if program.opened is None:
            return None
        values = program.opened.taken(program.inputs, shapes)
        if values is None:
            raise InputError(program.opened.refusal(program.inputs, shapes))
        return next(number for number, one in enumerate(self.programs) if one.answers(values))

    def covering(self, shapes: Shapes) -> int:
        """The smallest program into which inputs of `shapes` fit when they are padded; InputError when none does."""
        fitting = [number for number, program in enumerate(self.programs) if _fits(program, shapes)]
        if not fitting:
            raise InputError(f"inputs of shapes {_shown(shapes)} fit none of the library's: {self.offered()}")
        return min(fitting, key=lambda number: sum(math.prod(spec.shape) for spec in self.programs[number].inputs))

    def offered(self) -> str:
        """The shapes of all programs, for messages."""
        return "; ".join(_shown(tuple(spec.shape for spec in program.inputs)) for program in self.programs)

    def cuts(self, number: int, shapes: Shapes) -> list[Cut | None]:
        """What of each output of program `number` belongs to inputs of `shapes` (None: all of it).

        An output axis belongs to the input axes that take the same sizes as it in every program. InputError when
        an output grows with the inputs in another way, or when inputs of different sizes share such an axis.
        """
        sizes = self._open_sizes(shapes)
        program = self.programs[number]
        found: list[Cut | None] = []
        for place, spec in enumerate(program.outputs):
            cut = list(spec.shape)
            for axis in range(len(cut)):
                series = self._series(place, axis)
                if len(set(series)) > 1:
                    if series not in sizes:
                        raise InputError(
                            f"output {spec.name!r}: axis {axis} has sizes {list(series)} in the library's programs, as "
                            "no input has: its padding cannot be cut off; compile the exact shape"
                        )
                    cut[axis] = sizes[series]
            found.append(None if tuple(cut) == spec.shape else tuple(slice(0, size) for size in cut))
        return found

    def _series(self, place: int, axis: int) -> tuple[int, ...]:
        return tuple(program.outputs[place].shape[axis] for program in self.programs)

    def _open_sizes(self, shapes: Shapes) -> dict[tuple[int, ...], int]:
        """Sizes of an input axis in all programs -> its size in `shapes`, for axes that are not the same in all."""
        found: dict[tuple[int, ...], int] = {}
        for place, shape in enumerate(shapes):
            for axis, size in enumerate(shape):
                series = tuple(program.inputs[place].shape[axis] for program in self.programs)
                if len(set(series)) > 1 and found.setdefault(series, size) != size:
                    raise InputError(
                        f"inputs of shapes {_shown(shapes)}: axes of sizes {list(series)} must be equal, or the result "
                        "cannot be cut to size"
                    )
        return found


def padded(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """The arrays, filled up with zeros to the shapes of `program`."""
    made = []
    for spec, array in zip(program.inputs, arrays, strict=True):
        if array.shape == spec.shape:
            made.append(array)
            continue
        full = np.zeros(spec.shape, array.dtype)
        full[tuple(slice(0, size) for size in array.shape)] = array
        made.append(full)
    return made


def _fits(program: Program, shapes: Shapes) -> bool:
    return all(
        len(spec.shape) == len(shape) and all(have >= want for have, want in zip(spec.shape, shape, strict=True))
        for spec, shape in zip(program.inputs, shapes, strict=True)
    )


def _shown(shapes: Shapes) -> str:
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
