"""The search of one model with open sizes: searched in one go or in slices of time, then concluded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from autofuse.backend.container.open_spec import part_text
from autofuse.compiler.report import RULE
from autofuse.database.records import Json
from autofuse.opened.search.plan_race import BEST, LONGEST_S, STAYS, Contenders, PlanRace, RaceVerdict
from autofuse.opened.search.plan_search import FAILED, OpenPlanSearch, Planned, Tried
from autofuse.opened.search.run import DEFAULT, PREVIOUS, SEARCHED, OpenRun
from autofuse.opened.search.sections import joined
from autofuse.search.budget.budget import Budget, now
from autofuse.search.progress import ChoiceDecision, RangeChoice, TileTime, TuneResult
from autofuse.search.schedules.evidence import Counts
from autofuse.search.schedules.prospects import Prospect, prospects
from autofuse.values.arguments import file_title
from autofuse.values.ratios import FASTER, SAME


@dataclass
class OpenSession:
    """The session of a model with open sizes, a `SearchSession`; made by `autofuse.opened.search.opening.open_session`.

    `started`: on the budget's clock. `state`: what the run ends as when the session is closed.
    """

    model: Path
    plans: OpenPlanSearch
    race: PlanRace
    run: OpenRun
    started: float
    state: str = "interrupted"

    @property
    def counts(self) -> Counts:
        """Candidates of this session."""
        return self.plans.search.evidence.counts

    @property
    def run_id(self) -> int:
        """The run's number in the database."""
        return self.run.id

    def ready(self) -> bool:
        """Whether all tiles of the first plan have a time, or none is left to try."""
        return self.plans.us(self.plans.default) is not None

    def best_us(self) -> float | None:
        """What a call takes on the average under the best plan so far, by the times of its tiles."""
        return self.plans.us(self.plans.best)

    def baseline_us(self) -> float | None:
        """None: no tile is measured for a plan without fusion."""
        return None

    def ahead(self) -> tuple[Prospect, ...]:
        """What is left to gain in the tiles of the best plan."""
        searches = self.plans.search.evidence.searches
        weights = {key: runs * (searches[key].best_us or 0.0) for key, runs in self.plans.best.runs.items()}
        return prospects([searches[key] for key in weights], weights)

    def reserve(self, allowed_s: float = inf, race_s: float | None = None) -> Callable[[], float]:
        """Seconds that the race of the plans that are best so far will take, `allowed_s` at most."""
        race = self._race(race_s)
        return lambda: min(allowed_s, race.needed_s(race.contenders()))

    def least_s(self) -> float:
        """Seconds that the shortest race will take; 0 where there is none."""
        return self.race.least_s(self.race.contenders())

    def compile_s(self) -> float:
        """Seconds that compiling is expected to take."""
        return self.race.build_s(self.plans.stays)

    def advance(self, budget: Budget, trials: int | None = None) -> bool:
        """Goes on with the search; whether nothing worth measuring is left. `trials`: new candidates at most, but for
        first times of the plan that stays (None: as many as the search was opened for)."""
        search = self.plans.search
        if trials is not None:
            firsts = {key: runs for one in self.plans.stays for key, runs in one.runs.items()}
            search.allow(max(trials, len(search.missing(firsts))))
        return self.plans.advance(budget)

    def release(self) -> None:
        """Lets go of the device and of the processes that build for it, until the search goes on."""
        self.race.runner.close()

    def conclude(self, budget: Budget, race_s: float | None = None) -> TuneResult | None:
        """Races the best plans with the one that stays, and records the choice; None when somebody asked for a stop.

        `race_s`: seconds of timing (None: those that the search's budget sets).
        """
        self.state = "failed"
        try:
            outcome = None if budget.stopped() else self._concluded(self._race(race_s), budget)
        except KeyboardInterrupt:
            self.state = "interrupted"
            raise
        self.state = "interrupted" if outcome is None else "finished"
        return None if outcome is None else self._result(outcome)

    def summary(self) -> dict[str, Json]:
        """Nothing that its choice does not say."""
        return {}

    def _race(self, race_s: float | None) -> PlanRace:
        return self.race if race_s is None else replace(self.race, timing_s=min(LONGEST_S, race_s))

    def _concluded(self, race: PlanRace, budget: Budget) -> _Outcome | None:
        """Decides and records the plans. What was not raced is not taken in place of what stays."""
        plans, run, contenders = self.plans, self.run, race.contenders()
        stays = plans.stays
        runs = {key for one in stays for key in one.runs}
        untimed = sum(plans.search.evidence.searches[key].best_us is None for key in runs)
        warning = f"{untimed} tiles have no time: the budget ended before, or every schedule failed" if untimed else ""
        name = DEFAULT if plans.first[-1].found.tier == RULE else PREVIOUS
        if len(contenders) < 2:
            run.choose(plans.ranged(stays), name, not untimed, self._tiles(stays), {})
            return _Outcome(stays, name, None, warning)
        if budget.spent() or budget.left() < min(race.least_s(contenders), race.timing_s):
            run.choose(plans.ranged(stays), name, False, self._tiles(stays), {})
            return _Outcome(stays, name, None, f"{_not_raced(plans, contenders)}: give a larger --budget")
        verdict = race.run(contenders, budget)
        if budget.stopped():
            return None
        return self._decided(contenders, verdict, name, warning)

    def _decided(self, contenders: Contenders, verdict: RaceVerdict, name: str, warning: str) -> _Outcome:
        """Records what a race decided; `name`: of what stays."""
        for contender, reason in verdict.failed.items():
            for one in dict.fromkeys(contenders[contender]) if contender != STAYS else ():
                self.run.record(Tried({}, one.plan, FAILED, reason=reason))
        kept = verdict.chosen == self.plans.stays
        verdict, against = (verdict.turned(), SEARCHED) if kept else (verdict, name)
        details: dict[str, Json] = {
            "against": against, "verdict": verdict.verdict, "ratio": verdict.ratio, "lo": verdict.lo, "hi": verdict.hi,
            "at": {one.size: one.ratio for one in verdict.at},
            "sections": {one.size: one.ratio for one in verdict.sections},
        }  # fmt: skip
        taken, decided = SEARCHED, True
        if kept:
            taken, decided = name, verdict.verdict in (FASTER, SAME) or bool(verdict.wrong)
        tiles = self._tiles(verdict.chosen)
        self.run.choose(self.plans.ranged(verdict.chosen), taken, decided, tiles, details)
        return _Outcome(verdict.chosen, taken, verdict, (kept and verdict.problem) or warning, against)

    def _tiles(self, chosen: Planned) -> tuple[TileTime, ...]:
        """What is known of the tiles of all sections' plans."""
        runs: dict[str, float] = {}
        for one in chosen:
            for key, count in one.runs.items():
                runs[key] = max(count, runs.get(key, 0.0))
        return self.plans.search.times(runs)

    def _result(self, outcome: _Outcome) -> TuneResult:
        evidence, verdict, run = self.plans.search.evidence, outcome.verdict, self.run
        counts, setting = evidence.counts, evidence.environment.setting
        decision = None
        if verdict is not None and (verdict.at or verdict.problem):
            decided = verdict.ratio is not None and verdict.verdict in (FASTER, SAME)
            decision = ChoiceDecision(outcome.against, verdict.verdict, decided, verdict.ratio, verdict.lo, verdict.hi)
        chosen = outcome.chosen[-1]
        return TuneResult(
            file_title(self.model), run.name, run.id, run.base.location.text, evidence.environment.profile.name,
            setting.threads, self.state, now() - self.started, counts.measured, counts.failed, counts.hits, run.tried,
            outcome.name, chosen.plan.key, chosen.tiled.kernels, warning=outcome.warning, decision=decision,
            tiles=self._tiles(outcome.chosen), raced=() if verdict is None else verdict.at,
            ranges=self._ranges_told(outcome), compile_s=self.compile_s(),
            sizes=tuple(size.typed for size in self.race.sizes),
        )  # fmt: skip

    def _ranges_told(self, outcome: _Outcome) -> tuple[RangeChoice, ...]:
        """The plans for parts of the range, where there are several."""
        sections, found, above = self.plans.sections, list[RangeChoice](), None
        names = [size.name for size in self.plans.model.form.sizes]
        ratios = {} if outcome.verdict is None else {one.size: one for one in outcome.verdict.sections}
        for most, one in joined(sections, outcome.chosen):
            own = [section for section, chosen in zip(sections, outcome.chosen, strict=True) if chosen is one]
            sizes = ("x".join(map(str, section.middle)) for section in own)
            raced = tuple(ratios[size] for size in sizes if size in ratios)
            found.append(RangeChoice(part_text(names, above, most), one.plan.key, one.tiled.kernels, raced))
            above = most
        return tuple(found) if len(found) > 1 else ()


@dataclass(frozen=True)
class _Outcome:
    """How a search ended: the plan of each section, their name, what a race said (None: there was none), what the
    reader must know."""

    chosen: Planned
    name: str
    verdict: RaceVerdict | None = None
    warning: str = ""
    against: str = DEFAULT


def _not_raced(plans: OpenPlanSearch, contenders: Contenders) -> str:
    """What there was no time to race."""
    if BEST not in contenders:
        return "plans that are faster in a part of the range by the times of their tiles were not raced"
    gain = (plans.us(plans.default) or 0.0) / (plans.us(contenders[BEST][0]) or 1.0)
    return f"a plan whose tiles take {gain:.2f} times less was not raced"
