"""The state of each group that was ever chosen: whether the database has a hit, a stale hit or none, and why.

Nothing is emitted here: that a kernel's code has changed is seen only where its schedule was measured again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pandas as pd

from autofuse.database.records import Setting
from autofuse.environment.plan_evidence import fitting, known_limits
from autofuse.fusion.plan import NO_LIMITS, ScheduleLimits
from autofuse.kernels.schedule.limits import keeps_text
from autofuse.views.frames.columns import COLUMNS
from autofuse.views.frames.frames import read_frame

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase

MISS = "miss"
_PLACE = ["device", "device_fingerprint", "target_key", "threads"]


def lookups_of(database: ProfilingDatabase, run_id: int | None = None) -> pd.DataFrame:
    """One row a workload of the chosen plans and place, asked with the versions of the newest run there.

    A workload that networks of different limits share has a row for each limit.
    """
    choices = read_frame(database, "choices", run_id)
    groups = read_frame(database, "groups", run_id)
    rows: list[dict[str, object]] = []
    for _, here in choices.sort_values(["created_at", "choice_id"]).groupby(_PLACE, sort=False):
        newest = here.iloc[-1]
        place = {name: newest[name] for name in _PLACE}
        device, target = str(newest["device_fingerprint"]), str(newest["target_key"])
        setting = Setting(device, target, int(newest["threads"]), str(newest["versions_key"]))
        of_graph = here["graph_key"].map({key: known_limits(database, setting, key) for key in set(here["graph_key"])})
        for limits in dict.fromkeys(of_graph):
            used = groups[groups["choice_id"].isin(here["choice_id"][of_graph == limits])]
            rows += _rows(database, setting, used, place, limits)
    frame = pd.DataFrame(rows, columns=list(COLUMNS["lookups"]))
    kinds = {"candidate_id": "Int64", "median_us": "float64", "trusted": "boolean", "threads": "int64", "uses": "int64"}
    return frame.astype(kinds)


def _rows(
    database: ProfilingDatabase,
    setting: Setting,
    used: pd.DataFrame,
    place: Mapping[str, object],
    limits: ScheduleLimits,
) -> Iterator[dict[str, object]]:
    """Rows of the groups `used`, all of which belong to networks with these limits."""
    labels = {str(key): str(label) for key, label in zip(used["workload_key"], used["label"], strict=True)}
    uses = Counter(used["workload_key"].astype(str))
    found = database.lookup(setting, labels, fitting(limits))
    for key, label in labels.items():
        best = found.get(key)
        yield {
            "workload_key": key,
            "label": label,
            **place,
            "versions_key": setting.versions,
            "uses": uses[key],
            "limits": json.dumps(limits.to_json()) if limits != NO_LIMITS else "",
            "tier": MISS if best is None else best.tier,
            "why": _why_missed(database, setting, key, limits) if best is None else "",
            "candidate_id": None if best is None else best.candidate_id,
            "schedule_key": None if best is None else best.schedule_key,
            "median_us": None if best is None else best.median_us,
            "trusted": None if best is None else best.trusted,
        }


def _why_missed(database: ProfilingDatabase, setting: Setting, workload_key: str, limits: ScheduleLimits) -> str:
    measured = database.measured_schedules(setting, workload_key)
    known = [row for row in measured if keeps_text(limits, row.schedule)]
    if not known:
        return "never measured here within the limits of its network" if measured else "never measured here"
    states = pd.Series([row.state for row in known]).value_counts()
    return "no schedule worked: " + ", ".join(f"{count} {state}" for state, count in states.items())
