"""Cells and tables of Markdown: one line each, safe for whatever a model's names or messages hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from autofuse.values import arguments

UNITS, LARGEST = ((1e3, 1.0, 1), (1e6, 1e3, 3)), (1e6, 3)
"""(times below, microseconds of its unit, digits) as `arguments.micros` writes them; seconds beyond."""
MAX_CODE = 120
MAX_TEXT = 300


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; cells must be one line already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def text(value: object) -> str:
    """A value as one line that cannot break a table; "" for what is missing."""
    if missing(value):
        return ""
    line = " ".join(str(value).split())
    return shortened(line, MAX_TEXT).replace("|", "\\|").replace("<", "&lt;")


def code(value: object) -> str:
    """A text in monospace, cut to `MAX_CODE` characters."""
    line = " ".join(str(value).split()).replace("`", "'")
    return f"`{shortened(line, MAX_CODE)}`".replace("|", "\\|")


def shortened(line: str, most: int) -> str:
    """`line`, its end cut off beyond `most` characters."""
    return line if len(line) <= most else line[: most - 1] + "…"


def missing(value: object) -> bool:
    """Whether a cell of a DataFrame holds nothing."""
    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)


def interval(lo: float, hi: float, digits: int = 3) -> str:
    """`[lo, hi]`; "" where there is none."""
    return "" if missing(lo) or missing(hi) else f"[{lo:,.{digits}f}, {hi:,.{digits}f}]"


def micros(value: float) -> str:
    """A time as every screen writes it: "812.0 µs", "6.712 ms"."""
    return "" if missing(value) else arguments.micros(value)


def timing(median: float, lo: float, hi: float) -> str:
    """A time and its interval in one unit: "6.712 ms [6.701, 6.730]"; "" for what is missing."""
    if missing(median) or missing(lo) or missing(hi):
        return micros(median)
    scale, digits = next(((scale, digits) for most, scale, digits in UNITS if abs(median) < most), LARGEST)
    return f"{micros(median)} {interval(lo / scale, hi / scale, digits)}"


def counted(count: int, one: str, many: str) -> str:
    """A number of things: "1 plan was", "2 plans were"."""
    return f"{count:,} {one if count == 1 else many}"


def number(value: float) -> str:
    """A number of three digits, or its whole part where that is longer."""
    if missing(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(part: float) -> str:
    """A part of 1 in percent."""
    return "" if missing(part) else f"{100 * part:.0f} %"


def share(part: float, total: float) -> str:
    """`part` of `total` in percent."""
    return f"{100 * part / total:.0f} %" if total else "0 %"


def yes(value: object) -> str:
    """A truth value as a word."""
    return "" if missing(value) else ("yes" if value else "no")


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as people say it."""
    whole = int(max(seconds, 0.0))
    if whole < 60:
        return f"{max(seconds, 0.0):.1f} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
