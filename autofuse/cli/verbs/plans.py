"""Verbs about fusion plans: `plan show|diff|export|pareto`, `explain`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from autofuse.cli.options import AskedDatabase, Constants, Device, Model, OutputFormat, Shapes, Threads
from autofuse.cli.screens.next_steps import after_diff, after_explaining, after_export, after_front
from autofuse.cli.screens.parts_view import is_in_parts, of_segments, parts_tables
from autofuse.cli.screens.render import describe, plain, records, show
from autofuse.cli.screens.waterfall_view import waterfall_text
from autofuse.values.arguments import micros, parse_constants, parse_shapes, size

if TYPE_CHECKING:
    from autofuse.api.results import EdgeReason, Explanation, GroupTime, PlanDifference, Point, ShownPlan

plan_verbs = typer.Typer(help="Fusion plans: show one, or what differs between two.", no_args_is_help=True)

PlanName = Annotated[
    str,
    typer.Option("--plan", metavar="PLAN", help="best, default, none, always, tvm-partition, dnnfusion, or a file."),
]
OtherPlan = Annotated[
    str, typer.Argument(metavar="PLAN", help="best, default, none, always, tvm-partition, dnnfusion, or a file.")
]


@plan_verbs.command("show")
def plan_show(
    model: Model,
    plan: PlanName = "default",
    database: AskedDatabase = None,
    device: Device = "local",
    threads: Threads = None,
    shape: Shapes = None,
    constant: Constants = None,
    form: OutputFormat = "text",
) -> None:
    """Show the kernels of a plan. Its JSON (--format json) is a plan file that --plan reads."""
    from autofuse import api

    named = _named(database, device, threads, shape, constant)
    found = api.plan_show(model, plan=plan, **named)
    if is_in_parts(found):
        plans: list[Any] = [_plan_text(plan, one) for one in found.segments]
        body = {
            "parts": found.parts,
            "rest": found.rest,
            "segments": [json.loads(one.to_json()) for one in found.segments],
        }
        show(body, form, of_segments(found.parts, found.rest, plans), None)
        return
    whole = cast("ShownPlan", found)
    show(json.loads(whole.to_json()), form, _plan_text(plan, whole), after_explaining(model, plan, named))


def _plan_text(plan: str, found: ShownPlan) -> Text:
    return Text(f"plan {plan} ({found.plan.key[:12]}): {found.text}".rstrip())


@plan_verbs.command("diff")
def plan_diff(
    model: Model,
    first: OtherPlan,
    second: OtherPlan,
    database: AskedDatabase = None,
    device: Device = "local",
    threads: Threads = None,
    shape: Shapes = None,
    constant: Constants = None,
    form: OutputFormat = "text",
) -> None:
    """Show what differs between two plans of one model."""
    from autofuse import api

    named = _named(database, device, threads, shape, constant)
    found = api.plan_diff(model, first, second, **named)
    if is_in_parts(found):
        texts = [_difference_text(one) for one in found.segments]
        segments = [{"same": one.found.same, **_body(one.found)} for one in found.segments]
        body = {"parts": found.parts, "rest": found.rest, "segments": segments}
        show(body, form, of_segments(found.parts, found.rest, texts), None)
        return
    whole = cast("PlanDifference", found)
    next_step = None if whole.found.same else after_diff(model, second, named)
    show({"same": whole.found.same, **_body(whole.found)}, form, _difference_text(whole), next_step)


def _difference_text(difference: PlanDifference) -> RenderableType:
    first, second, found = difference.first, difference.second, difference.found
    rows = [
        {"only in": name, "what": what, "operators": " + ".join(operators)}
        for name, what, groups in (
            (first, "rewrite", [(step,) for step in found.rewrites_only_a]),
            (second, "rewrite", [(step,) for step in found.rewrites_only_b]),
            (first, "fold", [(fold,) for fold in found.folds_only_a]),
            (second, "fold", [(fold,) for fold in found.folds_only_b]),
            (first, "kernel", found.groups_only_a),
            (second, "kernel", found.groups_only_b),
            (first, "algorithms", [(text,) for text in found.algorithms_only_a]),
            (second, "algorithms", [(text,) for text in found.algorithms_only_b]),
        )
        for operators in groups
    ]
    return Text("the plans are the same") if found.same else records(rows)


@plan_verbs.command("export")
def plan_export(
    model: Model,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="model.onnx (kernels as metadata of nodes) or plan.svg."),
    ],
    plan: PlanName = "default",
    weights: Annotated[
        bool, typer.Option("--weights/--no-weights", help="Keep the weights in an .onnx file, or leave them out.")
    ] = True,
    database: AskedDatabase = None,
    device: Device = "local",
    threads: Threads = None,
    shape: Shapes = None,
    constant: Constants = None,
    form: OutputFormat = "text",
) -> None:
    """Write the partition for a viewer.

    An ONNX file whose nodes name their kernel in their metadata (Netron shows it), or an SVG picture.
    """
    from autofuse import api

    named = _named(database, device, threads, shape, constant)
    found = api.plan_export(model, output, plan=plan, weights=weights, **named)
    if is_in_parts(found):
        files = [describe(_body(one)) for one in found.files]
        show(found, form, Group(*parts_tables(found.parts, found.rest), "", *files), after_export(model, plan, named))
        return
    show(found, form, describe(_body(found)), after_export(model, plan, named))


@plan_verbs.command("pareto")
def plan_pareto(
    model: Model,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FOLDER", help="Write each plan as a file that --plan reads.")
    ] = None,
    database: AskedDatabase = None,
    device: Device = "local",
    threads: Threads = None,
    shape: Shapes = None,
    constant: Constants = None,
    form: OutputFormat = "text",
) -> None:
    """Show the fastest plans for each peak of memory.

    From what the database knows: the plans that were searched, and the best that their groups make.
    """
    from autofuse import api

    named = _named(database, device, threads, shape, constant)
    found = api.plan_pareto(model, save=save, **named)
    if is_in_parts(found):
        texts = [_front_text(points) for points in found.segments]
        body = {"parts": found.parts, "rest": found.rest, "segments": [_front_body(one) for one in found.segments]}
        show(body, form, of_segments(found.parts, found.rest, texts), None)
        return
    points = cast("tuple[Point, ...]", found)
    file = points[0].file if points else ""
    show({"points": _front_body(points)}, form, _front_text(points), after_front(model, file, named))


def _front_text(points: Sequence[Point]) -> RenderableType:
    rows = [
        {
            "composed": micros(point.us),
            "peak memory": size(point.peak_bytes),
            "kernels": point.kernels,
            "plan": point.file or point.plan.key[:12],
        }
        for point in points
    ]
    return records(plain(rows))


def _front_body(points: Sequence[Point]) -> list[dict[str, object]]:
    return [
        {"us": p.us, "peak_bytes": p.peak_bytes, "kernels": p.kernels, "plan_key": p.plan.key, "file": p.file}
        for p in points
    ]


def explain(
    model: Model,
    plan: PlanName = "default",
    edge: Annotated[
        str | None, typer.Option("--edge", metavar="OPERATOR[,OPERATOR]", help="Only edges of these operators.")
    ] = None,
    database: AskedDatabase = None,
    device: Device = "local",
    threads: Threads = None,
    shape: Shapes = None,
    constant: Constants = None,
    form: OutputFormat = "text",
) -> None:
    """Say which edges of the model a plan fuses, and why.

    With the times of both forms, fused and apart, where the database has them.
    """
    from autofuse import api

    named = _named(database, device, threads, shape, constant)
    found = api.explain(model, plan=plan, edge=edge, **named)
    if is_in_parts(found):
        texts = [_edges_text(one, edge) for one in found.segments]
        body = {"parts": found.parts, "rest": found.rest, "segments": [_edges_body(one) for one in found.segments]}
        show(body, form, of_segments(found.parts, found.rest, texts), None)
        return
    whole = cast("Explanation", found)
    show(_edges_body(whole), form, _edges_text(whole, edge), after_explaining(model, plan, named))


def _edges_body(found: Explanation) -> dict[str, object]:
    told = {"waterfall": found.waterfall, "alone": found.alone, "certificate": found.certificate}
    return {"plan": found.plan_key, "edges": found.edges, **told}


def _edges_text(found: Explanation, edge: str | None) -> Group:
    """Every edge, then how often each decision was taken; what each was worth, unless `edge` asks for some of them."""
    rows = found.edges
    counts = Counter(("fused" if row.fused else "apart", row.code) for row in rows)
    summary = [
        {"edges": kind, "code": code, "count": count, "meaning": found.meaning(code)}
        for (kind, code), count in sorted(counts.items())
    ]
    timed = any(row.fused_us or row.apart_us for row in rows)
    table = [_edge_row(row, timed) for row in rows]
    told = ["", waterfall_text(found.waterfall)] if found.waterfall is not None and edge is None else []
    told += ["", Text(f"As a whole: {found.alone}.")] if found.alone and edge is None else []
    if found.certificate is not None and edge is None:
        told += ["", describe(found.certificate.facts(), "quantised, with this certificate")]
    return Group(records(plain(table)), "", records(plain(summary)), *told)


def _named(
    database: str | None, device: str, threads: int | None, shape: list[str] | None, constant: list[str] | None
) -> dict[str, Any]:
    """Where a plan is looked for, as `api` has it."""
    inputs = {"shapes": parse_shapes(shape or []), "constants": parse_constants(constant or [])}
    return {"database": database, "device": device, "threads": threads, **inputs}


def _edge_row(row: EdgeReason, timed: bool) -> dict[str, object]:
    times = {"if fused": _span(row.fused_us), "if apart": _span(row.apart_us)} if timed else {}
    decision = "fused" if row.fused else "apart"
    return {
        "producer": row.producer, "consumer": row.consumer, "decision": decision, "code": row.code, **times,
        "why": row.text,
    }  # fmt: skip


def _span(span: GroupTime | None) -> str:
    return "" if span is None else f"{micros(span.us)} ({micros(span.lo)} - {micros(span.hi)})"


def _body(value: object) -> dict[str, object]:
    body = plain(value)
    assert isinstance(body, dict)
    return body
