"""The tables that the page and the text of a run have in common: groups and what is left to save in them, edges, the
fusions that pay, provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pandas as pd

from autofuse.fusion.evidence import LAUNCH_US
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.transform.quantize.certificate import CERTIFICATE
from autofuse.values.arguments import format_duration
from autofuse.values.reasons import REASON_CODES
from autofuse.views.frames.groups import GAIN
from autofuse.views.frames.roofline import ROOFLINE
from autofuse.views.report import markdown

if TYPE_CHECKING:
    from autofuse.database.job_records import JobInfo
    from autofuse.database.records import RunInfo

UNKNOWN = "unknown"
GROUP = ("label", "us", "schedule", "trusted", *GAIN, *ROOFLINE)
FUSION = ("producer", "consumer", "label", "group_us", "gain_us", "gain_share", "reason")


def composed_us(groups: pd.DataFrame) -> float:
    """The sum of the groups of a choice that have a time, with the calls of their kernels: as the search has it."""
    timed = groups["us"].dropna()
    return float(timed.sum()) + LAUNCH_US * len(timed)


def distinct_groups(groups: pd.DataFrame) -> pd.DataFrame:
    """Equal groups together, the longest first: `uses` of them, their `share` of the time, and `GROUP` of one."""
    merged = groups.groupby("workload_key", sort=False).agg(
        uses=("position", "size"), share=("share", "sum"), **{name: (name, "first") for name in GROUP}
    )
    found: pd.DataFrame = merged.sort_values("share", ascending=False, kind="stable")
    return found


TILE: Mapping[str, type | tuple[type, ...]] = {
    "label": str, "rows": int, "places": str, "runs": (int, float), "us": (int, float, type(None)),
    "rule_us": (int, float, type(None)), "tried": int,
}  # fmt: skip
"""What is stored of a tile of a kernel over an open size, see `TileTime` of the search."""


def open_tiles(choices: pd.DataFrame) -> list[dict[str, Any]]:
    """The tiles of the newest choice of open sizes, the one that takes most of a call first: `TILE`, and its `share` of
    an average call; none of another choice."""
    details = {} if choices.empty else choices.iloc[-1]["details"]
    stored = details.get("tiles") if isinstance(details, Mapping) else None
    found = [
        {name: one[name] for name in TILE}
        for one in (stored if isinstance(stored, list) else [])
        if isinstance(one, Mapping) and all(isinstance(one.get(name), kind) for name, kind in TILE.items())
    ]
    total = sum(one["runs"] * (one["us"] or 0.0) for one in found)
    return [{**one, "share": one["runs"] * one["us"] / total if one["us"] else None} for one in found]


def tiles_told(tiles: Sequence[Mapping[str, Any]]) -> str:
    """How many tiles have a time."""
    timed = sum(one["us"] is not None for one in tiles)
    return f"- {timed} of {len(tiles)} tiles of kernels over open sizes have a time."


def tiles_table(tiles: Sequence[Mapping[str, Any]]) -> str:
    """Tiles as a table, with the words of `tune`."""
    head = ["tile", "rows", "runs a call", "share", "time each", "of the rule's", "schedules"]
    rows = (
        [
            markdown.text(one["label"]), markdown.text(one["places"] or one["rows"] or ""), f"{one['runs']:.1f}",
            "" if one["share"] is None else f"{100 * one['share']:.1f} %", markdown.micros(one["us"]),
            f"{one['rule_us'] / one['us']:.2f}x" if one["us"] and one["rule_us"] else "", one["tried"],
        ]
        for one in tiles
    )  # fmt: skip
    return markdown.table(head, rows)


def ranges_text(choices: pd.DataFrame) -> str:
    """The sizes that the newest choice leaves open: "tokens 1 to 512"."""
    stored = choices.iloc[-1]["details"].get("sizes")
    ranges = stored.items() if isinstance(stored, Mapping) else ()
    return ", ".join(
        markdown.text(OpenSize(name, *one))
        for name, one in ranges
        if isinstance(one, list) and len(one) == 3 and all(isinstance(number, int) for number in one)
    )


def sizes_race(choices: pd.DataFrame) -> str:
    """What was decided about the plan of the newest choice, of open sizes: the other one's time over its, over all
    calls and at the sizes of the race."""
    details = choices.iloc[-1]["details"]
    name, verdict, against = (markdown.text(details.get(key)) for key in ("name", "verdict", "against"))
    if not verdict or against == name:
        return f"Plan {name} was taken; no other one was raced. Each library is raced at its sizes by `bench --sizes`."
    ratio, low, high = (details.get(key) for key in ("ratio", "lo", "hi"))
    known = isinstance(ratio, float) and isinstance(low, float) and isinstance(high, float)
    over = f", {ratio:.2f}x ({low:.2f}-{high:.2f})" if known else ""
    at = details.get("at")
    ratios = at.items() if isinstance(at, Mapping) else ()
    sizes = [f"{markdown.text(size)}: {one:.2f}x" for size, one in ratios if isinstance(one, float)]
    told = f"; at sizes {', '.join(sizes)}" if sizes else ""
    return f"Plan {name} was taken against plan {against}: {verdict}{over}{told}."


@dataclass(frozen=True)
class Left:
    """What is left to save in a chosen plan. Times in microseconds, of all its kernels together.

    `us`: they take, with their calls. `calls_us`: the calls alone. `handed_bytes`: of all that the `kernels` read and
    write but weights; `handed_us`: these at the probed bandwidth of memory. `arithmetic_us`: their operations at the
    probed peak, of each kernel at most the time that it takes (Winograd's algorithm does fewer).
    """

    kernels: int
    us: float
    calls_us: float
    handed_bytes: float
    handed_us: float
    arithmetic_us: float

    @property
    def text(self) -> str:
        """The same in sentences."""
        one = self.kernels == 1
        return (
            f"{self.kernels} kernel{' is' if one else 's are'} left. Calling {'it' if one else 'them'} takes "
            f"{self._part(self.calls_us)}; what {'it reads and writes' if one else 'they read and write'} beside "
            f"weights, {self.handed_bytes / 1e6:,.3g} MB, {self._part(self.handed_us)} where all of it comes from "
            f"memory: bytes and calls leave no more to further fusing. {'Its' if one else 'Their'} arithmetic takes "
            f"{self._part(self.arithmetic_us)} at the probed peak."
        )

    def _part(self, us: float) -> str:
        return f"{markdown.micros(us)} ({100 * us / self.us:.1f} %)"


def left_of(groups: pd.DataFrame) -> Left | None:
    """What is left in the `groups` of a choice, but for views; None where a kernel has no time or cost, or nothing was
    probed."""
    kernels = groups[groups["median_us"].notna() | (groups["handed_bytes"] != 0)]
    known = kernels[["median_us", "bytes", "handed_bytes", "peak_share", "bandwidth_share"]]
    if known.empty or known.isna().to_numpy().any():
        return None
    us = known["median_us"]
    at_bandwidth = us * known["bandwidth_share"] * (known["handed_bytes"] / known["bytes"].where(known["bytes"] > 0, 1))
    calls_us = LAUNCH_US * len(known)
    return Left(
        len(known), float(us.sum()) + calls_us, calls_us, float(known["handed_bytes"].sum()),
        float(at_bandwidth.sum()), float((us * known["peak_share"].clip(upper=1.0)).sum()),
    )  # fmt: skip


def chosen_edges(edges: pd.DataFrame, choices: pd.DataFrame) -> pd.DataFrame:
    """The edges of the plan that was chosen last; all of them where none was."""
    if choices.empty:
        return edges
    chosen: pd.DataFrame = edges[edges["plan_key"] == choices.iloc[-1]["plan_key"]]
    return chosen


def edge_counts(edges: pd.DataFrame) -> pd.DataFrame:
    """How many edges were decided for which reason, what that means, and what it gained as far as that is known."""
    rows = []
    for (fused, reason), here in edges.groupby(["fused", "reason"], sort=True):
        known = here["gain_us"].dropna()
        meaning = REASON_CODES.get(str(reason), "")
        rows.append((bool(fused), str(reason), meaning, len(here), float(known.sum()) if len(known) else None))
    return pd.DataFrame(rows, columns=["fused", "reason", "meaning", "edges", "gain_us"])


def paying_fusions(edges: pd.DataFrame) -> pd.DataFrame:
    """The fused edges whose gain is known (`FUSION`), the largest first."""
    known = edges[edges["fused"].fillna(False).astype(bool) & edges["gain_us"].notna()]
    found: pd.DataFrame = known.sort_values("gain_us", ascending=False, kind="stable")[list(FUSION)]
    return found


def provenance_facts(info: RunInfo, job: JobInfo | None = None) -> list[tuple[str, str]]:
    """What is known of how a run came about: names and texts; `job`: that it is a part of."""
    facts: dict[str, object] = {
        "model": f"{info.model_name}, SHA-256 {info.model_sha256[:16]}",
        "seed": info.seed,
        **{f"argument {key}": value for key, value in info.arguments.items()},
        **(_budget(info) if job is None else {"budget": _share_of(job)}),
        **{name: value for name, value in info.provenance.items() if name != CERTIFICATE},
    }
    return [(name, rates_text(value) if name == "rates" else _fact(value)) for name, value in facts.items()]


def _budget(info: RunInfo) -> dict[str, object]:
    return {f"budget {key}": "no limit" if value is None else value for key, value in info.budget.items()}


def _share_of(job: JobInfo) -> str:
    """The budget of a run that has none of its own: "a share of the 8 h of job night"."""
    settings = job.settings
    budget_s, ends_at, trials = settings.get("budget_s"), settings.get("ends_at"), settings.get("trials")
    limits = [format_duration(budget_s)] if isinstance(budget_s, int | float) else []
    limits += (
        [f"time until {datetime.fromtimestamp(ends_at, UTC):%Y-%m-%d %H:%M} UTC"]
        if isinstance(ends_at, int | float)
        else []
    )
    limits += [f"{trials} candidates"] if isinstance(trials, int) else []
    return f"a share of the {' or '.join(limits)} of job {job.name}" if limits else f"job {job.name} has no limit"


def rates_text(rates: object) -> str:
    """What the probe of the machine reached: "1 thread: 241 GFLOP/s, memory 25.8 GB/s; 2 threads: 447 GFLOP/s, ..."."""
    threads = rates.get("threads") if isinstance(rates, Mapping) else None
    if not isinstance(rates, Mapping) or not isinstance(threads, int):
        return _fact(rates)
    alone = f"1 thread: {_rates_of(rates, '1')}"
    return alone if threads == 1 else f"{alone}; {threads} threads: {_rates_of(rates, 'n')}"


def _rates_of(rates: Mapping[str, object], end: str) -> str:
    named = (("", "gflops", "GFLOP/s"), ("memory ", "dram_gbs", "GB/s"), ("L2 ", "l2_gbs", "GB/s"))
    known = [(what, rates.get(f"{key}_{end}"), unit) for what, key, unit in named]
    return ", ".join(f"{what}{rate:,.4g} {unit}" for what, rate, unit in known if isinstance(rate, float))


def _fact(value: object) -> str:
    if value is None:
        return UNKNOWN
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else str(value)
