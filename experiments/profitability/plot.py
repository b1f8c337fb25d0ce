"""Regret@1 of every judge as a picture (SVG): a dot a case, a line at the median."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log10
from statistics import mean, median
from xml.sax.saxutils import escape

from experiments.profitability.evaluate import Taken

LEFT, WIDTH, ROW, TOP = 130, 640, 34, 46
LEAST = 0.001
"""Regrets below are drawn here: the axis is logarithmic."""
TICKS = (0.001, 0.01, 0.1, 1.0, 10.0)
COLOURS = ("#3b6ea5", "#b0563b", "#4d8a57", "#7a5aa0")


def picture(rows: Iterable[Taken], title: str) -> str:
    """The SVG text; judges downwards, the best mean first; colours are devices with their threads."""
    judges: dict[str, list[Taken]] = {}
    for row in rows:
        judges.setdefault(row.judge, []).append(row)
    ranked = sorted(judges.items(), key=lambda item: mean(row.regret1 for row in item[1]))
    places = sorted({(row.device, row.threads) for row in (row for _, own in ranked for row in own)})
    colours = {place: COLOURS[number % len(COLOURS)] for number, place in enumerate(places)}
    height = TOP + ROW * len(ranked) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="white"/><text x="10" y="18" font-size="14">{escape(title)}</text>',
        *_legend(colours),
        *_axis(height),
    ]
    for number, (judge, own) in enumerate(ranked):
        parts += _row(judge, own, TOP + ROW * number + ROW / 2, colours)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(colours: Mapping[tuple[str, int], str]) -> list[str]:
    found = []
    for number, ((device, threads), colour) in enumerate(colours.items()):
        x = LEFT + 150 * number
        text = escape(f"{device}, {threads} thread{'s' if threads > 1 else ''}")
        found.append(f'<circle cx="{x}" cy="32" r="4" fill="{colour}"/><text x="{x + 8}" y="36">{text}</text>')
    return found


def _axis(height: int) -> list[str]:
    found = []
    for tick in TICKS:
        x = _x(tick)
        found.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height - 36}" stroke="#dddddd"/>')
        text = f"{'≤ ' if tick == LEAST else ''}{100 * tick:g} %"
        found.append(f'<text x="{x:.1f}" y="{height - 20}" text-anchor="middle">{text}</text>')
    words = "regret@1: time of the plan taken over the best known, minus 1"
    found.append(f'<text x="{LEFT + WIDTH / 2}" y="{height - 5}" text-anchor="middle">{words}</text>')
    return found


def _row(judge: str, own: Sequence[Taken], y: float, colours: Mapping[tuple[str, int], str]) -> list[str]:
    found = [f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(judge)}</text>']
    for number, row in enumerate(own):
        shift = ROW * 0.6 * (number % 7 / 6 - 0.5)
        colour = colours[row.device, row.threads]
        found.append(
            f'<circle cx="{_x(row.regret1):.1f}" cy="{y + shift:.1f}" r="3" fill="{colour}" fill-opacity="0.6">'
            f"<title>{escape(row.network)}: {100 * row.regret1:.1f} %</title></circle>"
        )
    x = _x(median(row.regret1 for row in own))
    found.append(
        f'<line x1="{x:.1f}" y1="{y - ROW / 2 + 3:.1f}" x2="{x:.1f}" y2="{y + ROW / 2 - 3:.1f}" '
        'stroke="black" stroke-width="2"/>'
    )
    return found


def _x(regret: float) -> float:
    low, high = log10(LEAST), log10(TICKS[-1])
    place = (log10(min(max(regret, LEAST), TICKS[-1])) - low) / (high - low)
    return LEFT + WIDTH * place
