"""A device that answers from an oracle: no kernel is built, no noise, and a clock that moves by what was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from autofuse.device.description import DeviceDescription
from autofuse.errors import DeviceError
from autofuse.graph.model import Graph
from autofuse.kernels.workload.workload import BoundWorkload
from autofuse.measure.checking.reference import ReferenceStore
from autofuse.measure.children.ahead import Ahead, nothing_ahead
from autofuse.measure.measurement import Case, Failure, Left, Measurement, MeasureRequest, Timing, no_end
from autofuse.measure.networks.bench import Contender, ContenderResult
from autofuse.search.schedules.schedule_search import schedule_text
from autofuse.values.statistics import Interval
from experiments.replay.recorded import Answer, Asked

Array = NDArray[np.generic]
NOT_RECORDED = "not recorded"


@dataclass
class OracleRunner:
    """A `Runner` whose answers were recorded.

    `answered`: candidates that it knew; `strangers`: those that it did not know. They come as failures: a search goes
    on without them, and no time of a kernel is made up. `seconds`: that all took, a stranger as long as most others.
    """

    answers: Mapping[Asked, Answer]
    name: str = "oracle"
    answered: int = 0
    seconds: float = 0.0
    strangers: set[Asked] = field(default_factory=set)

    @cached_property
    def workloads(self) -> frozenset[str]:
        """Keys of the workloads of which anything was recorded."""
        return frozenset(key for key, _ in self.answers)

    @cached_property
    def usual_s(self) -> float:
        """Seconds that half of the candidates took at most."""
        return median([answer.cost_s for answer in self.answers.values()])

    def clock(self) -> float:
        """Seconds since it was first asked, as they were recorded."""
        return self.seconds

    def describe(self) -> DeviceDescription:
        raise DeviceError("an oracle is no machine")

    def measure(self, batch: Sequence[MeasureRequest]) -> list[Measurement]:
        return [self._answer(request) for request in batch]

    def stream(
        self, batch: Sequence[MeasureRequest], left: Left = no_end, ahead: Ahead = nothing_ahead
    ) -> Iterator[tuple[int, Measurement]]:
        for index, request in enumerate(batch):
            if left() <= 0:
                return
            yield index, self._answer(request)

    def _answer(self, request: MeasureRequest) -> Measurement:
        asked = request.workload.key, schedule_text(request.schedule)
        answer = self.answers.get(asked)
        if answer is None:
            self.strangers.add(asked)
            self.seconds += self.usual_s
            return Measurement(failure=Failure("build_error", NOT_RECORDED), code=NOT_RECORDED)
        self.answered += 1
        self.seconds += answer.cost_s
        return as_measurement(answer)

    def race(
        self,
        contenders: Sequence[Contender],
        inputs: Mapping[str, Array],
        budget_s: float,
        *,
        expected: Sequence[Array] | None = None,
        left: Left = no_end,
    ) -> dict[str, ContenderResult]:
        raise DeviceError("an oracle holds no whole networks to race")

    def outputs(self, library: Path, inputs: Mapping[str, Array], left: Left = no_end) -> list[Array]:
        raise DeviceError("an oracle computes nothing")

    def close(self) -> None:
        """Nothing runs for it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing runs for it."""


def as_measurement(answer: Answer) -> Measurement:
    """A recorded answer as a runner gives it."""
    stored = answer.stored
    code = stored.digest or NOT_RECORDED
    if stored.median_us is None:
        failure = Failure(stored.state, stored.failure or stored.state)
        return Measurement(failure=failure, build_s=stored.build_s, code=code)
    lo, hi = stored.ci_lo_us or stored.median_us, stored.ci_hi_us or stored.median_us
    timing = Timing(Interval(stored.median_us, lo, hi, 0.95, 1), (), True, "", "enough")
    return Measurement(timing=timing, build_s=stored.build_s, max_rel_error=stored.max_rel_error, code=code)


class NoReference(ReferenceStore):
    """The reference of a device that checks nothing: no tensor was computed."""

    def complete(self, graph: Graph, names: Iterable[str]) -> None:
        """Nothing is computed."""

    def case(self, bound: BoundWorkload) -> Case:
        return Case((), ())

    def constants(self, graph: Graph, bound: BoundWorkload) -> tuple[Path, ...]:
        return ()
