"""The search of a model of a job: one session, or for a model in parts one a segment, then a race of whole models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autofuse.compiler.parts.open_head import OpenHead, finds_places, of_a_head
from autofuse.database.database import ProfilingDatabase
from autofuse.environment.place import Place
from autofuse.errors import InputError, UncoveredError
from autofuse.graph.loading.given.buckets import form_of, named_sizes, own_sizes
from autofuse.graph.loading.given.sizes import open_ones
from autofuse.measure.measurement import no_end
from autofuse.opened.search import opening
from autofuse.opened.search.opening import ReadModel, read_sized
from autofuse.parted.head_race import NOT_RACED, HeadRace
from autofuse.parted.heads import head_together, head_with_rows, head_work_us, of_head
from autofuse.parted.in_time import UNSURE
from autofuse.parted.race import raced_whole
from autofuse.parted.together import NO_RACE, race_seconds, require_segments, result_of_all
from autofuse.parted.tune import of_rows, rows_with_files
from autofuse.search import tune
from autofuse.search.budget.budget import Budget
from autofuse.search.progress import SearchRequest, TuneResult
from autofuse.search.schedules.evidence import Counts
from autofuse.search.schedules.prospects import Prospect
from autofuse.search.session import SearchSession
from autofuse.segments.choice import Choice, Piece
from autofuse.segments.read import parts_of
from autofuse.segments.report import part_reports
from autofuse.values.arguments import file_title
from autofuse.values.scratch import scratch_folder

OPENER = f"{__name__}:open_session"
"""What a job's search processes open a model with."""


@dataclass
class PartsSession:
    """The search of a model in parts, with a session for each of its segments; a `SearchSession`, too.

    `work_us`: of each segment, estimated. `together`: one result of those of all segments, and of a race of whole
    models for so many seconds (None: there is no time for it).
    """

    sessions: Sequence[SearchSession]
    work_us: Sequence[float]
    together: Callable[[Sequence[TuneResult], float | None], TuneResult]

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
        return lambda: sum(reserve() for reserve in reserves) + self._whole_s(race_s)

    def least_s(self) -> float:
        """Seconds that one finalist of each segment will take, and the shortest race of whole models."""
        return sum(session.least_s() for session in self.sessions) + self._whole_s(None)

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
        """Concludes each segment, then races whole models, where there is time; None when somebody asked for a stop.

        Up to half of the budget is kept for that race: it says whether our kernels are taken at all.
        """
        results, own = [], budget.before(min(budget.left() / 2, self._whole_s(race_s)))
        for session in self.sessions:
            result = session.conclude(own, race_s)
            session.release()
            if result is None:
                return None
            results.append(result)
        if budget.stopped():
            return None
        enough = budget.left() >= self._whole_s(None)
        return self.together(results, race_seconds(race_s) if enough else None)

    def _whole_s(self, race_s: float | None) -> float:
        """Seconds that compiling whole models, and their race, will take."""
        return self.compile_s() + race_seconds(race_s)

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
    with ExitStack() as stack:
        asked = with_own_sizes(model, request)
        found = _Opening(stack, model, base, place, asked, scheduler)
        yield found.sized() if asked.sizes else found.fixed()


def with_own_sizes(model: Path, request: SearchRequest) -> SearchRequest:
    """The request with those of its sizes that a model has; as shapes of its inputs, where none stays open."""
    if not request.sizes:
        return request
    own = own_sizes(request.sizes, named_sizes(model))
    if open_ones(own):
        return replace(request, sizes=own)
    given = form_of(model, own, {}, request.given) if own else request.given
    return replace(request, sizes=(), trace=None, given=given)


@dataclass(frozen=True)
class _Opening:
    """The opening of the search of a `model` in a job; what it opens is closed with the `stack`."""

    stack: ExitStack
    model: Path
    base: ProfilingDatabase
    place: Place
    request: SearchRequest
    scheduler: str | None

    def fixed(self) -> SearchSession:
        """A model of fixed sizes, whole or in parts."""
        try:
            return self._enter(self.model, self.request)
        except UncoveredError as error:
            return self._parts(error)

    def sized(self) -> SearchSession:
        """A model with open sizes, or its head where only that can have one."""
        try:
            read = read_sized(self.model, self.request)
        except InputError as error:
            if not finds_places(self.model):
                raise
            return self._head(error)
        return self._enter_sized(self.model, self.request, read)

    def _parts(self, error: UncoveredError) -> PartsSession:
        """The segments of a model, those of rows too. InputError where there is none."""
        model, given, here, started = self.model, self.request.given, self._here, time.monotonic()
        choice, files = rows_with_files(parts_of(model, given, error), here, self.request)
        require_segments(model, choice)
        folder, title = self.stack.enter_context(scratch_folder()), file_title(model)
        pieces = (*choice.all_segments, *choice.rows)

        def together(results: Sequence[TuneResult], race_s: float | None) -> TuneResult:
            race = partial(raced_whole, model, here, choice, given, self.request.exact, folder=folder)
            times = {} if race_s is None else race(race_s)
            return result_of_all(title, results, times, time.monotonic() - started, (), part_reports(choice))

        sessions = self._pieces(folder / f"{title}-segment", pieces, files)
        return PartsSession(sessions, [piece.work_us for piece in pieces], together)

    def _head(self, error: InputError) -> PartsSession:
        """The head of a model, and its segments of rows. InputError where no head's sizes can be open."""
        model, request, started = self.model, self.request, time.monotonic()

        def read(head: OpenHead) -> tuple[Choice, Mapping[Piece, bytes], OpenHead, bytes]:
            return *head_with_rows(head, self._here, of_head(head, request)), head, head.path.read_bytes()

        choice, files, head, content = of_a_head(model, request.given, request.sizes, error, read)
        folder = self.stack.enter_context(scratch_folder())
        head = replace(head, path=folder / model.name)
        head.path.write_bytes(content)
        own = self._enter_sized(head.path, of_head(head, request))
        own.release()

        def together(results: Sequence[TuneResult], race_s: float | None) -> TuneResult:
            race = HeadRace(model, head, self._here, request, bool(choice.rows))
            said = f"{NOT_RACED}{NO_RACE}" if race_s is None else race.run(race_s, no_end, own.run_id)
            return head_together(model, choice, request, results, said, time.monotonic() - started)

        sessions = [own, *self._pieces(folder / f"{file_title(model)}-rows", choice.rows, files)]
        work_us = [head_work_us(choice), *(piece.work_us for piece in choice.rows)]
        return PartsSession(sessions, work_us, together)

    def _pieces(self, stem: Path, pieces: Sequence[Piece], files: Mapping[Piece, bytes]) -> list[SearchSession]:
        """A session for each of some segments. `stem`: how their files begin; `files`: of segments of rows."""
        own = replace(self.request, given={}, sizes=(), trace=None, alone=False)
        sessions = list[SearchSession]()
        for number, piece in enumerate(pieces):
            path = stem.with_name(f"{stem.name}{number}.onnx")
            path.write_bytes(files.get(piece) or piece.content)
            rows = piece.most_rows > 0
            sessions.append(self._enter_sized(path, of_rows(piece, own)) if rows else self._enter(path, own))
            sessions[-1].release()  # the next one needs the device
        return sessions

    def _enter(self, path: Path, request: SearchRequest) -> SearchSession:
        session = tune.open_session(path, self.base, self.place, request, scheduler=self.scheduler)
        return self.stack.enter_context(session)

    def _enter_sized(self, path: Path, request: SearchRequest, read: ReadModel | None = None) -> SearchSession:
        session = opening.open_session(path, self.base, self.place, request, read=read, scheduler=self.scheduler)
        return self.stack.enter_context(session)

    @property
    def _here(self) -> Place:
        return replace(self.place, database=self.base.location.address)


def _sum(times: Sequence[float | None]) -> float | None:
    known = [us for us in times if us is not None]
    return sum(known) if len(known) == len(times) else None
