"""The search of one model on one device: searched in one go or in slices of time, then concluded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import Json
from autofuse.environment.alone import ALONE
from autofuse.environment.worth import MORE_TIME, NOT_ASKED, WATERFALL, OpenQuestions, Waterfall
from autofuse.fusion.plan import FusionPlan
from autofuse.measure.networks.judgement import WHOLE_LIMIT
from autofuse.measure.networks.libraries import Model
from autofuse.search.budget.budget import Budget, now
from autofuse.search.budget.time_budget import COMPOSE_S, LITTLE_FUSION, SLACK, limited, loosely_held
from autofuse.search.composition.composer import report_now
from autofuse.search.finals.ending import conclude
from autofuse.search.finals.finale import Estimates, Reserve, wishes
from autofuse.search.finals.finals import Finals
from autofuse.search.finals.verdict import Verdict, left_out, told
from autofuse.search.phases.phases import search_all
from autofuse.search.phases.questions import Search, compose
from autofuse.search.phases.unasked import more_time, not_asked
from autofuse.search.progress import AskedQuestions, ChoiceDecision, TuneResult
from autofuse.search.schedules.evidence import Counts
from autofuse.search.schedules.prospects import Prospect
from autofuse.search.standing.waterfall import waterfall
from autofuse.values.arguments import file_title


class SearchSession(Protocol):
    """What a job asks of the search of a model, whole or in parts. See `ModelSession`."""

    @property
    def counts(self) -> Counts: ...

    @property
    def run_id(self) -> int: ...

    def ready(self) -> bool: ...

    def best_us(self) -> float | None: ...

    def baseline_us(self) -> float | None: ...

    def ahead(self) -> tuple[Prospect, ...]: ...

    def reserve(self, allowed_s: float = ..., race_s: float | None = ...) -> Callable[[], float]: ...

    def least_s(self) -> float: ...

    def advance(self, budget: Budget, trials: int | None = ...) -> bool: ...

    def compile_s(self) -> float: ...

    def release(self) -> None: ...

    def conclude(self, budget: Budget, race_s: float | None = ...) -> TuneResult | None: ...


class Ended(Protocol):
    """What a session says of its run at its end: the run's `state`, and more for the database."""

    @property
    def state(self) -> str: ...

    def summary(self) -> dict[str, Json]: ...


@contextmanager
def running(base: ProfilingDatabase, run_id: int) -> Iterator[list[Ended]]:
    """Ends the run as its session says, which is put into the list; as "failed" when an error leaves the block."""
    sessions: list[Ended] = []
    state = ""
    try:
        yield sessions
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    except BaseException:
        state = "failed"
        raise
    finally:
        summary = sessions[0].summary() if sessions else {}
        base.finish_run(run_id, state or sessions[0].state, summary or None)


@dataclass
class ModelSession:
    """The session of one model: what is known and planned while its search lasts; made by
    `autofuse.search.tune.open_session`.

    `name`: of the run. `folder`: for libraries. `started`: on the budget's clock. `state`: what the run ends as when
    the session is closed.
    """

    search: Search
    model: Model
    name: str
    folder: Path
    estimates: Estimates
    started: float
    state: str = "interrupted"
    left_out: tuple[str, ...] = ()
    alone: str = ""
    waterfall: Waterfall | None = None
    searched_s: float = 0.0

    @property
    def counts(self) -> Counts:
        """Candidates measured in this job."""
        return self.search.evidence.counts

    @property
    def run_id(self) -> int:
        """The run's number in the database."""
        return self.search.lab.run_id

    def ready(self) -> bool:
        """Whether at least one plan has a time."""
        return self.search.standing.ready()

    def best_us(self) -> float | None:
        """Composed time of the best plan so far."""
        return self.search.standing.best_us()

    def baseline_us(self) -> float | None:
        """Composed time of the plan without fusion."""
        return self.search.standing.baseline_us()

    def ahead(self) -> tuple[Prospect, ...]:
        """What is left to gain in the best plan, by workload."""
        return self.search.standing.ahead()

    def reserve(self, allowed_s: float = float("inf"), race_s: float | None = None) -> Reserve:
        """Seconds that building and measuring the finalists will take, as many as fit in `allowed_s`."""
        return Reserve(self.search.standing, self._estimates(race_s), allowed_s)

    def least_s(self) -> float:
        """Seconds that building, checking and timing the most important finalist alone will take."""
        return self.reserve().least_s()

    def _estimates(self, race_s: float | None) -> Estimates:
        return self.estimates if race_s is None else replace(self.estimates, race_s=race_s)

    def compile_s(self, plan: FusionPlan | None = None) -> float:
        """Seconds that compiling a plan is expected to take (None: the best one so far, or the default)."""
        standing = self.search.standing
        wanted = plan or standing.best or standing.baselines.get("default")
        return replace(self.estimates, objects=None).build_s(wanted) if wanted is not None else 0.0

    def advance(self, budget: Budget, trials: int | None = None) -> bool:
        """Goes on with the search, for `trials` new candidates at most; whether nothing worth measuring is left."""
        before = self.counts.measured, self.search.standing.plan_trials
        limit = float("inf") if trials is None else before[0] + trials
        counted = budget.until(lambda: self.counts.measured >= limit)
        started = now()
        search_all(self.search, budget, counted)
        self.searched_s += now() - started
        return not counted.spent() and before == (self.counts.measured, self.search.standing.plan_trials)

    def release(self) -> None:
        """Lets go of the device and of the processes that build for it, until the search goes on."""
        self.search.lab.runner.close()

    def finals(self, race_s: float | None = None) -> Finals:
        """What races whole networks; `race_s`: seconds of measuring (None: those that the session's budget sets)."""
        lab, standing = self.search.lab, self.search.standing
        return Finals(lab, standing, self.model, self.folder, self._estimates(race_s))

    def conclude(self, budget: Budget, race_s: float | None = None, goes_on: bool = False) -> TuneResult | None:
        """Builds the finalists, measures them whole, and records the choice; None when somebody asked for a stop.

        `race_s`: seconds of measuring (None: those that the session's budget sets). `goes_on`: what is left of the
        budget, where the finalists were soon decided, is searched in, and they are measured again.
        """
        self.state = "failed"
        go_on = partial(self._go_on, budget) if goes_on and budget.left() < float("inf") else _ended
        try:
            compose(self.search, budget.part(COMPOSE_S), measure=False)
            verdict = conclude(self.finals(race_s), budget, go_on)
        except KeyboardInterrupt:
            self.state = "interrupted"
            raise
        if verdict is None:
            self.state = "interrupted"
            return None
        self.state = "finished"
        return self._result(verdict)

    def _go_on(self, budget: Budget, verdict: Verdict, took_s: float) -> bool:
        """Searches on from what was chosen, in what is left before the finalists are measured again."""
        if verdict.decision is None or not verdict.decision.settled:
            return False
        self.search.standing.keep(verdict.plan, verdict.name)
        again_s = SLACK * max(took_s, self.estimates.again_s(wishes(self.search.standing)))
        searching, before = budget.before(again_s + self.estimates.alone_race_s), self.counts.measured
        if searching.spent():
            return False
        self.advance(searching)
        if self.counts.measured == before or budget.stopped():
            return False
        compose(self.search, budget.part(COMPOSE_S), measure=False)
        return True

    def _result(self, verdict: Verdict) -> TuneResult:
        evidence, standing, counts = self.search.evidence, self.search.standing, self.counts
        environment, times = evidence.environment, verdict.times
        self.left_out, self.alone = self._left_out(verdict), verdict.alone
        self.waterfall = waterfall(standing, verdict.plan, verdict.name, times)
        open_questions = self._not_asked()
        return TuneResult(
            file_title(self.model.path), self.name, self.run_id, str(evidence.database.location.text),
            environment.profile.name, environment.setting.threads, self.state, now() - self.started,
            counts.measured,
            counts.failed, counts.hits, standing.plan_trials, verdict.name, verdict.plan.key,
            times[verdict.name].kernels, times, self._warning(verdict),
            report_now(evidence, standing.composed) if standing.composed is not None else None,
            () if verdict.together else tuple(evidence.untrusted_winners(verdict.plan)),
            left_out=self.left_out, questions=self._questions(),
            waterfall=self.waterfall, not_asked=open_questions, more_time=more_time(open_questions, self.searched_s),
            decision=_decision(verdict), alone=self.alone, compile_s=self.compile_s(verdict.plan),
        )  # fmt: skip

    def _questions(self) -> tuple[AskedQuestions, ...]:
        """What became of each kind of question, the one that took longest first."""
        accounts = self.search.standing.agenda.accounts.items()
        found = [AskedQuestions(kind, one.asked, one.spent_s, one.gained_us) for kind, one in accounts if one.asked]
        return tuple(sorted(found, key=lambda one: -one.spent_s))

    def _not_asked(self) -> tuple[OpenQuestions, ...]:
        return not_asked(self.search, self.searched_s)

    def _left_out(self, verdict: Verdict) -> tuple[str, ...]:
        searches = self.search.evidence.of(verdict.plan)
        untimed = sum(search.best_us is None for search in searches)
        unnamed = self.search.standing.unnamed.intersection(LITTLE_FUSION)
        return left_out(verdict, untimed, len(searches), unnamed)

    def _warning(self, verdict: Verdict) -> str:
        """What the reader must know about the answer; "" when there is nothing."""
        errors = [time.max_rel_error or 0.0 for time in verdict.times.values() if not time.problem]
        worst = max(errors, default=0.0)
        magnified = limited(self.search.evidence.limits) if verdict.checked else ""
        notes: Sequence[str] = (told(self.left_out), magnified, loosely_held(worst) if worst > WHOLE_LIMIT else "")
        return "; ".join(filter(None, notes))

    def summary(self) -> dict[str, Json]:
        """What the run says at its end, for the database."""
        standing, lab, guide = self.search.standing, self.search.lab, self.search.guide
        found: dict[str, Json] = {}
        if standing.composed is not None:
            found["composition"] = asdict(report_now(self.search.evidence, standing.composed))
        if asked := self._questions():
            found["questions"] = {
                one.kind: {"asked": one.asked, "spent_s": one.spent_s, "gained_us": one.gained_us} for one in asked
            }
        if self.waterfall is not None:
            found[WATERFALL] = asdict(self.waterfall)
        if open_questions := self._not_asked():
            found[NOT_ASKED] = [asdict(one) for one in open_questions]
            found[MORE_TIME] = asdict(more_time(open_questions, self.searched_s))
        if raced := self.search.evidence.beyond.told:
            found["whole_networks"] = list(raced)
        if guide is not None:
            found["model"] = guide.summary()
        if lab.sentinel is not None and lab.sentinel.checks:
            best = standing.best
            found["sentinel"] = lab.sentinel.summary()
            found["untrusted_winners"] = self.search.evidence.untrusted_winners(best) if best is not None else []
        if self.left_out:
            found["left_out"] = list(self.left_out)
        if self.alone:
            found[ALONE] = self.alone
        return found


def _ended(_verdict: Verdict, _took_s: float) -> bool:
    """Nothing is searched after the first verdict."""
    return False


def _decision(verdict: Verdict) -> ChoiceDecision | None:
    """How sure the choice is, for people."""
    found = verdict.decision
    if found is None or found.ratio is None or not found.verdict:
        return None
    ratio = found.ratio
    return ChoiceDecision(found.against, found.verdict, found.trusted, ratio.value, ratio.lo, ratio.hi)
