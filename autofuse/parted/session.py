"""The search of a model of a job: one session, or for a model in parts one a segment, then a race of whole models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autofuse.compiler import Context, Policy
from autofuse.compiler.open_sizes.row_segments import with_row_segments
from autofuse.compiler.parts.open_head import finds_places
from autofuse.database.database import ProfilingDatabase
from autofuse.environment.place import Place
from autofuse.errors import InputError, UncoveredError
from autofuse.fusion.plan import ScheduleLimits
from autofuse.graph.loading.given.buckets import form_of, named_sizes, own_sizes
from autofuse.graph.loading.given.sizes import open_ones
from autofuse.measure.networks.bench import ContenderResult
from autofuse.opened.search import opening
from autofuse.opened.search.opening import read_sized
from autofuse.parted.in_time import UNSURE
from autofuse.parted.race import raced_whole
from autofuse.parted.together import race_seconds, require_segments, result_of_all
from autofuse.search import tune
from autofuse.search.budget.budget import Budget
from autofuse.search.progress import SearchRequest, TuneResult
from autofuse.search.schedules.evidence import Counts
from autofuse.search.schedules.prospects import Prospect
from autofuse.search.session import SearchSession
from autofuse.segments.choice import Choice
from autofuse.segments.read import parts_of
from autofuse.segments.report import kinds_of
from autofuse.values.arguments import file_title
from autofuse.values.scratch import scratch_folder

OPENER = f"{__name__}:open_session"
"""What a job's search processes open a model with."""


@dataclass
class PartsSession:
    """The search of a model in parts, with a session for each of its segments; a `SearchSession`, too.

    `work_us`: of each segment, estimated. `race`: whole models for so many seconds, see `raced_whole`. `started`: of
    `time.monotonic`. `not_searched`: says which segments of rows a job leaves out.
    """

    title: str
    sessions: Sequence[SearchSession]
    work_us: Sequence[float]
    race: Callable[[float], Mapping[str, ContenderResult]]
    started: float
    not_searched: str = ""

    @property
    def counts(self) -> Counts:
        """Candidates of all segments."""
        found = [session.counts for session in self.sessions]
        return Counts(sum(one.ok for one in found), sum(one.failed for one in found), sum(one.hits for one in found))

    @property
    def run_id(self) -> int:
        """The number of the run of the segment with the most work."""
        return max(zip(self.work_us, self.sessions, strict=True), key=lambda one: one[0])[1].run_id

    def ready(self) -> bool:
        """Whether each segment has a plan with a time."""
        return all(session.ready() for session in self.sessions)

    def best_us(self) -> float | None:
        """Composed time of all segments under their best plans so far; what ONNX Runtime runs is not in it."""
        return _sum([session.best_us() for session in self.sessions])

    def baseline_us(self) -> float | None:
        """Composed time of all segments without fusion."""
        return _sum([session.baseline_us() for session in self.sessions])

    def ahead(self) -> tuple[Prospect, ...]:
        """What is left to gain, as parts of the time of all segments."""
        weights = self._weights()
        total = sum(weights) or 1.0
        return tuple(
            replace(one, share=one.share * weight / total)
            for session, weight in zip(self.sessions, weights, strict=True)
            for one in session.ahead()
        )

    def reserve(self, allowed_s: float = math.inf, race_s: float | None = None) -> Callable[[], float]:
        """Seconds that all finalists will take, and whole models, which are compiled and raced."""
        reserves = [session.reserve(allowed_s, race_s) for session in self.sessions]
        return lambda: sum(reserve() for reserve in reserves) + self.compile_s() + race_seconds(race_s)

    def least_s(self) -> float:
        """Seconds that one finalist of each segment will take, and the shortest race of whole models."""
        return sum(session.least_s() for session in self.sessions) + self.compile_s() + race_seconds(None)

    def compile_s(self) -> float:
        """Seconds that compiling all segments is expected to take."""
        return UNSURE * sum(session.compile_s() for session in self.sessions)

    def advance(self, budget: Budget, trials: int | None = None) -> bool:
        """Goes on with each segment for its part of the budget and of `trials`; whether nothing is left in any."""
        weights, exhausted = self._open_weights(), True
        left = trials
        for number, session in enumerate(self.sessions):
            share = weights[number] / (sum(weights[number:]) or 1.0)
            own = None if left is None else round(left * share)
            before = session.counts.measured
            exhausted &= session.advance(budget.part(budget.left() * share) if share < 1.0 else budget, own)
            session.release()  # the next one needs the device
            left = None if left is None else max(0, left - (session.counts.measured - before))
        return exhausted

    def release(self) -> None:
        """Lets go of the device."""
        for session in self.sessions:
            session.release()

    def conclude(self, budget: Budget, race_s: float | None = None) -> TuneResult | None:
        """Concludes each segment, then races whole models, where there is time; None when somebody asked for a stop."""
        results = []
        for session in self.sessions:
            result = session.conclude(budget, race_s)
            session.release()
            if result is None:
                return None
            results.append(result)
        if budget.stopped():
            return None
        enough = budget.left() >= self.compile_s() + race_seconds(None)
        times = self.race(race_seconds(race_s)) if enough else {}
        result = result_of_all(self.title, results, times, time.monotonic() - self.started)
        if not self.not_searched:
            return result
        warning = "; ".join(filter(None, [result.warning, self.not_searched]))
        return replace(result, warning=warning, left_out=(*result.left_out, self.not_searched))

    def _weights(self) -> list[float]:
        """The time of each segment: measured where all are, else estimated."""
        known = [session.best_us() for session in self.sessions]
        return [us for us in known if us is not None] if self.ready() and None not in known else list(self.work_us)

    def _open_weights(self) -> list[float]:
        """The same, of what may still be gained in it."""
        if not self.ready():
            return [max(work, 1.0) for work in self.work_us]
        return [
            weight * max(sum(one.share for one in session.ahead()), 1e-3)
            for session, weight in zip(self.sessions, self._weights(), strict=True)
        ]


@contextmanager
def open_session(
    model: Path, base: ProfilingDatabase, place: Place, request: SearchRequest, *, scheduler: str | None = None
) -> Iterator[SearchSession]:
    """See `autofuse.search.tune.open_session`; a model that kernels of ours cover in part has a session a segment.

    Of the sizes of `request` those count that the model has. InputError when there is no segment, or when ONNX Runtime
    refuses the model, too.
    """
    request = with_own_sizes(model, request)
    with ExitStack() as stack:
        opened: SearchSession
        if request.sizes:
            yield stack.enter_context(_open_sized(model, base, place, request, scheduler))
            return
        try:
            opened = stack.enter_context(tune.open_session(model, base, place, request, scheduler=scheduler))
        except UncoveredError as error:
            opened = stack.enter_context(_open_parts(model, base, place, error, request, scheduler))
        yield opened


def with_own_sizes(model: Path, request: SearchRequest) -> SearchRequest:
    """The request with those of its sizes that a model has; as shapes of its inputs, where none stays open."""
    if not request.sizes:
        return request
    own = own_sizes(request.sizes, named_sizes(model))
    if open_ones(own):
        return replace(request, sizes=own)
    given = form_of(model, own, {}, request.given) if own else request.given
    return replace(request, sizes=(), trace=None, given=given)


@contextmanager
def _open_sized(
    model: Path, base: ProfilingDatabase, place: Place, request: SearchRequest, scheduler: str | None
) -> Iterator[SearchSession]:
    """The search of a model with open sizes."""
    try:
        read = read_sized(model, request)
    except InputError as error:
        if not finds_places(model):
            raise
        raise InputError(
            f"{error}; of a model that finds places, a job does not search the part before these: `autofuse tune "
            f"{model.name}` alone does"
        ) from error
    with opening.open_session(model, base, place, request, read=read, scheduler=scheduler) as opened:
        yield opened


@contextmanager
def _open_parts(
    model: Path,
    base: ProfilingDatabase,
    place: Place,
    error: UncoveredError,
    request: SearchRequest,
    scheduler: str | None,
) -> Iterator[PartsSession]:
    started = time.monotonic()
    choice, title = parts_of(model, request.given, error), file_title(model)
    here = replace(place, database=base.location.address)
    not_searched = _not_searched(model, choice, here, request)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        sessions: list[SearchSession] = []
        for number, piece in enumerate(choice.all_segments):
            path = folder / f"{title}-segment{number}.onnx"
            path.write_bytes(piece.content)
            opened = tune.open_session(path, base, place, replace(request, given={}, alone=False), scheduler=scheduler)
            sessions.append(stack.enter_context(opened))
            sessions[-1].release()
        race = partial(
            raced_whole, model, here, choice, request.given, request.exact,
            folder=folder,
        )  # fmt: skip
        yield PartsSession(
            title, sessions, [piece.work_us for piece in choice.all_segments], race, started, not_searched
        )


def _not_searched(model: Path, choice: Choice, place: Place, request: SearchRequest) -> str:
    """Which segments of rows a job leaves out. InputError where there is no other segment to search."""
    with Context(place, policy=Policy(limits=ScheduleLimits(exact=request.exact))) as context:
        found = with_row_segments(context, choice)
    require_segments(model, found)
    rows = ", ".join(f"{piece.outputs[0]!r} ({kinds_of(piece)})" for piece in found.rows)
    told = f"a job does not search segments of rows, {rows}: `autofuse tune {model.name}` alone does" if rows else ""
    if not found.all_segments:
        raise InputError(f"{model}: {told}")
    return told


def _sum(times: Sequence[float | None]) -> float | None:
    known = [us for us in times if us is not None]
    return sum(known) if len(known) == len(times) else None
