"""Rows of the profiling database as DataFrames with documented columns (`columns.COLUMNS`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import pandas as pd

from autofuse.database.ask.labels import unique_labels
from autofuse.database.ask.times import beside_no_fusion, timed_plans
from autofuse.database.records import DOUBT, Table
from autofuse.environment.worth import not_asked_of, waterfall_of
from autofuse.values.ratios import Timed
from autofuse.views.frames.columns import COLUMNS
from autofuse.views.frames.groups import with_gains
from autofuse.views.frames.roofline import with_roofline

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase

TASK = ["workload_key", "label", "device", "device_fingerprint", "target_key", "threads"]
_TIMES = ("created_at", "updated_at", "started_at", "finished_at")
_BOOLEANS = ("trusted", "flagged", "fused")
_FLOATS = ("_us", "_s", "us", "max_rel_error", "clock_ratio", "speedup", "speedup_lo", "speedup_hi")
_NUMBERS = ("run_id", "candidate_id", "block_count", "flagged_blocks")


def read_frame(database: ProfilingDatabase, name: str, run_id: int | None = None) -> pd.DataFrame:
    """The view `name` of the database, of one run or of all; columns as `COLUMNS[name]` lists them."""
    table = database.table(name, run_id)
    if name == "plan_measurements":
        extra = ("speedup", "speedup_lo", "speedup_hi", "verdict")
        rows = [tuple(row.values()) for row in beside_no_fusion(table.records())]
        table = Table((*table.columns, *extra), rows)
    frame = _typed(pd.DataFrame(table.rows, columns=list(table.columns), dtype=object))
    if "label" in frame.columns:
        with database.reading() as sql:
            labels = unique_labels(sql)
        pairs = zip(frame["workload_key"], frame["label"], strict=True)
        frame["label"] = pd.Series([labels.get(key, label) for key, label in pairs], frame.index, dtype=object)
    if name == "runs":
        frame["duration_s"] = (frame["finished_at"] - frame["started_at"]).dt.total_seconds()
    elif name == "samples":
        frame = _one_row_a_sample(frame)
    elif name == "plans":
        frame["groups"] = pd.Series([_group_count(text) for text in frame["plan"]], index=frame.index, dtype="Int64")
    elif name == "trials":
        frame["best_us"] = frame.groupby("run_id")["composed_us"].cummin()
        frame["best_us"] = frame.groupby("run_id")["best_us"].ffill()
    elif name == "groups":
        frame["share"] = frame["us"] / frame.groupby("choice_id")["us"].transform("sum")
        frame = with_roofline(database, with_gains(database, frame, read_frame(database, "choices", run_id)))
    elif name == "edges":
        frame = _with_groups(frame, read_frame(database, "groups", run_id), read_frame(database, "choices", run_id))
    return frame[list(COLUMNS[name])]


def timed_rows(measurements: pd.DataFrame) -> dict[int, Timed]:
    """The whole-model times of the rows of `plan_measurements` by their number, see `autofuse.values.ratios`."""
    rows = [{str(name): value for name, value in row.items()} for row in measurements.to_dict("records")]
    return timed_plans(rows)


def _with_groups(edges: pd.DataFrame, groups: pd.DataFrame, choices: pd.DataFrame) -> pd.DataFrame:
    """Fused edges with the kernel that holds them, and what its time would be with the edge between two kernels."""
    chosen = groups.merge(choices[["choice_id", "plan_key"]], on="choice_id")
    homes = {
        (row["run_id"], row["plan_key"], name): (row["label"], row["us"])
        for row in chosen.to_dict("records")
        for name in row["operators"]
    }
    fused = edges["fused"].fillna(False).astype(bool)
    ends = zip(edges["run_id"], edges["plan_key"], edges["producer"], edges["consumer"], fused, strict=True)
    found = [
        (homes.get((run, plan, reader)) or homes.get((run, plan, writer))) if inside else None
        for run, plan, writer, reader, inside in ends
    ]
    label = pd.Series([home[0] if home else None for home in found], edges.index, dtype=object)
    group_us = pd.Series([home[1] if home else None for home in found], edges.index, dtype="float64")
    return edges.assign(label=label, group_us=group_us, gain_share=edges["gain_us"] / (group_us + edges["gain_us"]))


def best_of(candidates: pd.DataFrame) -> pd.DataFrame:
    """Best candidate of each task as a look-up ranks them: the lowest time as it counts, then schedule key.

    A time that is not trusted counts as `DOUBT` times as long.
    """
    timed = candidates[candidates["state"] == "ok"]
    counted = timed["median_us"].where(timed["trusted"].astype(bool), timed["median_us"] * DOUBT)
    order = ["counted", "schedule_key"]
    ranked = timed.assign(counted=counted).sort_values(order).drop(columns="counted")
    return ranked.drop_duplicates(TASK).sort_values("candidate_id").reset_index(drop=True)


def tasks_of(candidates: pd.DataFrame) -> pd.DataFrame:
    """One row a task (workload x device, target and threads), in the order of their first candidates."""
    groups = candidates.assign(
        ok=candidates["state"] == "ok", pending=candidates["state"].isin(["queued", "building", "running"])
    ).groupby(TASK, sort=False)
    frame = groups.agg(candidates=("candidate_id", "size"), ok=("ok", "sum"), pending=("pending", "sum")).reset_index()
    frame["failed"] = frame["candidates"] - frame["ok"] - frame["pending"]
    timed = candidates[candidates["state"] == "ok"].sort_values(["created_at", "candidate_id"])
    first = timed.drop_duplicates(TASK)[[*TASK, "median_us"]].rename(columns={"median_us": "first_us"})
    best = best_of(candidates)[[*TASK, "median_us"]].rename(columns={"median_us": "best_us"})
    frame = frame.merge(first, on=TASK, how="left").merge(best, on=TASK, how="left")
    return frame[list(COLUMNS["tasks"])]


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Gives the columns of `frame` the types that belong to their names; an empty frame has them too."""
    for name in frame.columns:
        values = frame[name]
        if name in _TIMES:
            frame[name] = pd.to_datetime(values, utc=True).dt.as_unit("us")
        elif name in _BOOLEANS:
            frame[name] = values.astype("boolean")
        elif name in _NUMBERS:
            frame[name] = values.astype("Int64")
        elif name == "us" and len(values) and isinstance(values.iloc[0], list):
            continue  # a block's samples, spread later
        elif name.endswith(_FLOATS):
            frame[name] = pd.to_numeric(values).astype("float64")
        else:
            frame[name] = values.infer_objects()
    return frame


def _one_row_a_sample(blocks: pd.DataFrame) -> pd.DataFrame:
    frame = blocks.explode("us", ignore_index=True)
    frame["us"] = pd.to_numeric(frame["us"]).astype("float64")
    frame["sample"] = frame.groupby(["measurement_id", "block"]).cumcount()
    return frame


def _group_count(plan: str) -> int | None:
    try:
        return len(json.loads(plan)["groups"])
    except (KeyError, TypeError, ValueError):
        return None


def worth_frame(database: ProfilingDatabase, name: str, run_id: int | None) -> pd.DataFrame:
    """The frame "waterfall" or "not_asked" of one run or of all, as the summaries of the runs keep it."""
    rows: list[dict[str, object]] = []
    for run in database.table("runs", run_id).records():
        summary = run["summary"] if isinstance(run["summary"], dict) else None
        found = _steps(summary) if name == "waterfall" else map(asdict, not_asked_of(summary))
        rows += [{"run_id": run["run_id"], **row} for row in found]
    frame = pd.DataFrame(rows, columns=list(COLUMNS[name]))
    for column in frame.columns:
        if column in ("run_id", "position", "times"):
            frame[column] = frame[column].astype("Int64")
        elif column.endswith(("us", "_s", "share")):
            frame[column] = frame[column].astype("float64")
    return frame


def _steps(summary: dict[str, object] | None) -> Iterator[dict[str, object]]:
    found = waterfall_of(summary)
    if found is not None:
        for position, row in enumerate(found.rows()):
            yield {"position": position, **row, "measured": found.measured}
