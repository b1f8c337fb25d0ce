"""One row: every rival's blocks on one network at one number of threads, from one interleaved run, in a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from autofuse.measure.measurement import Slice
from autofuse.measure.networks.bench import ContenderResult
from autofuse.measure.timing.race import Samples, ratio_of
from autofuse.values.statistics import Interval
from experiments.networks.row import write_json
from experiments.peers.limits import Demand, Limit, Rates, limit_of


@dataclass(frozen=True)
class Entry:
    """A rival in a row. `samples`: None when it could not be timed, for the reason in `error`.

    `wrong`: how its outputs differ from ONNX Runtime's, "" when they do not. `note`: how its form of the model came
    about.
    """

    samples: Samples | None = None
    error: str = ""
    wrong: str = ""
    max_rel_error: float | None = None
    load_s: float | None = None
    note: str = ""

    @classmethod
    def of(cls, result: ContenderResult, note: str) -> Self:
        """What the bench found, with a note."""
        timed = result.samples if result.samples is not None and result.samples.us is not None else None
        return cls(timed, result.error, result.wrong, result.max_rel_error, result.load_s, note)

    @property
    def us(self) -> float | None:
        """Median time of a call."""
        return self.samples.us.median if self.samples is not None and self.samples.us is not None else None

    @property
    def counts(self) -> bool:
        """Whether it has a time for right results."""
        return self.us is not None and not self.wrong


@dataclass(frozen=True)
class Ratio:
    """One time over another with its 95 % interval; `trusted`: the interval decides what it says."""

    ratio: float
    lo: float
    hi: float
    trusted: bool


@dataclass(frozen=True)
class Row:
    """`error`: why nothing could be timed; "" for a row that waits or is finished."""

    network: str
    threads: int
    model_sha256: str
    error: str = ""
    demand: Demand | None = None
    rates: Rates | None = None
    entries: Mapping[str, Entry] = field(default_factory=dict)
    bench_s: float = 0.0
    busy_before: float | None = None
    measured_at: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether it was measured."""
        return bool(self.measured_at) and not self.error

    @property
    def limit(self) -> Limit | None:
        """The least time on this machine."""
        return limit_of(self.demand, self.rates) if self.demand and self.rates else None

    def ratio(self, slow: str, fast: str) -> Ratio | None:
        """How many times the time of `fast` that of `slow` is; None when either has no time."""
        one, two = self.entries.get(slow), self.entries.get(fast)
        if one is None or two is None or one.samples is None or two.samples is None:
            return None
        found = ratio_of(one.samples, two.samples)
        if found is None or found.value is None or found.lo is None or found.hi is None:
            return None
        return Ratio(found.value, found.lo, found.hi, found.trusted)

    def fastest(self, names: list[str]) -> str | None:
        """Which of `names` has the least time for right results."""
        known = [(entry.us, name) for name in names if (entry := self.entries.get(name)) and entry.counts]
        return min(known)[1] if known else None

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The row of a file; None when there is none, or when it is not a row of this program."""
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            body["entries"] = {name: _entry(entry) for name, entry in body["entries"].items()}
            body["demand"] = Demand(**body["demand"]) if body["demand"] else None
            body["rates"] = Rates(**body["rates"]) if body["rates"] else None
            return cls(**body)
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, path: Path) -> Self:
        """Store the row; a reader never sees half of it."""
        write_json(path, asdict(self))
        return self


def _entry(body: dict[str, Any]) -> Entry:
    if body["samples"] is not None:
        held = body["samples"]
        held["slices"] = tuple(Slice(**piece) for piece in held["slices"])
        held["rounds"] = tuple(held["rounds"])
        held["us"] = Interval(**held["us"]) if held["us"] else None
        body["samples"] = Samples(**held)
    return Entry(**body)
