"""Opening the search of a model with open sizes: the model, its tiles, a runner, its run in the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autofuse.compiler import Context, Policy
from autofuse.compiler.open_sizes.plans import find_open_plans
from autofuse.compiler.open_sizes.reading import OpenModel, read_open
from autofuse.database.database import ProfilingDatabase
from autofuse.environment.device import NamedDevice, RunnerOptions, open_runner
from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.fusion.plan import ScheduleLimits
from autofuse.fusion.planner.baselines import planner_of_rows
from autofuse.graph.loading.given.sizes import OpenSize, open_ones, the_open_one
from autofuse.graph.loading.given.trace import Point, shares
from autofuse.opened.grid_tiles import ImageModel
from autofuse.opened.kinds import GridModel, computes_something, over_images, read_images
from autofuse.opened.row_tiles import RowModel
from autofuse.opened.search.plan_race import PlanRace, timing_seconds
from autofuse.opened.search.plan_search import OpenPlanSearch
from autofuse.opened.search.run import OpenRun
from autofuse.opened.search.session import OpenSession
from autofuse.opened.tiled import OpenedModel
from autofuse.search.budget.budget import now
from autofuse.search.lab.tiles import TileSearch
from autofuse.search.plans.plan_search import PlanSearch
from autofuse.search.progress import Progress, SearchRequest
from autofuse.search.schedules.evidence import SearchEvidence, searched_space
from autofuse.search.session import running
from autofuse.search.tune import SAMPLING, quiet_studies
from autofuse.values.scratch import scratch_folder


@dataclass(frozen=True, eq=False)
class ReadModel:
    """A model that was read with open sizes: its graph, its open sizes, and the part of all calls that has such ones.

    `started`: when reading began, or the budget of what reads it.
    """

    graph: OpenModel | GridModel
    ranges: Sequence[OpenSize]
    happening: Mapping[Point, float]
    started: float

    def opened(self, context: Context) -> OpenedModel:
        """The model whose plans are searched."""
        if isinstance(self.graph, GridModel):
            return ImageModel(context, self.graph, self.happening)
        return RowModel(context, self.graph, self.ranges, self.happening)


def read_sized(model: Path, request: SearchRequest, since: float | None = None) -> ReadModel:
    """Reads a model with the sizes of `request`. InputError that names the operator which mixes what a size counts, or
    depends on it in another way. `since`: when the budget began (None: now)."""
    since, sizes = now() if since is None else since, request.sizes
    told = partial(Progress, budget_s=request.budget_s, total=request.trials)
    request.progress(told("opening", f"reading {model.name}", now() - since))
    images = over_images(model, request.given, sizes)
    ranges = open_ones(sizes) if images else _lengths(sizes)
    read = read_images if images else read_open
    graph = read(model, request.given, sizes)
    return ReadModel(graph, ranges, _happening(model, request, ranges), since)


def _happening(model: Path, request: SearchRequest, ranges: Sequence[OpenSize]) -> Mapping[Point, float]:
    """Which part of the calls that compute something has which sizes. InputError where a trace has no other ones."""
    happening, names = shares(ranges, request.trace), [size.name for size in ranges]
    found = {
        point: share
        for point, share in happening.items()
        if computes_something(model, request.given, request.sizes, dict(zip(names, point, strict=True)))
    }
    if not found:
        raise InputError(f"--trace: none of its calls of {model.name} computes anything: all are of no rows")
    total = sum(found.values())
    return {point: share / total for point, share in found.items()}


def _lengths(sizes: Sequence[OpenSize]) -> Sequence[OpenSize]:
    """The open sizes of a model of rows: two or three, or the one."""
    found = open_ones(sizes)
    return found if len(found) in (2, 3) else (the_open_one(sizes),)


@contextmanager
def open_session(
    model: Path,
    base: ProfilingDatabase,
    place: Place,
    request: SearchRequest,
    asked: NamedDevice | None = None,
    read: ReadModel | None = None,
    *,
    scheduler: str | None = None,
) -> Iterator[OpenSession]:
    """What the search of a model with the sizes of `request` needs; see `autofuse.search.tune.open_session`."""
    quiet_studies()
    read = read or read_sized(model, request)
    with ExitStack() as stack:
        policy = Policy(limits=ScheduleLimits(exact=request.exact))
        here = replace(place, database=base.location.address)
        context = stack.enter_context(Context(here, policy=policy, asked=asked))
        opened, environment = read.opened(context), place.environment(base, measuring=True, asked=asked)
        form, space = opened.form, searched_space(request.space, environment, request.exact)
        evidence = SearchEvidence(form.graph, space, environment, base, request.seed)
        first = find_open_plans(context, form, None)
        evidence.limit_schedules(first[-1].found.limits)
        folder = stack.enter_context(scratch_folder())
        run = OpenRun.begin(base, environment, model, form, request, read.started)
        options = RunnerOptions(SAMPLING, scheduler=scheduler)
        runner = stack.enter_context(open_runner(environment.device, environment.setting.threads, options))
        ending = stack.enter_context(running(base, run.id))

        def tell(what: str, phase: str = "search") -> None:
            _tell(request, read.started, plans, what, phase)

        search = TileSearch(evidence, runner, run.id, folder, tell, request.trials)
        planner = planner_of_rows(form.graph, space.fusion, environment.target.l2_bytes, form.open_axes)
        plans = OpenPlanSearch(opened, search, first, PlanSearch(planner, request.seed), run.record)
        confirming, timing_s = partial(tell, phase="confirming"), timing_seconds(request.budget_s)
        race = PlanRace(plans, model, request.sizes, request.given, runner, folder, timing_s, confirming)
        session = OpenSession(model, plans, race, run, read.started)
        ending.append(session)
        yield session


def _tell(request: SearchRequest, since: float, plans: OpenPlanSearch, what: str, phase: str) -> None:
    """Tells what was done last."""
    counts, elapsed_s = plans.search.evidence.counts, now() - since
    left_s = None if request.budget_s is None else max(0.0, request.budget_s - elapsed_s)
    told = Progress(
        phase, what, elapsed_s, request.budget_s, counts.measured, request.trials, counts.ok, counts.failed,
        counts.hits, plans.us(plans.best), left_s=left_s, asking="plans and tiles" if phase == "search" else "",
    )  # fmt: skip
    request.progress(told)
