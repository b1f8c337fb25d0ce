"""The values that go into and come out of the profiling database; plain dataclasses, no SQL."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from autofuse.errors import InputError
from autofuse.values.reasons import REASON_CODES

OK = "ok"
DOUBT = 1.1
"""A time that is not trusted counts as so much longer: what disturbs a measurement makes it longer, seldom shorter."""
PENDING = ("queued", "building", "running")
FAILURES = ("build_error", "run_error", "timeout", "wrong", "out_of_memory", "device_lost", "pruned")
RUN_STATES = ("running", "finished", "interrupted", "failed")
TRIAL_STATES = ("running", "complete", "pruned", "fail")
REASONS = tuple(REASON_CODES)
"""Why an edge of the graph was fused, or was not; see `autofuse.values.reasons`."""

EXACT, STALE, STALE_CODE = "exact", "stale", "stale code"
"""Tiers of what was measured: with the versions asked for; with others; as code that is not built any more.

The database does not know what code a schedule is today. It sees other code where the same schedule was measured as
another code since then, and where no digest was kept; who emits the kernel sees the rest by `digest`.
"""

Json = object


def canonical_json(value: Json) -> str:
    """The one text of a JSON value that keys are the SHA-256 of; InputError for NaN or a foreign type."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"not storable as JSON: {error}") from error


def content_key(text: str) -> str:
    """SHA-256 of `text`, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Setting:
    """The circumstances that every time depends on: keys of device, target and versions, and the threads.

    Made by `ProfilingDatabase.setting`. `versions` alone may differ between a stored time and its use.
    """

    device: str
    target: str
    threads: int
    versions: str


@dataclass(frozen=True)
class SampleBlock:
    """A block of times in microseconds a call; `clock_ratio`: clock beside it over the best clock seen.

    `flagged`: an outlier that is kept but not counted. Times are stored with 6 significant digits.
    """

    us: tuple[float, ...]
    clock_ratio: float | None = None
    flagged: bool = False

    def __post_init__(self) -> None:
        if not self.us or not all(math.isfinite(value) and value > 0 for value in self.us):
            raise InputError("a block needs at least one time, each finite and above 0 us")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one measurement: exactly one of a time and a failure.

    `state` "ok" has the times (microseconds a call) and `trusted`; a failure has `failure`, its message.
    `max_rel_error`: largest error against the reference, relative to its range. `uid`: names this
    measurement for ever, so that recording it again changes nothing; "" gets a fresh one.
    """

    state: str
    median_us: float | None = None
    ci_lo_us: float | None = None
    ci_hi_us: float | None = None
    trusted: bool | None = None
    max_rel_error: float | None = None
    failure: str | None = None
    blocks: Sequence[SampleBlock] = ()
    uid: str = ""

    def __post_init__(self) -> None:
        times = (self.median_us, self.ci_lo_us, self.ci_hi_us)
        if self.state == OK:
            if self.failure is not None or self.trusted is None or None in times:
                raise InputError("state 'ok' needs median_us, ci_lo_us, ci_hi_us and trusted, and no failure")
            low, median, high = self.ci_lo_us or 0.0, self.median_us or 0.0, self.ci_hi_us or 0.0
            if not (0 < low <= median <= high < math.inf):
                raise InputError(f"times must be ordered and above 0: {low} <= {median} <= {high} us")
        elif self.state in FAILURES:
            if not self.failure or any(value is not None for value in (*times, self.trusted)):
                raise InputError(f"state {self.state!r} needs a failure message, and no times")
        else:
            raise InputError(f"state {self.state!r} is no outcome: allowed are {', '.join((OK, *FAILURES))}")


@dataclass(frozen=True)
class Candidate:
    """A candidate: one schedule of one workload, as one code.

    `workload_key`, `workload_text`, `workload_label`: as `Workload` has them. `schedule`: JSON text;
    stored, and keyed, in its canonical form. `digest`: of the code that was built ("": nobody knows).
    """

    workload_key: str
    workload_text: str
    workload_label: str
    schedule: str
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class CandidateOutcome(Outcome):
    """The outcome of measuring a candidate; `build_s`: seconds spent building it."""

    candidate: Candidate
    build_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class PlanOutcome(Outcome):
    """The whole-model time of a plan, or of a rival that has none (`plan_key` None, such as "onnxruntime").

    `name`: what the report calls it ("none", "tvm-partition", "dnnfusion", "search"). Outcomes that share a
    `series` were interleaved: block i of one was measured next to block i of the others. `limits`: of the schedules
    of its kernels, by name.
    """

    name: str
    series: str
    plan_key: str | None = None
    limits: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """The start of a tuning run; `provenance`: git, kernel, governor, ... each may be None.

    `started_at`: when its time began, in UTC (None: now).
    """

    name: str
    model_name: str
    model_sha256: str
    graph_key: str
    seed: int
    arguments: Mapping[str, Json] = field(default_factory=dict)
    budget: Mapping[str, Json] = field(default_factory=dict)
    provenance: Mapping[str, Json] = field(default_factory=dict)
    started_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """A stored run; times in UTC. `setting` holds the keys it was started with."""

    id: int
    name: str
    model_name: str
    model_sha256: str
    graph_key: str
    seed: int
    state: str
    setting: Setting
    started_at: datetime
    finished_at: datetime | None
    arguments: Mapping[str, Json]
    budget: Mapping[str, Json]
    provenance: Mapping[str, Json]
    summary: Mapping[str, Json] | None


@dataclass(frozen=True, kw_only=True)
class MeasuredSchedule:
    """A stored candidate: its schedule (canonical JSON) and its state, times in microseconds.

    `tier`: see `EXACT`. `digest`: of its code; `versions`: what it was built by (JSON of names and versions).
    """

    candidate_id: int
    workload_key: str
    schedule: str
    schedule_key: str
    state: str
    tier: str
    digest: str
    versions: str
    failure: str | None
    median_us: float | None
    ci_lo_us: float | None
    ci_hi_us: float | None
    trusted: bool | None
    max_rel_error: float | None
    build_s: float | None


@dataclass(frozen=True, kw_only=True)
class BestSchedule:
    """A schedule of a workload that works; times that are not trusted count as `DOUBT` times as long.

    `tier`, `digest`, `versions`: as `MeasuredSchedule` has them.
    """

    candidate_id: int
    workload_key: str
    schedule: str
    schedule_key: str
    tier: str
    digest: str
    versions: str
    median_us: float
    ci_lo_us: float
    ci_hi_us: float
    trusted: bool


@dataclass(frozen=True, kw_only=True)
class FirstSchedule:
    """The first schedule of a workload that got a time; `schedules`: how many are known of the workload there."""

    candidate_id: int
    workload_key: str
    median_us: float
    trusted: bool
    schedules: int


@dataclass(frozen=True, kw_only=True)
class ForeignSchedule:
    """A schedule measured elsewhere: `device`: its fingerprint, made of `device_facts`; `target`: JSON of `Target`."""

    workload_key: str
    schedule: str
    median_us: float
    trusted: bool
    device: str
    device_facts: Mapping[str, Json]
    target: str


@dataclass(frozen=True, kw_only=True)
class RelatedSchedule:
    """The best schedule of another workload here; `workload`: its canonical text, `tier`: of the versions."""

    workload_key: str
    workload: str
    schedule: str
    median_us: float
    trusted: bool
    tier: str


@dataclass(frozen=True)
class ForeignPlan:
    """A plan chosen on another device, and the limits of its schedules; see `ForeignSchedule`."""

    plan: str
    origin: str
    limits: Mapping[str, Json] | None
    device: str
    device_facts: Mapping[str, Json]
    target: str


@dataclass(frozen=True)
class ChosenGroup:
    """One group of a chosen plan: its workload, and the measured candidate (None: fixed rule)."""

    operators: tuple[str, ...]
    workload_key: str
    candidate_id: int | None = None
    us: float | None = None


@dataclass(frozen=True, kw_only=True)
class PlanChoice:
    """The plan that `compile` should take, and how it is known.

    `source`: "chosen" by a run's end, else best "measured" whole, else best "composed" of measured
    groups (a run that was cut off). `plan`: its JSON text. `details`: what the run stored beside it.
    """

    plan_key: str
    plan: str
    origin: str
    source: str
    tier: str
    run_id: int | None
    median_us: float | None
    trusted: bool | None
    groups: tuple[ChosenGroup, ...]
    details: Mapping[str, Json]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of the plan search: the answers it gave and what they came to (microseconds).

    `composed_us` stands exactly when `state` is "complete".
    """

    number: int
    answers: Mapping[str, Json]
    state: str
    plan_key: str | None = None
    composed_us: float | None = None

    def __post_init__(self) -> None:
        if self.state not in TRIAL_STATES:
            raise InputError(f"trial state {self.state!r}: allowed are {', '.join(TRIAL_STATES)}")
        if (self.state == "complete") != (self.composed_us is not None):
            raise InputError("a trial has composed_us exactly when its state is 'complete'")


@dataclass(frozen=True)
class EdgeDecision:
    """The decision on an edge: whether two operators ended in one kernel, and why; `gain_us`: what fusing them
    saves."""

    producer: str
    consumer: str
    fused: bool
    reason: str
    gain_us: float | None = None

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise InputError(f"edge reason {self.reason!r}: allowed are {', '.join(REASONS)}")


@dataclass(frozen=True)
class Table:
    """The result of a view: column names, and one tuple a row."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]

    def records(self) -> list[dict[str, object]]:
        """The rows by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]
