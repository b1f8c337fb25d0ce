"""Candidates on their way through a runner, and those that are built before anybody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autofuse.measure.children.requests import KernelBuilt
from autofuse.measure.measurement import Failure, Measurement, MeasureRequest, Timing

Name = tuple[object, ...]

Ahead = Callable[[], Sequence[MeasureRequest]]
"""Says which candidates the next batch will probably ask for, the likeliest first."""


def nothing_ahead() -> Sequence[MeasureRequest]:
    """Nobody knows what comes next."""
    return ()


@dataclass(eq=False)
class Trial:
    """A candidate on its way, with what is known of its kernel so far.

    `index`: its place in the batch (None: it is built ahead of a batch that may ask for it).
    """

    request: MeasureRequest
    identity: int
    index: int | None = None
    built: KernelBuilt | None = None
    error: float | None = None

    @property
    def code(self) -> Name | None:
        """What another candidate shares with it whose time is the same (None: it is not built)."""
        return (self.request.workload.key, self.built.code) if self.built and self.built.code else None

    def measured(self, threads: int, timing: Timing | None, failure: Failure | None) -> Measurement:
        """What became of it."""
        build_s, code = (self.built.build_s, self.built.code) if self.built else (None, "")
        return Measurement(timing, failure, build_s, self.error, threads, code)


@dataclass
class BuiltAhead:
    """The candidates that are built, or will be, and that nobody asked for yet."""

    _trials: dict[Name, Trial] = field(default_factory=dict)

    def add(self, trial: Trial) -> bool:
        """Takes in a candidate that is built ahead; False when it is here already."""
        return self._trials.setdefault(_name(trial.request), trial) is trial

    def claim(self, request: MeasureRequest, index: int) -> Trial | None:
        """The candidate of a request, which belongs to a batch from now on; None when it was not built ahead."""
        trial = self._trials.pop(_name(request), None)
        if trial is not None:
            trial.request, trial.index = request, index
        return trial

    def holds(self, trial: Trial) -> bool:
        """Whether a candidate may still be asked for."""
        return self._trials.get(_name(trial.request)) is trial

    def remove(self, trial: Trial) -> None:
        """A candidate that came to nothing: when it is asked for it is built anew."""
        if self.holds(trial):
            del self._trials[_name(trial.request)]

    def clear(self) -> list[Trial]:
        """Gives up all that was not asked for."""
        given_up = list(self._trials.values())
        self._trials.clear()
        return given_up


def _name(request: MeasureRequest) -> Name:
    """What makes two requests for the same kernel, checked with the same data."""
    schedule = tuple(sorted(request.schedule.items()))
    return request.workload.key, schedule, request.cases, request.constants, request.limit
