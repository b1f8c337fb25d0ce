"""The tasks of a contraction's parallel loop: how evenly threads share them, and how long they read weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Self

import numpy as np

from autofuse.device.rates import CoreRates
from autofuse.kernels.families.contraction.form import Contraction
from autofuse.kernels.families.contraction.winograd import tiles_along
from autofuse.kernels.nest.tiles import divisor_near
from autofuse.kernels.tir.offsets import Expr, Index

READING = 3.5
"""How many times slower a kernel reads its weights, between its arithmetic, than a loop that only reads (Emerald
Rapids: 8 of 30 GB/s from the last cache, whose lines each take 134 ns while 16 are under way; Zen 4: 25 or more)."""
TRANSFORMING = 1.5
"""How many times as long as its products Winograd's algorithm takes with its transforms."""
EVEN = 0.85
"""How evenly threads have to share tasks whose work is the better the larger they are: Winograd's, and whole maps."""


@dataclass(frozen=True)
class Task:
    """The share of a task of the parallel loop: `panels` and `rows` in it, and where the n-th of each stands."""

    batch: Index
    panels: int
    rows: int
    panel_at: Callable[[Expr], Expr]
    row_at: Callable[[Expr], Index]


@dataclass(frozen=True)
class ParallelGrid:
    """A task has `panels` of columns and `rows` of results of one batch; `grid`: tasks in each of these directions."""

    panels: int
    rows: int
    grid: tuple[int, int, int]

    @classmethod
    def cut(cls, batches: int, panels: int, rows: int, knobs: Mapping[str, int | str]) -> Self:
        """As the knobs `panels_per_task` and `rows_per_task` (0: all) say, as nearly as it divides."""
        panels_per_task = divisor_near(panels, int(knobs["panels_per_task"]))
        rows_per_task = divisor_near(rows, int(knobs["rows_per_task"]))
        return cls(panels_per_task, rows_per_task, (batches, panels // panels_per_task, rows // rows_per_task))

    def evenness(self, vectors_total: int, vectors: int, threads: int) -> float:
        """How evenly threads share the tasks, whose panels have `vectors` of all vectors of columns each."""
        panels = np.full(self.grid[1] * self.panels, vectors)
        panels[-1] = vectors_total - vectors * (len(panels) - 1)
        sizes = panels.reshape(-1, self.panels).sum(1)
        return evenness(np.tile(np.repeat(sizes, self.grid[2]), self.grid[0]), threads)

    def panels_read(self, threads: int) -> float:
        """The part of all panels that a thread reads."""
        each = -(-prod(self.grid) // threads)
        return min(1.0, -(-each // self.grid[2]) / self.grid[1])


def weight_bytes(form: Contraction) -> int:
    """Bytes of the weights of a contraction."""
    return 4 * form.columns * form.depth * prod(window.taps for window in form.windows)


def times_ns(form: Contraction, rates: CoreRates) -> tuple[float, float]:
    """Nanoseconds that a core computes, and that it reads all weights."""
    return form.flops / rates.gflops, READING * weight_bytes(form) / rates.l3_gbs


def algorithm_ns(m: int, form: Contraction, rates: CoreRates) -> tuple[float, float]:
    """The same of a convolution by Winograd's algorithm in tiles of m x m results; 0: directly. Each may hide the
    other."""
    (*outer, high, wide) = form.windows
    products = form.depth * form.columns * prod(window.taps for window in outer)
    points, places = 9, high.outputs * wide.outputs
    if m:
        points, places = (m + 2) ** 2, tiles_along(high, m) * tiles_along(wide, m)
    flops = 2 * form.batch[0] * prod(window.outputs for window in outer) * places * points * products
    return flops / rates.gflops, READING * 4 * points * products / rates.l3_gbs


def multiplied(m: int, form: Contraction) -> float:
    """Multiplications of the same for a layer of results and a pair of channels, with what transforms take; directly:
    with numbers that are no padding."""
    *_, high, wide = form.windows
    if m:
        return TRANSFORMING * (m + 2) ** 2 * tiles_along(high, m) * tiles_along(wide, m)
    return prod(sum(one.inside(*at) for at in product(range(one.outputs), range(one.taps))) for one in (high, wide))


def evenness(sizes: Sequence[int] | np.ndarray, threads: int) -> float:
    """Part of the time in which threads work on tasks of these sizes: 1 where all end together, 1 / `threads` of one.

    TVM's loop gives each thread as many neighbouring tasks.
    """
    each = -(-len(sizes) // threads)
    loads = np.add.reduceat(np.asarray(sizes), np.arange(0, len(sizes), each))
    return float(loads.sum() / (threads * loads.max()))
