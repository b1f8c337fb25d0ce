"""The tasks of a contraction's parallel loop, and how evenly threads share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from autofuse.kernels.nest.tiles import divisor_near


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


def evenness(sizes: Sequence[int] | np.ndarray, threads: int) -> float:
    """Part of the time in which threads work on tasks of these sizes: 1 where all end together, 1 / `threads` of one.

    TVM's loop gives each thread as many neighbouring tasks.
    """
    each = -(-len(sizes) // threads)
    loads = np.add.reduceat(np.asarray(sizes), np.arange(0, len(sizes), each))
    return float(loads.sum() / (threads * loads.max()))
