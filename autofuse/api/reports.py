"""What tuning found: the database as DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autofuse.views.frames.analysis import Analysis


def open(database: str | None = None) -> Analysis:  # noqa: A001 the verb's name, in a namespace of its own
    """The profiling database as DataFrames, read-only."""
    from autofuse.views.frames.analysis import open_analysis

    return open_analysis(database)
