"""What a library of images says about the sizes that it leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ConfigDict

from autofuse.backend.container.open_spec import Shaped

MOST_SIZES = 8
"""Open sizes that a description may have."""


@dataclass(frozen=True)
class SizeSpec:
    """A size that is open: its `name` in the model, `low` to `high`, in multiples of `step`."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    name: str
    low: int
    high: int
    step: int = 1

    def __str__(self) -> str:
        return f"{self.low} to {self.high}" + f" in steps of {self.step}" * (self.step > 1)


@dataclass(frozen=True)
class AxisSpec:
    """Axis number `axis` of a tensor is `factor` times a `per`-th of size number `size`, and `more`."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    axis: int
    size: int
    factor: int
    per: int
    more: int

    def at(self, value: int) -> int:
        """The extent where the size has such a value."""
        return value // self.per * self.factor + self.more

    def shown(self, name: str) -> str:
        """The extent, for messages."""
        part = name if self.per == 1 else f"{name}/{self.per}"
        text = part if self.factor == 1 else f"{self.factor}*{part}"
        return text if not self.more else f"{text} {'-' if self.more < 0 else '+'} {abs(self.more)}"


@dataclass(frozen=True)
class GridSpec:
    """The open `sizes` of a program of images, and the open axes of each of its inputs and outputs.

    The shapes of the program are those at the largest sizes.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    sizes: tuple[SizeSpec, ...]
    inputs: tuple[tuple[AxisSpec, ...], ...]
    outputs: tuple[tuple[AxisSpec, ...], ...]

    def problem(self, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> str:
        """Why it cannot be that of a program with such inputs and outputs; "" when nothing is wrong."""
        for size in self.sizes:
            if not 0 < size.low <= size.high or size.step < 1 or size.low % size.step or size.high % size.step:
                return f"{size.name!r:.60}: {size}"
        if not 0 < len(self.sizes) <= MOST_SIZES:
            return f"{len(self.sizes)} sizes"
        if (len(inputs), len(outputs)) != (len(self.inputs), len(self.outputs)):
            return "it is not told for all inputs and outputs"
        for spec, axes in zip((*inputs, *outputs), (*self.inputs, *self.outputs), strict=True):
            for one in axes:
                known = 0 <= one.axis < len(spec.shape) and 0 <= one.size < len(self.sizes)
                if not known or min(one.factor, one.per) < 1:
                    return f"tensor {spec.name!r:.60} has no such axis"
                size = self.sizes[one.size]
                if spec.shape[one.axis] != one.at(size.high) or one.at(size.low) < 1:
                    return f"tensor {spec.name!r:.60} does not have {size.name!r:.60} in axis {one.axis}"
        stand = {one.size for axes in self.inputs for one in axes if (one.factor, one.per, one.more) == (1, 1, 0)}
        return "" if stand == set(range(len(self.sizes))) else "no input has one of them"

    def shape(self, shape: tuple[int, ...], axes: Sequence[AxisSpec]) -> tuple[int | str, ...]:
        """A shape with the names of the sizes where they stand."""
        found: list[int | str] = list(shape)
        for one in axes:
            found[one.axis] = one.shown(self.sizes[one.size].name)
        return tuple(found)

    def texts(self, specs: Sequence[Shaped]) -> list[tuple[int | str, ...]]:
        """The shapes of inputs and then of outputs, with the names of the sizes where they stand."""
        axes = (*self.inputs, *self.outputs)
        return [self.shape(spec.shape, own) for spec, own in zip(specs, axes, strict=False)]

    def refusal(self, specs: Sequence[Shaped], shapes: Sequence[tuple[int, ...]]) -> str:
        """Why inputs of such shapes are not taken; "" where they are."""
        values: dict[int, int] = {}
        for spec, axes, shape in zip(specs, self.inputs, shapes, strict=True):
            for one in axes:
                if len(shape) == len(spec.shape) and (one.factor, one.per, one.more) == (1, 1, 0):
                    values.setdefault(one.size, shape[one.axis])
        for number, size in enumerate(self.sizes):
            value = values.get(number)
            if value is not None and not size.low <= value <= size.high:
                return (
                    f"{size.name} is {value}, the library takes {size}: compile it with a wider range, --sizes "
                    f"{size.name}=LOW:HIGH"
                )
            if value is not None and value % size.step:
                return f"{size.name} is {value}, the library takes multiples of {size.step}, {size}"
        for spec, axes, shape in zip(specs, self.inputs, shapes, strict=True):
            wanted = list(spec.shape)
            for one in axes:
                wanted[one.axis] = one.at(values.get(one.size, 0))
            if shape != tuple(wanted):
                takes = ", ".join(map(str, self.shape(spec.shape, axes)))
                return f"input {spec.name!r}: shape {shape}, the model takes ({takes})"
        return ""
