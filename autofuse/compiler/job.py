"""One compile: load, find plans and schedules on the ladder, build, report."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autofuse.backend.compile.function import Translator, is_long, translating
from autofuse.backend.compile.objects import user_objects
from autofuse.backend.compile.realise import Part, Progress, Write, build_programs, silent, write_rest
from autofuse.backend.library.threads import usable_threads
from autofuse.compiler.context import Context
from autofuse.compiler.formats import check_form, check_signed, read_files, with_files, write_alone, writer
from autofuse.compiler.growth import weight_size, within_growth
from autofuse.compiler.open_sizes.row_segments import RowSegments, with_row_segments
from autofuse.compiler.parts.bodies import BodyModels, buildable
from autofuse.compiler.parts.rest import SEGMENTS_RUN, as_raced, by_race, chosen_parts, raced_parts, rest_of
from autofuse.compiler.parts.whole import raced_alone, where_alone_is_faster
from autofuse.compiler.plan_ladder import FoundPlan, checked_plan, find_plan
from autofuse.compiler.report import (
    HIT,
    LOOKING_UP,
    MEASURED_HERE,
    NONE,
    READING,
    RULE,
    STALE_CODE,
    CompileReport,
    GroupReport,
    PlanReport,
)
from autofuse.compiler.schedule_ladder import Decided, Found, Ladder
from autofuse.compiler.translation import Translation
from autofuse.database.ask.labels import unique_labels
from autofuse.device.target import Target
from autofuse.environment.alone import WhoRuns, told
from autofuse.errors import InputError, StrictMissError, UncoveredError
from autofuse.graph.key import graph_key
from autofuse.graph.loading.given.constants import model_sha256
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.emission import Emission
from autofuse.kernels.lowering.coverage import require_kernels
from autofuse.kernels.lowering.lower import Lowered
from autofuse.kernels.workload.workload import BoundWorkload, Workload
from autofuse.segments.choice import Choice
from autofuse.segments.read import read_choice
from autofuse.segments.report import OWN, REST, part_reports, rest_reports
from autofuse.values.arguments import Given, LibraryFormat, file_title
from autofuse.values.ratios import Ratio
from autofuse.values.signatures import private_key

NAMED = 3
"""Kernels that a warning names."""
NOTHING_PAYS = "no part of it would pay in kernels of autofuse"


@dataclass(frozen=True, eq=False)
class _Form:
    """The model at one set of input shapes: its plan, its kernels, a schedule for each workload, whence they come."""

    graph: Graph
    plan: FoundPlan
    lowered: Lowered
    ladder: Ladder
    found: Mapping[str, Found]


def compile_in(
    context: Context,
    model: Path,
    output: Path | None,
    given: Sequence[Given],
    plan: str | None,
    key: Path | None = None,
    progress: Progress | None = None,
    form: LibraryFormat = "so",
    fixed: Mapping[str, int] | None = None,
) -> CompileReport:
    """Write the library of `model`, one program for each of `given`; see `autofuse.api.compile`.

    `output`: None for a dry run. `key`: a private key to sign the library with. `progress`: is told how far it is.
    `form`: the format of the library. `fixed`: see `read_choice`.
    StrictMissError when the policy wants what was not measured; DatabaseError when the database cannot be read.
    """
    started = time.monotonic()
    check_signed(form, key is not None)
    if output is not None:
        check_form(form, output, read_files(context, model, output, plan), context.environment.target)
    if key is not None:
        private_key(key)
    emission, target = Emission(context.environment.target), context.environment.target
    told = progress or silent
    rows = RowSegments(context, emission)
    if fixed is None:
        read, choice = _read(context, model, given, told, form, rows)
    else:
        read, choice = _parts(model, given[0], fixed, rows)
    forms = []
    whole = output is not None and choice is None
    with _ahead(target) if whole else nullcontext() as ahead:
        decided = partial(_begin, emission, ahead) if ahead is not None else None
        for number, (graph, sha256) in enumerate(read):
            told(LOOKING_UP, number, len(read))
            forms.append(_found(context, graph, sha256, plan, emission, decided))
        if choice is None and len(forms) == 1 and form != "c":
            only = forms[0]
            choice = where_alone_is_faster(context, model, given[0], _raced_alone(context, only))
            forms = forms if choice is None else []
        write = writer(form, model, given[0], choice)
        if output is not None and forms:
            forms = _built(context, forms, output, key, progress, choice, write, ahead, rows)
        elif output is not None and choice is not None and choice.rows:
            build_programs(
                [],
                target,
                context.threads,
                output,
                key,
                progress,
                emission,
                rest=rest_of(choice, None, rows.programs(choice)),
            )
        elif output is not None and choice is not None:
            write_alone(form, choice, context, output, key)
    report = _report(context, model, output, forms, choice, time.monotonic() - started)
    return with_files(rows.told(report, choice), form, output, write)


def _read(
    context: Context, model: Path, given: Sequence[Given], told: Progress, form: LibraryFormat, rows: RowSegments
) -> tuple[list[tuple[Graph, str]], Choice | None]:
    """The graph for each of `given`, and the SHA-256 of the model; or of each segment, where ours is only a part."""
    if form == "ort" and len(given) > 1:
        raise InputError("--format ort: a model for ONNX Runtime is compiled for one set of shapes; name one --shape")
    found = []
    content = model.read_bytes() if model.is_file() else b""
    try:
        for number, one in enumerate(given):
            told(READING, number, len(given))
            found.append((load(model, one), model_sha256(content, one)))
            require_kernels(found[-1][0], bare=form != "so")
    except UncoveredError as error:
        if form == "c":
            raise InputError(
                f"{error}; ONNX Runtime would run that part, and a free-standing library is without it: "
                "compile without --format c"
            ) from error
        choice = chosen_parts(model, given, error, context.policy.require_complete, form)
        choice = buildable(choice, context.environment.target)
        if not context.policy.every_segment:
            choice = as_raced(choice, context)
        choice = rows.found(choice) if form == "so" else choice
        return [(piece.graph, piece.sha256) for piece in choice.all_segments if piece.graph is not None], choice
    return found, None


def _parts(
    model: Path, given: Given, fixed: Mapping[str, int], rows: RowSegments
) -> tuple[list[tuple[Graph, str]], Choice]:
    """What `_read` says of a model whose sizes stay open, but for those in `fixed`. InputError without a segment."""
    choice = rows.found(read_choice(model, given, fixed=fixed).without_bodies("sizes are open around it"))
    if not choice.segments and not choice.rows:
        raise InputError("no part of it that pays has fixed sizes")
    return [(piece.graph, piece.sha256) for piece in choice.segments if piece.graph is not None], choice


def _raced_alone(context: Context, form: _Form) -> Ratio | None:
    return raced_alone(context, form.graph, form.plan, form.lowered, form.found, form.ladder.emission)


def who_runs(context: Context, model: Path, given: Given, graph: Graph) -> WhoRuns:
    """Who runs a model that our kernels cover whole, as `compile_in` decides it; nothing is built."""
    environment = context.environment
    if context.database.best_plan(environment.setting, graph_key(graph)) is None:
        return WhoRuns(OWN, "kernels of autofuse run the model: it was not tuned here")
    content = model.read_bytes() if model.is_file() else b""
    form = _found(context, graph, model_sha256(content, given), None, Emission(environment.target))
    ratio = _raced_alone(context, form)
    if ratio is None:
        why = f"was not raced against ONNX Runtime {environment.provenance.onnxruntime} here"
        return WhoRuns(OWN, f"kernels of autofuse run the model: the code that would be built now {why}")
    side = OWN if where_alone_is_faster(context, model, given, ratio) is None else REST
    return WhoRuns(side, told(ratio), ratio.value, ratio.lo, ratio.hi, ratio.verdict)


def who_runs_parts(context: Context, choice: Choice) -> tuple[Choice, WhoRuns]:
    """The parts of a model as `compile_in` takes them, and what their newest race here said."""
    choice = buildable(choice, context.environment.target)
    ratio = raced_parts(choice, context)
    taken = with_row_segments(context, by_race(choice, ratio))
    ours = bool(taken.all_segments or taken.rows)
    side = f"{OWN} and {REST}" if taken.rest and ours else OWN if ours else REST
    if ratio is not None:
        return taken, WhoRuns(side, told(ratio, SEGMENTS_RUN), ratio.value, ratio.lo, ratio.hi, ratio.verdict)
    version = context.environment.provenance.onnxruntime
    why = f"its segments were not raced against ONNX Runtime {version} here" if ours else NOTHING_PAYS
    return taken, WhoRuns(side, why)


def _ahead(target: Target) -> AbstractContextManager[Translator]:
    """What translates kernels from when they are found on."""
    return translating(target, usable_threads(), user_objects(target))


def _begin(emission: Emission, ahead: Translator, workload: Workload, schedule: Mapping[str, int | str]) -> None:
    """Begin to translate a kernel while others are looked up; not one of long code, which is translated in a child."""
    with suppress(Exception):  # whoever builds it meets the same error, and has other schedules
        kernel = emission.kernel(workload, schedule)
        if not is_long(kernel.function):
            ahead.begin(kernel.function, emission.code(workload, schedule))


def _found(
    context: Context, graph: Graph, sha256: str, plan: str | None, emission: Emission, decided: Decided | None = None
) -> _Form:
    environment = context.environment
    chosen, lowered = checked_plan(context, graph, find_plan(context, graph, sha256, plan))
    policy = context.policy
    ladder = Ladder(context.database, environment, emission, chosen.limits, chosen.pinned, decided)
    found = ladder.find(lowered.kernels, policy.measured_only)
    _refuse_misses(context, lowered, found)
    found = within_growth(lowered.kernels, found, ladder, policy.measured_only)
    return _Form(graph, _as_measured(chosen, found), lowered, ladder, found)


def _as_measured(plan: FoundPlan, found: Mapping[str, Found]) -> FoundPlan:
    """The plan on its rung: it is a hit only while its kernels are the code that it was measured with."""
    changed = sum(one.tier == STALE_CODE for one in found.values())
    if plan.tier != HIT or not changed:
        return plan
    return replace(plan, tier=STALE_CODE, source=f"{plan.source}, {changed} of its kernels are other code now")


def _refuse_misses(context: Context, lowered: Lowered, found: Mapping[str, Found]) -> None:
    if not context.policy.measured_only:
        return
    missing = [bound.workload.label for bound in lowered.kernels if bound.workload.key not in found]
    if missing:
        raise StrictMissError(
            f"{len(missing)} of {len(lowered.kernels)} groups have no measured schedule, such as {missing[0]}: "
            "run `autofuse tune`, or compile without --strict"
        )
    stale = [bound.workload.label for bound in lowered.kernels if found[bound.workload.key].tier != HIT]
    if stale and context.policy.require_complete:
        raise StrictMissError(
            f"{len(stale)} of {len(lowered.kernels)} groups were measured with other versions or other code, "
            f"such as {stale[0]}: "
            "run `autofuse tune`, or compile without --require-complete"
        )


def _built(
    context: Context,
    forms: Sequence[_Form],
    output: Path,
    key: Path | None,
    progress: Progress | None,
    choice: Choice | None,
    write: Write | None,
    ahead: Translator | None,
    rows: RowSegments,
) -> list[_Form]:
    """Writes the library; the forms with what was really built. `ahead`: translates, and may have begun.

    A schedule that fails gives way to the fixed rule, and the rule's own to the simplest one.
    """
    parts, target = [_part(form) for form in forms], context.environment.target
    kept = user_objects(target)
    build = partial(
        build_programs, target=target, threads=context.threads, output=output, progress=progress,
        emission=forms[0].ladder.emission, jobs=usable_threads(), kept=kept,
        bounded=Translation(target, kept=kept),
    )  # fmt: skip
    if choice is None or write is not None:
        replaced = build(parts, key=key, write=write, ahead=ahead)
    else:
        own, bodies = parts[: len(choice.segments)], BodyModels(choice)
        replaced = build(parts[len(own) :], write=bodies) if len(own) < len(parts) else frozenset()
        rest = rest_of(choice, bodies, rows.programs(choice))
        if own or rest.rows:
            replaced |= build(own, key=key, rest=rest)
        else:
            write_rest(rest, target, context.threads, output, key)
    kept.bound()
    made = []
    for form, part in zip(forms, parts, strict=True):
        again = {key: Found(dict(part.spare[key]), RULE) for key in form.found if key in replaced and key in part.spare}
        made.append(replace(form, found={**form.found, **again}))
    return made


def _part(form: _Form) -> Part:
    """A form as it is built, with another schedule for each of its kernels that was not measured as it is."""
    spare = {
        bound.workload.key: form.ladder.simplest(bound.workload)
        if form.found[bound.workload.key].tier == RULE
        else form.ladder.rule(bound.workload).schedule
        for bound in form.lowered.kernels
        if form.found[bound.workload.key].tier != HIT
    }
    return Part(
        form.lowered,
        {key: found.schedule for key, found in form.found.items()},
        form.plan.plan.key,
        {key: found.tier for key, found in form.found.items()},
        form.plan.tier,
        spare,
        {key: found.source for key, found in form.found.items()},
    )


def _report(
    context: Context,
    model: Path,
    output: Path | None,
    forms: Sequence[_Form],
    choice: Choice | None,
    seconds: float,
) -> CompileReport:
    groups: list[GroupReport] = []
    plans = []
    sizes = [weight_size(form.lowered.kernels, form.found, form.ladder) for form in forms]
    kernels_of_all = [bound.workload for form in forms for bound in form.lowered.kernels]
    with context.database.reading() as sql:
        labels = unique_labels(sql, {workload.key: workload.label for workload in kernels_of_all})
    for number, form in enumerate(forms):
        groups += [_group(form, bound, number, labels) for bound in form.lowered.kernels]
        shapes = {name: form.graph.tensors[name].shape for name in form.graph.inputs}
        kernels = len(form.lowered.kernels)
        chosen = form.plan
        plans.append(PlanReport(shapes, chosen.source, chosen.tier, chosen.plan.key, kernels, chosen.trusted))
    alone = "ONNX Runtime, but for rows" if choice is not None and choice.rows else "ONNX Runtime alone"
    first = plans[0] if plans else PlanReport({}, alone, NONE, "", 0)
    return CompileReport(
        model=file_title(model),
        library="" if output is None else str(output),
        plan=first.plan,
        plan_tier=first.tier,
        plan_key=first.plan_key,
        threads=context.threads,
        device=context.environment.profile.name,
        kernels=len(groups),
        hits=sum(group.tier in MEASURED_HERE for group in groups),
        size_bytes=0 if output is None else output.stat().st_size,
        elapsed_s=seconds,
        groups=tuple(groups),
        weights_bytes=sum(size.model for size in sizes),
        held_weights_bytes=sum(size.held for size in sizes),
        plans=tuple(plans),
        warning=_distrust(plans, [group for group in groups if not forms[group.program].plan.together]),
        parts=() if choice is None else part_reports(choice),
        rest=() if choice is None else rest_reports(choice),
    )


def _distrust(plans: Sequence[PlanReport], groups: Sequence[GroupReport]) -> str:
    """Which hits rest on times that are not trusted."""
    notes = []
    if any(plan.trusted is False for plan in plans):
        notes.append("the choice of the plan")
    labels = list(dict.fromkeys(group.group for group in groups if group.trusted is False))
    if labels:
        more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
        notes.append(f"the times of {', '.join(labels[:NAMED])}{more}")
    if not notes:
        return ""
    advice = "`autofuse tune` on a quiet machine measures again"
    return f"not trusted (the machine was disturbed): {'; '.join(notes)}; {advice}"


def _group(form: _Form, bound: BoundWorkload, program: int, labels: Mapping[str, str]) -> GroupReport:
    found = form.found[bound.workload.key]
    operators = tuple(dict.fromkeys(form.lowered.graph.producers[name].name for name in bound.outputs))
    schedule = json.dumps(found.schedule, sort_keys=True)
    label = labels[bound.workload.key]
    return GroupReport(label, operators, found.tier, found.us, schedule, found.source, program, found.trusted)
