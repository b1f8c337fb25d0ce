"""What each decision was worth and what was not reached, as sections of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autofuse.environment.worth import more_time_of, not_asked_of, waterfall_of
from autofuse.values.names import TITLES
from autofuse.views.report import markdown

HOW = (
    "Steps are differences of sums of kernels, each timed alone; a decision is compared with its alternative at equal "
    "care for schedules. The remainder is what whole networks say beyond those sums."
)
SUMMED = "Start and end are sums of kernels: the run measured no plan whole beside no fusion."


def what_it_was_worth(summary: Mapping[str, object] | None) -> list[str]:
    """The sections about a run's decisions, headings included; none where its summary says nothing of them."""
    parts = []
    found = waterfall_of(summary)
    if found is not None:
        start = TITLES.get(found.start, found.start)
        head = ["step", "what", "time", "part of the start", "left"]
        claim = f"{found.ratio:.2f}x as fast as {start}. {HOW if found.measured else SUMMED}"
        parts += ["## What it was worth", claim, markdown.table(head, map(_cells, found.rows()))]
    if questions := not_asked_of(summary):
        rows = [
            [one.kind, markdown.micros(one.gain_us), markdown.duration(one.cost_s)]
            if one.gain_us is not None and one.cost_s is not None
            else [one.kind, "none was tried", ""]
            for one in questions
        ]
        parts += [
            "## What was not reached",
            _promise(summary),
            markdown.table(["question", "expected gain", "in"], rows),
        ]
    return parts


def _cells(row: Mapping[str, Any]) -> list[object]:
    times = row["times"] or 1
    what = markdown.text(row["what"]) + ("" if times == 1 else f" ({times}x)")
    left = markdown.micros(row["left_us"])
    if row["us"] is None:
        return [markdown.text(row["step"]), what, "", "", left]
    return [markdown.text(row["step"]), what, signed(-row["us"]), f"{-100 * row['share']:+.1f} %", left]


def signed(us: float) -> str:
    """A change of a time with its sign."""
    return f"{'-' if us < 0 else '+'}{markdown.micros(abs(us))}"


def _promise(summary: Mapping[str, object] | None) -> str:
    more = more_time_of(summary)
    if more is None:
        return "What the search did not come to, by its own expectations."
    return (
        f"{markdown.duration(more.seconds)} more of search are expected to take off {markdown.micros(more.gain_us)}, "
        "by the rules that the search goes by."
    )
