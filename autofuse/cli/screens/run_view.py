"""How a single run stands, for people: what they look for first comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autofuse.cli.screens.render import describe, heading, records
from autofuse.cli.screens.waterfall_view import waterfall_text
from autofuse.values.arguments import format_duration, micros

if TYPE_CHECKING:
    from autofuse.api.results import Waterfall

HOUR_S = 3600.0
OK = "ok"


def run_text(body: Mapping[str, Any], waterfall: Waterfall | None = None) -> RenderableType:
    """`run_body` laid out: state, time, candidates, the fastest plan; then the plans, what each decision was worth, and
    what the run said itself."""
    threads = body["threads"]
    title = f"{body['model']}, {threads} thread{'s' if threads > 1 else ''}, run {body['run']}: {body['state']}"
    grid = Table.grid(padding=(0, 2))
    for name, text in (
        ("time", _time(body)),
        ("candidates", _candidates(body)),
        ("fastest", _fastest(body["whole_model"])),
        ("started", body["started_at"]),
    ):
        grid.add_row(name, Text(text))
    parts: list[RenderableType] = [Text(title, style="bold"), grid]
    if body["whole_model"]:
        parts += ["", records(_plans(body["whole_model"]), "whole model")]
    if waterfall is not None:
        parts += ["", waterfall_text(waterfall)]
    said = {name: _whole(value) for name, value in body["summary"].items() if name != "waterfall"}
    if said:
        parts += ["", describe(said, "what it said at its end")]
    return Group(*parts)


def _whole(value: object) -> object:
    """A list of sentences as one text, which no cell cuts off."""
    sentences = isinstance(value, list) and value and all(isinstance(one, str) for one in value)
    return "; ".join(value) if sentences else value  # type: ignore[arg-type]


def _time(body: Mapping[str, Any]) -> str:
    elapsed, budget = body["elapsed_s"], body["budget"].get("seconds")
    if not isinstance(budget, int | float):
        return format_duration(elapsed)
    if body["state"] == "running":
        return f"{format_duration(elapsed)} gone, {format_duration(max(0.0, budget - elapsed))} left"
    return f"{format_duration(elapsed)} (budget {format_duration(budget)})"


def _candidates(body: Mapping[str, Any]) -> str:
    outcomes: Mapping[str, int] = body["outcomes"]
    failed = {state: count for state, count in outcomes.items() if state != OK}
    kinds = f" ({', '.join(f'{count} {heading(state)}' for state, count in failed.items())})" if failed else ""
    hours = body["elapsed_s"] / HOUR_S
    rate = f", {body['measured'] / hours:,.0f} an hour" if hours > 0 else ""
    return f"{outcomes.get(OK, 0)} ok, {sum(failed.values())} failed{kinds}{rate}"


def _fastest(rows: Sequence[Mapping[str, Any]]) -> str:
    timed = [row for row in rows if row["state"] == OK]
    if not timed:
        return "no plan was measured whole yet"
    latest = [row for row in timed if row["series"] == timed[-1]["series"]]  # times of one race compare
    best = min(latest, key=lambda row: row["median_us"])
    gain = f", {ratio_text(best)} of no fusion" if best["speedup"] is not None else ""
    open_ratio = best["verdict"] in ("undecided", "not trusted")
    doubt = (
        f" ({best['verdict']})" if gain and open_ratio else "" if gain or best["trusted"] else " (not trusted: noise)"
    )
    return f"{best['name']} {micros(best['median_us'])}{gain}{doubt}"


def ratio_text(row: Mapping[str, Any]) -> str:
    """A speedup with its interval, or why there is none."""
    if row["speedup"] is None:
        return row["verdict"] or "-"
    return f"{row['speedup']:.2f}x ({row['speedup_lo']:.2f}-{row['speedup_hi']:.2f})"


def _plans(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """Fastest first, failures last."""
    return [
        {
            "plan": row["name"],
            "median_us": row["median_us"],
            "95 % interval": f"{micros(row['ci_lo_us'])} – {micros(row['ci_hi_us'])}" if row["state"] == OK else "-",
            "of no fusion": ratio_text(row) if row["state"] == OK else "-",
            "trusted": row["trusted"],
            "state": row["state"],
        }
        for row in sorted(rows, key=lambda row: row["median_us"] or float("inf"))
    ]
