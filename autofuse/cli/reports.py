"""`report`: one run as Markdown, as CSV files, or as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autofuse.cli.options import Database
from autofuse.cli.render import show
from autofuse.errors import InputError

if TYPE_CHECKING:
    from autofuse.report.analysis import Analysis, RunReference

FRAMES_IN_JSON = ("plan_measurements", "groups", "failures", "edges")
"""What `--format json` holds beside the run unless a frame is asked for."""


def report(
    database: Database = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Number or name of a run. [default: the newest]")
    ] = None,
    frame: Annotated[
        str | None, typer.Option("--frame", metavar="NAME", help="Only this table, such as candidates (json, csv).")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Write report.md and one CSV file a table there."),
    ] = None,
    form: Annotated[
        Literal["text", "markdown", "csv", "json"],
        typer.Option("--format", help="Text is Markdown too; csv needs --frame or --output."),
    ] = "text",
) -> None:
    """Show what a tuning run found: speedups, trust, failures, circumstances."""
    from autofuse import api

    reference: RunReference | None = int(run) if run is not None and run.isdigit() else run
    with api.open(database) as analysis:
        if output is not None:
            files = _write(analysis, reference, output)
            if form == "json":
                show({"files": files}, "json")
            else:
                sys.stdout.write("".join(f"{file}\n" for file in files))
        elif frame is not None:
            _print_frame(analysis, reference, frame, form)
        elif form == "csv":
            raise InputError("--format csv: name one table with --frame, or a folder for all of them with --output")
        elif form == "json":
            show(_body(analysis, reference), "json")
        else:
            sys.stdout.write(_markdown(analysis, reference).rstrip("\n") + "\n")


def _markdown(analysis: Analysis, run: RunReference | None) -> str:
    from autofuse.report.render import render_markdown

    return render_markdown(analysis, run)


def _write(analysis: Analysis, run: RunReference | None, folder: Path) -> list[Path]:
    from autofuse.report.render import write_csv

    text = _markdown(analysis, run)
    tables = write_csv(analysis, run, folder)
    page = folder / "report.md"
    page.write_text(text, encoding="utf-8")
    return [page, *tables]


def _print_frame(analysis: Analysis, run: RunReference | None, name: str, form: str) -> None:
    found = analysis.frame(name, run)
    if form == "json":
        show(json.loads(found.to_json(orient="records", date_format="iso")), "json")
    elif form == "csv":
        sys.stdout.write(found.to_csv(index=False))
    else:
        sys.stdout.write(found.to_string(index=False, max_colwidth=60) + "\n")


def _body(analysis: Analysis, run: RunReference | None) -> dict[str, object]:
    info = analysis.run(run)
    frames = {
        name: json.loads(analysis.frame(name, info.id).to_json(orient="records", date_format="iso"))
        for name in FRAMES_IN_JSON
    }
    return {"run": info, **frames}
