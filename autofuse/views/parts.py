"""A model that our kernels cover in part, as people ask for it: both sides, what its segments offer, their plans."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from autofuse.environment.alone import WhoRuns
from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.space import FusionSpace
from autofuse.graph.model import Graph
from autofuse.graph.parts.annotated import annotated_source
from autofuse.graph.transform.quantize.certificate import Certificate, certificate_of, kept_metadata
from autofuse.segments.choice import Choice
from autofuse.segments.report import OWN, REST, PartReport, RestReport, part_reports, rest_reports
from autofuse.values.outputs import Inputs, write_output
from autofuse.views.inspect import GraphSummary, inspect
from autofuse.views.one_plan import (
    EXPORTS,
    PREFIX,
    Explanation,
    PlanDifference,
    PlanExport,
    ShownPlan,
    chosen_plan,
    difference,
    explained,
    export,
    kind_of,
    notes,
    shown,
    times_of,
)

Shown = TypeVar("Shown")


@dataclass(frozen=True)
class InParts(Generic[Shown]):
    """A model in parts, as they run; `rest`: why operators are not ours; `segments`: what is shown of each that is."""

    parts: tuple[PartReport, ...]
    rest: tuple[RestReport, ...]
    segments: tuple[Shown, ...]


@dataclass(frozen=True)
class PartsSummary(InParts[GraphSummary]):
    """A summary of a model in parts; `runs`: who runs it, and what the newest race of its parts said; `certificate`:
    what a quantised model may lose."""

    name: str
    runs: WhoRuns
    certificate: Certificate | None = None

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


def inspect_parts(choice: Choice, name: str, space: FusionSpace | None, runs: WhoRuns) -> PartsSummary:
    """Summary of a model's parts."""
    segments = tuple(inspect(graph, space) for graph in _graphs(choice))
    certificate = certificate_of(choice.source.origin)
    return PartsSummary(part_reports(choice), rest_reports(choice), segments, name, runs, certificate)


@dataclass(frozen=True)
class PartsExplanation(InParts[Explanation]):
    """An explanation of each segment of a model in parts."""

    def of(self, names: str) -> PartsExplanation:
        """Only the edges of one or two operators, by comma; InputError where no segment has all of them."""
        wanted = set(names.split(",")) if names else set()
        found = tuple(one.of(names) for one in self.segments if wanted <= one.operators)
        if not found:
            raise InputError(f"--edge: no segment of the model has {names} (`autofuse inspect` shows both sides)")
        return PartsExplanation(self.parts, self.rest, found)


@dataclass(frozen=True)
class ShownParts(InParts[ShownPlan]):
    """A plan of each segment of a model in parts."""


def explain_parts(choice: Choice, plan: str, place: Place) -> PartsExplanation:
    """Every edge of each segment under the plan called `plan`."""
    found = tuple(explained(graph, plan, place) for graph in _graphs(choice))
    return PartsExplanation(part_reports(choice), rest_reports(choice), found)


def show_parts(choice: Choice, plan: str, place: Place) -> ShownParts:
    """The plan called `plan` of each segment."""
    found = tuple(shown(graph, plan, place) for graph in _graphs(choice))
    return ShownParts(part_reports(choice), rest_reports(choice), found)


@dataclass(frozen=True)
class PartsDifference(InParts[PlanDifference]):
    """What differs between two plans of each segment of a model in parts."""


def difference_of_parts(choice: Choice, first: str, second: str, place: Place) -> PartsDifference:
    """What differs between the plans called `first` and `second`, segment by segment."""
    found = tuple(difference(graph, first, second, place) for graph in _graphs(choice))
    return PartsDifference(part_reports(choice), rest_reports(choice), found)


@dataclass(frozen=True)
class PartsExport:
    """Written files, one for each segment where they are pictures; `parts`, `rest`: which part runs where, and why."""

    parts: tuple[PartReport, ...]
    rest: tuple[RestReport, ...]
    files: tuple[PlanExport, ...]


def export_parts(
    choice: Choice, plan: str, place: Place, output: Path, weights: bool, inputs: Inputs | None = None
) -> PartsExport:
    """Write a plan of each segment: one .onnx file of the whole model, or an .svg picture a segment.

    A node of the .onnx file says in which part it is, where that runs, why, and in which kernel it is. Pictures of
    several segments are called after their part: plan-part0.svg. InputError where there is no segment.
    """
    chosen = [(graph, chosen_plan(graph, plan, place)[0]) for graph in _graphs(choice)]
    if not chosen:
        raise InputError(f"{choice.source.name}: ONNX Runtime runs all of this model, so there is no plan to export")
    if kind_of(output) == "svg":
        numbers = [number for number, piece in enumerate(choice.pieces) if piece.graph is not None]
        names = [output.with_name(f"{output.stem}-part{number}{output.suffix}") for number in numbers]
        names = [output] if len(names) == 1 else names
        files = [
            export(graph, one, place, name, weights, inputs) for (graph, one), name in zip(chosen, names, strict=True)
        ]
    else:
        files = [_export_whole(choice, chosen, place, output, weights, inputs)]
    return PartsExport(part_reports(choice), rest_reports(choice), tuple(files))


def _export_whole(
    choice: Choice, chosen: list[tuple[Graph, FusionPlan]], place: Place, output: Path, weights: bool,
    inputs: Inputs | None,
) -> PlanExport:  # fmt: skip
    told: dict[str, dict[str, str]] = {}
    timed, left = 0, iter(chosen)
    for number, piece in enumerate(choice.pieces):
        where = {
            PREFIX + "part": str(number),
            PREFIX + "runs_in": OWN if piece.graph is not None or piece.most_rows else REST,
        }
        kernels: dict[str, dict[str, str]] = {}
        if piece.graph is not None:
            graph, plan = next(left)
            times = times_of(graph, plan, place)
            kernels, timed = notes(graph, plan, times), timed + len(times)
        for node in piece.nodes:
            why = {PREFIX + "why": choice.reasons[node.place]} if node.place in choice.reasons else {}
            told[node.name] = {**where, **why, **kernels.get(node.name, {})}
    keys = " ".join(plan.key for _, plan in chosen)
    kernel_count = sum(len(plan.groups) for _, plan in chosen)
    about = {PREFIX + "plan": keys, PREFIX + "kernels": str(kernel_count), **kept_metadata(choice.source.origin)}
    model = annotated_source(choice.source, told, about, weights)
    write_output(output, model.SerializeToString(), EXPORTS["onnx"], inputs)
    return PlanExport(str(output), "onnx", keys, len(choice.source.nodes), kernel_count, timed)


def _graphs(choice: Choice) -> list[Graph]:
    return [piece.graph for piece in choice.all_segments if piece.graph is not None]
