"""What each decision of a search was worth, and what it did not come to, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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
    part = "sum of its kernels" if not found.measured else "measured whole"
    rows: list[dict[str, object]] = [_end(found.start, part, found.start_us)]
    left_us = found.start_us
    steps = [(one.kind, one.what, one.times, one.us) for one in found.steps]
    if found.measured:
        steps.append(
            ("remainder", "what the kernels' sums do not see: caches between kernels, calls", 1, found.remainder_us)
        )
    for kind, what, times, us in steps:
        left_us -= us
        rows.append(
            {
                "step": kind,
                "what": what if times == 1 else f"{what} ({times}x)",
                "time": signed(-us),
                "part": f"{-100 * us / found.start_us:+.1f} %",
                "left_us": left_us,
            }
        )
    rows.append(_end(found.end, part, found.end_us))
    title = f"what it was worth: {found.ratio:.2f}x of {TITLES.get(found.start, found.start)}"
    doubt = "" if found.measured else "Sums of kernels timed alone: nothing was measured whole beside no fusion."
    return Group(records(rows, title), *([Text(doubt, style="dim")] if doubt else []))


def _end(plan: str, how: str, us: float) -> dict[str, object]:
    return {"step": plan, "what": how, "time": "", "part": "", "left_us": us}


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
