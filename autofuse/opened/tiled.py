"""What a search over open sizes asks of a model: the tiles of each of its plans, and its library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autofuse.compiler.open_sizes.plans import OpenForm, RangedPlan
from autofuse.compiler.plan_ladder import FoundPlan
from autofuse.graph.loading.given.trace import Point
from autofuse.graph.model import Graph
from autofuse.search.lab.tiles import WeightedTile


@dataclass(frozen=True, eq=False)
class Tiled:
    """A plan in tiles: `graph` is the one that the plan leaves, `graphs` those that the tiles are part of, by name.

    `kernels`: how many it has. `whole`: workloads of those that no search times, by key: of all rows, or places, at
    once.
    """

    graph: Graph
    chosen: FoundPlan
    kernels: int
    tiles: Sequence[WeightedTile]
    graphs: Mapping[str, Graph]
    whole: Counter[str]


class OpenedModel(Protocol):
    """A model with open sizes whose plans are searched."""

    @property
    def happening(self) -> Mapping[Point, float]:
        """The part of all calls that has such sizes."""

    @property
    def form(self) -> OpenForm:
        """What plans are looked up for."""

    def tiled(self, chosen: FoundPlan) -> Tiled:
        """The tiles of a plan. AutofuseError where the sizes cannot stay open under it."""

    def write(self, chosen: Sequence[RangedPlan], output: Path) -> None:
        """Writes the library of a plan, or of one for each part of the range, with the best schedules that are
        known."""
