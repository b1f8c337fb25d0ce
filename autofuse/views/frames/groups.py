"""The groups of choices: what the search gained on each, by one definition."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from autofuse.database.ask.firsts import first_schedules
from autofuse.database.ask.times import timed_candidate
from autofuse.database.records import FirstSchedule, Setting
from autofuse.values.ratios import Ratio, Timed, compare, same_thing
from autofuse.values.statistics import Interval

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase

PLACE = ["device_fingerprint", "target_key", "threads"]
GAIN = ("first_us", "gain", "gain_lo", "gain_hi", "gain_verdict", "schedules")


def last_choice(groups: pd.DataFrame) -> pd.DataFrame:
    """The groups of the newest choice."""
    last: pd.DataFrame = groups[groups["choice_id"] == groups["choice_id"].max()]
    return last


def with_gains(database: ProfilingDatabase, groups: pd.DataFrame, choices: pd.DataFrame) -> pd.DataFrame:
    """`groups` with `GAIN`: the present time of each candidate against the first schedule known of its workload there.

    `choices`: those that the groups belong to.
    """
    found = groups.join(choices.set_index("choice_id")[PLACE], on="choice_id")
    known: dict[tuple[str, str, int], dict[str, FirstSchedule]] = {}
    ratios: dict[tuple[str, str, int, str, int | None], Ratio | None] = {}
    rows: list[tuple[Ratio | None, int]] = []
    for row in found.to_dict("records"):
        place = str(row["device_fingerprint"]), str(row["target_key"]), int(row["threads"])
        if place not in known:
            here = (found[PLACE] == list(place)).all(axis=1)
            with database.reading() as sql:
                known[place] = first_schedules(sql, Setting(*place, ""), found.loc[here, "workload_key"])
        key, candidate = str(row["workload_key"]), None if pd.isna(row["candidate_id"]) else int(row["candidate_id"])
        first, at = known[place].get(key), (*place, key, candidate)
        if at not in ratios:
            ratios[at] = _gain(database, first, candidate, row)
        rows.append((ratios[at], first.schedules if first else 0))
    columns = {
        "first_us": [ratio.old_us if ratio else None for ratio, _ in rows],
        "gain": [ratio.value if ratio else None for ratio, _ in rows],
        "gain_lo": [ratio.lo if ratio else None for ratio, _ in rows],
        "gain_hi": [ratio.hi if ratio else None for ratio, _ in rows],
    }
    numbers = {name: pd.Series(values, groups.index, "float64") for name, values in columns.items()}
    verdicts = [ratio.verdict if ratio else "" for ratio, _ in rows]
    counts = pd.Series([count for _, count in rows], groups.index, "int64")
    return groups.assign(**numbers, gain_verdict=verdicts, schedules=counts)


def _gain(
    database: ProfilingDatabase, first: FirstSchedule | None, candidate: int | None, row: Mapping[Hashable, Any]
) -> Ratio | None:
    if first is None or candidate is None or pd.isna(row["median_us"]):
        return None
    new = _timed(database, candidate, float(row["median_us"]), bool(row["trusted"]))
    if first.candidate_id == candidate:
        return same_thing(new)
    return compare(_timed(database, first.candidate_id, first.median_us, first.trusted), new)


def _timed(database: ProfilingDatabase, candidate: int, us: float, trusted: bool) -> Timed:
    return timed_candidate(database.samples(candidate), Interval(us, us, us, 0.95, 0), trusted)
