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
SizeRange = int | tuple[int, int] | tuple[int, int, int] | str
"""A size that is fixed, or the smallest and the largest of one that stays open, and its step where that is not 1; a
text such as "past+1" for one that is always so much more than another, or "1:16" as on the command line."""
Ranges = Mapping[str, SizeRange] | Iterable[str]
"""Ranges by name, or texts that `parse_sizes` reads."""
_ALLOWED = (
    f"NAME=LOW:HIGH such as batch=1:16, NAME=LOW:HIGH:STEP such as height=64:512:16, NAME=SIZE, NAME=OTHER+MORE "
    f"such as total=past+1, or NAME alone for {DEFAULT_LOW}:{DEFAULT_HIGH}"
)


@dataclass(frozen=True)
class OpenSize:
    """A size that stays open, by its name in the model: from `low` to `high`, both included, in multiples of `step`.

    `follows`: the name of another size, than which this one is always `more`; "" for one of its own.
    """

    name: str
    low: int
    high: int
    step: int = 1
    follows: str = ""
    more: int = 0

    def __str__(self) -> str:
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{self.name} {self.low} to {self.high}{steps}"

    @property
    def typed(self) -> str:
        """As `parse_sizes` reads it."""
        if self.follows:
            return f"{self.name}={self.follows}+{self.more}"
        step = f":{self.step}" if self.step > 1 else ""
        return f"{self.name}={self.low}" if self.low == self.high else f"{self.name}={self.low}:{self.high}{step}"

    def has(self, value: int) -> bool:
        """Whether a value is one of the range."""
        return self.low <= value <= self.high and value % self.step == 0

    def drawn(self, count: int = DRAWN) -> tuple[int, ...]:
        """At most so many sizes of the range, from the smallest to the largest, each as many times the one before."""
        first = max(1, self.low)
        growth = (self.high / first) ** (1 / max(1, count - 1))
        grown = (round(first * growth**number / self.step) * self.step for number in range(count))
        found = {min(self.high, max(first, size)) for size in grown}
        return tuple(sorted(found if self.low else {0, *sorted(found)[:-2], self.high}))

    @property
    def is_fixed(self) -> bool:
        """Whether there is only one size, or another one says which."""
        return self.low == self.high or bool(self.follows)


def parse_sizes(texts: Iterable[str]) -> dict[str, SizeRange]:
    """Ranges by name from texts such as "batch=1:16,seq=128"; of a name alone the default range."""
    found: dict[str, SizeRange] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, range_text = part.rpartition("=") if "=" in part else (part, "", "")
        name, follows = name.strip(), _follower(range_text) is not None
        ends = [whole_number(end.strip()) for end in range_text.split(":")] if equals else [DEFAULT_LOW, DEFAULT_HIGH]
        ends = [0] if follows else ends
        if not name or len(ends) > 3 or any(end is None for end in ends):
            raise InputError(f"--sizes: got {part!r:.200}, allowed: {_ALLOWED}")
        if name in found:
            raise InputError(f"--sizes: {name!r} is given twice")
        numbers = [end for end in ends if end is not None]
        found[name] = range_text.strip() if follows else _range(numbers)
    return found


def _follower(text: str) -> tuple[str, int] | None:
    """The size that is followed, and how much more it is, of a text such as "past+1"; None for another text."""
    other, _, more = text.rpartition("+")
    number = whole_number(more.strip())
    return (other.strip(), number) if other.strip() and number is not None else None


def _range(numbers: Sequence[int]) -> SizeRange:
    """One number, two, or three, as a range."""
    if len(numbers) == 1:
        return numbers[0]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (numbers[0], numbers[1], numbers[2])


def open_sizes(ranges: Ranges) -> tuple[OpenSize, ...]:
    """The sizes of `ranges`, checked. InputError for a range that holds nothing, or too much."""
    found = []
    named = _read(ranges) if isinstance(ranges, Mapping) else parse_sizes(ranges)
    for name, given in named.items():
        if isinstance(given, str):
            found.append(_following(name, given, named))
            continue
        low, high, step = (given, given, 1) if isinstance(given, int) else (*given, 1)[:3]
        if not 0 <= low <= high <= MOST:
            raise InputError(f"--sizes {name}={low}:{high}: allowed are 0 to {MOST:,}, the smaller number first")
        if step < 1 or low % step or high % step:
            raise InputError(f"--sizes {name}={low}:{high}:{step}: both ends must be multiples of the step")
        found.append(OpenSize(name, low, high, step))
    return tuple(found)


def _read(ranges: Mapping[str, SizeRange]) -> dict[str, SizeRange]:
    """The same ranges, with those that are texts read."""
    return {
        name: parse_sizes([f"{name}={given}"])[name] if isinstance(given, str) else given
        for name, given in ranges.items()
    }


def _following(name: str, given: str, named: Mapping[str, SizeRange]) -> OpenSize:
    """A size that follows another one of those that are named."""
    other, more = _follower(given) or ("", 0)
    base = named.get(other)
    if base is None or isinstance(base, str):
        raise InputError(f"--sizes {name}={given}: allowed is another size with a range, and so much more")
    low, high = (base, base) if isinstance(base, int) else base[:2]
    return OpenSize(name, low + more, high + more, follows=other, more=more)


def values_of(sizes: Sequence[OpenSize], values: Mapping[str, int]) -> dict[str, int]:
    """The value of each size, where the open ones have these `values` and others are as small as they are."""
    own = {one.name: values.get(one.name, one.low) for one in sizes if not one.follows}
    return {one.name: own[one.follows] + one.more if one.follows else own[one.name] for one in sizes}


def single_sizes(ranges: Ranges) -> dict[str, int]:
    """One size of each name. InputError for a range."""
    found = open_sizes(ranges)
    for one in found:
        if not one.is_fixed:
            raise InputError(f"--sizes: a call has one size: give {one.name}={one.high}, not a range")
    return {one.name: one.low for one in found}


def open_ones(sizes: Sequence[OpenSize]) -> tuple[OpenSize, ...]:
    """The sizes that have a range."""
    return tuple(size for size in sizes if not size.is_fixed)


def the_open_one(sizes: Sequence[OpenSize]) -> OpenSize:
    """The one size that has a range. InputError where there is none, or more than may stay open."""
    found = open_ones(sizes)
    if len(found) == 1 and found[0].step > 1:
        raise InputError(f"--sizes: {found[0].name} counts rows, and only sizes of images are multiples of a step")
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"--sizes: no size has a range; give one, such as {sizes[0].name}=1:16, or use --shape")
    names, last = " and ".join(size.name for size in found), found[-1]
    raise InputError(
        f"--sizes: {names} cannot stay open together, three at most can (how many sequences there are, and two lengths "
        f"of them); fix others, such as {last.name}={last.high}"
    )
