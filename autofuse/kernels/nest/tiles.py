"""Sliding windows, and the static tiling of a row of outputs, with the taps that fall into the padding known ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

from autofuse.kernels.tir.emit import Emitter, Expr, Index, larger, smaller


@dataclass(frozen=True)
class Window:
    """One spatial dimension of a sliding window over `size` input positions.

    Outputs and taps are Python integers, or expressions where a method says Expr.
    """

    size: int
    taps: int
    stride: int = 1
    dilation: int = 1
    pad_begin: int = 0
    pad_end: int = 0
    outputs: int = 0

    @property
    def kernel(self) -> int:
        """Extent of the weights in this dimension."""
        return self.taps

    @property
    def phases(self) -> tuple[tuple[int, Window], ...]:
        """(count, window): the windows that a row is computed by, `window.at(0)` to `window.at(count - 1)` each."""
        return ((1, self),)

    def at(self, number: Expr) -> Window:
        """The window `number` phases after this one."""
        del number
        return self

    def result(self, output: Expr) -> Expr:
        """Position in the whole result of an output of this phase."""
        return output

    def position(self, output: Expr, tap: Expr) -> Expr:
        """Input position that `tap` reads for `output`; outside [0, size) it is padding."""
        return output * self.stride + tap * self.dilation - self.pad_begin

    def seen(self, begin: Expr, count: int) -> tuple[Expr, int]:
        """(first position, how many) of the input that `count` outputs from `begin` on read, padding among them."""
        reach = (self.taps - 1) * self.dilation
        return begin * self.stride - self.pad_begin, (count - 1) * self.stride + reach + 1

    def kernel_tap(self, output: Expr, tap: Expr) -> Expr:
        """Position in the weights of a tap of `output`."""
        del output
        return tap

    def inside(self, output: int, tap: int) -> bool:
        """Whether `tap` reads a real element."""
        return bool(0 <= self.position(output, tap) < self.size)

    @property
    def clean(self) -> bool:
        """Whether no output reads padding."""
        return all(self.inside(output, tap) for output in (0, self.outputs - 1) for tap in (0, self.taps - 1))

    @cached_property
    def blind(self) -> tuple[int, ...]:
        """Outputs that read nothing but padding."""
        return tuple(o for o in range(self.outputs) if not any(self.inside(o, tap) for tap in range(self.taps)))

    def covered(self, output: Expr) -> Expr:
        """Taps of `output` that lie in the padded input; only a last output that was rounded up has fewer than all."""
        reach = self.size + self.pad_end + self.dilation - 1
        if (self.outputs - 1) * self.stride - self.pad_begin + self.taps * self.dilation <= reach:
            return self.taps
        return smaller((reach - output * self.stride + self.pad_begin) // self.dilation, self.taps)

    def tap_range(self, output: Expr) -> tuple[Expr, Expr]:
        """First and one-past-last tap that reads real elements at `output`; never the second below the first."""
        if self.clean:
            return 0, self.taps
        origin = output * self.stride - self.pad_begin
        last = self.dilation - 1
        low = larger((last - origin) // self.dilation if last else -origin, 0)
        high = smaller((self.size - origin + last) // self.dilation if last else self.size - origin, self.taps)
        return low, larger(high, low) if self.blind else high


@dataclass(frozen=True)
class Run:
    """`count` tiles of `width` neighbouring outputs from `start`; `clean`: none of them reads padding."""

    start: int
    width: int
    count: int
    clean: bool

    def reads(self, window: Window) -> bool:
        """Whether any output of a tile reads a real element of its `window`."""
        pairs = ((self.start + r, tap) for r in range(self.width) for tap in range(window.taps))
        return any(window.inside(*pair) for pair in pairs)


def positions(windows: Sequence[Window], outputs: Index, taps: Index) -> Index:
    """Input position in every dimension."""
    return tuple(w.position(output, tap) for w, output, tap in zip(windows, outputs, taps, strict=True))


@contextmanager
def tap_loops(emitter: Emitter, windows: Sequence[Window], row: Index) -> Iterator[Index]:
    """A loop over the taps of each window that read real elements at its output in `row`; yields the taps."""
    taps: Index = ()
    with ExitStack() as loops:
        for window, output in zip(windows, row, strict=False):
            low, high = window.tap_range(output)
            step = loops.enter_context(emitter.serial(emitter.simplify(high - low)))
            taps = (*taps, emitter.simplify(step + low))
        yield taps


def kernel_tap(windows: Sequence[Window], outputs: Index, taps: Index) -> Expr:
    """Number of a tap in the weights, row-major."""
    flat: Expr = 0
    for window, output, tap in zip(windows, outputs, taps, strict=True):
        flat = flat * window.kernel + window.kernel_tap(output, tap)
    return flat


def longest_row(windows: Sequence[Window]) -> int:
    """Neighbouring outputs of a row that one window makes."""
    return max(phase.outputs for _, phase in windows[-1].phases)


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
