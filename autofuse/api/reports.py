"""What tuning found: as a report, as a comparison, as DataFrames.

`run`: the number or the name of a run, or the name of a job.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autofuse.values.arguments import StrPath, whole_number

if TYPE_CHECKING:
    from autofuse.views.frames.analysis import Analysis, RunReference
    from autofuse.views.report.reports import Comparison, Report


def report(
    database: str | None = None,
    *,
    run: str | int | None = None,
    frame: str | None = None,
    output: StrPath | None = None,
    html: StrPath | None = None,
) -> Report:
    """What a tuning run or job found (None: the newest run): speedups, trust, failures, circumstances.

    `frame`: only this table, such as "candidates". `output`: a folder for report.md and one CSV file a table. `html`: a
    file for a page with plots, which needs no network.
    """
    from autofuse.database.connection import require_database

    require_database(database)
    from autofuse.views.report.reports import made

    folder, page = (None if path is None else Path(path) for path in (output, html))
    return made(database, None if run is None else _reference(run), frame, folder, page)


def compare(first: str | int, second: str | int, *, database: str | None = None) -> Comparison:
    """Compare the second run with the first: the whole model, and each workload that both chose, with a verdict each.

    Each run counts with what it measured itself. Two jobs (by their names) are compared model by model. Runs of two
    databases are compared once one is merged into the other (`db_merge`).
    """
    from autofuse.database.connection import require_database

    require_database(database)
    from autofuse.views.report.reports import compared

    return compared(database, _reference(first), _reference(second))


def open(database: str | None = None) -> Analysis:  # noqa: A001 the name in pandas and elsewhere, in a namespace
    """The profiling database as DataFrames, read-only."""
    from autofuse.database.connection import require_database

    require_database(database)
    from autofuse.views.frames.analysis import open_analysis

    return open_analysis(database)


def terms(screen: str) -> str:
    """What the words of tables ("trusted", "tier", ...) mean that stand in the text of a screen, a sentence each."""
    from autofuse.views.terms import explained, used_in

    return explained(used_in(screen))


def _reference(run: str | int) -> RunReference:
    number = run if isinstance(run, int) else whole_number(run)
    return run if number is None else number
