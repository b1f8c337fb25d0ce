"""Static tiling of one row of output positions, with the taps that fall into the padding known ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """One spatial dimension of a sliding window over `size` input positions."""

    size: int
    taps: int
    stride: int = 1
    dilation: int = 1
    pad_begin: int = 0
    pad_end: int = 0
    outputs: int = 0

    def position(self, output: int, tap: int) -> int:
        """Input position that `tap` reads for `output`; outside [0, size) it is padding."""
        return output * self.stride + tap * self.dilation - self.pad_begin

    def inside(self, output: int, tap: int) -> bool:
        """Whether `tap` reads a real element."""
        return 0 <= self.position(output, tap) < self.size

    @property
    def clean(self) -> bool:
        """Whether no output reads padding."""
        return all(self.inside(output, tap) for output in (0, self.outputs - 1) for tap in (0, self.taps - 1))


@dataclass(frozen=True)
class Run:
    """`count` tiles of `width` neighbouring outputs from `start`; `clean`: none of them reads padding."""

    start: int
    width: int
    count: int
    clean: bool


def runs(window: Window, width: int) -> Iterator[Run]:
    """Tiles the outputs of `window` by at most `width`, in widths that differ by one at the most."""
    tiles = -(-window.outputs // max(1, width))
    base, longer = divmod(window.outputs, tiles)
    start, pending = 0, None
    for tile in range(tiles):
        size = base + (tile < longer)
        clean = all(window.inside(start + r, tap) for r in (0, size - 1) for tap in range(window.taps))
        if pending and clean and pending.clean and pending.width == size:
            pending = Run(pending.start, size, pending.count + 1, True)
        else:
            if pending:
                yield pending
            pending = Run(start, size, 1, clean)
        start += size
    if pending:
        yield pending


def divisor_near(total: int, wanted: int) -> int:
    """The divisor of `total` nearest to `wanted` (0 or less: `total`); the smaller one of two."""
    if wanted <= 0 or wanted >= total:
        return total
    divisors = [d for d in range(1, total + 1) if total % d == 0]
    return min(divisors, key=lambda d: (abs(d - wanted), d))
