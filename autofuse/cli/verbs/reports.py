"""`report`: one run as Markdown, HTML, CSV files or JSON; `compare`: two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from autofuse.cli.options import Database, OutputFormat
from autofuse.cli.screens.render import plain, records, show
from autofuse.cli.terminal import out
from autofuse.errors import InputError
from autofuse.values.arguments import whole_number

if TYPE_CHECKING:
    from autofuse.database.records import RunInfo
    from autofuse.views.frames.analysis import Analysis, RunReference

FRAMES_IN_JSON = ("plan_measurements", "groups", "failures", "edges")
"""What `--format json` holds beside the run unless a frame is asked for."""


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

    reference = None if run is None else _reference(run)
    with api.open(database) as analysis:
        if output is not None or html is not None:
            files = _write(analysis, reference, output) if output is not None else []
            files += _write_page(analysis, reference, html) if html is not None else []
            if form == "json":
                show({"files": files}, "json")
            else:
                out("".join(f"{file}\n" for file in files))
        elif frame is not None:
            _print_frame(analysis, reference, frame, form)
        elif form == "csv":
            raise InputError("--format csv: name one table with --frame, or a folder for all of them with --output")
        elif form == "json":
            show(_body(analysis, reference), "json")
        else:
            out(_markdown(analysis, reference).rstrip("\n") + "\n")


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

    with api.open(database) as analysis:
        references = [_reference(name) for name in (first, second)]
        sides = [_side(analysis, reference) for reference in references]
        table = analysis.compare(*references)
    rows = json.loads(table.to_json(orient="records"))
    counts = {str(verdict): int(count) for verdict, count in table["verdict"].value_counts().items()}
    body = {"a": sides[0], "b": sides[1], "verdicts": counts, "comparison": rows}
    show(body, form, _comparison(rows, sides, counts))


def _side(analysis: Analysis, reference: RunReference) -> dict[str, object]:
    """What stands on one side of a comparison: a run, or a job with its runs."""
    job, runs = analysis.job(reference), analysis.runs_of(reference)
    if job is not None:
        return {"job": job.name, "runs": [run.id for run in runs], "models": [run.model_name for run in runs]}
    return {"run": runs[0].id, "name": runs[0].name, "model": runs[0].model_name}


def _named(side: dict[str, object]) -> str:
    return f"job {side['job']}" if "job" in side else f"run {side['run']} ({side['name']})"


def _comparison(
    rows: list[dict[str, object]], sides: list[dict[str, object]], counts: dict[str, int]
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
    notes = ["A / B above 1: B is faster. A verdict needs trusted times whose interval leaves out 1."]
    if any("not measured" in verdict for verdict in counts):
        notes.append("Not measured: that run took the schedule over from an earlier one, so it has no time of its own.")
    return Group(Text(head), records(plain(lines)), Text(f"{summary}.\n" + "\n".join(notes)))


def _interval(lo: object, hi: object) -> str:
    return f"{lo:.3f} – {hi:.3f}" if isinstance(lo, float) and isinstance(hi, float) else "-"


def _reference(run: str) -> RunReference:
    number = whole_number(run)
    return run if number is None else number


def _markdown(analysis: Analysis, run: RunReference | None) -> str:
    from autofuse.views.report.night_text import render_text

    return render_text(analysis, run)


def _write(analysis: Analysis, run: RunReference | None, folder: Path) -> list[Path]:
    from autofuse.views.report.render import write_csv, write_markdown

    page = write_markdown(analysis, _markdown(analysis, run), folder)
    return [page, *write_csv(analysis, run, folder)]


def _write_page(analysis: Analysis, run: RunReference | None, path: Path) -> list[Path]:
    from autofuse.views.report.page import write_html

    return [write_html(analysis, run, path)]


def _print_frame(analysis: Analysis, run: RunReference | None, name: str, form: str) -> None:
    from autofuse.views.report.spreadsheet import csv_safe

    found = analysis.frame(name, run)
    if form == "json":
        show(json.loads(found.to_json(orient="records", date_format="iso")), "json")
    elif form == "csv":
        out(csv_safe(found).to_csv(index=False))
    else:
        out(found.to_string(index=False, max_colwidth=60) + "\n")


def _body(analysis: Analysis, reference: RunReference | None) -> dict[str, object]:
    job = analysis.job(reference)
    if job is None:
        return _run_body(analysis, analysis.run(reference))
    from autofuse.views.frames.standing import job_standing

    head = {"name": job.name, "state": job.state, "active_s": job.active_s, "standing": job_standing(job)}
    models = json.loads(analysis.night(job.name).to_json(orient="records"))
    return {"job": head, "models": models, "runs": [_run_body(analysis, info) for info in analysis.runs_of(job.name)]}


def _run_body(analysis: Analysis, info: RunInfo) -> dict[str, object]:
    from autofuse.views.frames.standing import run_standing

    names = ("measurements", "failures", "trials", "plan_measurements", "choices")
    standing = run_standing(info, {name: analysis.frame(name, info.id) for name in names})
    frames = {
        name: json.loads(analysis.frame(name, info.id).to_json(orient="records", date_format="iso"))
        for name in FRAMES_IN_JSON
    }
    return {"run": info, "standing": standing, **frames}
