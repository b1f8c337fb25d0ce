"""Sliding windows, and the static tiling of a row of outputs, with the taps that fall into the padding known ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache

from autofuse.kernels.tir.emit import Emitter, Expr, Index, larger, smaller

UNROLLED = 64
"""Taps, times tiles at the padding, of a row whose taps are known ahead. Code for each of more would take TVM minutes:
of 128 taps at 13 tiles it had 57,000 lines."""
MIN_TASK_ELEMENTS = 4096
"""Elements that a task of a thread has at least, where there are so many: fewer take less time than its start."""
MANY = 1 << 16
"""Divisors that are remembered: first guesses ask for the same ones hundreds of times."""
SEARCHED = 1 << 20
"""Outputs among which those that read nothing but padding are looked for one by one."""


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

    @property
    def read_step(self) -> int:
        """The positions that are read are multiples of it: of the stride, where an output has one tap."""
        return self.stride if self.taps == 1 and self.pad_begin % self.stride == 0 else 1

    @property
    def read_positions(self) -> int:
        """How many multiples of `read_step` there are."""
        return -(-self.size // self.read_step)

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

    def reads(self, output: int) -> bool:
        """Whether `output` reads a real element."""
        low, high = self._met(output)
        return bool(low < high)

    @cached_property
    def some_blind(self) -> bool:
        """Whether an output reads nothing but padding; of very many that step over the input, it is assumed."""
        if self.dilation <= self.size:  # no window steps over the input: only the first and the last ones lie beside it
            return not (self.reads(0) and self.reads(self.outputs - 1))
        return self.outputs > SEARCHED or not all(map(self.reads, range(self.outputs)))

    @cached_property
    def all_blind(self) -> bool:
        """Whether the outputs (the first of very many) read nothing but padding."""
        return not any(map(self.reads, range(min(self.outputs, SEARCHED))))

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
        low, high = self._met(output)
        return low, larger(high, low) if self.some_blind else high

    def _met(self, output: Expr) -> tuple[Expr, Expr]:
        """As `tap_range`, but the second may be below the first."""
        origin = output * self.stride - self.pad_begin
        last = self.dilation - 1
        low = larger((last - origin) // self.dilation if last else -origin, 0)
        high = smaller((self.size - origin + last) // self.dilation if last else self.size - origin, self.taps)
        return low, high

    def clean_outputs(self) -> tuple[int, int]:
        """The first output, and one past the last, that read no padding; equal when there are none."""
        if not self.taps:
            return 0, self.outputs
        reach = (self.taps - 1) * self.dilation
        first = max(0, -(-self.pad_begin // self.stride))
        end = min(self.outputs, (self.size - 1 + self.pad_begin - reach) // self.stride + 1)
        return (first, end) if first < end else (0, 0)


@dataclass(frozen=True)
class Run:
    """`count` tiles of `width` neighbouring outputs from `start`; `clean`: none of them reads padding.

    Of those that do, the taps are known ahead, or `ragged`: found when the tile is computed.
    """

    start: int
    width: int
    count: int
    clean: bool
    ragged: bool = False

    def reads(self, window: Window) -> bool:
        """Whether any output of a tile reads a real element of its `window`; of a ragged one: it may."""
        return self.ragged or any(window.reads(self.start + r) for r in range(self.width))

    def taps(self, window: Window, start: Expr) -> tuple[tuple[Expr, Expr], Sequence[tuple[Expr, Expr]]]:
        """The taps (first, one past the last) that all outputs of the tile at `start` read, and all of each output."""
        each = [window.tap_range(start + r) for r in range(self.width)]
        low, high = each[0][0], each[-1][1]  # windows only move on
        return (low, larger(low, high)), each


Visit = Callable[[Window, Run, Expr], None]
"""Emits a tile of a row: its window, the run that it belongs to, and its first result."""


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


def row_taps(
    emitter: Emitter, run: Run, window: Window, start: Expr, unrolled: int = 0
) -> Iterator[tuple[AbstractContextManager[Expr], list[int]]]:
    """Loops over the taps that a tile at `start` reads (many of one tap each), and the outputs that take part in each.

    `unrolled`: taps, times outputs, up to which those of a clean tile are no loop.
    """
    everyone = list(range(run.width))
    if run.ragged:
        yield from _ragged_taps(emitter, run, window, start)
    elif run.clean and window.taps * run.width > unrolled:
        yield emitter.serial(window.taps), everyone
    else:
        for tap in range(window.taps):
            valid = everyone if run.clean else [r for r in everyone if window.inside(run.start + r, tap)]
            if valid:
                yield nullcontext(tap), valid


def _ragged_taps(
    emitter: Emitter, run: Run, window: Window, start: Expr
) -> Iterator[tuple[AbstractContextManager[Expr], list[int]]]:
    """First the taps that all outputs read, then for each output those before them and those behind."""
    (low, high), each = run.taps(window, start)
    yield _tap_loop(emitter, low, high), list(range(run.width))
    for r, (first, end) in enumerate(each):
        if r > 0:
            yield _tap_loop(emitter, first, smaller(end, low)), [r]
        if r < run.width - 1:
            yield _tap_loop(emitter, larger(first, high), end), [r]


@contextmanager
def _tap_loop(emitter: Emitter, low: Expr, high: Expr) -> Iterator[Expr]:
    """A loop from `low` to `high`, which may lie below it; yields the tap."""
    with emitter.serial(emitter.simplify(larger(high - low, 0))) as step:
        yield emitter.simplify(step + low)


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
    zones = ((0, base + 1, longer), (longer * (base + 1), base, tiles - longer))
    cuts = [(start, size, count, *_clean_tiles(window, start, size, count)) for start, size, count in zones]
    edges = sum(count - (end - first) for _, _, count, first, end in cuts)
    ragged = window.taps * edges > UNROLLED
    for start, size, count, first, end in cuts:
        yield from _edge(start, size, first, ragged)
        if first < end:
            yield Run(start + first * size, size, end - first, True)
        yield from _edge(start + end * size, size, count - end, ragged)


def _clean_tiles(window: Window, start: int, size: int, count: int) -> tuple[int, int]:
    """Of `count` tiles of `size` outputs from `start` on, the first and one past the last that read no padding."""
    low, high = window.clean_outputs()
    first = max(0, -((start - low) // size)) if size else 0
    end = min(count, (high - start) // size) if size else 0
    return (first, end) if first < end else (0, 0)


def _edge(start: int, size: int, count: int, ragged: bool) -> Iterator[Run]:
    """Tiles at the padding."""
    if ragged and count:
        yield Run(start, size, count, False, ragged=True)
        return
    for tile in range(count):
        yield Run(start + tile * size, size, 1, False)


def spans(total: int, *widths: int) -> Iterator[tuple[int, int, int]]:
    """(first element, how many, elements of each): `total` elements in steps of the first width, what they leave in
    those of the next one, and so on. Steps of 0 are none."""
    first = 0
    for width in widths:
        count = (total - first) // width if width else 0
        if count:
            yield first, count, width
        first += count * width


def vector_spans(total: int, lanes: int, beside: int = 1) -> Iterator[tuple[int, int, int]]:
    """`spans` of so many vectors `beside` one another, of the vectors that are left together, of what fills none."""
    widest = lanes * beside
    return spans(total, widest, total % widest // lanes * lanes, total % lanes)


@lru_cache(MANY)
def divisor_near(total: int, wanted: int) -> int:
    """The divisor of `total` nearest to `wanted` (0 or less: `total`); the smaller one of two."""
    if wanted <= 0 or wanted >= total:
        return total
    return min(divisors(total), key=lambda d: (abs(d - wanted), d))


def tiles_per_task(total: int, tasks: int, elements: int) -> int:
    """How many of `total` tiles, of so many elements each, a task has where about so many `tasks` are wished."""
    return divisor_near(total, max(1, min(total // tasks, total), MIN_TASK_ELEMENTS // elements))


def divisors(total: int) -> list[int]:
    """All divisors of `total`, in no order, from its prime factors: few steps even where `total` is very large."""
    found, rest, factor = [1], total, 2
    while factor * factor <= rest:
        power = 1
        smaller = tuple(found)
        while rest % factor == 0:
            rest //= factor
            power *= factor
            found += [power * d for d in smaller]
        factor += 1
    return found if rest == 1 else [*found, *(rest * d for d in found)]
