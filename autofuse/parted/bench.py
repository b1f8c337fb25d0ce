"""`bench` of a model in parts."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from autofuse.benchmark import OWN, BenchReport, BenchRequest, compiled, kept, line_up, report_of
from autofuse.compiler import Context, Policy
from autofuse.environment.place import Place
from autofuse.errors import UncoveredError
from autofuse.parted.race import raced, task_of
from autofuse.segments.read import parts_of
from autofuse.values.arguments import file_title
from autofuse.values.scratch import scratch_folder


def bench_parts(
    model: Path,
    place: Place,
    error: UncoveredError,
    request: BenchRequest,
) -> BenchReport:
    """Time a model that kernels of ours do not cover whole, as `error` says; see `autofuse.api.bench`.

    What is timed is what a compile ships. Nothing is recorded: `tune` does that. Errors: see
    `autofuse.benchmark.bench`.
    """
    named = place.find(measuring=True)
    given, library = request.given, request.library
    choice = parts_of(model, given, error)
    with ExitStack() as stack:
        context = stack.enter_context(Context(place, policy=Policy(request.on_miss), asked=named))
        context.environment.device.require_measurable()
        folder = stack.enter_context(scratch_folder())

        build = partial(compiled, context, model, given, folder)
        own = build(None, OWN) if library is None else kept(library, request.trust, folder)
        task = task_of(choice, own, folder)
        contenders = line_up(own, request.against, build, lambda: task.model)
        results = raced(context, choice, contenders, task, request.budget_s)
        name = context.environment.profile.name
        return report_of(file_title(model), context.threads, name, task.kernels, results)
