"""A trial of all reports of a database: for `db check`, all of them are made, and thrown away."""

from __future__ import annotations

from autofuse.views.frames.analysis import Analysis
from autofuse.views.report.night_text import render_text
from autofuse.views.report.page import render_html


def unreportable(analysis: Analysis) -> list[str]:
    """The runs whose report fails, and why; empty when all can be made."""
    found = []
    for run in map(int, analysis.runs["run_id"]):
        try:
            render_text(analysis, run)
            render_html(analysis, run)
        except Exception as error:  # noqa: BLE001  whatever it is, it is what was asked for
            lines = str(error).strip().splitlines() or [""]
            found.append(f"`report --run {run}` fails: {type(error).__name__}: {lines[0][:200]}")
    return found
