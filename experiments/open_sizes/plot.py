"""The steps of a decoder as a picture: `python -m experiments open_sizes.plot results.csv decode.svg`, with matplotlib.

What each takes, beside what its bytes take at the bandwidth that was probed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.options import new_parser
from experiments.tables import read_csv


def lines_of(records: Sequence[Mapping[str, str]]) -> dict[str, list[tuple[float, float, float]]]:
    """threads -> (rows of the caches, ms of a step, ms that memory alone would take) of each stretch."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for one in records:
        middle = (float(one["first"]) + float(one["last"])) / 2
        bound = float(one["read_bytes"]) / float(one["dram_gbs"]) / 1e6
        found.setdefault(one["threads"], []).append((middle, float(one["us"]) / 1e3, bound))
    return found


def draw(lines: Mapping[str, Sequence[tuple[float, float, float]]], path: Path) -> None:
    """Two lines a number of threads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(6.5, 4))
    for number, (threads, points) in enumerate(lines.items()):
        places, times, bounds = zip(*points, strict=True)
        label = f"{threads} thread{'s' if threads != '1' else ''}"
        panel.plot(places, times, "o-", color=f"C{number}", markersize=4, label=label)
        panel.plot(places, bounds, "--", color=f"C{number}", linewidth=1, label=f"{label}: its bytes from memory")
    panel.set_xlabel("rows of the caches")
    panel.set_ylabel("milliseconds a step")
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.2)
    panel.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the CSV file, write the picture (its suffix says which kind)."""
    parser = new_parser(__doc__)
    parser.add_argument("source", type=Path, metavar="RESULTS.csv")
    parser.add_argument("target", type=Path, metavar="PICTURE.svg")
    options = parser.parse_args(arguments)
    records = read_csv(options.source)
    if records:
        draw(lines_of(records), options.target)
    return 0
