"""Whether sums in float16 are likely to be faster than float32, and in which tiles."""

from __future__ import annotations

from math import ceil, prod

from autofuse.device.target import Target
from autofuse.kernels.families.contraction.form import Contraction
from autofuse.kernels.families.contraction.parallel_grid import TRANSFORMING
from autofuse.kernels.families.contraction.winograd import tiles_along
from autofuse.kernels.families.narrow.float16.instructions import AVX512, Float16Instruction
from autofuse.kernels.nest.tiles import longest_row

LEAST_DEPTH = 16
"""Products of a sum below which turning operands to float16 takes longer than it saves."""
WIDENING = 7
"""x86: multiply-adds in the time of adding a vector of sums of a stretch to those in float32,"""
COPYING = 12
"""of rounding a vector of float32 numbers to float16 in memory, twice as many where they come from beyond the second
cache,"""
STREAMING = 8
"""and of reading a vector of Winograd's weights from there (Emerald Rapids, all three)."""
WORTH = 0.9
"""Part of the multiply-adds of float32 up to which float16 is the first guess."""
WAIT = 8
"""Sums of a tile below which an instruction waits for the last one on the same sum: four cycles, two in each."""
SIDE, TRANSFORMED = 4, 36
"""Winograd's algorithm: side of a tile of results, numbers of a transformed tile."""
FLOAT32_BYTES = 4


def pays(form: Contraction, one: Float16Instruction, target: Target) -> bool:
    """Whether it is likely to be faster than direct sums in float32."""
    taps = prod(window.taps for window in form.windows)
    if form.depth * taps < LEAST_DEPTH:
        return False
    return one.lanes != AVX512 or _steps(form, one, target) < WORTH * form.depth * taps


def beats_winograd(form: Contraction, one: Float16Instruction, target: Target) -> bool:
    """Whether it is likely to be faster than Winograd's algorithm, whose weights may come from beyond the caches."""
    if one.lanes != AVX512:
        return False
    sizes = [window.outputs for window in form.windows]
    tiles = prod(tiles_along(window, SIDE) for window in form.windows)
    large = TRANSFORMED * form.columns * form.depth * FLOAT32_BYTES > target.l2_bytes
    others = TRANSFORMED * (tiles * TRANSFORMING + (STREAMING if large else 0)) * form.depth
    return _steps(form, one, target) * prod(sizes) < others


def _steps(form: Contraction, one: Float16Instruction, target: Target) -> float:
    """Multiply-adds of vectors in the time of one vector of results."""
    taps, last = prod(window.taps for window in form.windows), form.windows[-1]
    side_by_side = last.taps if last.dilation == 1 else 1
    run = ceil(form.depth / one.together) * side_by_side
    multiplied = (run + WIDENING * ceil(run / max(one.stretch, 1))) * (taps // side_by_side)
    read = prod(window.size for window in form.windows) * form.depth
    far = 2 if read * FLOAT32_BYTES > target.l2_bytes else 1
    copied = COPYING * far * read / prod(window.outputs for window in form.windows)
    return multiplied + copied / max(form.columns, one.lanes)


def instructions(form: Contraction, one: Float16Instruction, vectors: int, pixels: int) -> float:
    """Instructions of a tile for each useful multiply-add, weights and numbers of pixels that it loads among them."""
    rows, columns = longest_row(form.windows), ceil(form.columns / one.lanes)
    v, p = min(vectors, columns), min(pixels, rows)
    made = ceil(columns / v) * v / columns * ceil(rows / p) * p / rows
    waits = max(WAIT / (v * p), 1.0) if one.lanes == AVX512 else 1.0
    return made * waits * (1 + 1 / p + 1 / (v * one.steps))
