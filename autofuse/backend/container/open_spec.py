"""What a library says about the sizes that it leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from pydantic import ConfigDict

MOST_SIZES = 8
"""Open sizes that a description may have."""
_EXACTLY = ConfigDict(extra="forbid", strict=True)


class Shaped(Protocol):
    """A tensor with a name and a shape."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""


@dataclass(frozen=True)
class SizeSpec:
    """A size that is open: its `name` in the model, `low` to `high`, in multiples of `step`."""

    __pydantic_config__ = _EXACTLY

    name: str
    low: int
    high: int
    step: int = 1

    def __str__(self) -> str:
        return f"{self.low} to {self.high}" + f" in steps of {self.step}" * (self.step > 1)

    def refusal(self, value: int | None) -> str:
        """Why it cannot have a value; "" where it can."""
        if value is None or not self.low <= value <= self.high:
            wider = f"compile it with a wider range, --sizes {self.name}=LOW:HIGH"
            return f"{self.name} is {value}, the library takes {self}: {wider}"
        steps = f"{self.name} is {value}, the library takes multiples of {self.step}, {self}"
        return steps if value % self.step else ""


@dataclass(frozen=True)
class FurtherSpec:
    """What an extent has beside its first part: `factor` times a `per`-th of size number `size` and `shift`, and
    `more`. It multiplies the last summand, or `adds` one."""

    __pydantic_config__ = _EXACTLY

    size: int
    factor: int = 1
    per: int = 1
    more: int = 0
    shift: int = 0
    adds: bool = False

    def at(self, values: Sequence[int]) -> int:
        """Its value where the sizes have such values."""
        return _first_at(self, values)


@dataclass(frozen=True)
class AxisSpec:
    """Axis number `axis` of a tensor is `factor` times a `per`-th of size number `size` and `shift`, and `more`; all of
    this as often as size number `times` says, where there is one. What is `further` goes on from there: where places of
    several maps stand one behind the other, an extent is a sum of products."""

    __pydantic_config__ = _EXACTLY

    axis: int
    size: int
    factor: int = 1
    per: int = 1
    more: int = 0
    times: int | None = None
    shift: int = 0
    further: tuple[FurtherSpec, ...] = ()

    @property
    def says(self) -> bool:
        """Whether its extent says what the size is."""
        return self.per == 1 and self.times is None and not self.further

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of the sizes that it follows."""
        own = (self.size,) if self.times is None else (self.size, self.times)
        return tuple(dict.fromkeys((*own, *(one.size for one in self.further))))

    def at(self, values: Sequence[int]) -> int:
        """The extent where the sizes have such values."""
        once = _first_at(self, values)
        last = once if self.times is None else once * values[self.times]
        whole = 0
        for one in self.further:
            whole, last = (whole + last, one.at(values)) if one.adds else (whole, last * one.at(values))
        return whole + last

    def value(self, extent: int) -> int:
        """The size that an extent says; the next one below where none has it."""
        return max(0, extent - self.more) // self.factor

    def shown(self, names: Sequence[str]) -> str:
        """The extent, for people."""
        text = self._first(names)
        for one in self.further:
            shown = AxisSpec(self.axis, one.size, one.factor, one.per, one.more, None, one.shift)._first(names)
            text += f" + {shown}" if one.adds else f"*({shown})" if one.more else f"*{shown}"
        return text

    def _first(self, names: Sequence[str]) -> str:
        """Its first part."""
        part = f"({names[self.size]} + {self.shift})" if self.shift else names[self.size]
        part = part if self.per == 1 else f"{part}/{self.per}"
        text = part if self.factor == 1 else f"{self.factor}*{part}"
        text += f" {'-' if self.more < 0 else '+'} {abs(self.more)}" if self.more else ""
        if self.times is None:
            return text
        return f"{names[self.times]}*({text})" if self.more else f"{names[self.times]}*{text}"


Axes = tuple[AxisSpec, ...]


@dataclass(frozen=True)
class OpenSpec:
    """The open `sizes` of a program, and the axes of each of its inputs and outputs that follow one.

    The shapes of the program are those at the largest sizes. `caches`: outputs of the model that the program does not
    have, each with the input into which it writes them, in place.
    """

    __pydantic_config__ = _EXACTLY

    sizes: tuple[SizeSpec, ...]
    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]
    caches: tuple[tuple[str, str], ...] = ()

    @property
    def extents(self) -> tuple[Axes, ...]:
        """Of each input, and then of each output, the axes that follow an open size."""
        return (*self.inputs, *self.outputs)

    @property
    def names(self) -> tuple[str, ...]:
        """What the sizes are called in the model."""
        return tuple(size.name for size in self.sizes)

    @property
    def kept(self) -> tuple[str, ...]:
        """Inputs that whoever runs the program keeps between calls, in place of the caller."""
        return tuple(given for _, given in self.caches)

    @cached_property
    def said(self) -> dict[int, list[tuple[int, AxisSpec]]]:
        """For each size the axes that say it, with the number of their input."""
        found: dict[int, list[tuple[int, AxisSpec]]] = {number: [] for number in range(len(self.sizes))}
        for place, axes in enumerate(self.inputs):
            for one in axes:
                if one.says:
                    found[one.size].append((place, one))
        return found

    @cached_property
    def _read(self) -> list[tuple[int, AxisSpec, SizeSpec]]:
        """Where the first axis that says it stands for each size: the number of its input, and that axis."""
        return [(*axes[0], size) for axes, size in zip(self.said.values(), self.sizes, strict=True)]

    def taken(self, specs: Sequence[Shaped], shapes: Sequence[tuple[int, ...]]) -> list[int] | None:
        """The sizes that inputs of such shapes have, where they are taken; `refusal` says why not. It looks at no more
        than it must, since it is part of the first call at a size."""
        values = []
        for place, one, size in self._read:
            shape = shapes[place]
            if len(shape) <= one.axis:
                return None
            value = (shape[one.axis] - one.more) // one.factor
            if not size.low <= value <= size.high or value % size.step:
                return None
            values.append(value)
        for spec, axes, shape in zip(specs, self.inputs, shapes, strict=True):
            if shape != (_shape(spec.shape, axes, values) if axes else spec.shape):
                return None
        return values

    def values_in(self, shapes: Mapping[int, Sequence[int]]) -> list[int | None]:
        """Each size as shapes of inputs, by their number, say it; None where no shape does."""
        found: list[int | None] = []
        for axes in self.said.values():
            said = (one.value(shapes[place][one.axis]) for place, one in axes if one.axis < len(shapes.get(place, ())))
            found.append(next(said, None))
        return found

    def sizes_in(self, shapes: Mapping[int, Sequence[int]]) -> dict[str, int]:
        """The open sizes that shapes of inputs, by their number, say; what does not fit says nothing."""
        values = zip(self.names, self.values_in(shapes), strict=True)
        return {name: value for name, value in values if value is not None}

    def input_shapes(self, specs: Sequence[Shaped], sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
        """The shapes of all inputs at these sizes; at the largest of those that are not among them."""
        values = [sizes.get(size.name, size.high) for size in self.sizes]
        return [_shape(spec.shape, axes, values) for spec, axes in zip(specs, self.inputs, strict=False)]

    def output_shapes(self, specs: Sequence[Shaped], values: Sequence[int]) -> list[tuple[int, ...]]:
        """The shapes of all outputs where the sizes have such values."""
        return [_shape(spec.shape, axes, values) for spec, axes in zip(specs, self.outputs, strict=True)]

    def texts(self, specs: Sequence[Shaped]) -> list[tuple[int | str, ...]]:
        """The shapes of inputs and then of outputs, with names where open sizes stand: "batch", "past + 1"."""
        return [self._text(spec, axes) for spec, axes in zip(specs, self.extents, strict=False)]

    def _text(self, spec: Shaped, axes: Axes) -> tuple[int | str, ...]:
        found: list[int | str] = list(spec.shape)
        for one in axes:
            found[one.axis] = one.shown(self.names)
        return tuple(found)

    def refusal(self, specs: Sequence[Shaped], shapes: Sequence[tuple[int, ...]]) -> str:
        """Why inputs of such shapes are not taken; "" where they are."""
        values = self.values_in(dict(enumerate(shapes)))
        known = [0 if value is None else value for value in values]
        reasons = [size.refusal(value) for size, value in zip(self.sizes, values, strict=True)]
        for spec, axes, shape in zip(specs, self.inputs, shapes, strict=True):
            open_ones = {one.axis for one in axes}
            wanted = _shape(spec.shape, axes, known)
            alike = len(shape) == len(wanted) and all(
                have == want or axis in open_ones for axis, (have, want) in enumerate(zip(shape, wanted, strict=True))
            )
            if shape != wanted:
                takes = ", ".join(map(str, self._text(spec, axes)))
                numbers = dict.fromkeys(number for one in axes for number in one.sizes) if alike else {}
                others = " and ".join(f"{self.names[number]} {known[number]}" for number in numbers)
                before = f", and an input before has {others}" * bool(others)
                return f"input {spec.name!r}: shape {shape}, the model takes ({takes}){before}"
        return next((reason for reason in reasons if reason), "")

    def problem(self, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> str:
        """Why it cannot be that of a program with such inputs and outputs; "" when nothing is wrong.

        Their shapes must be those at the largest sizes, and each size be seen in an input.
        """
        if not 0 < len(self.sizes) <= MOST_SIZES or len(set(self.names)) != len(self.sizes):
            return f"{len(self.sizes)} sizes"
        for size in self.sizes:
            if not 0 <= size.low <= size.high or not size.high or size.step < 1:
                return f"{size.name!r:.60}: {size}"
            if size.low % size.step or size.high % size.step:
                return f"{size.name!r:.60}: {size}"
        if (len(inputs), len(outputs)) != (len(self.inputs), len(self.outputs)):
            return "it is not told for all inputs and outputs"
        for spec, axes in zip((*inputs, *outputs), self.extents, strict=True):
            wrong = next((problem for one in axes if (problem := self._axis_problem(spec, one))), "")
            if wrong or len({one.axis for one in axes}) != len(axes):
                return f"tensor {spec.name!r:.60} {wrong or 'has an axis twice'}"
        if not all(self.said.values()):
            return "no input has one of them"
        room = {spec.name for spec, axes in zip(inputs, self.inputs, strict=True) if any(one.more for one in axes)}
        full = [given for given in self.kept if given not in room]
        return f"its cache {full[0]!r:.60} has no room" if full else ""

    def _axis_problem(self, spec: Shaped, one: AxisSpec) -> str:
        known = 0 <= one.axis < len(spec.shape) and all(0 <= number < len(self.sizes) for number in one.sizes)
        if not (known and _is_extent(one) and all(map(_is_extent, one.further))):
            return "has no such axis"
        low, high = ([getattr(size, end) for size in self.sizes] for end in ("low", "high"))
        if spec.shape[one.axis] != one.at(high) or one.at(low) < 0:
            return f"does not have {self.names[one.size]!r:.60} in axis {one.axis}"
        return ""


def _first_at(one: AxisSpec | FurtherSpec, values: Sequence[int]) -> int:
    """The part of an extent that follows its own size alone."""
    return (values[one.size] + one.shift) // one.per * one.factor + one.more


def _is_extent(one: AxisSpec | FurtherSpec) -> bool:
    return min(one.factor, one.per) >= 1 and 0 <= one.shift < one.per


def without_nothing_further(opened: dict[str, Any] | None) -> None:
    """Leaves out what only few extents have, for older readers."""
    for axes in (*opened["inputs"], *opened["outputs"]) if opened else ():
        for one in axes:
            if not one["further"]:
                del one["further"]


def part_text(names: Sequence[str], above: int | None, most: int | None) -> str:
    """A part of the range for people: "batch x tokens up to 64"; "" for all of it."""
    if above is None and most is None:
        return ""
    what = " x ".join(names)
    if above is None or most is None:
        return f"{what} {f'up to {most}' if above is None else f'above {above}'}"
    return f"{what} {above + 1} to {most}"


def _shape(shape: tuple[int, ...], axes: Axes, values: Sequence[int]) -> tuple[int, ...]:
    """A shape where the sizes have such values."""
    found = list(shape)
    for one in axes:
        found[one.axis] = one.at(values)
    return tuple(found)
