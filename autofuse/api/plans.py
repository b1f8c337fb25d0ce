"""Fusion plans of a model: shown, compared, written, explained.

`plan`: "best" (what `compile` would take), "default", "none", "always", "tvm-partition", "dnnfusion", or the path of a
plan file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autofuse.errors import UncoveredError
from autofuse.values.arguments import Constants, Shapes, StrPath, given_inputs
from autofuse.values.outputs import model_file

if TYPE_CHECKING:
    from autofuse.environment.place import Place
    from autofuse.graph.model import Graph
    from autofuse.parted.pareto import PartsFront
    from autofuse.search.composition.pareto import Point
    from autofuse.segments.choice import Choice
    from autofuse.values.arguments import Given
    from autofuse.views.one_plan import Explanation, PlanDifference, PlanExport, ShownPlan
    from autofuse.views.parts import PartsDifference, PartsExplanation, PartsExport, ShownParts


def plan_show(
    model: StrPath,
    *,
    plan: str = "default",
    database: str | None = None,
    device: str = "local",
    threads: int | None = None,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
) -> ShownPlan | ShownParts:
    """A plan with its kernels; `ShownPlan.to_json()` is a plan file that every `plan` takes.

    Of a model in parts: the plan of each segment, and why ONNX Runtime runs the rest.
    """
    model = model_file(model, device)
    from autofuse.environment.place import Place
    from autofuse.graph.model import Graph
    from autofuse.views.one_plan import shown
    from autofuse.views.parts import show_parts

    place = Place(database, device, threads)
    found = _read(model, given_inputs(shapes, constants), plan, place)
    return shown(found, plan, place) if isinstance(found, Graph) else show_parts(found, plan, place)


def plan_diff(
    model: StrPath,
    first: str,
    second: str,
    *,
    database: str | None = None,
    device: str = "local",
    threads: int | None = None,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
) -> PlanDifference | PartsDifference:
    """What differs between two plans of one model; of a model in parts, segment by segment."""
    model = model_file(model, device)
    from autofuse.environment.place import Place
    from autofuse.graph.model import Graph
    from autofuse.views.one_plan import difference
    from autofuse.views.parts import difference_of_parts

    place = Place(database, device, threads)
    found = _read(model, given_inputs(shapes, constants), _best(first, second), place)
    if isinstance(found, Graph):
        return difference(found, first, second, place)
    return difference_of_parts(found, first, second, place)


def plan_export(
    model: StrPath,
    output: StrPath,
    *,
    plan: str = "default",
    weights: bool = True,
    database: str | None = None,
    device: str = "local",
    threads: int | None = None,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
) -> PlanExport | PartsExport:
    """Write a plan for a viewer: an .onnx file whose nodes name their kernel, or an .svg picture of the partition.

    `weights=False` leaves the weights out of an .onnx file: it is small, and good for viewing only. Of a model in
    parts: nodes of the .onnx file say where they run, too, and there is a picture for each segment.
    """
    model = model_file(model, device)
    from autofuse.environment.place import Place
    from autofuse.graph.loading.files import weight_files
    from autofuse.graph.model import Graph
    from autofuse.views.one_plan import check_export, chosen_plan, export
    from autofuse.views.parts import export_parts

    place = Place(database, device, threads)
    read = {"the model": model, "the plan": Path(plan)}
    read |= {f"a file of the model's weights ({path.name})": path for path in weight_files(model)}
    inputs = check_export(Path(output), place, read)
    found = _read(model, given_inputs(shapes, constants), plan, place)
    if isinstance(found, Graph):
        return export(found, chosen_plan(found, plan, place)[0], place, Path(output), weights, inputs)
    return export_parts(found, plan, place, Path(output), weights, inputs)


def plan_pareto(
    model: StrPath,
    *,
    save: StrPath | None = None,
    database: str | None = None,
    device: str = "local",
    threads: int | None = None,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
) -> tuple[Point, ...] | PartsFront:
    """The plans between the fastest and the one with the smallest peak of memory, the fastest first.

    Of a model in parts: those of each segment. From what the database knows of the model; nothing is measured. `save`:
    a folder for the plans' files.
    """
    model = model_file(model, device)
    from autofuse.environment.place import Place
    from autofuse.graph.model import Graph
    from autofuse.parted.pareto import front_of_parts
    from autofuse.search.composition.pareto import plan_front

    folder, place = None if save is None else Path(save), Place(database, device, threads)
    found = _read(model, given_inputs(shapes, constants), "default", place)
    return plan_front(found, place, folder) if isinstance(found, Graph) else front_of_parts(found, place, folder)


def explain(
    model: StrPath,
    *,
    plan: str = "default",
    edge: str | None = None,
    database: str | None = None,
    device: str = "local",
    threads: int | None = None,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
) -> Explanation | PartsExplanation:
    """Which edges of the model a plan fuses, why, and both measured times of each edge: fused, and apart.

    `edge`: one or two operators, by comma: only edges of these. Of a model in parts: the edges of each segment, which
    part runs where, and why.
    """
    model = model_file(model, device)
    from autofuse.environment.place import Place
    from autofuse.graph.model import Graph
    from autofuse.views.one_plan import explained
    from autofuse.views.parts import explain_parts

    place, given = Place(database, device, threads), given_inputs(shapes, constants)
    read = _read(model, given, plan, place)
    if isinstance(read, Graph):
        found: Explanation | PartsExplanation = explained(read, plan, place, _alone(model, given, read, plan, place))
    else:
        found = explain_parts(read, plan, place)
    return found if edge is None else found.of(edge)


def _alone(model: Path, given: Given, graph: Graph, plan: str, place: Place) -> str:
    """Who runs the model under its best plan, and what their race said; nothing of another plan, which none raced."""
    from autofuse.compiler import Context, who_runs

    if plan != "best":
        return ""
    with Context(place) as context:
        return who_runs(context, model, given, graph).reason


def _best(first: str, second: str) -> str:
    """The one of two plans by which the parts are chosen: "best" looks whether segments are taken at all."""
    return first if first == "best" else second


def _read(model: Path, given: Given, plan: str, place: Place) -> Graph | Choice:
    """The model's graph, or where our kernels do not cover it whole its parts, as a compile takes them."""
    from autofuse.compiler import Context
    from autofuse.compiler.open_sizes.row_segments import with_row_segments
    from autofuse.compiler.parts.rest import as_raced
    from autofuse.graph.loading.load import load
    from autofuse.kernels.lowering.coverage import require_kernels
    from autofuse.segments.read import parts_of

    try:
        graph = load(model, given)
        require_kernels(graph)
    except UncoveredError as error:
        choice = parts_of(model, given, error)
        with Context(place) as context:
            return with_row_segments(context, as_raced(choice, context) if plan == "best" else choice)
    return graph
