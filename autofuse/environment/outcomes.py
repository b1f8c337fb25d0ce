"""The outcomes of races of whole networks, as the profiling database keeps them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from autofuse.database.ask.times import timed_plans
from autofuse.database.ask.views import races_of
from autofuse.database.database import ProfilingDatabase
from autofuse.database.record.benchmarks import record_benchmark
from autofuse.database.records import OK, PlanOutcome, SampleBlock, Setting
from autofuse.fusion.plan import NO_LIMITS, ScheduleLimits
from autofuse.measure.networks.bench import ContenderResult
from autofuse.values.ratios import Timed

NO_TIME = "no time"
Found = TypeVar("Found")


def plan_outcome(
    result: ContenderResult, name: str, series: str, plan_key: str | None, limits: ScheduleLimits = NO_LIMITS
) -> PlanOutcome:
    """A contender's time over the rounds that count with all its blocks, or its failure.

    A block is flagged when its threads waited for a core; its clock stands beside it.
    """
    own = PlanOutcome(
        state="run_error", failure=NO_TIME, name=name, series=series, plan_key=plan_key, limits=limits.to_json()
    )
    if result.timed is None or result.samples is None:
        failure = result.wrong or result.error or NO_TIME
        state = "wrong" if result.wrong else "run_error"
        return replace(own, state=state, failure=failure)
    us = result.timed.us
    blocks = tuple(SampleBlock((part.us,), part.clock, not part.steady) for part in result.samples.slices)
    return replace(
        own, state=OK, failure=None, median_us=us.median, ci_lo_us=us.lo, ci_hi_us=us.hi,
        trusted=result.timed.trusted, max_rel_error=result.max_rel_error, blocks=blocks,
    )  # fmt: skip


def record_race(base: ProfilingDatabase, setting: Setting, key: str, results: Mapping[str, ContenderResult]) -> None:
    """Keep the times of a race of whole models under a key of what was raced; `setting`: one of this database."""
    _record(base, setting, key, {uuid.uuid4().hex: results})


@dataclass(frozen=True)
class AtSize(Generic[Found]):
    """What a race of open sizes `found` at one `size`, whose neighbours have a `share` of all calls."""

    size: str
    share: float
    found: Found


def record_races(
    base: ProfilingDatabase, setting: Setting, key: str, races: Sequence[AtSize[Mapping[str, ContenderResult]]]
) -> None:
    """Keep a race of whole models at several sizes, as `record_race` keeps one at fixed sizes."""
    race = uuid.uuid4().hex
    _record(base, setting, key, {f"{race}/{one.share:.6g}/{one.size}": one.found for one in races})


def _record(
    base: ProfilingDatabase, setting: Setting, key: str, races: Mapping[str, Mapping[str, ContenderResult]]
) -> None:
    outcomes = [
        plan_outcome(result, name, series, None)
        for series, results in races.items()
        for name, result in results.items()
    ]
    with base.writing() as sql:
        record_benchmark(sql, setting, key, outcomes)


def newest_race(base: ProfilingDatabase, setting: Setting, key: str) -> dict[str, Timed]:
    """The times of the contenders, by name, in the newest race that was kept under a key in this setting."""
    here = _races_here(base, setting, key)
    return _times(here, here[-1]["series"]) if here else {}


def newest_races(base: ProfilingDatabase, setting: Setting, key: str) -> list[AtSize[Mapping[str, Timed]]]:
    """The times of the contenders at each size of the newest race that `record_races` kept under a key here."""
    here = _races_here(base, setting, key)
    newest = here[-1]["series"].partition("/")[0] if here else ""
    found = list[AtSize[Mapping[str, Timed]]]()
    for series in dict.fromkeys(row["series"] for row in here):
        race, share, size = f"{series}//".split("/", 2)
        if race == newest and size:
            found.append(AtSize(size.rstrip("/"), float(share), _times(here, series)))
    return found


def _times(rows: Sequence[Mapping[str, Any]], series: str) -> dict[str, Timed]:
    """The times of a series, by the contenders' names."""
    own = [row for row in rows if row["series"] == series]
    times = timed_plans(own)
    numbers = {row["name"]: row["plan_measurement_id"] for row in own}
    return {name: times[number] for name, number in numbers.items() if number in times}


def newest_median_us(base: ProfilingDatabase, setting: Setting, graph_key: str, name: str) -> float | None:
    """The newest time that a contender took for a graph in this setting; None where it was never measured."""
    rows = _races_here(base, setting, graph_key)
    found = [row["median_us"] for row in rows if (row["name"], row["state"]) == (name, OK)]
    return float(found[-1]) if found else None


def _races_here(base: ProfilingDatabase, setting: Setting, key: str) -> list[dict[str, Any]]:
    """The contenders of all races that were kept under a key in this setting, in the order of their recording."""
    wanted = setting.device, setting.target, setting.threads
    with base.reading() as sql:
        rows = races_of(sql, key)
    return [row for row in rows if (row["device_fingerprint"], row["target_key"], row["threads"]) == wanted]
