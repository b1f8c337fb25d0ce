"""Panels of packed weights: how they are cut, and how a kernel asks for the next one while it works on this one.

And a row of the left-hand side that is copied: how it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.families.contraction.form import Contraction
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.tiles import Window, divisor_near
from autofuse.kernels.tir.emit import SECOND_CACHE, Array, Emitter, Expr, Index, const
from autofuse.kernels.tir.offsets import delinear, linear

NARROW, NARROW_BLOCK, WIDE_BLOCK = 4, 16, 8
"""Lanes of a narrow vector (NEON's), and channels that its micro-kernel takes in one go where no layout says; those of
wider ones."""
LINE = 16
"""Numbers in a line of a cache (64 bytes)."""
FEWEST_STEPS = 2
"""Steps of a tile for each line that it asks for, at least: with fewer tiles a panel is a stream, which the hardware
fetches by itself, and asking is in its way (Zen 5: 1.4 lines a step make Winograd a third slower)."""
DRIVEN = 8
"""Part of the second cache, as a divisor, from which on weights are asked for panel by panel (Emerald Rapids: products
of 4 to 32 rows with weights from memory take 0.64 to 0.85 of the time, from the last cache the same; kernels of int8
and bfloat16 took 1.04 to 1.7 times as long without asking, smaller ones as long either way)."""
DEEP_PANEL = 2
"""Part of the second cache, as a divisor, beyond which a panel of a product is read in parts by many results."""
AT_ONCE, PIECES = 4, 4
"""Lines up to which a tile asks at once; more are asked for in so many pieces, between its other misses, of which the
first cache bears few at a time (Zen 5: eight at once before a tile of 14 pixels cost a third)."""
UNROLLED = 8
"""Lines that are asked for one by one; more in a loop."""
SHORT_LOOP = 64
"""Copies of a vector in a loop that LLVM writes out."""


def pack_weights(weights: np.ndarray, form: Contraction, shape: tuple[int, ...]) -> np.ndarray:
    """Weights as the form's [batch, column, depth, tap] array, into `shape`, zero beyond the edges."""
    canonical = form.weights(weights)
    batches, panels, blocks, taps, block, width = shape
    padded = np.zeros((batches, panels * width, blocks * block, taps), "float32")
    padded[:, : form.columns, : form.depth, :] = canonical.reshape(batches, form.columns, form.depth, taps)
    parts = padded.reshape(batches, panels, width, blocks, block, taps)
    return np.ascontiguousarray(parts.transpose(0, 1, 3, 5, 4, 2))


@dataclass(frozen=True)
class PanelLayout:
    """How packed weights lie: [batch, panel, block, tap, channel, lane], with so many `lanes` in a panel.

    The last panel of a batch has those that hold columns, `last`: it is a stream, too, and no line of it is read in
    vain.
    """

    batches: int
    panels: int
    blocks: int
    taps: int
    block: int
    lanes: int
    last: int

    @property
    def box(self) -> tuple[int, ...]:
        """The extents, were the last panel as wide as the others."""
        return (self.batches, self.panels, self.blocks, self.taps, self.block, self.lanes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents; of panels that are not alike how many numbers there are."""
        if self.last == self.lanes:
            return self.box
        return (self.batches * self._columns * self.blocks * self.taps * self.block,)

    @property
    def _columns(self) -> int:
        """Lanes of all panels of a batch."""
        return (self.panels - 1) * self.lanes + self.last

    def width(self, is_last: bool) -> int:
        """Numbers from one channel of a panel to the next."""
        return self.last if is_last else self.lanes

    def offset(self, batch: Expr, panel: Expr, block: Expr, tap: Expr, is_last: bool) -> Expr:
        """Of the first channel of a block at a tap."""
        if self.last == self.lanes:
            return (((batch * self.panels + panel) * self.blocks + block) * self.taps + tap) * self.block * self.lanes
        columns = batch * self._columns + panel * self.lanes
        within = (block * self.taps + tap) * self.width(is_last)
        return (columns * self.blocks * self.taps + within) * self.block

    def pack(self, weights: np.ndarray, form: Contraction) -> np.ndarray:
        """Weights of a form as they lie here."""
        box = pack_weights(weights, form, self.box)
        if self.last == self.lanes:
            return box
        parts = (box[:, :-1], box[:, -1, ..., : self.last])
        return np.concatenate([part.reshape(self.batches, -1) for part in parts], axis=1).ravel()


def packed_at_run_time(scope: Scope, form: Contraction, shape: tuple[int, ...]) -> Array:
    """A computed right-hand side copied into panels of `shape`, zero beyond its edges."""
    emitter = scope.emitter
    array = Array(emitter.scratch(prod(shape)), shape, "float32")
    batches, panels, blocks, taps, block, width = shape
    with emitter.parallel(batches * panels) as task:
        batch = delinear(task // panels, form.weight_batch)
        panel = task % panels
        with emitter.serial(blocks * taps * block) as k:
            depth = emitter.simplify(k // (taps * block) * block + k % block)
            tap = emitter.simplify(k // block % taps)
            with emitter.vector(width) as lane:
                column = panel * width + lane
                index = form.w_index(batch, tap, depth, column)
                value = scope.read_alone(form.w, tuple(emitter.simplify(part) for part in index))
                inside = []
                if panels * width > form.columns:
                    inside.append(column < form.columns)
                if blocks * block > form.depth:
                    inside.append(depth < form.depth)
                if inside:
                    condition = inside[0] if len(inside) == 1 else tirx.all(*inside)
                    value = tirx.if_then_else(condition, value, const(0.0, "float32"))
                emitter.put(array.buffer, (task * blocks * taps * block + k) * width + lane, value)
    return array


@dataclass(frozen=True)
class CopiedRow:
    """All that one row of results reads through `windows`, of `blocks` of `block` channels, side by side.

    It lies as [block, outer tap, position that is read, channel].
    """

    windows: Sequence[Window]
    blocks: int
    block: int

    @property
    def extents(self) -> tuple[int, ...]:
        """See above."""
        *outer, last = self.windows
        return (self.blocks, *(window.taps for window in outer), last.read_positions, self.block)

    @property
    def elements(self) -> int:
        """How many numbers that are."""
        return prod(self.extents)

    @property
    def in_one_loop(self) -> bool:
        """Whether the blocks and the positions are copied in one loop.

        Two short ones, one in the other, LLVM writes out: 16 blocks of 28 positions are 8 KB of code. A loop over taps
        between them, whose length is not known, keeps it from that, and steps need no division.
        """
        *outer, last = self.windows
        return prod(window.taps for window in outer) == 1 and last.read_positions <= SHORT_LOOP

    def offset(self, block: Expr, taps: Index, position: Expr) -> Expr:
        """Offset of the first channel of a block at a position of the input."""
        return linear((block, *taps, position // self.windows[-1].read_step, 0), self.extents)


@dataclass(frozen=True)
class PrefetchShare:
    """What a tile has to ask for: the part of number `tile`, one of `tiles`, of `size` numbers, in `steps` steps.

    `always`: however few steps there are for a line.
    """

    tile: Expr
    tiles: int
    size: int
    steps: int
    always: bool = False

    @property
    def lines(self) -> int:
        """Lines of a cache that a tile asks for."""
        return -(-self.size // (LINE * self.tiles))

    @property
    def worth_it(self) -> bool:
        """Whether the tiles are many enough to ask for a panel between them."""
        return self.always or self.lines * FEWEST_STEPS <= self.steps

    def pieces(self, steps: int) -> int:
        """Pieces of a tile's steps that each ask for a part of its share; 1 where that is small."""
        return PIECES if self.worth_it and self.lines > AT_ONCE and steps % PIECES == 0 else 1

    def part(self, piece: Expr, pieces: int) -> PrefetchShare:
        """What one of so many pieces of the tile asks for."""
        tile, tiles = self.tile * pieces + piece, self.tiles * pieces
        return replace(self, tile=tile, tiles=tiles, steps=self.steps // pieces)


def arrives_late(target: Target, size_bytes: int) -> bool:
    """Whether a panel's first tiles wait for weights of so many bytes, of which wide vectors take many at a time: they
    come from memory, or from where other kernels drove them since the last call."""
    return target.lanes > NARROW and size_bytes >= target.l2_bytes // DRIVEN


def channel_block(lanes: int) -> int:
    """Channels that a micro-kernel takes in one go where no layout says."""
    return NARROW_BLOCK if lanes <= NARROW else WIDE_BLOCK


def passes_over(form: Contraction, vectors: int, target: Target) -> int:
    """Passes over many results, each with a part of a panel of so many vectors, which the second cache holds beside
    what else is read; 1 where it holds the whole panel.

    A product of depth 12,544 has a panel of 3.2 MB, which each tile of rows would read from the last cache (Zen 5,
    1,000 rows and 1,024 columns: 0.90 of the time in 16 passes, 0.93 in 8, 0.98 in 4; of depth 4,096 0.9 in 2 to 16).
    """
    panel_bytes = 4 * vectors * target.lanes * form.depth * prod(window.taps for window in form.windows)
    if panel_bytes * DEEP_PANEL <= target.l2_bytes:
        return 1
    return divisor_near(form.depth // channel_block(target.lanes), -(-4 * panel_bytes // target.l2_bytes))


def streams(target: Target) -> bool:
    """Whether the hardware reads a stream of weights as fast as memory gives it, and asking is in its way.

    AMD's cores do (Zen 4, 512x2048 from memory: by one tile of 4 to 7 rows without asking 0.71 to 0.80 of the time, by
    one of 8 0.96; two tiles of 8 rows take 1.09 times as long without it). For others, see `DRIVEN`.
    """
    return target.mcpu.startswith("znver")


def prefetch(emitter: Emitter, weights: Any, start: Expr, share: PrefetchShare) -> None:
    """Asks for a tile's share of the weights from `start` on.

    Weights that do not fit the second cache come from memory while nothing is computed: in a product of 128 rows that
    is a twentieth of its time (Zen 5). Spread over the tiles that use the panel before, the wait is hidden.
    """
    if not share.worth_it:
        return
    lines, last = share.lines, int(weights.shape[0]) - 1

    def ask(line: Expr) -> None:
        at = tirx.Min(emitter.simplify(start + (share.tile * lines + line) * LINE), tirx.IntImm("int32", last))
        emitter.prefetch(weights, at, SECOND_CACHE)

    if lines > UNROLLED:
        with emitter.serial(lines) as line:
            ask(line)
        return
    for number in range(lines):
        ask(number)
