"""`report`: one run as Markdown, HTML, CSV files or JSON; `compare`: two runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from autofuse.cli.options import Database, OutputFormat
from autofuse.cli.screens.next_steps import after_comparing, after_report
from autofuse.cli.screens.render import console, plain, records, show
from autofuse.cli.terminal import out
from autofuse.errors import InputError

if TYPE_CHECKING:
    from autofuse.api.results import Report


def report(
    database: Database = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Number or name of a run, or name of a job. [default: newest run]"),
    ] = None,
    frame: Annotated[
        str | None, typer.Option("--frame", metavar="NAME", help="Only this table, such as candidates (json, csv).")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Write report.md and one CSV file a table there."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots there; it needs no network.")
    ] = None,
    form: Annotated[
        Literal["text", "markdown", "csv", "json"],
        typer.Option("--format", help="Text is Markdown too; csv needs --frame or --output."),
    ] = "text",
) -> None:
    """Show what a tuning run found: speedups, trust, failures, circumstances."""
    from autofuse import api

    if form == "csv" and (frame, output, html) == (None, None, None):
        raise InputError("--format csv: name one table with --frame, or a folder for all of them with --output")
    found = api.report(database, run=run, frame=frame, output=output, html=html)
    if found.files:
        if form == "json":
            show({"files": found.files}, "json")
        else:
            out("".join(f"{file}\n" for file in found.files))
    elif found.frame is not None:
        _print_frame(found, form)
    elif form == "json":
        show(found.facts(), "json")
    else:
        out(found.text().rstrip("\n") + "\n")
        if form == "text":
            console().print("", after_report(run, {"database": database}), sep="\n")


def _print_frame(found: Report, form: str) -> None:
    frame = found.frame
    assert frame is not None
    if form == "json":
        show(json.loads(frame.to_json(orient="records", date_format="iso")), "json")
    elif form == "csv":
        out(found.frame_csv())
    else:
        out(frame.to_string(index=False, max_colwidth=60) + "\n")


def compare(
    first: Annotated[str, typer.Argument(metavar="RUN_A", help="Number or name of a run, or name of a job.")],
    second: Annotated[str, typer.Argument(metavar="RUN_B", help="Another one.")],
    database: Database = None,
    form: OutputFormat = "text",
) -> None:
    """Compare run B with run A: the whole model, and each workload that both chose, with a verdict each.

    Each run counts with what it measured itself. Two jobs (by their names) are compared model by model. Runs of two
    databases are compared once one is merged into the other (`autofuse db merge`).
    """
    from autofuse import api

    found = api.compare(first, second, database=database)
    rows, sides = found.rows, (found.a, found.b)
    body = {"a": found.a, "b": found.b, "verdicts": found.verdicts, "comparison": rows}
    then = after_comparing(second, {"database": database}) if rows else None
    show(body, form, _comparison(rows, sides, found.verdicts), then)


def _named(side: Mapping[str, Any]) -> str:
    return f"job {side['job']}" if "job" in side else f"run {side['run']} ({side['name']})"


def _comparison(
    rows: Sequence[Mapping[str, Any]], sides: Sequence[Mapping[str, Any]], counts: Mapping[str, int]
) -> RenderableType:
    head = f"B = {_named(sides[1])} against A = {_named(sides[0])}"
    if not rows:
        return Text(f"{head}: nothing in common; no model and no group was chosen by both")
    models = {row["model"] for row in rows}
    lines = [
        {
            **({"model": row["model"]} if len(models) > 1 else {}),
            "what": row["label"] if row["kind"] == "workload" else f"whole model {row['label']}",
            "A_us": row["a_us"],
            "B_us": row["b_us"],
            "A / B": row["ratio"],
            "95 % interval": _interval(row["ci_lo"], row["ci_hi"]),
            "trusted": None if row["ratio"] is None else row["trusted"],
            "B is": row["verdict"],
        }
        for row in rows
    ]
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    notes = [
        "A / B is the ratio of their medians; above 1: B is faster. A verdict needs trusted times whose interval "
        "leaves out 1."
    ]
    if any("not measured" in verdict for verdict in counts):
        notes.append("Not measured: that run took the schedule over from an earlier one, so it has no time of its own.")
    return Group(Text(head), records(plain(lines)), Text(f"{summary}.\n" + "\n".join(notes)))


def _interval(lo: object, hi: object) -> str:
    return f"{lo:.3f} – {hi:.3f}" if isinstance(lo, float) and isinstance(hi, float) else "-"
