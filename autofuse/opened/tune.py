"""`tune` of a model with an open size: schedules of the tiles of its kernels, under the plan that `compile` takes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from autofuse.compiler import Context, Policy
from autofuse.compiler.open_sizes.job import OpenPlan, open_plan
from autofuse.compiler.open_sizes.reading import OpenModel, read_open
from autofuse.compiler.open_sizes.tiles import sharing
from autofuse.compiler.plan_ladder import find_open_plan
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.environment.device import RunnerOptions, open_runner, thread_count
from autofuse.environment.place import Place
from autofuse.fusion.plan import ScheduleLimits
from autofuse.graph.loading.given.buckets import of_images
from autofuse.graph.loading.given.sizes import OpenSize, open_ones, the_open_one
from autofuse.graph.loading.given.trace import Point, read_trace, shares
from autofuse.kernels.open_sizes.open_rows import tile_counts
from autofuse.opened.grid_tiles import Tiled, image_tiles
from autofuse.search.budget.budget import Budget, now
from autofuse.search.lab.tiles import TileSearch, WeightedTile
from autofuse.search.progress import Progress, SearchRequest, TuneResult
from autofuse.search.schedules.evidence import SearchEvidence, searched_space
from autofuse.search.tune import SAMPLING
from autofuse.values.arguments import Given, file_title
from autofuse.values.scratch import scratch_folder


def tune_open(
    model: Path,
    place: Place,
    sizes: Sequence[OpenSize],
    request: SearchRequest,
    since: float,
    trace: Path | None = None,
) -> TuneResult:
    """Search schedules of the tiles of `model`, the sizes of `sizes` with a range left open; see `autofuse.api.tune`.
    KeyboardInterrupt when somebody asked for a stop; what was measured is kept. `trace`: a file of
    the sizes that happen.

    InputError that names the operator which mixes what the size counts, or depends on it in another way.
    """
    budget_s = request.budget_s
    budget = Budget.lasting(budget_s, request.stop, since)
    asked = place.find(measuring=True)
    asked.require_measurable()
    thread_count(place.threads, asked)
    images = of_images(model, [one.name for one in open_ones(sizes)])
    ranges = open_ones(sizes) if images else _ranges(sizes)
    happening = shares(ranges, None if trace is None else read_trace(trace, *ranges))
    request.progress(Progress("opening", f"reading {model.name}", now() - since, budget_s, total=request.trials))
    with ExitStack() as stack:
        base = stack.enter_context(open_database(place.database))
        with Context(place, policy=Policy(limits=ScheduleLimits(exact=request.exact)), asked=asked) as context:
            tiled = (image_tiles if images else row_tiles)(context, model, request.given, sizes, happening)
        environment = place.environment(base, measuring=True, asked=asked)
        space = searched_space(request.space, environment, request.exact)
        evidence = SearchEvidence(tiled.graph, space, environment, base, request.seed)
        evidence.limit_schedules(tiled.chosen.limits)
        options = RunnerOptions(SAMPLING)
        runner = stack.enter_context(open_runner(environment.device, environment.setting.threads, options))
        folder = stack.enter_context(scratch_folder())

        def tell(what: str) -> None:
            counts, elapsed_s = evidence.counts, now() - since
            left_s = None if budget_s is None else max(0.0, budget_s - elapsed_s)
            request.progress(
                Progress(
                    "search", what, elapsed_s, budget_s, counts.measured, request.trials, counts.ok, counts.failed,
                    counts.hits, left_s=left_s, asking="tiles",
                )
            )  # fmt: skip

        search = TileSearch(tiled.tiles, tiled.graphs, evidence, runner, folder, tell)
        search.advance(budget, request.trials)
        if budget.stopped():
            raise KeyboardInterrupt
        return _result(model, base, search, tiled, time.monotonic() - since)


def row_tiles(
    context: Context, model: Path, given: Given, sizes: Sequence[OpenSize], happening: Mapping[Point, float]
) -> Tiled:
    """The tiles of rows under the plan that `compile` takes, at the sizes that are `happening`."""
    read = read_open(model, given, sizes)
    planned = open_plan(context, read, find_open_plan(context, read.opened.graph, read.sha256, None))
    tiles = weighted(planned, {_ordered(read, _ranges(sizes), point): part for point, part in happening.items()})
    firsts = {other.key: first.key for other, first in sharing(planned.kernels, context.environment.target)}
    tiles = [replace(tile, first=firsts.get(tile.bound.workload.key, "")) for tile in tiles]
    graphs = {rows: planned.opened.at(rows or planned.opened.size) for rows in {tile.rows for tile in tiles}}
    kernels = sum(bool(own) for _, _, own in planned.groups)
    return Tiled(planned.opened.graph, planned.chosen, kernels, tiles, graphs)


def _ranges(sizes: Sequence[OpenSize]) -> Sequence[OpenSize]:
    """The open sizes of a model of rows: both, or the one."""
    found = open_ones(sizes)
    return found if len(found) == 2 else (the_open_one(sizes),)


def _ordered(read: OpenModel, ranges: Sequence[OpenSize], point: Point) -> tuple[int, int]:
    """The size of one sequence, and how many there are."""
    values = {size.name: value for size, value in zip(ranges, point, strict=True)}
    return values[read.size.name], 1 if read.repeats is None else values[read.repeats.size.name]


def weighted(planned: OpenPlan, happening: Mapping[tuple[int, int], float]) -> list[WeightedTile]:
    """Every tile, with how often a call runs it on the average; `happening`: the part of all calls that has a size, and
    a number of sequences."""
    found = []
    for group, whole, tiles in planned.groups:
        if not group.in_tiles:
            continue
        rows = [count for count, _ in tiles]
        once = group.picked is not None or rows == [0]
        counts = {}
        for size, sequences in happening:
            joined, times = planned.of_call(group, whole, size, sequences)
            runs_of = [1] * len(rows) if once else tile_counts(rows, joined)
            counts[size, sequences] = [times * runs for runs in runs_of]
        for place, (count, bound) in enumerate(tiles):
            runs = sum(share * counts[point][place] for point, share in happening.items())
            found.append(WeightedTile(count, bound, runs, count))
    return found


def _result(model: Path, base: ProfilingDatabase, search: TileSearch, tiled: Tiled, elapsed_s: float) -> TuneResult:
    evidence = search.evidence
    counts, setting = evidence.counts, evidence.environment.setting
    untimed = sum(one.us is None for one in search.times())
    warning = f"{untimed} tiles have no time: the budget ended before, or every schedule failed" if untimed else ""
    return TuneResult(
        file_title(model), "", 0, base.location.text, evidence.environment.profile.name, setting.threads, "finished",
        elapsed_s, counts.measured, counts.failed, counts.hits, 0, tiled.chosen.tier, tiled.chosen.plan.key,
        tiled.kernels, warning=warning, tiles=search.times(),
    )  # fmt: skip
