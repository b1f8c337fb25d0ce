"""What each decision of a search was worth, and what it did not come to, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from autofuse.cli.screens.render import records
from autofuse.values.arguments import format_duration, micros
from autofuse.values.names import TITLES

if TYPE_CHECKING:
    from autofuse.api.results import MoreTime, OpenQuestions, Waterfall

LEAST_GAIN = 1e-3
"""Part of the time below which as much time again is told to promise next to nothing."""


def waterfall_text(found: Waterfall) -> RenderableType:
    """The steps as a table: what each takes off, and what is left after it."""
    rows = [_row(row) for row in found.rows()]
    title = f"what it was worth: {found.ratio:.2f}x of {TITLES.get(found.start, found.start)}"
    doubt = "" if found.measured else "By sums of kernels timed alone: nothing was measured whole beside no fusion."
    return Group(records(rows, title), *([Text(doubt, style="dim")] if doubt else []))


def _row(row: Mapping[str, Any]) -> dict[str, object]:
    us, times = row["us"], row["times"] or 1
    return {
        "step": row["step"],
        "what": row["what"] if times == 1 else f"{row['what']} ({times}x)",
        "time": "" if us is None else signed(-us),
        "part": "" if us is None else f"{-100 * row['share']:+.1f} %",
        "left_us": row["left_us"],
    }


def signed(us: float) -> str:
    """A change of a time with its sign: "-12.300 ms", "+3.1 µs"."""
    return f"{'-' if us < 0 else '+'}{micros(abs(us))}"


def not_asked_text(questions: tuple[OpenQuestions, ...]) -> str:
    """The open questions in a line: "schedules (18.100 µs expected in 40 s); plans (nothing known of them)"."""
    return "; ".join(_question(one) for one in questions)


def _question(one: OpenQuestions) -> str:
    if one.gain_us is None or one.cost_s is None:
        return f"{one.kind} (none was tried)"
    return f"{one.kind} ({micros(one.gain_us)} expected in {format_duration(one.cost_s)})"


def more_time_text(found: MoreTime, best_us: float) -> str:
    """What as much time again is expected to give."""
    part = found.gain_us / best_us
    if part < LEAST_GAIN:
        return f"{format_duration(found.seconds)} more of search promise less than {100 * LEAST_GAIN:g} %"
    return f"{format_duration(found.seconds)} more of search are expected to take off {100 * part:.1f} %"


def facts(
    questions: tuple[OpenQuestions, ...], more: MoreTime | None, best_us: float | None
) -> Iterator[tuple[str, str]]:
    """The lines about what was not reached."""
    if questions:
        yield "not asked", not_asked_text(questions)
    if more is not None and best_us:
        yield "more time", more_time_text(more, best_us)
