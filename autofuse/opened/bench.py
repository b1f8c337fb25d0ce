"""`bench` of a model with an open size: one library, raced against its rivals at sizes of the whole range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from autofuse.backend.container.metadata import Metadata
from autofuse.backend.container.open_spec import SizeSpec
from autofuse.backend.library.library import read_metadata
from autofuse.benchmark import (
    OWN,
    SEED,
    BenchReport,
    BenchRequest,
    RivalReport,
    kept,
    line_up,
    report_of,
)
from autofuse.compiler import Context, Policy, compile_open
from autofuse.environment.device import RunnerOptions, open_runner
from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.given.buckets import form_at, form_of
from autofuse.graph.loading.given.sizes import OpenSize, open_ones, the_open_one
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.networks.bench import Contender, ContenderResult
from autofuse.measure.networks.judgement import judged
from autofuse.measure.networks.libraries import Model
from autofuse.measure.runner import Runner
from autofuse.opened.grid_job import compile_grid
from autofuse.opened.kinds import computes_something, over_images
from autofuse.values.arguments import Constant, Given, file_title
from autofuse.values.names import TVM_UNTUNED
from autofuse.values.scratch import scratch_folder

ONE_SIZE = "it compiles one size at a time"
"""Why a rival that needs fixed sizes has no time."""
MIDDLE, HIGH = 50, 90
"""Percentiles of the times of a mix."""


@dataclass(frozen=True)
class MixReport:
    """A rival over all sizes, each as often as the others. None where a size has no ratio.

    `ratio`: the geometric mean of rival / autofuse; `least`: the smallest, at `least_size`; `trusted`: whether all are.
    `p50_us`, `p90_us`: percentiles of its times over the sizes, `autofuse_p50_us`, `autofuse_p90_us`: of autofuse's
    beside it. `error`: why it has none.
    """

    ratio: float | None = None
    least: float | None = None
    least_size: int | str | None = None
    trusted: bool = False
    p50_us: float | None = None
    p90_us: float | None = None
    autofuse_p50_us: float | None = None
    autofuse_p90_us: float | None = None
    error: str = ""


@dataclass(frozen=True)
class SizesReport:
    """What `bench` found with an open size called `name`, `low` to `high`: `sizes`, each as without one, and the `mix`
    of them by rival. Sizes of images are texts such as "64x96". Nothing of it is recorded.
    """

    model: str
    name: str
    low: int | str
    high: int | str
    sizes: Mapping[int | str, BenchReport]
    mix: Mapping[str, MixReport]


def bench_open(
    model: Path,
    place: Place,
    sizes: Sequence[OpenSize],
    request: BenchRequest,
) -> SizesReport:
    """Time one library of `model`, the sizes of `sizes` with a range left open; see `autofuse.api.bench`.

    Each size has its part of the budget. Errors: see `autofuse.benchmark.bench`.
    """
    over, named = raced_over(model, sizes, request.given), place.find(measuring=True)
    given, library, title = request.given, request.library, file_title(model)
    request.check_library(named.address is None)
    with ExitStack() as stack:
        context = stack.enter_context(Context(place, policy=Policy(request.on_miss), asked=named))
        context.environment.device.require_measurable()
        folder = stack.enter_context(scratch_folder())

        @cache
        def build(plan: str | None, name: str) -> Path:
            path = folder / f"{name}.so"
            (compile_grid if over.images else compile_open)(context, model, path, given, sizes, plan)
            return path

        own = build(None, OWN) if library is None else kept(library, request.trust, folder)
        described = read_metadata(own)
        if library is not None:
            _check_range(library, described, over)
        rivals = [rival for rival in request.against if rival != TVM_UNTUNED]
        runner = stack.enter_context(open_runner(context.environment.device, context.threads, RunnerOptions()))
        found: dict[int | str, BenchReport] = {}
        for count, form in over.forms.items():
            graph = load(model, form)
            file = partial(Model(model, given).plain_file, graph, folder / f"{count}.onnx")
            results = _raced(runner, graph, line_up(own, rivals, build, file), request.budget_s / len(over.forms))
            device = context.environment.profile.name
            found[count] = report_of(title, context.threads, device, described.kernels, results)
    return mixed(title, over, found, request.against)


def mixed(title: str, over: Over, found: Mapping[int | str, BenchReport], against: Sequence[str]) -> SizesReport:
    """The report of what was `found` at each size, with the mix of all of them."""
    left_out = {TVM_UNTUNED: MixReport(error=ONE_SIZE)} if TVM_UNTUNED in against else {}
    mix = {rival: _mix(rival, found) for rival in against if rival != TVM_UNTUNED}
    return SizesReport(title, over.name, *over.ends, found, {**mix, **left_out})


@dataclass(frozen=True)
class Over:
    """The open `sizes` that are raced over: `forms` of the inputs at some of them, by what these are called. `images`:
    whether they are those of images."""

    sizes: tuple[OpenSize, ...]
    forms: Mapping[int | str, dict[str, tuple[int, ...] | Constant]]
    images: bool = False

    @property
    def name(self) -> str:
        """What is open."""
        return " x ".join(size.name for size in self.sizes)

    @property
    def ends(self) -> tuple[int | str, int | str]:
        """The smallest and the largest."""
        low, high = ([getattr(size, end) for size in self.sizes] for end in ("low", "high"))
        return ("x".join(map(str, low)), "x".join(map(str, high))) if len(low) > 1 else (low[0], high[0])


def raced_over(model: Path, sizes: Sequence[OpenSize], given: Given) -> Over:
    """What is raced over: the values of one size, images whose sizes all grow alike, or few and many sequences, short
    and long ones; none at which there is nothing to compute."""
    opened = open_ones(sizes)
    images = over_images(model, given, sizes)
    if not images and len(opened) not in (2, 3):
        size = the_open_one(sizes)
        counts = [one for one in size.drawn() if computes_something(model, given, sizes, {size.name: one})]
        return Over((size,), {count: form_at(model, sizes, count, given) for count in counts})
    drawn = [size.drawn() for size in opened]
    most = max(map(len, drawn))
    if images:
        points = [tuple(own[step * (len(own) - 1) // max(1, most - 1)] for own in drawn) for step in range(most)]
    else:
        points = list(product(*(sorted({own[0], own[len(own) // 2], own[-1]}) for own in drawn)))
    forms: dict[int | str, dict[str, tuple[int, ...] | Constant]] = {}
    for values in points:
        named = {size.name: value for size, value in zip(opened, values, strict=True)}
        if computes_something(model, given, sizes, named):
            forms["x".join(map(str, values))] = form_of(model, sizes, named, given)
    return Over(opened, forms, images)


def _raced(
    runner: Runner, graph: Graph, contenders: Sequence[Contender], budget_s: float
) -> Mapping[str, ContenderResult]:
    """The race at one size, whose graph this is."""
    inputs = generate_inputs(graph, SEED)
    expected = run_reference(graph, inputs)
    results = runner.race(contenders, inputs, budget_s, expected=[expected[name] for name in graph.outputs])
    return judged(results, graph, inputs)


def _check_range(library: Path, described: Metadata, over: Over) -> None:
    """InputError unless a library takes all of the range."""
    opened = described.opened
    if opened is None:
        raise InputError(f"--library: {library} has fixed sizes; leave --sizes out, or compile with it")
    if opened.caches:
        raise InputError(
            f"--library: {library} keeps its caches between calls, and a race calls it with all inputs; compile it "
            "without --cache to compare it"
        )
    require_range(library, opened.sizes, over)


def require_range(library: Path, sizes: Sequence[SizeSpec], over: Over) -> None:
    """InputError unless a library whose open sizes these are takes all of the range."""
    known = {one.name: one for one in sizes}
    for one in over.sizes:
        has = known.pop(one.name, None)
        if has is None:
            raise InputError(f"--sizes: {library} has no {one.name} open, but {', '.join(size.name for size in sizes)}")
        if not has.low <= one.low <= one.high <= has.high or one.step % has.step:
            raise InputError(f"--sizes: {library} takes {has.name} {has}, asked was {one}")
    if known:
        raise InputError(f"--sizes: {library} has {next(iter(known))} open, too; give a range of it")


def _mix(rival: str, found: Mapping[int | str, BenchReport]) -> MixReport:
    """A rival over all sizes."""
    times: dict[int | str, RivalReport] = {count: report.rivals[rival] for count, report in found.items()}
    errors = [one.error for one in times.values() if one.error]
    ratios = {count: one.ratio for count, one in times.items() if one.ratio is not None}
    if errors or len(ratios) < len(times):
        return MixReport(error=errors[0] if errors else "")
    least = min(ratios, key=lambda count: ratios[count])
    theirs = [one.median_us for one in times.values()]
    ours = [one.autofuse_us for one in times.values()]
    return MixReport(
        geometric_mean(ratios.values()), ratios[least], least, all(one.trusted for one in times.values()),
        *_percentiles(theirs), *_percentiles(ours),
    )  # fmt: skip


def _percentiles(times: Sequence[float | None]) -> tuple[float, float]:
    known = [us for us in times if us is not None]
    middle, high = np.percentile(known, (MIDDLE, HIGH))
    return float(middle), float(high)
