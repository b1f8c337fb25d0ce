"""What each decision of a search was worth, and what it did not come to, as the summary of its run keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter, ValidationError

from autofuse.database.records import Json

WATERFALL, NOT_ASKED, MORE_TIME = "waterfall", "not_asked", "more_time"
"""Their keys in a run's summary."""
_KEYS = (WATERFALL, NOT_ASKED, MORE_TIME)
REMAINDER, BEYOND_THE_SUMS = "remainder", "caches between kernels, calls"
SUMMED = "sum of its kernels"
ROW = ("step", "what", "times", "us", "share", "left_us")
"""A row of a waterfall: the plan or the kind of decision, what it is, in how many places, what it takes off, the part
of the start's time that this is, and what is left after it."""


@dataclass(frozen=True)
class WaterfallStep:
    """A step of a waterfall: `us` that a decision takes off the network's time (negative: it adds them).

    `kind`: of the decision ("rule", "schedules", "fused", "apart", "regrouped", "rewrite", "layout", "others");
    `what`: what it changes, `times`: in how many places.
    """

    kind: str
    what: str
    times: int
    us: float


@dataclass(frozen=True)
class Waterfall:
    """A search's waterfall: from `start_us` (plan `start`) by `steps` and a remainder to `end_us` (plan `end`).

    `measured`: both ends are times of whole networks. Steps are differences of sums of kernels that were timed alone;
    `start_sum_us` and `end_sum_us` are those sums (None: not every kernel of the start has a time).
    `remainder_us`: what whole networks say beyond them; 0 where they were not measured whole.
    """

    start: str
    start_us: float
    steps: tuple[WaterfallStep, ...]
    remainder_us: float
    end: str
    end_us: float
    measured: bool
    start_sum_us: float | None
    end_sum_us: float

    @property
    def ratio(self) -> float:
        """How many times as fast the end is as the start."""
        return self.start_us / self.end_us

    def rows(self) -> list[dict[str, Json]]:
        """A row for the start, each step, the remainder and the end; see `ROW`."""
        how = "measured whole" if self.measured else SUMMED
        steps: list[tuple[str, str, int, float]] = [(one.kind, one.what, one.times, one.us) for one in self.steps]
        if self.measured:
            steps.append((REMAINDER, BEYOND_THE_SUMS, 1, self.remainder_us))
        left_us, rows = self.start_us, [_row(self.start, how, None, None, None, self.start_us)]
        for kind, what, times, us in steps:
            left_us -= us
            rows.append(_row(kind, what, times, us, us / self.start_us, left_us))
        return [*rows, _row(self.end, how, None, None, None, self.end_us)]


@dataclass(frozen=True)
class OpenQuestions:
    """Questions of one kind that a search did not come to: what they are expected to take off the network's time, and
    to cost. `gain_us` None: there is no expectation."""

    kind: str
    gain_us: float | None
    cost_s: float | None


@dataclass(frozen=True)
class MoreTime:
    """What so many further seconds of search are expected to take off the network's time, by the stated rules."""

    seconds: float
    gain_us: float


def _row(*values: Json) -> dict[str, Json]:
    return dict(zip(ROW, values, strict=True))


def waterfall_of(summary: Mapping[str, object] | None) -> Waterfall | None:
    """The waterfall in a run's summary; None where there is none, or none that can be read."""
    return _read(summary).waterfall


def not_asked_of(summary: Mapping[str, object] | None) -> tuple[OpenQuestions, ...]:
    """The questions that a run did not come to, as its summary has them."""
    return _read(summary).not_asked


def more_time_of(summary: Mapping[str, object] | None) -> MoreTime | None:
    """What as much time again was expected to give at the end of a run."""
    return _read(summary).more_time


@dataclass(frozen=True)
class _Told:
    """What a summary says of it, beside whatever else it holds."""

    waterfall: Waterfall | None = None
    not_asked: tuple[OpenQuestions, ...] = ()
    more_time: MoreTime | None = None


def _read(summary: Mapping[str, object] | None) -> _Told:
    try:
        return _reader().validate_python({key: value for key, value in (summary or {}).items() if key in _KEYS})
    except ValidationError:  # of another version, or altered: nothing is computed with it
        return _Told()


@cache
def _reader() -> TypeAdapter[_Told]:
    return TypeAdapter(_Told)
