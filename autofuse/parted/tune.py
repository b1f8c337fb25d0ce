"""`tune` of a model in parts: each segment gets its share of the budget, then whole models are raced."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from autofuse.environment.place import Place
from autofuse.errors import UncoveredError
from autofuse.parted.race import raced_whole
from autofuse.parted.together import race_seconds, require_segments, result_of_all, shares
from autofuse.search.progress import SearchRequest, TuneResult
from autofuse.search.tune import tune
from autofuse.segments.choice import Choice
from autofuse.segments.read import parts_of
from autofuse.values.arguments import file_title
from autofuse.values.scratch import scratch_folder

RACE_PART = 0.1
"""Part of the budget that the race of whole models takes."""


def tune_parts(model: Path, place: Place, error: UncoveredError, request: SearchRequest, since: float) -> TuneResult:
    """Tune the segments of a model that kernels of ours do not cover whole, as `error` says; see `autofuse.api.tune`.

    `request.trials`: of each segment. `since`: when the budget began (of `time.monotonic`). InputError when there is no
    segment to tune.
    """
    choice, budget_s = parts_of(model, request.given, error), request.budget_s
    require_segments(model, choice)
    race_s = race_seconds(None if budget_s is None else RACE_PART * budget_s)
    with scratch_folder() as folder:
        ends = None if budget_s is None else since + budget_s - race_s
        results = _segments(choice, place, request, folder, f"{file_title(model)}-segment", ends)
        times = raced_whole(model, place, choice, request.given, request.exact, race_s, folder)
    return result_of_all(file_title(model), results, times, time.monotonic() - since)


def _segments(
    choice: Choice, place: Place, request: SearchRequest, folder: Path, title: str, ends: float | None
) -> list[TuneResult]:
    """One search a segment; each gets of the time that is left what its work is of the work that is left."""
    left = list(enumerate(choice.all_segments))
    results = []
    while left:
        number, piece = left[0]
        share = shares([one for _, one in left])[0]
        path = folder / f"{title}{number}.onnx"
        path.write_bytes(piece.content)
        budget_s = None if ends is None else max(1.0, (ends - time.monotonic()) * share)
        results.append(tune(path, place, replace(request, budget_s=budget_s, given={}, alone=False)))
        left = left[1:]
    return results
