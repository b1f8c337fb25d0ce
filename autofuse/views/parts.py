"""A model that our kernels cover in part, as people ask for it: both sides, what its segments offer, their plans."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.fusion.space import FusionSpace
from autofuse.graph.model import Graph
from autofuse.segments.choice import Choice
from autofuse.segments.report import PartReport, RestReport, part_reports, rest_reports
from autofuse.views.inspect import GraphSummary, inspect
from autofuse.views.one_plan import Explanation, ShownPlan, explained, shown


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
    segments = tuple(inspect(graph, space) for graph in _graphs(choice))
    return PartsSummary(name, part_reports(choice), rest_reports(choice), segments)


@dataclass(frozen=True)
class PartsExplanation:
    """An explanation of a model in parts, as they run; `rest`: why operators are not ours; `segments`: of each."""

    parts: tuple[PartReport, ...]
    rest: tuple[RestReport, ...]
    segments: tuple[Explanation, ...]

    def of(self, names: str) -> PartsExplanation:
        """Only the edges of one or two operators, by comma; InputError where no segment has all of them."""
        wanted = set(names.split(",")) if names else set()
        found = tuple(one.of(names) for one in self.segments if wanted <= one.operators)
        if not found:
            raise InputError(f"--edge: no segment of the model has {names} (`autofuse inspect` shows both sides)")
        return PartsExplanation(self.parts, self.rest, found)


@dataclass(frozen=True)
class ShownParts:
    """A plan of each segment of a model in parts; `rest`: why operators are not ours."""

    parts: tuple[PartReport, ...]
    rest: tuple[RestReport, ...]
    segments: tuple[ShownPlan, ...]


def explain_parts(choice: Choice, plan: str, place: Place) -> PartsExplanation:
    """Every edge of each segment under the plan called `plan`."""
    found = tuple(explained(graph, plan, place) for graph in _graphs(choice))
    return PartsExplanation(part_reports(choice), rest_reports(choice), found)


def show_parts(choice: Choice, plan: str, place: Place) -> ShownParts:
    """The plan called `plan` of each segment."""
    found = tuple(shown(graph, plan, place) for graph in _graphs(choice))
    return ShownParts(part_reports(choice), rest_reports(choice), found)


def _graphs(choice: Choice) -> list[Graph]:
    return [piece.graph for piece in choice.segments if piece.graph is not None]
