"""What each decision was worth, what was not reached, and what a quantised model loses, as sections of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autofuse.environment.worth import more_time_of, not_asked_of, waterfall_of
from autofuse.values.names import TITLES
from autofuse.values.ratios import percent_text
from autofuse.views.accuracy import certificate_of_run, front_of_contractions, front_of_models
from autofuse.views.report import markdown

if TYPE_CHECKING:
    from autofuse.database.records import RunInfo
    from autofuse.views.frames.analysis import Analysis

HOW = (
    "Steps are differences of sums of kernels, each timed alone; a decision is compared with its alternative at equal "
    "care for schedules. The remainder is what whole networks say beyond those sums."
)
LOST = "What this model loses against the float model that it was made from, on data that chose nothing."
WEIGHED = (
    "The sets of precisions that were weighed: the sum of the contractions' times, each alone, against the mean drop "
    "on the calibration data; of what was written, on the acceptance data."
)
WHOLE = "Those that were tuned on this device, each as a whole: the time of its chosen plan against its drop."
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


def what_is_lost(analysis: Analysis, info: RunInfo) -> list[str]:
    """The sections about a quantised model's certificate and its fronts of time against accuracy; none of others."""
    found, parts, head = certificate_of_run(info), list[str](), ["what", "precisions", "time", "lost, mean", "at most"]
    if found is not None:
        facts = ([name, markdown.text(text)] for name, text in found.facts().items())
        parts += ["## Quantised", LOST, markdown.table(["fact", "value"], facts)]
        if points := front_of_contractions(found):
            parts += [WEIGHED, markdown.table(head, map(_point_cells, points))]
    if models := front_of_models(analysis, info):
        named = [head[0], "model", *head[2:]]
        parts += ["## Models of one float model", WHOLE, markdown.table(named, map(_point_cells, models))]
    return parts


def _point_cells(point: Mapping[str, Any]) -> list[object]:
    most = "" if point["hi"] is None else percent_text(point["hi"])
    time = markdown.micros(point["us"]) + ("" if point["trusted"] else " (not trusted)")
    return [point["kind"], markdown.text(point["label"]), time, percent_text(point["drop"]), most]


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
