"""The rows as `results.csv` and `results.md`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from experiments.networks.row import RIVALS, Ratio, Row, title
from experiments.records import Table
from experiments.tables import head, line, write_csv

TITLES = {"onnxruntime": "ONNX Runtime", "tvm-untuned": "TVM, untuned", "none": "no fusion"}
HEAD = (
    "network", "threads", "kernels: no fusion → autofuse", "autofuse", *(f"against {TITLES[name]}" for name in RIVALS),
    "trusted", "largest error", "tuning", "candidates",
)  # fmt: skip
LEGEND = """\
Ratio = the rival's time / autofuse's time, with its 95 % interval: above 1, autofuse is faster. All four were timed
in turn in one run. "No fusion": autofuse's own kernels with their tuned schedules, one operator a kernel, nothing
folded. A ratio with "?" is not trusted (noise, or the clock). Largest error: against ONNX Runtime, relative to the
output's range.
"""


def write(rows: Sequence[Row], folder: Path) -> None:
    """Both files, from all rows that have begun."""
    write_csv(folder / "results.csv", [row.flat() for row in rows])
    (folder / "results.md").write_text(markdown(rows), encoding="utf-8")


def markdown(rows: Sequence[Row]) -> str:
    """The table of finished rows, means, what is not finished and why, the machine."""
    finished = [row for row in rows if row.finished]
    lines = [*head(HEAD), *(line(_cells(row)) for row in finished)]
    for threads in sorted({row.threads for row in finished}):
        lines.append(line(_means(threads, [row for row in finished if row.threads == threads])))
    parts = ["\n".join(lines), LEGEND.rstrip()]
    if problems := _problems(rows):
        parts.append("\n".join(f"- {problem}" for problem in problems))
    parts.append("\n".join(f"- {fact}" for fact in environment_of(finished)))
    return "\n\n".join(part for part in parts if part) + "\n"


def published(rows: Sequence[Row]) -> str:
    """The table of the README: ratios without the times behind them, which say little on another machine."""
    titles = ("network", "threads", "kernels: no fusion → autofuse", *(f"against {TITLES[name]}" for name in RIVALS))
    lines = head((*titles, "largest error", "tuning", "candidates"))
    shown = sorted(rows, key=lambda row: row.threads)
    for row in shown:
        ratios = [ratio(row.rivals.get(name, Ratio())) for name in RIVALS]
        kernels = f"{_known(row.kernels_none)} → {_known(row.kernels)}"
        error = "—" if row.max_rel_error is None else f"{row.max_rel_error:.0e}"
        minutes = f"{row.tuning_s / 60:.1f} min"
        lines.append(line([row.network, row.threads, kernels, *ratios, error, minutes, row.candidates]))
    for threads in dict.fromkeys(row.threads for row in shown):
        means = _means(threads, [row for row in shown if row.threads == threads])
        lines.append(line([*means[:3], *means[4:7], "", "", ""]))
    return "\n".join(lines) + "\n"


def kept(**cells: Any) -> Row:
    """A row as the results keep it."""
    return Row(**{**cells, "rivals": {name: Ratio(**rival) for name, rival in cells["rivals"].items()}})


TABLE = Table("networks", kept, ("network", "threads"), published)


def ratio(rival: Ratio) -> str:
    """ "1.14 (1.12–1.17)"; "?" behind what is not trusted, a dash for what is not known."""
    if rival.ratio is None or rival.ci_lo is None or rival.ci_hi is None:
        return "—"
    doubt = "" if rival.trusted else " ?"
    return f"{three(rival.ratio)} ({three(rival.ci_lo)}–{three(rival.ci_hi)}){doubt}"


def _cells(row: Row) -> list[str]:
    rivals = [row.rivals.get(name, Ratio()) for name in RIVALS]
    doubted = [TITLES[name] for name, rival in zip(RIVALS, rivals, strict=True) if not rival.trusted]
    assert row.autofuse_us is not None
    return [
        row.network,
        str(row.threads),
        f"{_known(row.kernels_none)} → {_known(row.kernels)}",
        f"{row.autofuse_us / 1e3:.3f} ms",
        *map(ratio, rivals),
        "yes" if not doubted else f"not {', '.join(doubted)}",
        "—" if row.max_rel_error is None else f"{row.max_rel_error:.0e}",
        f"{row.tuning_s / 60:.1f} min",
        f"{row.candidates}",
    ]


def _means(threads: int, rows: Sequence[Row]) -> list[str]:
    """Geometric means over the networks whose ratio is known."""
    cells = []
    for name in RIVALS:
        known = [value for row in rows if (value := row.rivals.get(name, Ratio()).ratio)]
        cells.append(mean(known, len(rows)))
    return [f"geometric mean of {len(rows)}", str(threads), "", "", *cells, "", "", "", ""]


def mean(ratios: Sequence[float], rows: int) -> str:
    """The geometric mean of the ratios that are known, and of how many where that is not every row."""
    of = "" if len(ratios) == rows else f" (of {len(ratios)})"
    return f"{three(statistics.geometric_mean(ratios))}{of}" if ratios else "—"


def _problems(rows: Sequence[Row]) -> list[str]:
    found = []
    for row in rows:
        where = title(row.network, row.threads)
        if row.error:
            found.append(f"{where}: failed: {row.error}")
        elif not row.finished:
            found.append(f"{where}: not finished")
        found += [
            f"{where}: {TITLES.get(name, name)}: {rival.error}" for name, rival in row.rivals.items() if rival.error
        ]
    return found


class Measured(Protocol):
    """A row of any table that says when and where it was measured."""

    @property
    def facts(self) -> Mapping[str, str]:
        """What is the same for a whole run, by its name in the table's foot."""

    @property
    def measured_at(self) -> str:
        """ISO 8601; "" when it was not."""


def environment_of(rows: Sequence[Measured]) -> list[str]:
    """Each fact with its value, or with all its values where rows differ."""
    names = dict.fromkeys(name for row in rows for name in row.facts)
    found = [f"{name}: {', '.join(dict.fromkeys(row.facts.get(name, 'unknown') for row in rows))}" for name in names]
    days = sorted({row.measured_at[:10] for row in rows if row.measured_at})
    return [*found, f"measured: {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")] if days else found


def three(value: float) -> str:
    """Three digits, and two behind the point at most: 0.98, 1.14, 23.5, 118."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _known(value: int | None) -> str:
    return "—" if value is None else str(value)
