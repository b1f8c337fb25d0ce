"""Sizes that a library leaves open: their names in the model, and from where to where they go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autofuse.errors import InputError
from autofuse.values.arguments import whole_number

DEFAULT_LOW, DEFAULT_HIGH = 1, 32
"""The range of a size that is named without one."""
MOST = 1 << 20
"""The largest size."""
DRAWN = 9
"""Sizes that stand for a range, at most."""
SizeRange = int | tuple[int, int]
"""A size that is fixed, or the smallest and the largest of one that stays open."""
Ranges = Mapping[str, SizeRange] | Iterable[str]
"""Ranges by name, or texts that `parse_sizes` reads."""
_ALLOWED = f"NAME=LOW:HIGH such as batch=1:16, NAME=SIZE, or NAME alone for {DEFAULT_LOW}:{DEFAULT_HIGH}"


@dataclass(frozen=True)
class OpenSize:
    """A size that stays open, by its name in the model: from `low` to `high`, both included."""

    name: str
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.name} {self.low} to {self.high}"

    def drawn(self, count: int = DRAWN) -> tuple[int, ...]:
        """At most so many sizes of the range, from the smallest to the largest, each as many times the one before."""
        first = max(1, self.low)
        growth = (self.high / first) ** (1 / max(1, count - 1))
        found = {min(self.high, round(first * growth**step)) for step in range(count)}
        return tuple(sorted(found if self.low else {0, *sorted(found)[:-2], self.high}))

    @property
    def is_fixed(self) -> bool:
        """Whether there is only one size."""
        return self.low == self.high


def parse_sizes(texts: Iterable[str]) -> dict[str, SizeRange]:
    """Ranges by name from texts such as "batch=1:16,seq=128"; of a name alone the default range."""
    found: dict[str, SizeRange] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, range_text = part.rpartition("=") if "=" in part else (part, "", "")
        ends = [whole_number(end.strip()) for end in range_text.split(":")] if equals else [DEFAULT_LOW, DEFAULT_HIGH]
        if not name or len(ends) > 2 or any(end is None for end in ends):
            raise InputError(f"--sizes: got {part!r:.200}, allowed: {_ALLOWED}")
        if name in found:
            raise InputError(f"--sizes: {name!r} is given twice")
        numbers = [end for end in ends if end is not None]
        found[name] = numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])
    return found


def open_sizes(ranges: Ranges) -> tuple[OpenSize, ...]:
    """The sizes of `ranges`, checked. InputError for a range that holds nothing, or too much."""
    found = []
    named = ranges if isinstance(ranges, Mapping) else parse_sizes(ranges)
    for name, given in named.items():
        low, high = (given, given) if isinstance(given, int) else given
        if not (low >= 0 and high >= 1 and low <= high <= MOST):
            raise InputError(f"--sizes {name}={low}:{high}: allowed are 0 to {MOST:,}, the smaller number first")
        found.append(OpenSize(name, low, high))
    return tuple(found)


def single_sizes(ranges: Ranges) -> dict[str, int]:
    """One size of each name. InputError for a range."""
    found = open_sizes(ranges)
    for one in found:
        if not one.is_fixed:
            raise InputError(f"--sizes: a call has one size: give {one.name}={one.high}, not a range")
    return {one.name: one.low for one in found}


def the_open_one(sizes: Sequence[OpenSize]) -> OpenSize:
    """The one size that has a range. InputError where there is none, or more than one."""
    found = [size for size in sizes if not size.is_fixed]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"--sizes: no size has a range; give one, such as {sizes[0].name}=1:16, or use --shape")
    names, last = " and ".join(size.name for size in found), found[-1]
    raise InputError(f"--sizes: {names} cannot stay open together; fix all but one, such as {last.name}={last.high}")
