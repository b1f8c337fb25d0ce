"""A model of open sizes of which our kernels run the head, and ONNX Runtime what is behind it: tuned, and timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from autofuse.backend.container.metadata import Metadata
from autofuse.backend.library.library import read_metadata
from autofuse.benchmark import OWN, BenchReport, BenchRequest, kept, line_up, report_of
from autofuse.compiler import Context, Policy
from autofuse.compiler.open_sizes.head_race import HeadVerdict
from autofuse.compiler.open_sizes.reading import read_open
from autofuse.compiler.parts.open_head import OpenHead
from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.opened.bench import SizesReport, mixed, raced_over, require_range
from autofuse.opened.kinds import over_images, read_images
from autofuse.opened.tune import tune_open
from autofuse.parted.cases import sized_task
from autofuse.parted.head_race import NOT_RACED, HeadRace
from autofuse.parted.in_time import LEAST_SEGMENT_S, Ending
from autofuse.parted.race import raced
from autofuse.parted.together import NO_RACE
from autofuse.parted.tune import rows_with_files, search_segment
from autofuse.search.budget.budget import crowding, now, total_worked
from autofuse.search.progress import Progress, SearchRequest, TuneResult
from autofuse.segments.choice import Choice, Piece
from autofuse.segments.report import part_reports
from autofuse.values.arguments import file_title
from autofuse.values.names import ONNX_RUNTIME, TVM_UNTUNED
from autofuse.values.scratch import scratch_folder

Build = Callable[[Context, Path, str | None], object]
"""Writes the library of a model at a path, under a plan (None: what a compile takes)."""


def tune_head(model: Path, head: OpenHead, place: Place, request: SearchRequest, since: float) -> TuneResult:
    """Tune the head of a model, and its segments of rows, each for its share of the work, then race the whole with ONNX
    Runtime alone; see `autofuse.api.tune`.

    `request.trials`: of each of them. `since`: when the budget began. InputError for a head whose sizes cannot be open.
    """
    asked = of_head(head, request)
    began, worked_s = now(), total_worked()
    choice, files = head_with_rows(head, place, asked)
    read_s = now() - began
    crowded = crowding(read_s, total_worked() - worked_s)
    ending = Ending((*choice.segments, *choice.rows), request.budget_s, since, crowded)
    least_s, head_us = LEAST_SEGMENT_S * crowded, head_work_us(choice)
    left_us = head_us + sum(piece.work_us for piece in choice.rows)
    budget_s = None if request.budget_s is None else request.budget_s - ending.kept_s([])
    own_s = budget_s
    if budget_s is not None:  # the head is read anew by its search, which the budget counts from its beginning
        searching_s = max(0.0, since + budget_s - now() - read_s)
        own_s = min(budget_s, now() - since + read_s + max(least_s, searching_s * head_us / left_us))
    results = [tune_open(head.path, place, replace(asked, budget_s=own_s), since)]
    with scratch_folder() as folder:
        for number, piece in enumerate(choice.rows):
            left_us -= head_us if number == 0 else choice.rows[number - 1].work_us
            path = folder / f"{file_title(model)}-rows{number}.onnx"
            path.write_bytes(files[piece])
            own_s = None if budget_s is None else max(1.0, since + budget_s - now()) * piece.work_us / left_us
            searched = replace(request, budget_s=own_s, given={})
            results.append(search_segment(path, piece, place, searched))
    race = HeadRace(model, head, place, request, bool(choice.rows))
    said = _raced(race, ending, results[0].run_id, now() - since)
    return head_together(model, choice, request, results, said, now() - since)


def _raced(race: HeadRace, ending: Ending, run_id: int, elapsed_s: float) -> HeadVerdict | str:
    """What the race said, or why there was none."""
    in_time = ending.race([])
    if in_time is None:
        return f"{NOT_RACED}{NO_RACE}"
    told = Progress("confirming", "racing the model with ONNX Runtime alone", elapsed_s, race.request.budget_s)
    race.request.progress(told)
    return race.run(ending.race_s, in_time.left, run_id)


def of_head(head: OpenHead, request: SearchRequest) -> SearchRequest:
    """The same request of the head alone, whose sizes may be others."""
    return replace(request, given={}, sizes=head.sizes) if head.sizes else request


def head_work_us(choice: Choice) -> float:
    """What the head takes, estimated as the work of other segments is."""
    return max(1.0, sum(piece.work_us for piece in choice.segments))


def head_with_rows(head: OpenHead, place: Place, request: SearchRequest) -> tuple[Choice, Mapping[Piece, bytes]]:
    """The parts of a model with its segments of rows, as `compile` finds them, and the files of these."""
    read = read_images if over_images(head.path, request.given, request.sizes) else read_open
    graph = read(head.path, request.given, request.sizes).opened.graph
    return rows_with_files(head.choice(graph), place, request)


def head_together(
    model: Path, choice: Choice, request: SearchRequest, results: Sequence[TuneResult], said: HeadVerdict | str,
    elapsed_s: float,
) -> TuneResult:  # fmt: skip
    """The search of the head, with those of the segments of rows, and what the race `said`."""
    verdict = None if isinstance(said, str) else said
    notes = [said] if isinstance(said, str) else []
    notes += [results[0].warning, *(f"{one.model}: {one.warning}" for one in results[1:] if one.warning)]
    return replace(
        results[0],
        model=file_title(model),
        chosen=ONNX_RUNTIME if verdict is not None and verdict.side == ONNX_RUNTIME else results[0].chosen,
        alone="" if verdict is None else verdict.text,
        elapsed_s=elapsed_s,
        **{name: sum(getattr(one, name) for one in results) for name in ("measured", "failed", "hits", "plan_trials")},
        kernels=sum(one.kernels for one in results),
        tiles=tuple(tile for one in results for tile in one.tiles),
        warning="; ".join(filter(None, notes)),
        parts=part_reports(choice),
        sizes=tuple(size.typed for size in request.sizes),
    )


def bench_head(
    model: Path, place: Place, sizes: Sequence[OpenSize], request: BenchRequest, build: Build
) -> SizesReport:
    """Time one library of a model with a head, at sizes of all its range; see `autofuse.opened.bench.bench_open`.

    `build`: makes the library, where none was named.
    """
    over, named, title = raced_over(model, sizes, request.given), place.find(measuring=True), file_title(model)
    request.check_library(named.address is None)
    with ExitStack() as stack:
        context = stack.enter_context(Context(place, policy=Policy(request.on_miss), asked=named))
        context.environment.device.require_measurable()
        folder = stack.enter_context(scratch_folder())

        @cache
        def built(plan: str | None, name: str) -> Path:
            path = folder / f"{name}.so"
            build(context, path, plan)
            return path

        own = built(None, OWN) if request.library is None else kept(request.library, request.trust, folder)
        metadata = read_metadata(own)
        _require_parts(own, metadata)
        if request.library is not None and metadata.parts is not None:
            require_range(request.library, metadata.parts.sizes, over)
        rivals = [rival for rival in request.against if rival != TVM_UNTUNED]
        found: dict[int | str, BenchReport] = {}
        for count, form in over.forms.items():
            choice, task = sized_task(model, form, metadata, folder / f"{count}.onnx")
            contenders = line_up(own, rivals, built, partial(Path, task.model))
            results = raced(context, choice, contenders, task, request.budget_s / len(over.forms))
            found[count] = report_of(
                title, context.threads, context.environment.profile.name, metadata.kernels, results
            )
    return mixed(title, over, found, request.against)


def _require_parts(library: Path, metadata: Metadata) -> None:
    if metadata.parts is None:
        raise InputError(f"--library: {library} is of another model: ONNX Runtime runs no part of it")
