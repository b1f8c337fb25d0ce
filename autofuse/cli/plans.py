"""Verbs about fusion plans: `plan show|diff`, `explain`."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from autofuse.arguments import parse_shapes
from autofuse.cli.options import Database, Device, Model, OutputFormat, Shapes, Threads
from autofuse.cli.render import plain, records, show
from autofuse.errors import InputError

if TYPE_CHECKING:
    from autofuse.fusion.plan import FusionPlan
    from autofuse.graph.model import Graph

plan_verbs = typer.Typer(help="Fusion plans: show one, or what differs between two.", no_args_is_help=True)

PlanName = Annotated[
    str, typer.Option("--plan", metavar="PLAN", help="best, default, none, tvm, dnnfusion, or a plan file.")
]
OtherPlan = Annotated[str, typer.Argument(metavar="PLAN", help="best, default, none, tvm, dnnfusion, or a plan file.")]


@plan_verbs.command("show")
def plan_show(
    model: Model,
    plan: PlanName = "default",
    database: Database = None,
    device: Device = "local",
    threads: Threads = None,
    shape: Shapes = None,
    form: OutputFormat = "text",
) -> None:
    """Show the kernels of a plan. Its JSON (--format json) is a plan file that --plan reads."""
    from autofuse.fusion.explain import describe

    graph = _graph(model, shape)
    chosen = _plan(graph, plan, database, device, threads)
    show(
        json.loads(chosen.to_json()), form, Text(f"plan {plan} ({chosen.key[:12]}): {describe(graph, chosen)}".rstrip())
    )


@plan_verbs.command("diff")
def plan_diff(
    model: Model,
    first: OtherPlan,
    second: OtherPlan,
    database: Database = None,
    device: Device = "local",
    threads: Threads = None,
    shape: Shapes = None,
    form: OutputFormat = "text",
) -> None:
    """Show what differs between two plans of one model."""
    from autofuse.fusion.explain import plan_diff as difference

    graph = _graph(model, shape)
    found = difference(_plan(graph, first, database, device, threads), _plan(graph, second, database, device, threads))
    rows = [
        {"only in": name, "what": what, "operators": " + ".join(operators)}
        for name, what, groups in (
            (first, "fold", [(fold,) for fold in found.folds_only_a]),
            (second, "fold", [(fold,) for fold in found.folds_only_b]),
            (first, "kernel", found.groups_only_a),
            (second, "kernel", found.groups_only_b),
        )
        for operators in groups
    ]
    text = Text("the plans are the same") if found.same else records(rows)
    show({"same": found.same, **_body(found)}, form, text)


def explain(
    model: Model,
    plan: PlanName = "default",
    edge: Annotated[
        str | None, typer.Option("--edge", metavar="OPERATOR[,OPERATOR]", help="Only edges of these operators.")
    ] = None,
    database: Database = None,
    device: Device = "local",
    threads: Threads = None,
    shape: Shapes = None,
    form: OutputFormat = "text",
) -> None:
    """Say which edges of the model a plan fuses, and why."""
    from autofuse.fusion.explain import explain as reasons

    graph = _graph(model, shape)
    chosen = _plan(graph, plan, database, device, threads)
    wanted = set(edge.split(",")) if edge else set()
    for name in sorted(wanted - set(graph.by_name)):
        raise InputError(f"--edge: the model has no operator {name!r} (`autofuse inspect --operators` lists them)")
    code = "chosen_measured" if plan == "best" else "chosen_rule"
    rows = [row for row in reasons(graph, chosen, code) if wanted <= {row.producer, row.consumer}]
    counts = Counter(("fused" if row.fused else "apart", row.code) for row in rows)
    summary = [{"edges": kind, "code": code, "count": count} for (kind, code), count in sorted(counts.items())]
    table = [
        {"producer": row.producer, "consumer": row.consumer, "fused": row.fused, "code": row.code, "why": row.text}
        for row in rows
    ]
    show({"plan": chosen.key, "edges": rows}, form, Group(records(plain(table)), "", records(plain(summary))))


def _graph(model: Model, shape: Shapes) -> Graph:
    from autofuse.graph.load import load

    return load(model, parse_shapes(shape or []))


def _plan(graph: Graph, name: str, database: str | None, device: str, threads: int | None) -> FusionPlan:
    from autofuse.named_plans import named_plan

    return _best_plan(graph, database, device, threads) if name == "best" else named_plan(graph, name)


def _best_plan(graph: Graph, database: str | None, device: str, threads: int | None) -> FusionPlan:
    """The plan that `autofuse compile` would take for this model, device and number of threads."""
    from autofuse.api import thread_count
    from autofuse.fusion.legality import check_plan
    from autofuse.fusion.plan import FusionPlan
    from autofuse.graph.key import graph_key
    from autofuse.named_setting import circumstances
    from autofuse.profiling.database import open_database

    count = thread_count(threads, device)
    with open_database(database, read_only=True) as opened:
        setting = circumstances(opened, device, count, measuring=False).setting
        choice = opened.best_plan(setting, graph_key(graph))
        place = opened.location.text
    if choice is None:
        raise InputError(
            f"--plan best: {place} knows no plan for this model on device {device} with {count} threads; "
            "run `autofuse tune` with the same --device and --threads"
        )
    plan = FusionPlan.from_json(choice.plan)
    check_plan(graph, plan)
    return plan


def _body(value: object) -> dict[str, object]:
    body = plain(value)
    assert isinstance(body, dict)
    return body
