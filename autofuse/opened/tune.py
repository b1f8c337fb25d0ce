"""`tune` of a model with an open size: plans, and schedules of the tiles of their kernels."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from autofuse.backend.container.open_spec import part_text
from autofuse.compiler import Context, Policy
from autofuse.compiler.open_sizes.plans import (
    PARTS,
    SIZES,
    TILES,
    RangedPlan,
    find_open_plans,
    parts_json,
    ranges_json,
)
from autofuse.compiler.open_sizes.reading import read_open
from autofuse.compiler.report import RULE
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import Json, RunStart, Trial
from autofuse.environment.device import RunnerOptions, open_runner, thread_count
from autofuse.environment.environment import Environment
from autofuse.environment.place import Place
from autofuse.fusion.plan import FusionPlan, ScheduleLimits
from autofuse.fusion.planner.baselines import planner_of_rows
from autofuse.graph.loading.given.sizes import OpenSize, open_ones, the_open_one
from autofuse.graph.loading.given.trace import Point, read_trace, shares
from autofuse.opened.grid_tiles import ImageModel
from autofuse.opened.kinds import over_images, read_images
from autofuse.opened.plan_race import BEST, STAYS, Contenders, PlanRace, RaceVerdict
from autofuse.opened.plan_search import FAILED, OpenPlanSearch, Planned, Tried
from autofuse.opened.row_tiles import RowModel
from autofuse.opened.sections import joined
from autofuse.opened.tiled import OpenedModel
from autofuse.search.budget.budget import Budget, now
from autofuse.search.lab.tiles import TileSearch
from autofuse.search.plans.plan_search import PlanSearch
from autofuse.search.progress import ChoiceDecision, Progress, RangeChoice, SearchRequest, TileTime, TuneResult
from autofuse.search.schedules.evidence import SearchEvidence, searched_space
from autofuse.search.tune import SAMPLING, quiet_studies, unused_name
from autofuse.values.arguments import file_title
from autofuse.values.ratios import FASTER, SAME
from autofuse.values.scratch import scratch_folder

DEFAULT, PREVIOUS, SEARCHED = "default", "previous", "search"
"""Names of the plan that stays, the rule's or what was known before, and of one that the search found."""
MOST_KEPT = 0.5
"""Part of the budget that is kept for a race, at most."""


def tune_open(
    model: Path,
    place: Place,
    sizes: Sequence[OpenSize],
    request: SearchRequest,
    since: float,
    trace: Path | None = None,
) -> TuneResult:
    """Search plans of `model`, the sizes of `sizes` with a range left open, and schedules of their tiles; see
    `autofuse.api.tune`. KeyboardInterrupt when somebody asked for a stop; what was measured is kept. `trace`: a file of
    the sizes that happen.

    InputError that names the operator which mixes what the size counts, or depends on it in another way.
    """
    quiet_studies()
    budget = Budget.lasting(request.budget_s, request.stop, since)
    asked = place.find(measuring=True)
    asked.require_measurable()
    thread_count(place.threads, asked)
    images = over_images(model, request.given, sizes)
    ranges = open_ones(sizes) if images else _ranges(sizes)
    happening = shares(ranges, None if trace is None else read_trace(trace, *ranges))
    elapsed_s = now() - since
    request.progress(Progress("opening", f"reading {model.name}", elapsed_s, request.budget_s, total=request.trials))
    with ExitStack() as stack:
        base = stack.enter_context(open_database(place.database))
        policy = Policy(limits=ScheduleLimits(exact=request.exact))
        context = stack.enter_context(Context(place, policy=policy, asked=asked))
        opened = _read(context, model, sizes, happening, request, images)
        environment = place.environment(base, measuring=True, asked=asked)
        folder = stack.enter_context(scratch_folder())
        run = stack.enter_context(_run(base, environment, model, opened, request, since))
        space = searched_space(request.space, environment, request.exact)
        evidence = SearchEvidence(opened.form.graph, space, environment, base, request.seed)
        runner = stack.enter_context(open_runner(environment.device, context.threads, RunnerOptions(SAMPLING)))
        first = find_open_plans(context, opened.form, None)
        evidence.limit_schedules(first[-1].found.limits)
        planner = planner_of_rows(opened.form.graph, space.fusion, environment.target.l2_bytes, opened.form.open_axes)
        search = TileSearch(evidence, runner, run.id, folder, partial(_tell, request, since, evidence), request.trials)
        plans = OpenPlanSearch(opened, search, first, PlanSearch(planner, request.seed), run.record)
        confirming = partial(_tell, request, since, evidence, phase="confirming")
        race = PlanRace(plans, model, sizes, request.given, runner, folder, request.budget_s, confirming)
        most_s = MOST_KEPT * (request.budget_s or 0.0)
        plans.advance(budget.keeping(lambda: min(most_s, race.needed_s(race.contenders()))))
        if budget.stopped():
            raise KeyboardInterrupt
        outcome = _concluded(run, plans, race, budget)
        run.state = "finished"
        return _result(model, plans, outcome, run, time.monotonic() - since)


def _read(
    context: Context, model: Path, sizes: Sequence[OpenSize], happening: Mapping[Point, float], request: SearchRequest,
    images: bool,
) -> OpenedModel:  # fmt: skip
    """The model whose plans are searched."""
    if images:
        return ImageModel(context, read_images(model, request.given, sizes), happening)
    return RowModel(context, read_open(model, request.given, sizes), _ranges(sizes), happening)


def _ranges(sizes: Sequence[OpenSize]) -> Sequence[OpenSize]:
    """The open sizes of a model of rows: two or three, or the one."""
    found = open_ones(sizes)
    return found if len(found) in (2, 3) else (the_open_one(sizes),)


def _tell(request: SearchRequest, since: float, evidence: SearchEvidence, what: str, phase: str = "search") -> None:
    """Tells what was done last."""
    counts, elapsed_s = evidence.counts, now() - since
    left_s = None if request.budget_s is None else max(0.0, request.budget_s - elapsed_s)
    told = Progress(
        phase, what, elapsed_s, request.budget_s, counts.measured, request.trials, counts.ok, counts.failed,
        counts.hits, left_s=left_s, asking="plans and tiles" if phase == "search" else "",
    )  # fmt: skip
    request.progress(told)


@dataclass
class _Run:
    """The run in the database: plans that were tried, and the choice. `state`: what it ends as."""

    base: ProfilingDatabase
    id: int
    name: str
    opened: OpenedModel
    state: str = "failed"
    tried: int = 0

    def record(self, tried: Tried) -> None:
        """Keeps a plan that was tried."""
        self.keep(tried.plan, SEARCHED if tried.answers else DEFAULT)
        answers: dict[str, Json] = {**tried.answers}
        self.base.record_trial(
            self.id,
            Trial(number=self.tried, answers=answers, state=tried.state, plan_key=tried.plan.key, composed_us=tried.us),
        )
        self.tried += 1

    def keep(self, plan: FusionPlan, origin: str) -> None:
        """Keeps a plan."""
        self.base.record_plan(self.opened.form.key, plan.key, plan.to_json(), origin)

    def choose(
        self, plans: Sequence[RangedPlan], name: str, trusted: bool, tiles: Sequence[TileTime],
        details: Mapping[str, Json],
    ) -> None:  # fmt: skip
        """What `compile` takes from now on, with the `tiles` of all plans; of several plans, that of the largest sizes
        stands for all where they cannot."""
        for one in plans:
            self.keep(one.found.plan, name)
        known: list[Json] = [asdict(tile) for tile in tiles]
        told = {"name": name, SIZES: ranges_json(self.opened.form.sizes), TILES: known, **details}
        told |= {PARTS: parts_json(plans)} if len(plans) > 1 else {}
        self.base.record_choice(self.id, plans[-1].found.plan.key, [], median_us=None, trusted=trusted, details=told)


@contextmanager
def _run(
    base: ProfilingDatabase, environment: Environment, model: Path, opened: OpenedModel, request: SearchRequest,
    since: float,
) -> Iterator[_Run]:  # fmt: skip
    """The run of a search, which ends as its `state` says; as interrupted where somebody stops it."""
    base.release_dead()
    form, title, setting = opened.form, file_title(model), environment.setting
    started = datetime.now(UTC) - timedelta(seconds=now() - since)
    stem = f"{title}-{setting.threads}t-{started:%Y%m%d-%H%M%S}"
    told: dict[str, Json] = {
        "model": title + model.suffix, "threads": setting.threads, "device": environment.profile.name,
        SIZES: ranges_json(form.sizes),
    }  # fmt: skip
    start = RunStart(
        name=unused_name(base, stem), model_name=title, model_sha256=form.model_key, graph_key=form.key,
        seed=request.seed, arguments=told, budget={"seconds": request.budget_s, "trials": request.trials},
        provenance=environment.provenance.as_dict(), started_at=started,
    )  # fmt: skip
    run = _Run(base, base.start_run(setting, start), start.name, opened)
    try:
        yield run
    except KeyboardInterrupt:
        run.state = "interrupted"
        raise
    finally:
        base.finish_run(run.id, run.state)


@dataclass(frozen=True)
class _Outcome:
    """How a search ended: the plan of each section, their name, what a race said (None: there was none), what the
    reader must know."""

    chosen: Planned
    name: str
    verdict: RaceVerdict | None = None
    warning: str = ""
    against: str = DEFAULT


def _concluded(run: _Run, plans: OpenPlanSearch, race: PlanRace, budget: Budget) -> _Outcome:
    """Decides and records the plans. What was not raced is not taken in place of what stays."""
    stays, contenders = plans.stays, race.contenders()
    runs = {key for one in stays for key in one.runs}
    untimed = sum(plans.search.evidence.searches[key].best_us is None for key in runs)
    warning = f"{untimed} tiles have no time: the budget ended before, or every schedule failed" if untimed else ""
    name = DEFAULT if plans.first[-1].found.tier == RULE else PREVIOUS
    if len(contenders) < 2:
        run.choose(plans.ranged(stays), name, not untimed, _tiles(plans, stays), {})
        return _Outcome(stays, name, None, warning)
    if budget.spent() or budget.left() < min(race.needed_s(contenders), race.timing_s):
        run.choose(plans.ranged(stays), name, False, _tiles(plans, stays), {})
        return _Outcome(stays, name, None, f"{_not_raced(plans, contenders)}: give a larger --budget")
    verdict = race.run(contenders, budget)
    for contender, reason in verdict.failed.items():
        for one in dict.fromkeys(contenders[contender]) if contender != STAYS else ():
            run.record(Tried({}, one.plan, FAILED, reason=reason))
    kept = verdict.chosen == stays
    verdict, against = (verdict.turned(), SEARCHED) if kept else (verdict, name)
    details: dict[str, Json] = {
        "against": against, "verdict": verdict.verdict, "ratio": verdict.ratio, "lo": verdict.lo, "hi": verdict.hi,
        "at": {one.size: one.ratio for one in verdict.at},
        "sections": {one.size: one.ratio for one in verdict.sections},
    }  # fmt: skip
    taken, decided = SEARCHED, True
    if kept:
        taken, decided = name, verdict.verdict in (FASTER, SAME) or bool(verdict.wrong)
    run.choose(plans.ranged(verdict.chosen), taken, decided, _tiles(plans, verdict.chosen), details)
    return _Outcome(verdict.chosen, taken, verdict, (kept and verdict.problem) or warning, against)


def _tiles(plans: OpenPlanSearch, chosen: Planned) -> tuple[TileTime, ...]:
    """What is known of the tiles of all sections' plans."""
    runs: dict[str, float] = {}
    for one in chosen:
        for key, count in one.runs.items():
            runs[key] = max(count, runs.get(key, 0.0))
    return plans.search.times(runs)


def _not_raced(plans: OpenPlanSearch, contenders: Contenders) -> str:
    """What there was no time to race."""
    if BEST not in contenders:
        return "plans that are faster in a part of the range by the times of their tiles were not raced"
    gain = (plans.us(plans.default) or 0.0) / (plans.us(contenders[BEST][0]) or 1.0)
    return f"a plan whose tiles take {gain:.2f} times less was not raced"


def _result(model: Path, plans: OpenPlanSearch, outcome: _Outcome, run: _Run, elapsed_s: float) -> TuneResult:
    evidence, verdict = plans.search.evidence, outcome.verdict
    counts, setting = evidence.counts, evidence.environment.setting
    decision = None
    if verdict is not None and (verdict.at or verdict.problem):
        decided = verdict.ratio is not None and verdict.verdict in (FASTER, SAME)
        decision = ChoiceDecision(outcome.against, verdict.verdict, decided, verdict.ratio, verdict.lo, verdict.hi)
    chosen = outcome.chosen[-1]
    return TuneResult(
        file_title(model), run.name, run.id, run.base.location.text, evidence.environment.profile.name, setting.threads,
        run.state, elapsed_s, counts.measured, counts.failed, counts.hits, run.tried, outcome.name,
        chosen.plan.key, chosen.tiled.kernels, warning=outcome.warning, decision=decision,
        tiles=_tiles(plans, outcome.chosen), raced=() if verdict is None else verdict.at,
        ranges=_ranges_told(plans, outcome),
    )  # fmt: skip


def _ranges_told(plans: OpenPlanSearch, outcome: _Outcome) -> tuple[RangeChoice, ...]:
    """The plans for parts of the range, where there are several."""
    parts = joined(plans.sections, outcome.chosen)
    names, above, found = [size.name for size in plans.model.form.sizes], None, list[RangeChoice]()
    ratios = {} if outcome.verdict is None else {one.size: one for one in outcome.verdict.sections}
    for most, one in parts:
        own = [section for section, chosen in zip(plans.sections, outcome.chosen, strict=True) if chosen is one]
        sizes = ("x".join(map(str, section.middle)) for section in own)
        raced = tuple(ratios[size] for size in sizes if size in ratios)
        found.append(RangeChoice(part_text(names, above, most), one.plan.key, one.tiled.kernels, raced))
        above = most
    return tuple(found) if len(found) > 1 else ()
