"""`tune` of a model in parts: each segment gets its share of the budget, then whole models are raced."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from autofuse.environment.place import Place
from autofuse.errors import UncoveredError
from autofuse.parted.in_time import Ending, Searched
from autofuse.parted.race import raced_whole
from autofuse.parted.together import require_segments, result_of_all
from autofuse.search.budget.budget import crowding, total_worked
from autofuse.search.progress import SearchRequest, TuneResult
from autofuse.search.tune import tune
from autofuse.segments.choice import Choice
from autofuse.segments.read import parts_of
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
    crowded = crowding(time.monotonic() - began, total_worked() - worked_s)
    require_segments(model, choice)
    ending = Ending(choice.all_segments, budget_s, since, crowded)
    with scratch_folder() as folder:
        searched, left_out = _segments(choice, place, request, folder, f"{file_title(model)}-segment", ending)
        in_time = ending.race(searched)
        times = (
            raced_whole(model, place, choice, request.given, request.exact, ending.race_s, folder, in_time.left)
            if in_time is not None
            else {}
        )
    results = [result for _, result in searched]
    return result_of_all(file_title(model), results, times, time.monotonic() - since, left_out)


def _segments(
    choice: Choice, place: Place, request: SearchRequest, folder: Path, title: str, ending: Ending
) -> tuple[list[Searched], list[str]]:
    """One search a segment, that of most work first, and the names of segments that there was no time for; each gets of
    the time that is left what its work is of the work that is left."""
    left = sorted(enumerate(choice.all_segments), key=lambda one: -one[1].work_us)
    searched: list[Searched] = []
    left_out = []
    while left:
        number, piece = left[0]
        path = folder / f"{title}{number}.onnx"
        budget_s = ending.segment_s([one for _, one in left], searched)
        if budget_s == 0:
            left_out.append(path.stem)
        else:
            path.write_bytes(piece.content)
            result = tune(path, place, replace(request, budget_s=budget_s, given={}, alone=False))
            searched.append((piece, result))
        left = left[1:]
    return searched, left_out
