"""What tuning databases know of each workload: its candidates in the order in which they were tried."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.kernels.families.contraction.form import FEW_ROWS, Convolution, contraction_form
from autofuse.kernels.families.contraction.winograd import winograd_refusal
from autofuse.kernels.families.fused.chain import Chain, chained
from autofuse.kernels.families.protocol import Schedule, Values
from autofuse.kernels.families.registry import family_of, nests_of
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import canonical, open_knobs
from autofuse.kernels.workload.workload import Workload
from autofuse.search.schedules.schedule_search import schedule_text
from autofuse.values.names import current_schedule

QUERY = """
    SELECT w.key, w.text, t.text, c.device_id, c.threads, c.versions_id, s.text, c.median_us, c.trusted
    FROM af_candidate c JOIN af_workload w ON w.id = c.workload_id JOIN af_schedule s ON s.id = c.schedule_id
    JOIN af_target t ON t.id = c.target_id WHERE c.state = 'ok' ORDER BY c.id
"""


@dataclass(frozen=True)
class Candidate:
    """A schedule that has a time (microseconds); `trusted`: as it was recorded."""

    schedule: Schedule
    us: float
    trusted: bool


@dataclass(frozen=True, eq=False)
class Task:
    """A workload on a target with so many threads; `candidates`: in the order in which they were recorded."""

    workload: Workload
    target: Target
    threads: int
    candidates: tuple[Candidate, ...]

    @cached_property
    def knobs(self) -> dict[str, Values]:
        """What may be chosen, as the shipped space has it now."""
        return open_knobs(self.workload, self.target, load_space(None, self.target.isa).schedule)

    @cached_property
    def times(self) -> dict[str, list[float]]:
        """Times by the text of the schedule without idle choices, as the code has them now: several of equal code."""
        found: dict[str, list[float]] = {}
        for candidate in self.candidates:
            found.setdefault(schedule_text(canonical(candidate.schedule, self.knobs)), []).append(candidate.us)
        return found

    @property
    def noise(self) -> list[float]:
        """Largest over least time of each kernel that was measured under several names."""
        return [max(us) / min(us) for us in self.times.values() if len(us) > 1]

    @property
    def guesses(self) -> list[float | None]:
        """Times of what the rules would try now (the least of equal code); None where not measured."""
        known = [self.times.get(schedule_text(guess)) for guess in self.rules]
        return [min(us) if us else None for us in known]

    @property
    def rules(self) -> list[dict[str, int | str]]:
        """What the rules would try now."""
        return first_schedules(self.workload, self.knobs, self.target, self.threads)

    @property
    def best_us(self) -> float:
        """The least time."""
        return min(candidate.us for candidate in self.candidates)

    def best_of_first(self, count: int) -> float:
        """The least time among the first `count` candidates."""
        return min(candidate.us for candidate in self.candidates[:count])

    @cached_property
    def family(self) -> str:
        """The family that decides the time, products and convolutions by what makes their priors differ."""
        nests = nests_of(self.workload)
        if any(isinstance(unit, Chain) for unit in chained(self.workload, nests)):
            return "chain"
        kinds = [(family_of(self.workload, nest).name, nest.anchor) for nest in nests]
        for kind, anchor in kinds:
            if kind == "contraction":
                assert anchor is not None
                form = contraction_form(self.workload, anchor)
                if prod(form.batch) * prod(window.outputs for window in form.windows) <= FEW_ROWS:
                    return "few rows"
                if not isinstance(form, Convolution):
                    return "product"
                if form.flat:
                    return "1x1 convolution"
                lanes = self.target.lanes
                return "convolution" if winograd_refusal(self.workload, anchor, form, lanes) else "3x3 convolution"
        names = [kind for kind, _ in kinds]
        return next((name for name in ("windowed", "last_axis") if name in names), "elementwise")


def read_tasks(databases: Iterable[Path], trusted: bool = False) -> Iterator[Task]:
    """Every task with at least two timed candidates; databases are copied first. `trusted`: count no other time."""
    for database in databases:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.db"
            with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as source, sqlite3.connect(copy) as sink:
                source.backup(sink)
                rows = sink.execute(QUERY).fetchall()
            source.close()
            sink.close()
        yield from _tasks(rows, trusted)


def _tasks(rows: Iterable[tuple[str, str, str, int, int, int, str, float, int]], trusted: bool) -> Iterator[Task]:
    found: dict[tuple[str, str, int, int, int], list[Candidate]] = {}
    texts: dict[str, str] = {}
    for key, text, target, device, threads, versions, schedule, us, believed in rows:
        texts[key] = text
        if believed or not trusted:
            place = (key, target, threads, device, versions)
            found.setdefault(place, []).append(Candidate(json.loads(current_schedule(schedule)), us, bool(believed)))
    for (key, target, threads, *_), candidates in found.items():
        if len(candidates) > 1:
            body = json.loads(target)
            made = Target(**{**body, "mattr": tuple(body["mattr"])})
            yield Task(Workload.from_text(texts[key]), made, threads, tuple(candidates))
