"""The ladder of schedules: for each workload the best rung on which something legal stands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from autofuse.compiler.report import HIT, MEASURED_HERE, NEAREST, RULE, SIMILAR, STALE, STALE_CODE, TIERS
from autofuse.database.ask.lookups import SCHEDULES_TRIED, Ranked
from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import BestSchedule, ForeignPlan, ForeignSchedule, MeasuredSchedule, RelatedSchedule
from autofuse.device.likeness import FARTHEST as FARTHEST_DEVICE
from autofuse.device.rates import CoreRates
from autofuse.device.target import Target
from autofuse.environment.environment import Environment
from autofuse.environment.plan_evidence import fitting
from autofuse.environment.rates import Neighbours, core_rates
from autofuse.environment.space import load_space
from autofuse.errors import InputError
from autofuse.fusion.plan import NO_LIMITS, ScheduleLimits
from autofuse.kernels.emission import Emission
from autofuse.kernels.families.protocol import Values
from autofuse.kernels.schedule.guesses import first_packed_like, first_schedules
from autofuse.kernels.schedule.knobs import Space, open_knobs, packed_like, packing, tile_knobs
from autofuse.kernels.schedule.limits import keeps_text, knobs_within
from autofuse.kernels.schedule.transfer import adapted, distance, schedule_fault, structure
from autofuse.kernels.tir.digest import digest
from autofuse.kernels.workload.workload import BoundWorkload, Workload

FARTHEST = 8.0
"""Powers of two, over all sizes of all values, beyond which another shape says nothing."""

DEARER = 1.1
"""Times its best time that a tile may take, as measured, for weights that are stored once for all tiles of a kernel."""

Schedule = dict[str, int | str]
Decided = Callable[[Workload, Schedule], None]
"""Is called with a workload and the schedule that was found for it."""


@dataclass(frozen=True)
class Found:
    """A schedule, its rung, its time as measured (microseconds) and what it was taken from.

    `trusted`: whether that time is; None where there is none.
    """

    schedule: Schedule
    tier: str
    us: float | None = None
    source: str = ""
    trusted: bool | None = None


@dataclass
class Ladder:
    """The ladder of one compile. `environment`: where the code will run. `emission`: knows the code of schedules, and
    keeps the kernels to be built.

    `limits`: what the schedules may do. `pinned`: candidates by workload key that are taken in place of the best.
    `decided`: is called with each workload and its schedule as soon as that is found.
    """

    base: ProfilingDatabase
    environment: Environment
    emission: Emission
    limits: ScheduleLimits = NO_LIMITS
    pinned: Mapping[str, int] = field(default_factory=dict)
    decided: Decided | None = None
    _knobs: dict[str, dict[str, Values]] = field(default_factory=dict, init=False)

    def find(self, workloads: Sequence[BoundWorkload], measured_only: bool) -> dict[str, Found]:
        """Schedules by workload key; with `measured_only` just those that were measured here."""
        bound = {one.workload.key: one.workload for one in workloads}
        found = self._here(bound)
        if measured_only:
            return found
        similar = self._similar({key: load for key, load in bound.items() if key not in found})
        for key, one in similar.items():
            found[key] = self._decided(bound[key], one)
        for key, workload in bound.items():
            if key not in found:
                knobs = self.knobs(workload)
                found[key] = self._decided(workload, self._nearest(workload, knobs) or self.rule(workload))
        return found

    def _decided(self, workload: Workload, found: Found) -> Found:
        if self.decided is not None:
            self.decided(workload, found.schedule)
        return found

    def rule(self, workload: Workload) -> Found:
        """The fixed schedule of a workload: the first guess of its search."""
        return Found(dict(self.guesses(workload)[0]), RULE)

    def guesses(self, workload: Workload) -> list[dict[str, int | str]]:
        """The rules' guesses for a workload, the best one first."""
        threads = self.environment.setting.threads
        return first_schedules(workload, self.knobs(workload), self.target, threads, self._rates)

    def packed_like(self, firsts: Sequence[tuple[Workload, Workload]], found: Mapping[str, Found]) -> dict[str, Found]:
        """`found`, in which workloads pack their weights as others, each with that one in `firsts`: the same of another
        number of rows.

        What was measured here gives way to what was, too, and is hardly slower. A workload keeps its own where there is
        none.
        """
        asked = {
            one.key: (one, found[one.key], found[first.key].schedule)
            for one, first in firsts
            if one.key in found and first.key in found
        }
        asked = {key: one for key, one in asked.items() if packing(one[1].schedule) != packing(one[2])}
        here = {key: packing(schedule) for key, (_, own, schedule) in asked.items() if own.tier in MEASURED_HERE}
        rows = self._packed_here(here)
        changed = {
            key: self._hardly_slower(*one[:2], rows.get(key, ())) if key in here else self._guessed_like(*one)
            for key, one in asked.items()
        }
        return {**found, **changed}

    def _guessed_like(self, workload: Workload, own: Found, schedule: Mapping[str, int | str]) -> Found:
        knobs, threads = self.knobs(workload), self.environment.setting.threads
        if own.tier == RULE:
            fitting = first_packed_like(workload, knobs, schedule, self.target, threads, self._rates)
        else:
            pinned = packed_like(knobs, schedule)
            fitting = None if pinned is None else adapted(own.schedule, pinned, self.target)
        return own if fitting is None else replace(own, schedule=fitting, us=None, trusted=None)

    def _packed_here(self, wanted: Mapping[str, object]) -> Ranked:
        """What was measured here of the schedules that pack as `wanted`, by workload key."""

        def fits(key: str, text: str) -> bool:
            schedule = legal(text, self.target)
            return schedule is not None and packing(schedule) == wanted[key] and keeps_text(self.limits, text)

        return self.base.ranked(self.environment.setting, list(wanted), fits) if wanted else {}

    def _hardly_slower(self, workload: Workload, own: Found, rows: Sequence[BestSchedule]) -> Found:
        """The best of `rows`, where it is as sure as a workload's `own` schedule, and hardly slower."""
        found = self._best_here(workload, rows)
        if found is None or found.us is None or own.us is None:
            return own
        as_sure = TIERS.index(found.tier) <= TIERS.index(own.tier)
        return found if as_sure and found.us <= DEARER * own.us else own

    def simplest(self, workload: Workload) -> Schedule:
        """The schedule of the least code: the defaults, with tiles of one result."""
        tiles = {name for tile in tile_knobs() for name in tile}
        return {name: 1 if name in tiles else values[0] for name, values in self.knobs(workload).items()}

    @property
    def target(self) -> Target:
        """What the code is made for."""
        return self.environment.target

    def knobs(self, workload: Workload) -> dict[str, Values]:
        """Values that the shipped space offers to a workload."""
        if workload.key not in self._knobs:
            self._knobs[workload.key] = knobs_within(open_knobs(workload, self.target, self._space), self.limits)
        return self._knobs[workload.key]

    @cached_property
    def _rates(self) -> CoreRates:
        return core_rates(self.base, self.environment)

    @cached_property
    def _space(self) -> Space:
        return load_space(None, self.target.isa).schedule

    def rung(self, workload: Workload, schedule: Schedule, row: BestSchedule | MeasuredSchedule) -> str:
        """The rung of what was measured here under a schedule; empty where no kernel can be emitted any more."""
        code = self.emission.code(workload, schedule)
        if not code or row.digest == digest(code, self.target, self.environment.versions):
            return HIT if code else ""
        same = row.digest == digest(code, self.target, json.loads(row.versions))
        return STALE if same else STALE_CODE

    def _here(self, bound: Mapping[str, Workload]) -> dict[str, Found]:
        known = self.base.ranked(self.environment.setting, list(bound), fitting(self.limits)) if bound else {}
        found = {}
        for key, rows in known.items():
            best = self._pinned(bound[key]) or self._best_here(bound[key], rows)
            if best is not None:
                found[key] = self._decided(bound[key], best)
        return found

    def _pinned(self, workload: Workload) -> Found | None:
        """The candidate that was chosen together with the plan, while its code can still be built."""
        number = self.pinned.get(workload.key)
        rows = self.base.measured_schedules(self.environment.setting, workload.key) if number is not None else ()
        for row in rows:
            schedule = legal(row.schedule, self.target) if row.candidate_id == number else None
            rung = "" if schedule is None else self.rung(workload, schedule, row)
            if schedule is not None and rung and row.median_us is not None:
                return Found(schedule, rung, row.median_us, "", row.trusted)
        return None

    def _best_here(self, workload: Workload, rows: Sequence[BestSchedule]) -> Found | None:
        """The best rung among the first few schedules; rows come best first."""
        best: Found | None = None
        tried: set[str] = set()
        for row in rows:
            if row.schedule not in tried and len(tried) == SCHEDULES_TRIED:
                continue
            tried.add(row.schedule)
            schedule = legal(row.schedule, self.target)
            rung = "" if schedule is None else self.rung(workload, schedule, row)
            if schedule is not None and rung and (best is None or TIERS.index(rung) < TIERS.index(best.tier)):
                best = Found(schedule, rung, row.median_us, "", row.trusted)
            if rung == HIT:
                break
        return best

    def _similar(self, bound: Mapping[str, Workload]) -> dict[str, Found]:
        """The best schedule that the device most like this one ran."""
        found: dict[str, Found] = {}
        rows = self.base.schedules_elsewhere(self.environment.setting, list(bound)) if bound else []
        for row in alike(self.base, self.environment, rows):
            if row.workload_key not in found:
                schedule = legal(row.schedule, self.target)
                fitting = (
                    None if schedule is None else adapted(schedule, self.knobs(bound[row.workload_key]), self.target)
                )
                if fitting is not None:
                    cpu = row.device_facts.get("cpu")
                    name = str(cpu.get("model_name") or cpu.get("profile") or "") if isinstance(cpu, dict) else ""
                    found[row.workload_key] = Found(fitting, SIMILAR, row.median_us, name, row.trusted)
        return found

    def _nearest(self, workload: Workload, knobs: Mapping[str, Values]) -> Found | None:
        """The best schedule of the measured workload that is the same in everything but its sizes, and nearest."""
        operators = workload.label.rpartition(" ")[0]
        wanted = structure(workload)
        best: tuple[float, Found] | None = None
        for row in self.base.related_schedules(self.environment.setting, operators, [workload.key]):
            other = _workload(row)
            if other is None or structure(other) != wanted:
                continue
            apart = distance(workload, other)
            schedule = legal(row.schedule, self.target)
            if schedule is None or apart > FARTHEST or (best is not None and apart >= best[0]):
                continue
            fitting = adapted(schedule, knobs, self.target)
            if fitting is not None:
                best = apart, Found(fitting, NEAREST, None, f"{other.label}, {apart:.1f} doublings away")
        return best[1] if best else None


def legal(text: str, target: Target) -> Schedule | None:
    """A stored schedule, when it is one that could be built for `target`; a damaged or foreign one is a miss."""
    try:
        schedule = json.loads(text)
    except ValueError:
        return None
    return None if schedule_fault(schedule, target) else schedule


Foreign = TypeVar("Foreign", ForeignSchedule, ForeignPlan)


def alike(base: ProfilingDatabase, environment: Environment, rows: Sequence[Foreign]) -> list[Foreign]:
    """What was measured on devices like this one (see `autofuse.device.likeness`), the most alike first.

    Of one device the rows stay in their order.
    """
    if not rows:
        return []
    neighbours = Neighbours(base, environment)
    apart = [neighbours.doublings(row.device, row.device_facts, row.target) for row in rows]
    near = [(found, number) for number, found in enumerate(apart) if found is not None and found <= FARTHEST_DEVICE]
    return [rows[number] for _, number in sorted(near)]


def _workload(row: RelatedSchedule) -> Workload | None:
    try:
        return Workload.from_text(row.workload)
    except InputError:
        return None
