"""The report of a job as Markdown: its table, then the report of each of its runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from autofuse.views.frames.standing import job_standing
from autofuse.views.report import markdown
from autofuse.views.report.render import (
    Fact,
    facts_of,
    provenance_table,
    render_markdown,
    run_markdown,
    with_words,
)

if TYPE_CHECKING:
    from autofuse.database.job_records import JobInfo
    from autofuse.views.frames.analysis import Analysis, RunReference

NOTES = (
    "Gain: time without fusion over the time of the chosen plan, both measured whole in this job; above 1, the chosen "
    "plan is faster. Left: part of its time that an hour more of search is expected to save. Noise: median width of "
    "the measurements' 95 % intervals, and how many of them are trusted."
)


def render_text(analysis: Analysis, reference: RunReference | None = None) -> str:
    """The report of the job of this name, else of the run that is meant (None: the newest)."""
    job = analysis.job(reference)
    return render_markdown(analysis, reference) if job is None else night_markdown(analysis, job)


def night_markdown(analysis: Analysis, job: JobInfo) -> str:
    """A job: how it stands, a row for each model and device, what its runs share, and the report of each run one level
    deeper."""
    frame, runs = analysis.night(job.name), analysis.runs_of(job.name)
    shared = shared_facts([facts_of(analysis, info) for info in runs])
    parts = [
        f"# {markdown.text(job.name)}: {job.state}",
        *map(markdown.text, job_standing(job, analysis.database)),
        "## Models and devices",
        _table(frame),
        NOTES,
    ]
    if shared:
        parts += ["## Provenance", provenance_table(shared)]
    parts += [_deeper(run_markdown(analysis, info.id, shared)) for info in runs]
    return with_words("\n\n".join(part.rstrip("\n") for part in parts))


def shared_facts(runs: Sequence[Sequence[Fact]]) -> list[Fact]:
    """The facts that several runs have in common, in the order of the first; none of a single run."""
    if len(runs) < 2:
        return []
    return [fact for fact in runs[0] if all(fact in other for other in runs[1:])]


def _table(frame: pd.DataFrame) -> str:
    head = ["model", "device", "state", "time", "gain", "of ONNX Runtime", "trusted", "left", "noise", "run", "next"]
    return markdown.table(head, (_cells(row) for _, row in frame.iterrows()))


def _cells(row: pd.Series) -> list[object]:
    state = markdown.text(row["state"])
    if row["failure"]:
        state += f": {markdown.text(row['failure'].partition(chr(10))[0])}"
    trusted = markdown.yes(row["trusted"])
    if row["untrusted_groups"] and trusted == "yes":
        trusted += f", but {row['untrusted_groups']} groups"
    return [
        markdown.text(row["model"]),
        markdown.text(row["device"]),
        state,
        markdown.micros(row["median_us"]),
        _times(row["gain"], row["gain_lo"], row["gain_hi"]),
        _times(row["over_onnxruntime"]),
        trusted,
        "" if pd.isna(row["left"]) else f"{100 * row['left']:.1f} % an hour",
        ""
        if pd.isna(row["interval_width"])
        else f"{row['interval_width']:.1f} %, {100 * row['trusted_share']:.0f} % trusted",
        "" if pd.isna(row["run_id"]) else row["run_id"],
        markdown.text(row["next"]),
    ]


def _times(value: float, lo: float = float("nan"), hi: float = float("nan")) -> str:
    return "" if pd.isna(value) else f"{value:.2f}x {markdown.interval(lo, hi, 2)}".rstrip()


def _noise(width: float, trusted: float) -> str:
    return "" if pd.isna(width) else f"{width:.1f} %, {100 * trusted:.0f} % trusted"


def _deeper(text: str) -> str:
    """A report whose headings stand one level lower."""
    return re.sub(r"^(#+ )", r"#\1", text, flags=re.MULTILINE)
