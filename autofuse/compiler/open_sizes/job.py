"""One compile of a model with an open size: proves that its rows are kept apart, finds schedules for tiles of rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from autofuse.backend.compile.objects import user_objects
from autofuse.backend.compile.open_sizes.open_program import (
    build_open_library,
    several_at_most,
)
from autofuse.backend.compile.realise import Progress, silent
from autofuse.backend.library.threads import usable_threads
from autofuse.compiler.context import Context
from autofuse.compiler.formats import check_form, check_signed, read_files, with_files, writer
from autofuse.compiler.open_sizes.plans import RangedPlan, find_open_plans
from autofuse.compiler.open_sizes.reading import OpenModel, read_open
from autofuse.compiler.open_sizes.row_segments import RowSegments
from autofuse.compiler.open_sizes.tiles import (
    ReportedPlan,
    open_report,
    reports_of_rows,
    with_parts,
)
from autofuse.compiler.open_sizes.tiling import Tiled, all_sizes, form_of_rows, tiled
from autofuse.compiler.parts.open_head import OpenHead
from autofuse.compiler.parts.rest import rest_of
from autofuse.compiler.report import LOOKING_UP, CompileReport
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.transform.open_sizes.caches import Caches, paired
from autofuse.kernels.emission import Emission
from autofuse.values.arguments import Given, LibraryFormat
from autofuse.values.signatures import private_key


def compile_open(
    context: Context,
    model: Path,
    output: Path | None,
    given: Given,
    sizes: Sequence[OpenSize],
    plan: str | None,
    key: Path | None = None,
    progress: Progress | None = None,
    caches: Caches | None = None,
    form: LibraryFormat = "so",
    head: OpenHead | None = None,
) -> CompileReport:
    """Write the library of `model` with the one size of `sizes` that has a range left open; see `autofuse.api.compile`.

    `caches`: outputs that are updated in place, each with the input that it extends. `head`: what our kernels run of
    the model, where that is a part.

    InputError that names the operator which mixes what the size counts, or depends on it in another way.
    """
    started, told = time.monotonic(), progress or silent
    check_signed(form, key is not None)
    if output is not None:
        check_form(form, output, read_files(context, model, output, plan), context.environment.target)
    if key is not None:
        private_key(key)
    read = read_open(model if head is None else head.path, given, sizes, told)
    emission = Emission(context.environment.target)
    rows = RowSegments(context, emission)
    choice = None if head is None else rows.of_head(head, read.opened.graph)
    told(LOOKING_UP, 0, 1)
    chosen = find_open_plans(context, form_of_rows(context, read), plan)
    named = paired(read.opened, caches or {})
    programs = [tiled(context, read, one, named, emission) for one in chosen]
    write = writer(form, model, given, None)
    if output is not None:
        parts, target = [part for part, _ in programs], context.environment.target
        build_open_library(
            parts, target, context.threads, output, key, progress, usable_threads(), write, user_objects(target),
            None if choice is None or head is None else rest_of(choice, None, rows.programs(choice), head.asked),
        )  # fmt: skip
    report = _report(context, model, output, [*zip(chosen, programs, strict=True)], time.monotonic() - started)
    report = with_parts(report, choice, sizes if head is None else head.asked)
    return with_files(rows.told(report, choice), form, output, write)


def write_open(context: Context, read: OpenModel, chosen: Sequence[RangedPlan], output: Path) -> None:
    """Write the library of a plan, or of one for each part of the range, in the format `so`."""
    target = context.environment.target
    emission = Emission(target)
    parts = [tiled(context, read, one, {}, emission)[0] for one in chosen]
    build_open_library(parts, target, context.threads, output, jobs=usable_threads(), kept=user_objects(target))


def _report(
    context: Context, model: Path, output: Path | None, plans: Sequence[tuple[RangedPlan, Tiled]], seconds: float
) -> CompileReport:
    first, reports = plans[0][1][0], []
    for number, (ranged, (part, found)) in enumerate(plans):
        groups = reports_of_rows(part, found, number)
        firsts = [group.tiles[0] for group in part.groups if group.tiles]
        reports.append(ReportedPlan(ranged, groups, firsts))
    graph = first.largest
    shapes = {name: graph.tensors[name].shape for name in graph.inputs if name not in first.opened.parts}
    several = {name: tensor.shape for name, tensor in several_at_most(first, graph).items() if name in shapes}
    sizes = all_sizes(first.sizes, first.repeats)
    return open_report(context, model, output, reports, shapes | several, sizes, seconds)
