"""What `tune --dry-run` says: how far a budget will reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autofuse.values.arguments import format_duration

if TYPE_CHECKING:
    from autofuse.api.results import Forecast, ForecastChanges, RowsForecast

SHORT_S = 10.0
GUESS = "a guess, as no run of this device and number of threads is recorded"


def forecast_text(found: Forecast, model: str) -> Group:
    """The budget's parts in the order in which they are spent, and what each of them reaches."""
    threads = f"{found.threads} thread{'s' if found.threads > 1 else ''}"
    title = f"{model} on {found.device}, {threads}: a dry run; nothing was measured or written"
    grid = Table.grid(padding=(0, 2))
    for name, text in _facts(found):
        grid.add_row(name, Text(text))
    return Group(Text(title, style="bold"), grid)


def rows_text(found: RowsForecast) -> Text:
    """What a segment of rows gets."""
    lasting = "its trials" if found.budget_s is None else _lasting(found.budget_s)
    return Text(f"{found.what}, in kernels of autofuse: {lasting} for tiles of any number of rows, and plans of them")


def _facts(found: Forecast) -> Iterator[tuple[str, str]]:
    limits = [format_duration(found.budget_s)] if found.budget_s is not None else []
    limits += [f"{found.trials} candidates"] if found.trials is not None else []
    yield "budget", " or ".join(limits)
    source = f"as in run {found.rate_from}" if found.rate_from else GUESS
    yield "rate", f"{found.candidates_per_s:.2g} candidates a second, built and timed ({source})"
    probing = f"; {_lasting(found.probing_s)} of it probe what this machine reaches" if found.probing_s else ""
    results = "" if found.sizes else ", and ONNX Runtime's results"
    yield "opening", f"{_lasting(found.opening_s)}: reading the model{results}{probing}"
    yield "first times", _first_times(found)
    yield "search", f"{_lasting(found.search_s)}: about {found.candidates:,} candidates"
    yield "plans", _plans(found.changes)
    yield "schedules", _schedules(found)
    yield "finals", _finals(found)


def _first_times(found: Forecast) -> str:
    if found.sizes:
        plan = f"{', '.join(found.sizes)} open: {found.workloads} tiles of {found.kernels} kernels"
    else:
        plan = f"{found.kernels} kernels in the default plan, {found.workloads} differ"
    return f"{_lasting(found.first_s)}: {plan}, {found.known} of them known already"


def _plans(changes: ForecastChanges) -> str:
    if not changes.count:
        return "no decision is open"
    reached = "there is time for all" if changes.reached >= changes.count else f"there is time for {changes.reached}"
    each = f"{_lasting(changes.each_s)} each, new kernels included"
    return f"{changes.decisions} decisions with {changes.count} single changes, {each}: {reached}"


def _schedules(found: Forecast) -> str:
    left_s = found.search_s - found.changes.reached * found.changes.each_s
    left = int(left_s * found.candidates_per_s)
    each = left / max(1, found.workloads)
    if left <= 0:
        return "no time is left for better ones when every change is tried; the search weighs one against the other"
    which = "tile of the first plan" if found.sizes else "kernel of the default plan"
    return f"about {left:,} candidates when every change is tried: {each:.1f} for each {which}"


def _finals(found: Forecast) -> str:
    if found.sizes:
        part = "" if found.budget_s is None else f", {found.finals_s / found.budget_s:.0%} of the budget"
        return f"{_lasting(found.finals_s)} at most{part}: a plan that is faster is raced whole with the one that stays"
    if not found.finalists:
        return "no plan is built and measured whole: give a larger --budget"
    text = f"{_lasting(found.finals_s)} at most: {_named(found.finalists)} and what the search finds are measured whole"
    return text + (f"; there is no time for {_named(found.left_out)}" if found.left_out else "")


def _lasting(seconds: float) -> str:
    """Seconds as people say them, short ones with a digit more."""
    return f"{seconds:.1f} s" if seconds < SHORT_S else format_duration(seconds)


def _named(plans: tuple[str, ...]) -> str:
    return ", ".join(f"plan {name}" for name in plans)
