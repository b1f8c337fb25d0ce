"""What a library says about the size that it leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import ConfigDict


class Shaped(Protocol):
    """A tensor with a name and a shape."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""


@dataclass(frozen=True)
class OpenExtent:
    """The extent of an `axis` of a tensor: `factor` times the open size number `size`, and `more`."""

    axis: int
    size: int
    factor: int
    more: int


@dataclass(frozen=True)
class OpenSpec:
    """A size that a program leaves open: its `name` in the model, `low` to `high`.

    `inputs`, `outputs`: for each, the axis where it stands and how many times the open size that axis is; None for one
    that does not have it. `more`: how much longer that axis is, for all inputs and then all outputs; none where none
    is. The shapes of the program are those at the largest size. `caches`: outputs of the model that the program does
    not have, each with the input into which it writes them, in place.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    name: str
    low: int
    high: int
    inputs: tuple[tuple[int, int] | None, ...]
    outputs: tuple[tuple[int, int] | None, ...]
    more: tuple[int, ...] = ()
    caches: tuple[tuple[str, str], ...] = ()

    @property
    def beyond(self) -> tuple[int, ...]:
        """How much longer the open axis of each input is, and then of each output."""
        return self.more or (0,) * (len(self.inputs) + len(self.outputs))

    @property
    def ranges(self) -> tuple[tuple[str, int, int], ...]:
        """The name of each open size, and from where to where it goes."""
        return ((self.name, self.low, self.high),)

    @property
    def extents(self) -> tuple[tuple[OpenExtent, ...], ...]:
        """Of each input, and then of each output, the axes that follow an open size."""
        places = zip((*self.inputs, *self.outputs), self.beyond, strict=True)
        return tuple(() if where is None else (OpenExtent(where[0], 0, where[1], more),) for where, more in places)

    @property
    def kept(self) -> tuple[str, ...]:
        """Inputs that whoever runs the program keeps between calls, in place of the caller."""
        return tuple(given for _, given in self.caches)

    def sizes_in(self, shapes: Mapping[int, tuple[int, ...]]) -> dict[str, int]:
        """The open sizes that shapes of inputs, by their number, say; what does not fit says nothing."""
        found: dict[str, int] = {}
        for place, shape in shapes.items():
            for one in self.extents[place]:
                if one.axis < len(shape):
                    found.setdefault(self.ranges[one.size][0], max(0, shape[one.axis] - one.more) // one.factor)
        return found

    def input_shapes(self, specs: Sequence[Shaped], sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
        """The shapes of all inputs at these sizes; at the largest of those that are not among them."""
        values = [sizes.get(name, high) for name, _, high in self.ranges]
        found = []
        for spec, extents in zip(specs, self.extents, strict=False):
            shape = list(spec.shape)
            for one in extents:
                shape[one.axis] = one.factor * values[one.size] + one.more
            found.append(tuple(shape))
        return found

    def texts(self, specs: Sequence[Shaped]) -> list[tuple[int | str, ...]]:
        """The shapes of inputs and then of outputs, with names where open sizes stand: "batch", "past + 1"."""
        found = []
        for spec, extents in zip(specs, self.extents, strict=False):
            shape: list[int | str] = list(spec.shape)
            for one in extents:
                name = self.ranges[one.size][0]
                text = name if one.factor == 1 else f"{one.factor}*{name}"
                shape[one.axis] = text + f" + {one.more}" * bool(one.more)
            found.append(tuple(shape))
        return found

    def problem(self, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> str:
        """Why it cannot be that of a program with such inputs and outputs; "" when nothing is wrong.

        Their shapes must be those at the largest size, and the size be seen in an input.
        """
        if not 0 <= self.low <= self.high or not self.high:
            return f"{self.low} to {self.high}"
        if not any(self.inputs):
            return "no input has it"
        axes = (*self.inputs, *self.outputs)
        if (len(inputs), len(outputs)) != (len(self.inputs), len(self.outputs)) or len(self.beyond) != len(axes):
            return "it is not told for all inputs and outputs"
        for spec, where, more in zip((*inputs, *outputs), axes, self.beyond, strict=True):
            axis, factor = where or (0, 0)
            right = 0 <= axis < len(spec.shape) and factor > 0 and spec.shape[axis] == factor * self.high + more
            if where is not None and not right:
                return f"tensor {spec.name!r:.60} does not have it in axis {axis}"
        known = {spec.name: more for spec, where, more in zip(inputs, self.inputs, self.beyond, strict=False) if where}
        wrong = [given for _, given in self.caches if not known.get(given)]
        return f"its cache {wrong[0]!r:.60} has no room" if wrong else ""
