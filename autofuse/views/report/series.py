"""The series that the plots of a report show, as short lists of plain values: their size does not grow with the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from autofuse.database.records import DOUBT
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.values.ratios import NOT_TRUSTED

Json = dict[str, object]

MAX_POINTS = 600
MAX_GROUPS = 60
MAX_PARTS = 9
MAX_BINS = 240
MAX_FAILURES = 40


def best_so_far(groups: pd.DataFrame, measurements: pd.DataFrame, tasks: pd.Series, start: pd.Timestamp) -> list[Json]:
    """Composed time of the chosen plan's groups against seconds since `start`, from the moment all have a time.

    `groups`: of one choice; `measurements`: of the run; `tasks`: workload key of each candidate number.
    """
    uses = groups["workload_key"].value_counts()
    timed = measurements[measurements["state"] == "ok"]
    frame = pd.DataFrame(
        {
            "s": (timed["created_at"] - start).dt.total_seconds(),
            "key": timed["candidate_id"].map(tasks),
            "us": timed["median_us"],
        }
    )
    frame = frame[frame["key"].isin(uses.index)].sort_values("s", kind="stable")
    best: dict[str, float] = {}
    points: list[tuple[float, float]] = []
    timed_keys = sorted(set(uses.index) & set(frame["key"]))
    total, needed = LAUNCH_US * float(uses[timed_keys].sum()), len(timed_keys)
    for seconds, key, us in frame.itertuples(index=False):
        known = best.get(key)
        if known is None or us < known:
            total += float(uses[key]) * (us - (known or 0.0))
            best[key] = us
            if len(best) == needed:
                points.append((float(seconds), total))
    return [{"x": x, "y": y} for x, y in _thinned(points)]


def trial_progress(trials: pd.DataFrame, start: pd.Timestamp) -> list[Json]:
    """Best composed time of the plan search against seconds since `start`."""
    better = trials[(trials["composed_us"] == trials["best_us"]) & ~trials["best_us"].duplicated()]
    seconds = (better["created_at"] - start).dt.total_seconds()
    points = list(zip(seconds.astype(float), better["best_us"].astype(float), strict=True))
    return [{"x": x, "y": y} for x, y in _thinned(points)]


def group_gains(groups: pd.DataFrame) -> list[Json]:
    """The gain of each workload of a choice over its first schedule (see `columns.COLUMNS["groups"]`).

    The longest groups only; what has no ratio is left out.
    """
    known = groups[groups["gain"].notna()]
    shares = known.groupby("workload_key")["share"].sum().sort_values(ascending=False)
    chosen = known.drop_duplicates("workload_key").set_index("workload_key")
    return [
        {
            "label": str(group["label"]), "share": float(shares[key]), "value": float(group["gain"]),
            "lo": float(group["gain_lo"]), "hi": float(group["gain_hi"]), "verdict": str(group["gain_verdict"]),
            "trusted": group["gain_verdict"] != NOT_TRUSTED, "us": float(group["median_us"]),
            "first_us": float(group["first_us"]),
        }
        for key in shares.index[:MAX_GROUPS]
        for group in (chosen.loc[key],)
    ]  # fmt: skip


def time_shares(groups: pd.DataFrame) -> list[Json]:
    """Microseconds that each workload of a choice takes: with the first schedule measured, and with the chosen one.

    What was chosen without a time is left out.
    """
    merged = (
        groups[groups["us"].notna()]
        .groupby("workload_key", sort=False)
        .agg(label=("label", "first"), uses=("position", "size"), after=("us", "sum"), first=("first_us", "first"))
    )
    merged["before"] = (merged["first"] * merged["uses"]).fillna(merged["after"])
    merged = merged.sort_values("before", ascending=False, kind="stable")
    head, rest = merged.iloc[:MAX_PARTS], merged.iloc[MAX_PARTS:]
    parts: list[Json] = [
        {"label": str(label), "uses": int(uses), "before": float(before), "after": float(after), "rest": False}
        for label, uses, before, after in head[["label", "uses", "before", "after"]].to_numpy(dtype=object)
    ]
    if len(rest):
        sums = rest[["before", "after", "uses"]].sum()
        label = f"{len(rest)} others"
        before, after = float(sums.before), float(sums.after)
        parts.append({"label": label, "uses": int(sums.uses), "before": before, "after": after, "rest": True})
    return parts


def noise_over_time(noise: pd.DataFrame, start: pd.Timestamp) -> list[Json]:
    """Width of the intervals and clock against time: medians of up to `MAX_BINS` spans of the run."""
    if noise.empty:
        return []
    seconds = (noise["created_at"] - start).dt.total_seconds()
    span = max(float(seconds.max() - seconds.min()), 1e-9)
    bins = ((seconds - seconds.min()) / span * min(MAX_BINS, len(noise))).astype("int64").clip(upper=MAX_BINS - 1)
    width = 100.0 * (noise["ci_hi_us"] - noise["ci_lo_us"]) / noise["median_us"]
    frame = pd.DataFrame(
        {
            "bin": bins,
            "s": seconds,
            "width": width,
            "clock": 100.0 * noise["clock_ratio"],
            "trusted": noise["trusted"].astype("float64"),
        }
    )
    grouped = frame.groupby("bin")
    found = grouped.agg(
        s=("s", "median"),
        width=("width", "median"),
        clock=("clock", "median"),
        trusted=("trusted", "mean"),
        n=("s", "size"),
    )
    found["worst"] = grouped["width"].quantile(0.9)
    found = found.rename(columns={"s": "x"})
    names = [str(name) for name in found.columns]
    return [dict(zip(names, map(_plain, row), strict=True)) for row in found.to_numpy(dtype=float)]


def failure_classes(failures: pd.DataFrame) -> list[Json]:
    """Failed measurements counted by kind, the most frequent first."""
    return [{"label": str(state), "value": int(count)} for state, count in failures["state"].value_counts().items()]


def failure_kinds(failures: pd.DataFrame) -> list[Json]:
    """The most frequent failures by class, workload and first line of the message."""
    if failures.empty:
        return []
    message = failures["failure"].astype(str).str.partition("\n")[0].str.slice(0, 200)
    kinds = Counter(zip(failures["state"].astype(str), failures["label"].astype(str), message, strict=True))
    return [
        {"state": state, "label": label, "message": text, "count": count}
        for (state, label, text), count in kinds.most_common(MAX_FAILURES)
    ]


def composed_and_measured(measurements: pd.DataFrame, composed: pd.Series) -> list[Json]:
    """Time predicted for a plan (`composed`, by key) against its time as a whole: the run's own where it has one."""
    rows: list[Json] = []
    timed = measurements[measurements["state"] == "ok"]
    own_last = timed.assign(own=timed["run_id"].notna()).sort_values("own", kind="stable")
    for _, row in own_last.drop_duplicates("plan_key", keep="last").iterrows():
        if isinstance(row["plan_key"], str) and row["plan_key"] in composed.index:
            rows.append(
                {
                    "label": str(row["name"]),
                    "x": float(composed[row["plan_key"]]),
                    "y": float(row["median_us"]),
                    "lo": float(row["ci_lo_us"]),
                    "hi": float(row["ci_hi_us"]),
                }
            )
    return rows


def device_transfer(candidates: pd.DataFrame) -> Json:
    """The worth of one device's best schedules on another: row (tuned on) x column (run on).

    A value is the geometric mean, over workloads known to both, of the column's best time over the time there of the
    row's best schedule: 1 is as good as tuning there. A device with another number of threads is another one.
    """
    timed = candidates[candidates["state"] == "ok"].copy()
    short = timed["device"] + ", " + timed["threads"].astype(str) + "t"
    place = timed["device_fingerprint"] + timed["target_key"] + timed["threads"].astype(str)
    timed["place"] = place
    names = short.groupby(place).first()
    timed["counted"] = timed["median_us"].where(timed["trusted"].astype(bool), timed["median_us"] * DOUBT)
    timed = timed.sort_values("counted")
    once = timed.drop_duplicates(["place", "workload_key", "schedule_key"])
    best = once.drop_duplicates(["place", "workload_key"])[["place", "workload_key", "schedule_key", "median_us"]]
    rows: list[list[object]] = []
    for source in names.index:
        taken = best[best["place"] == source][["workload_key", "schedule_key"]]
        line: list[object] = []
        for target in names.index:
            there = once[once["place"] == target][["workload_key", "schedule_key", "median_us"]]
            own = best[best["place"] == target][["workload_key", "median_us"]]
            both = taken.merge(there, on=["workload_key", "schedule_key"]).merge(
                own, on="workload_key", suffixes=("", "_own")
            )
            ratio = (both["median_us_own"] / both["median_us"]).to_numpy(dtype=float)
            value = float(np.exp(np.log(ratio).mean())) if len(ratio) else None
            line.append({"value": value, "count": len(ratio)})
        rows.append(line)
    return {"names": [str(name) for name in names], "cells": rows}


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `MAX_POINTS` of a curve, its ends among them."""
    if len(points) <= MAX_POINTS:
        return list(points)
    places = np.unique(np.linspace(0, len(points) - 1, MAX_POINTS).astype(int))
    return [points[place] for place in places]


def _plain(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None
