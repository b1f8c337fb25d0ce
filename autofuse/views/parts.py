"""The summary of a model that our kernels cover in part: both sides, and what its segments offer to a search."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.fusion.space import FusionSpace
from autofuse.segments.choice import Choice
from autofuse.segments.report import PartReport, RestReport, part_reports, rest_reports
from autofuse.views.inspect import GraphSummary, inspect


@dataclass(frozen=True)
class PartsSummary:
    """A summary of a model in parts, as they run; `rest`: why operators are not ours; `segments`: of each that is."""

    name: str
    parts: tuple[PartReport, ...]
    rest: tuple[RestReport, ...]
    segments: tuple[GraphSummary, ...]

    @property
    def flops(self) -> int:
        """Of both sides, as far as they have a count."""
        return sum(part.flops for part in self.parts)

    @property
    def own_flops(self) -> int:
        """Of our side."""
        return sum(summary.flops for summary in self.segments)

    @property
    def operators(self) -> int:
        """Operators of the model."""
        return sum(part.operators for part in self.parts)


def inspect_parts(choice: Choice, name: str, space: FusionSpace | None = None) -> PartsSummary:
    """Summary of a model's parts."""
    segments = tuple(inspect(piece.graph, space) for piece in choice.segments if piece.graph is not None)
    return PartsSummary(name, part_reports(choice), rest_reports(choice), segments)
