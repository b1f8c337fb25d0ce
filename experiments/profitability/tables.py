"""The results as text: tables for a reader, CSV files for a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import pandas as pd

from experiments.profitability.evaluate import Contest, Summary
from experiments.profitability.metrics import Bin
from experiments.records import Table
from experiments.tables import head, line

TITLES: Mapping[str, str] = {
    "network": "networks held out",
    "family": "a family of networks held out",
    "device": "a device held out",
    "threads": "a number of threads held out",
}


@dataclass(frozen=True)
class Bar:
    """A wanted value and what was reached, as parts of 1."""

    name: str
    most: float
    reached: float

    @property
    def met(self) -> bool:
        """Whether it was reached; what could not be measured was not."""
        return self.reached <= self.most


def bars(model: Summary) -> list[Bar]:
    """What the model is wanted to reach on networks held out."""
    return [
        Bar("median regret@1", 0.03, model.regret1_median),
        Bar("P90 of regret@1", 0.10, model.regret1_p90),
        Bar("median regret@5", 0.01, model.regret5_median),
        Bar("harm rate", 0.02, model.harm),
    ]


def plans_table(rows: Sequence[Summary]) -> str:
    """Regrets of each judge, the smallest mean first; "" when nobody chose a plan."""
    ranked = sorted((row for row in rows if row.cases), key=lambda row: row.regret1_mean)
    lines = head(
        (
            "takes the plan that is best for", "cases", "regret@1: median", "mean", "P90", "max", "regret@5: median",
            "P90",
        )
    )  # fmt: skip
    for row in ranked:
        values = (row.regret1_median, row.regret1_mean, row.regret1_p90, row.regret1_max)
        lines.append(line([row.judge, row.cases, *map(percent, (*values, row.regret5_median, row.regret5_p90))]))
    return "\n".join(lines) + "\n" if ranked else ""


def decisions_table(rows: Sequence[Summary]) -> str:
    """Decisions on edges of each judge, the cheapest first; "" when nobody decided."""
    ranked = sorted((row for row in rows if row.decisions), key=lambda row: row.cost)
    lines = head(
        (
            "decides", "fuses", "harm", "lost fusions", "missed", "time over the best", "AUC", "90 % intervals hold",
            "calibration error",
        )
    )  # fmt: skip
    for row in ranked:
        fuses = f"{row.accepted} of {row.decisions}"
        auc = "-" if isnan(row.auc) else f"{row.auc:.3f}"
        values = (row.harm, row.lost, row.missed, row.cost)
        sureness = map(percent, (row.coverage, row.calibration))
        lines.append(line([row.judge, fuses, *map(percent, values), auc, *sureness]))
    return "\n".join(lines) + "\n" if ranked else ""


def relations_table(frame: pd.DataFrame) -> str:
    """AUC by cell of the paper's table, the most frequent first."""
    lines = head(["cell (producer > consumer)", *frame.columns])
    for cell, row in frame.sort_values("decisions", ascending=False).iterrows():
        aucs = ("-" if isnan(value) else f"{value:.2f}" for value in row.iloc[2:])
        lines.append(line([cell, int(row["decisions"]), percent(row["pays"]), *aucs]))
    return "\n".join(lines) + "\n"


def reliability_table(parts: Iterable[Bin]) -> str:
    """Stated against observed shares of fusions that pay."""
    lines = head(("stated probability", "decisions", "share that paid"))
    lines += [line([f"{part.stated:.2f}", part.count, f"{part.observed:.2f}"]) for part in parts]
    return "\n".join(lines) + "\n"


def judged(rows: Sequence[Summary]) -> str:
    """Both tables of each kind of split, as the page shows them."""
    parts = []
    for kind, title in TITLES.items():
        own = [row for row in rows if row.split == kind]
        found = [table for table in (plans_table(own), decisions_table(own)) if table]
        parts += [f"With {title}:\n", *found] if found else []
    return "\n".join(parts)


def summary_of(**cells: Any) -> Summary:
    """A row as the results keep it; what nobody wrote down is not a number, and no case."""
    for name, value in cells.items():
        if value is None:
            cells[name] = 0 if name in ("cases", "decisions", "accepted") else nan
    return Summary(**cells)


TABLE = Table("profitability", summary_of, ("split", "judge"), judged)


def verdict(contests: Sequence[Contest], reached: Sequence[Bar]) -> str:
    """In words: against each control, against the best of them, and which bars are met."""
    lines = [
        f"- against {one.control}: {one.verdict} (mean regret@1 {_signed(one.difference)} "
        f"[{_signed(one.lo)}, {_signed(one.hi)}], {one.cases} cases)"
        for one in contests
    ]
    if contests:
        hardest = max(contests, key=lambda one: one.difference)
        said = {
            "better": f"The model takes better plans than every control, the best of which is {hardest.control}.",
            "worse": f"{hardest.control} takes better plans than the model.",
            "no difference": f"{hardest.control} is as good as the model: no difference was found between them.",
        }
        lines.insert(0, f"{said[hardest.verdict]}\n")
    lines.append("")
    lines += [
        f"- {bar.name} at most {percent(bar.most)}: {percent(bar.reached)}, {'met' if bar.met else 'not met'}"
        for bar in reached
    ]
    return "\n".join(lines) + "\n"


def percent(value: float) -> str:
    """`3.1 %`, or "-" for what is not known."""
    return "-" if isnan(value) else f"{100 * value:.1f} %"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f} %"
