"""`tune --dry-run` of a model in parts: what each segment's share of the budget will reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autofuse.environment.place import Place
from autofuse.errors import UncoveredError
from autofuse.parted.in_time import Ending
from autofuse.parted.together import require_segments, shares
from autofuse.search.budget.budget import now
from autofuse.search.phases.forecast import forecast
from autofuse.search.progress import PartsForecast, SearchRequest
from autofuse.segments.read import parts_of
from autofuse.segments.report import part_reports, rest_reports
from autofuse.values.arguments import file_title
from autofuse.values.scratch import scratch_folder


def forecast_parts(model: Path, place: Place, error: UncoveredError, request: SearchRequest) -> PartsForecast:
    """What `tune_parts` will reach; the arguments are those of `autofuse.search.phases.forecast.forecast`.

    InputError when there is no segment to tune.
    """
    choice, budget_s = parts_of(model, request.given, error), request.budget_s
    require_segments(model, choice)
    race_s = Ending(choice.all_segments, budget_s, now()).kept_s(())
    found = []
    with scratch_folder() as folder:
        for number, (piece, share) in enumerate(zip(choice.all_segments, shares(choice.all_segments), strict=True)):
            path = folder / f"{file_title(model)}-segment{number}.onnx"
            path.write_bytes(piece.content)
            own_s = None if budget_s is None else max(1.0, (budget_s - race_s) * share)
            found.append(forecast(path, place, replace(request, budget_s=own_s, given={})))
    return PartsForecast(part_reports(choice), rest_reports(choice), tuple(found), race_s)
