"""Where intermediate results lie in the one block of memory that a session has for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.backend.container.container import ALIGNMENT, aligned


@dataclass(frozen=True)
class Lifetime:
    """A result of `size_bytes` that is written by the step `first` and read by none after the step `last`."""

    name: str
    size_bytes: int
    first: int
    last: int


def placed(lifetimes: Sequence[Lifetime]) -> tuple[dict[str, int], int]:
    """Offset of each result (bytes), and the size of the block; results that live at the same time do not overlap.

    The largest is placed first, each at the lowest offset where it fits.
    """
    offsets: dict[str, int] = {}
    done: list[tuple[int, int, Lifetime]] = []
    for one in sorted(lifetimes, key=lambda life: -life.size_bytes):
        offset = 0
        for start, end, other in done:  # by their start
            if other.last < one.first or one.last < other.first:
                continue
            if offset + one.size_bytes <= start:
                break
            offset = max(offset, aligned(end, ALIGNMENT))
        offsets[one.name] = offset
        done.append((offset, offset + one.size_bytes, one))
        done.sort(key=lambda taken: taken[:2])
    return offsets, aligned(max((end for _, end, _ in done), default=0), ALIGNMENT)
