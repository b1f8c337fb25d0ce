"""`tune` of a model with an open size: plans, and schedules of the tiles of their kernels."""

from __future__ import annotations

from pathlib import Path

from autofuse.database.connection import check_file
from autofuse.database.database import open_database
from autofuse.environment.device import thread_count
from autofuse.environment.place import Place
from autofuse.opened.search.opening import open_session, read_sized
from autofuse.search.budget.budget import Budget
from autofuse.search.progress import SearchRequest, TuneResult

MOST_KEPT = 0.5
"""Part of the budget that is kept for a race, at most."""


def tune_open(model: Path, place: Place, request: SearchRequest, since: float) -> TuneResult:
    """Search plans of `model`, the sizes of `request` with a range left open, and schedules of their tiles; see
    `autofuse.api.tune`. KeyboardInterrupt when somebody asked for a stop; what was measured is kept.

    InputError that names the operator which mixes what the size counts, or depends on it in another way.
    """
    budget = Budget.lasting(request.budget_s, request.stop, since)
    asked = place.find(measuring=True)
    asked.require_measurable()
    thread_count(place.threads, asked)
    check_file(place.database)
    read = read_sized(model, request, since)
    with open_database(place.database) as base, open_session(model, base, place, request, asked, read) as opened:
        most_s = MOST_KEPT * (request.budget_s or 0.0)
        opened.advance(budget.keeping(opened.reserve(most_s)))
        result = None if budget.stopped() else opened.conclude(budget)
        if result is None:
            raise KeyboardInterrupt
        return result
