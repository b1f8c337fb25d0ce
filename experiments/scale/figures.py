"""The figures of all parts of `scale`, in one table: what each of them says, and what was wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.records import Table, keep
from experiments.tables import head, line

FIGURES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "lookup": {
        "one_median_ms": ("look-up of one workload among ten million samples: median, ms", "5"),
        "one_p99_ms": ("99 % of them within, ms", ""),
        "sixty_median_ms": ("look-up of a network's 60 workloads at once: median, ms", ""),
        "sixty_p99_ms": ("99 % of them within, ms", ""),
    },
    "fill": {
        "samples": ("samples of that database", ""),
        "bytes": ("its bytes (SQLite)", ""),
    },
    "record": {
        "candidates_a_second": ("recording, one commit a candidate: candidates a second", "200"),
        "bytes_a_candidate": ("bytes of a candidate", ""),
        "candidates_a_night": ("candidates of a night on one worker", ""),
        "night_mb": ("database of a night on one worker, MB", "at most 200"),
    },
    "workers": {
        "one_s": ("a job on one worker, devices that answer after their recorded time, s", ""),
        "two_s": ("the same on two workers, s", ""),
        "speedup": ("two workers over one", "1.8"),
    },
    "dask_speed": {
        "kernels": ("kernels of MobileNetV2 built in each round", ""),
        "one_s": ("one Dask worker, s (median of the rounds)", ""),
        "two_s": ("two Dask workers, s (median of the rounds)", ""),
        "speedup": ("two Dask workers over one (median of the rounds)", "1.6"),
    },
    "simulate": {
        "tasks": ("a job of 200 models on 20 workers for eight hours: tasks", ""),
        "candidates": ("candidates measured", ""),
        "least_candidates": ("least candidates of a model", ""),
        "most_candidates": ("most candidates of a model", ""),
        "decision_median_ms": ("a coordinator's decision: median, ms", ""),
        "decision_worst_ms": ("the slowest, ms", ""),
        "coordinator_load_percent": ("all of them, % of one core", ""),
        "job_tables_mb": ("the job's tables, MB", ""),
        "status_s": ("`status`, s", ""),
    },
    "sharing": {
        "models": ("variants of four architectures in one database", ""),
        "workloads": ("their workloads", ""),
        "measured": ("workloads that are measured", ""),
        "saved": ("saved, as a part of 1", ""),
    },
}
"""Of each part, by the name of the figure: what it says, and what was wanted; others are printed, not published."""


@dataclass(frozen=True)
class Row:
    """One figure of a part."""

    part: str
    figure: str
    value: float


def keep_figures(part: str, figures: Mapping[str, float]) -> None:
    """Keep what a part found."""
    keep(TABLES[0], [Row(part, name, figures[name]) for name in FIGURES[part] if name in figures])


def table(rows: Sequence[Row]) -> str:
    """The table of the page."""
    lines = head(("part", "what", "figure", "wanted"))
    for row in rows:
        what, wanted = FIGURES[row.part][row.figure]
        shown = f"{row.value:,.0f}" if row.value >= 1000 else f"{row.value:g}"
        lines.append(line([row.part, what, shown, wanted]))
    return "\n".join(lines) + "\n"


def _place(row: Row) -> int:
    names = [(part, figure) for part, figures in FIGURES.items() for figure in figures]
    return names.index((row.part, row.figure))


TABLES = (Table("scale", Row, ("part", "figure"), table, _place),)
