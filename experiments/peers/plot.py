"""`results.csv` as a picture: `python -m experiments peers.plot results.csv results.svg`, where matplotlib is."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.options import new_parser

LEAST_ROWS = 4
LEGEND_COLUMNS = 4


def points(lines: list[dict[str, str]]) -> dict[str, dict[str, dict[str, tuple[float, float, float]]]]:
    """threads -> rival -> network -> (speed over ONNX Runtime, lower end, upper end); wrong results left out."""
    found: dict[str, dict[str, dict[str, tuple[float, float, float]]]] = {}
    for line in lines:
        if not line["speed_over_onnxruntime"] or line["wrong"]:
            continue
        value = (float(line["speed_over_onnxruntime"]), float(line["ci_lo"]), float(line["ci_hi"]))
        found.setdefault(line["threads"], {}).setdefault(line["rival"], {})[line["network"]] = value
    return found


def draw(table: dict[str, dict[str, dict[str, tuple[float, float, float]]]], path: Path) -> None:
    """One panel a number of threads: networks downwards, speed to the right (logarithmic), a mark a rival."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    networks = list(dict.fromkeys(name for rivals in table.values() for row in rivals.values() for name in row))
    rivals = list(dict.fromkeys(name for panel in table.values() for name in panel))
    height = 1.5 + 0.55 * max(len(networks), LEAST_ROWS)
    figure, panels = pyplot.subplots(1, len(table), figsize=(6.5 * len(table), height), sharey=True, squeeze=False)
    for panel, (threads, rows) in zip(panels[0], sorted(table.items(), key=lambda item: int(item[0])), strict=True):
        for number, rival in enumerate(rivals):
            _series(panel, rows.get(rival, {}), networks, rival, number, len(rivals))
        panel.axvline(1.0, color="0.6", linewidth=0.8)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        panel.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        panel.xaxis.set_minor_locator(ticker.NullLocator())
        panel.set_xlabel("speed over ONNX Runtime (to the right: faster)")
        panel.set_title(f"{threads} thread{'s' if threads != '1' else ''}")
        panel.set_yticks(range(len(networks)), networks)
        panel.grid(axis="x", alpha=0.2)
    panels[0][0].invert_yaxis()
    handles, labels = panels[0][0].get_legend_handles_labels()
    columns = LEGEND_COLUMNS * len(table)
    figure.legend(handles, labels, loc="lower center", ncols=min(len(labels), columns), frameon=False)
    figure.tight_layout(rect=(0, 0.25 * math.ceil(len(labels) / columns) / height, 1, 1))
    figure.savefig(path)


def _series(
    panel: Any, row: dict[str, tuple[float, float, float]], networks: list[str], rival: str, number: int, count: int
) -> None:
    offset = 0.6 * (number / max(count - 1, 1) - 0.5)
    known = [(index + offset, *row[name]) for index, name in enumerate(networks) if name in row]
    heights = [place for place, _, _, _ in known]
    values = [value for _, value, _, _ in known]
    errors = [[value - lo for _, value, lo, _ in known], [hi - value for _, value, _, hi in known]]
    marker = "D" if rival.startswith("autofuse") else "o"
    panel.errorbar(
        values, heights, xerr=errors, fmt=marker, color=f"C{number}", markersize=4, linewidth=1.2, label=rival
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the CSV file, write the picture (its suffix says which kind)."""
    parser = new_parser(__doc__)
    parser.add_argument("source", type=Path, metavar="RESULTS.csv")
    parser.add_argument("target", type=Path, metavar="PICTURE.svg")
    options = parser.parse_args(arguments)
    with options.source.open(encoding="utf-8", newline="") as file:
        table = points(list(csv.DictReader(file)))
    if table:
        draw(table, options.target)
    return 0
