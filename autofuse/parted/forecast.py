"""`tune --dry-run` of a model in parts, or of a head of open sizes: what each segment's share of the budget will
reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autofuse.compiler import Context, Policy
from autofuse.compiler.open_sizes.row_segments import with_row_segments
from autofuse.compiler.parts.open_head import OpenHead
from autofuse.environment.place import Place
from autofuse.errors import UncoveredError
from autofuse.fusion.plan import ScheduleLimits
from autofuse.opened.forecast import forecast_open
from autofuse.parted.heads import head_with_rows, head_work_us, of_head
from autofuse.parted.in_time import Ending
from autofuse.parted.together import require_segments, shares
from autofuse.search.budget.budget import now
from autofuse.search.phases.forecast import forecast
from autofuse.search.progress import Forecast, PartsForecast, RowsForecast, SearchRequest
from autofuse.segments.read import parts_of
from autofuse.segments.report import kinds_of, part_reports, rest_reports
from autofuse.values.arguments import file_title
from autofuse.values.scratch import scratch_folder


def forecast_parts(model: Path, place: Place, error: UncoveredError, request: SearchRequest) -> PartsForecast:
    """What `tune_parts` will reach; the arguments are those of `autofuse.search.phases.forecast.forecast`.

    InputError when there is no segment to tune.
    """
    budget_s = request.budget_s
    with Context(place, policy=Policy(limits=ScheduleLimits(exact=request.exact))) as context:
        choice = with_row_segments(context, parts_of(model, request.given, error))
        device, threads = context.environment.profile.name, context.threads
    require_segments(model, choice)
    pieces = (*choice.all_segments, *choice.rows)
    race_s = Ending(pieces, budget_s, now()).kept_s(())
    found, rows = list[Forecast](), list[RowsForecast]()
    with scratch_folder() as folder:
        for number, (piece, share) in enumerate(zip(pieces, shares(pieces), strict=True)):
            own_s = None if budget_s is None else max(1.0, (budget_s - race_s) * share)
            if piece.most_rows:
                rows.append(RowsForecast(kinds_of(piece), own_s))
                continue
            path = folder / f"{file_title(model)}-segment{number}.onnx"
            path.write_bytes(piece.content)
            asked = replace(request, budget_s=own_s, given={}, alone=False)
            found.append(forecast(path, place, asked, probes=not found))
    return PartsForecast(part_reports(choice), rest_reports(choice), tuple(found), race_s, tuple(rows), device, threads)


def forecast_head(head: OpenHead, place: Place, request: SearchRequest) -> PartsForecast:
    """What `tune_head` will reach. InputError for a head whose sizes cannot be open."""
    asked, budget_s = of_head(head, request), request.budget_s
    choice, _ = head_with_rows(head, place, asked)
    head_us, rows_us = head_work_us(choice), [piece.work_us for piece in choice.rows]
    race_s = Ending((*choice.segments, *choice.rows), budget_s, now()).kept_s(())
    shared_s = None if budget_s is None else budget_s - race_s
    own_s = [None if shared_s is None else shared_s * us / (head_us + sum(rows_us)) for us in (head_us, *rows_us)]
    found = forecast_open(head.path, place, replace(asked, budget_s=own_s[0]))
    rows = tuple(RowsForecast(kinds_of(piece), one_s) for piece, one_s in zip(choice.rows, own_s[1:], strict=True))
    parts, rest = part_reports(choice), rest_reports(choice)
    return PartsForecast(parts, rest, (found,), race_s, rows, found.device, found.threads)
