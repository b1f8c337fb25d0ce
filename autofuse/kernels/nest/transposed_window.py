"""The windows of a transposed convolution: each output position sees the input through every `stride`-th tap.

Element i and tap t meet at output i * stride + t * dilation - pad_begin. Seen from the outputs, every stride-th of them
(a phase) is a plain convolution of stride 1 with some of the taps: nothing is added up in memory, and no zeros are
multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd

from tvm import tirx

from autofuse.kernels.nest.tiles import Window
from autofuse.kernels.tir.emit import Expr, larger, smaller


@dataclass(frozen=True)
class TransposedWindow(Window):
    """One dimension of a transposed convolution; a "tap" is counted among those that meet an output."""

    @property
    def every(self) -> int:
        """Distance, in the weights, of two taps that meet an output."""
        return self.stride // gcd(self.stride, self.dilation)

    @property
    def apart(self) -> int:
        """Distance, in the input, of the elements that two such taps meet it with."""
        return self.dilation // gcd(self.stride, self.dilation)

    def first(self, output: Expr) -> tuple[Expr, Expr]:
        """The first tap that may meet `output`, and the element that it would bring."""
        at = output + self.pad_begin
        if self.dilation == 1:
            return at % self.stride, at // self.stride
        tap = at // gcd(self.stride, self.dilation) * pow(self.apart, -1, self.every) % self.every
        return tap, (at - tap * self.dilation) // self.stride

    def met_from(self, first: Expr) -> Expr:
        """Taps from `first` on that meet the same outputs."""
        whole, rest = divmod(self.taps, self.every)
        return (self.taps - first + self.every - 1) // self.every if rest else whole

    def position(self, output: Expr, tap: Expr) -> Expr:
        """See Window."""
        _, element = self.first(output)
        return element - tap * self.apart

    def seen(self, begin: Expr, count: int) -> tuple[Expr, int]:
        """See Window; one more position, or a few, where the first output is met by none of the last taps."""
        reach = (self.taps - 1) * self.dilation
        return (begin + self.pad_begin - reach + self.stride - 1) // self.stride, (count - 1 + reach) // self.stride + 1

    def kernel_tap(self, output: Expr, tap: Expr) -> Expr:
        """See Window."""
        first, _ = self.first(output)
        return first + tap * self.every

    def inside(self, output: int, tap: int) -> bool:
        """See Window."""
        low, high = self.tap_range(output)
        return bool(low <= tap < high)

    @property
    def clean(self) -> bool:
        """Never: the taps differ from output to output."""
        return False

    def _met(self, output: Expr) -> tuple[Expr, Expr]:
        """See Window."""
        return self.tap_range(output)

    def tap_range(self, output: Expr) -> tuple[Expr, Expr]:
        """See Window."""
        shared = gcd(self.stride, self.dilation)
        first, element = self.first(output)
        low = larger((element - self.size + self.apart) // self.apart, 0)
        high = larger(smaller(element // self.apart + 1, self.met_from(first)), low)
        if shared == 1:
            return low, high
        rest = (output + self.pad_begin) % shared
        if isinstance(rest, int):
            return low, low if rest else high
        return low, tirx.Select(tirx.EQ(rest, tirx.const(0, "int32")), high, low)

    @cached_property
    def phases(self) -> tuple[tuple[int, Window], ...]:
        """See Window."""
        found: list[tuple[int, Window]] = []
        for offset in range(min(self.stride, self.outputs)):
            phase = self.phase(offset)
            if found and found[-1][1].at(found[-1][0]) == phase:
                found[-1] = (found[-1][0] + 1, found[-1][1])
            else:
                found.append((1, phase))
        return tuple(found)

    def phase(self, offset: int) -> Phase:
        """The outputs `offset`, `offset` + stride, ... as a convolution."""
        outputs = (self.outputs - offset + self.stride - 1) // self.stride
        tap, element = self.first(offset)
        met = (offset + self.pad_begin) % gcd(self.stride, self.dilation) == 0
        taps = max(0, self.met_from(tap)) if met else 0
        if not taps:
            return Phase(self.size, 0, outputs=outputs, whole=self, offset=offset)
        pad = (taps - 1) * self.apart - element
        return Phase(self.size, taps, 1, self.apart, pad, 0, outputs, whole=self, offset=offset, first_tap=tap)


@dataclass(frozen=True)
class Phase(Window):
    """Every stride-th output of the `whole` from `offset` on; its taps are those from `first_tap` on, last first."""

    whole: TransposedWindow = field(kw_only=True)
    offset: Expr = field(kw_only=True)
    first_tap: Expr = field(default=0, kw_only=True)

    @property
    def kernel(self) -> int:
        """See Window."""
        return self.whole.taps

    def at(self, number: Expr) -> Window:
        """See Window; each phase begins one tap later than the one before it."""
        return replace(self, offset=self.offset + number, first_tap=self.first_tap + number if self.taps else 0)

    def result(self, output: Expr) -> Expr:
        """See Window."""
        return output * self.whole.stride + self.offset

    def kernel_tap(self, output: Expr, tap: Expr) -> Expr:
        """See Window."""
        return self.first_tap + (self.taps - 1 - tap) * self.whole.every
