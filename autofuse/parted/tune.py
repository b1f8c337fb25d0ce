"""`tune` of a model in parts: each segment, those of rows too, gets its share of the budget; then whole models race."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autofuse.compiler import Context, Policy
from autofuse.compiler.open_sizes.row_segments import RowSegments
from autofuse.environment.place import Place
from autofuse.errors import UncoveredError
from autofuse.fusion.plan import ScheduleLimits
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.kernels.emission import Emission
from autofuse.opened.tune import tune_open
from autofuse.parted.in_time import Ending, Searched
from autofuse.parted.race import raced_whole
from autofuse.parted.together import require_segments, result_of_all
from autofuse.search.budget.budget import crowding, now, total_worked
from autofuse.search.progress import SearchRequest, TuneResult
from autofuse.search.tune import tune
from autofuse.segments.choice import Choice, Piece
from autofuse.segments.read import parts_of
from autofuse.segments.report import part_reports
from autofuse.segments.rows import ROWS
from autofuse.values.arguments import file_title
from autofuse.values.scratch import scratch_folder


def tune_parts(model: Path, place: Place, error: UncoveredError, request: SearchRequest, since: float) -> TuneResult:
    """Tune the segments of a model that kernels of ours do not cover whole, as `error` says; see `autofuse.api.tune`.

    `request.trials`: of each segment. `since`: when the budget began (of `time.monotonic`). Segments of little work are
    left out, and whole models not raced, where the budget has no time for them. InputError when there is no segment to
    tune.
    """
    began, worked_s = time.monotonic(), total_worked()
    choice, budget_s = parts_of(model, request.given, error), request.budget_s
    found, files = rows_with_files(choice, place, request)
    crowded = crowding(time.monotonic() - began, total_worked() - worked_s)
    require_segments(model, found)
    ending = Ending((*found.all_segments, *found.rows), budget_s, since, crowded)
    with scratch_folder() as folder:
        searched, left_out = _segments(files, place, request, folder, f"{file_title(model)}-segment", ending)
        in_time = ending.race(searched)
        times = (
            raced_whole(model, place, choice, request.given, request.exact, ending.race_s, folder, in_time.left)
            if in_time is not None
            else {}
        )
    results = [result for _, result in sorted(searched, key=lambda one: bool(one[0].most_rows))]
    return result_of_all(file_title(model), results, times, time.monotonic() - since, left_out, part_reports(found))


def rows_with_files(choice: Choice, place: Place, request: SearchRequest) -> tuple[Choice, Mapping[Piece, bytes]]:
    """The parts with their segments of rows, as `compile` finds them, and the files of these."""
    with Context(place, policy=Policy(limits=ScheduleLimits(exact=request.exact))) as context:
        rows = RowSegments(context, Emission(context.environment.target))
        choice = rows.found(choice)
    return choice, {piece: rows.file(piece) for piece in choice.rows}


def _segments(
    files: Mapping[Piece, bytes], place: Place, request: SearchRequest, folder: Path, title: str, ending: Ending
) -> tuple[list[Searched], list[str]]:
    """One search a segment, that of most work first, and the names of segments that there was no time for; each gets of
    the time that is left what its work is of the work that is left."""
    left = sorted(enumerate(ending.pieces), key=lambda one: -one[1].work_us)
    searched: list[Searched] = []
    left_out = []
    while left:
        number, piece = left[0]
        path = folder / f"{title}{number}.onnx"
        budget_s = ending.segment_s([one for _, one in left], searched)
        if budget_s == 0:
            left_out.append(path.stem)
        else:
            path.write_bytes(files.get(piece) or piece.content)
            searched.append((piece, search_segment(path, piece, place, replace(request, budget_s=budget_s, given={}))))
        left = left[1:]
    return searched, left_out


def search_segment(path: Path, piece: Piece, place: Place, request: SearchRequest) -> TuneResult:
    """The search of one segment in a file of its own."""
    if piece.most_rows:
        return tune_open(path, place, of_rows(piece, request), now())
    return tune(path, place, replace(request, alone=False))


def of_rows(piece: Piece, request: SearchRequest) -> SearchRequest:
    """The same request of a segment of rows, any number of which may come."""
    return replace(request, sizes=(OpenSize(ROWS, 1, piece.most_rows),), trace=None)
