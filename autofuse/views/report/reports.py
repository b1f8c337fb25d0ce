"""A report as a value: what was written of it, and what can be asked of it; two runs or jobs compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from autofuse.views.frames.analysis import Analysis, RunReference, open_analysis
from autofuse.views.frames.standing import job_standing, run_standing
from autofuse.views.report.night_text import render_text
from autofuse.views.report.page import write_html
from autofuse.views.report.render import write_csv, write_markdown
from autofuse.views.report.spreadsheet import csv_safe

if TYPE_CHECKING:
    from autofuse.database.records import RunInfo

FRAMES_IN_JSON = ("plan_measurements", "groups", "failures", "edges")
"""What a report's facts hold beside the run."""


@dataclass(frozen=True)
class Report:
    """A report: what a tuning run or a job found; it is read from the database when it is asked for.

    `run`: None for the newest. `files`: those that were written. `frame`: the one table that was asked for.
    """

    database: str | None
    run: RunReference | None
    files: tuple[Path, ...] = ()
    frame: pd.DataFrame | None = None

    def text(self) -> str:
        """The report as Markdown."""
        with open_analysis(self.database) as analysis:
            return render_text(analysis, self.run)

    def facts(self) -> dict[str, object]:
        """The report as one object: how it stands, and its tables as lists of rows."""
        with open_analysis(self.database) as analysis:
            return _facts(analysis, self.run)

    def frame_csv(self) -> str:
        """The table that was asked for, as CSV that a spreadsheet runs nothing of."""
        return "" if self.frame is None else str(csv_safe(self.frame).to_csv(index=False))


@dataclass(frozen=True)
class Comparison:
    """A comparison of run or job `b` with `a`: `verdicts` counts those of the rows of `table`."""

    a: Mapping[str, Any]
    b: Mapping[str, Any]
    verdicts: Mapping[str, int]
    table: pd.DataFrame

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table as plain values."""
        return _rows(self.table)


def made(
    database: str | None, run: RunReference | None, frame: str | None, folder: Path | None, page: Path | None
) -> Report:
    """The report of `run`, written to `folder` (Markdown and CSV) and `page` (HTML) where they are named."""
    files: list[Path] = []
    with open_analysis(database) as analysis:
        if folder is not None:
            files.append(write_markdown(analysis, render_text(analysis, run), folder))
            files += write_csv(analysis, run, folder)
        if page is not None:
            files.append(write_html(analysis, run, page))
        if frame is not None and not files:
            return Report(database, run, frame=analysis.frame(frame, run))
        if not files:
            analysis.runs_of(run)  # InputError when there is none
    return Report(database, run, tuple(files))


def compared(database: str | None, first: RunReference, second: RunReference) -> Comparison:
    """The second run or job against the first."""
    with open_analysis(database) as analysis:
        a, b = _side(analysis, first), _side(analysis, second)
        table = analysis.compare(first, second)
    counts = {str(verdict): int(count) for verdict, count in table["verdict"].value_counts().items()}
    return Comparison(a, b, counts, table)


def _side(analysis: Analysis, reference: RunReference) -> dict[str, object]:
    """What stands on one side of a comparison: a run, or a job with its runs."""
    job, runs = analysis.job(reference), analysis.runs_of(reference)
    if job is not None:
        return {"job": job.name, "runs": [run.id for run in runs], "models": [run.model_name for run in runs]}
    return {"run": runs[0].id, "name": runs[0].name, "model": runs[0].model_name}


def _facts(analysis: Analysis, reference: RunReference | None) -> dict[str, object]:
    job = analysis.job(reference)
    if job is None:
        return _run_facts(analysis, analysis.run(reference))
    standing = job_standing(job, analysis.database)
    head = {"name": job.name, "state": job.state, "active_s": job.active_s, "standing": standing}
    runs = [_run_facts(analysis, info) for info in analysis.runs_of(job.name)]
    return {"job": head, "models": _rows(analysis.night(job.name)), "runs": runs}


def _run_facts(analysis: Analysis, info: RunInfo) -> dict[str, object]:
    names = ("measurements", "failures", "trials", "plan_measurements", "choices")
    frames = {name: analysis.frame(name, info.id) for name in names}
    standing = run_standing(info, frames, analysis.database)
    return {
        "run": info,
        "standing": standing,
        **{name: _rows(analysis.frame(name, info.id)) for name in FRAMES_IN_JSON},
    }


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", date_format="iso"))
    return rows
