"""What the leading plan replaces had as many schedules as what came for it, before the plan is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from autofuse.database.database import open_database
from autofuse.environment.place import Place
from autofuse.kernels.workload.workload import Workload
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import CARE
from autofuse.search.phases.care import equal_care
from autofuse.search.phases.phases import measure_baselines, offered
from autofuse.search.phases.questions import Search, compose, plan_search, try_flips
from autofuse.search.progress import SearchRequest
from autofuse.search.schedules.schedule_search import schedule_text
from autofuse.search.tune import open_session


@pytest.fixture
def guesses(device: Any) -> dict[str, str]:
    """A device on which the first schedule of a kernel of several operators is bad and any other one is good; a single
    operator takes 10 us by any schedule. The first schedules, by workload."""
    first: dict[str, str] = {}

    def cost(workload: Workload, schedule: Mapping[str, int | str]) -> float:
        if len(workload.operators) == 1:
            return 10.0
        return (
            200.0
            if first.setdefault(workload.key, repr(sorted(schedule.items()))) == repr(sorted(schedule.items()))
            else 5.0
        )

    device.cost = cost
    return first


@pytest.fixture
def search(guesses: dict[str, str], space: Path, two_layers: Path, tmp_path: Path) -> Iterator[Search]:
    """A search that has tried every changed decision, with one schedule of each kernel."""
    place = Place(database=str(tmp_path / "profile.db"), threads=1)
    request = SearchRequest(space=str(space), trained="none")
    with open_database(place.database) as base, open_session(two_layers, base, place, request) as session:
        found, budget = session.search, Budget()
        measure_baselines(found, budget, budget)
        plans = plan_search(found, budget)
        try_flips(found, plans, plans.flips(1), budget)
        try_flips(found, plans, plans.flips(100), budget)
        compose(found, budget, measure=False)
        yield found


def replaced(search: Search) -> list[int]:
    """Schedules tried of each kernel of the default that the leading plan has not and that has others to try."""
    evidence, leading = search.evidence, search.standing.leading()
    assert leading is not None
    keys = evidence.uses(search.standing.baselines["default"]) - evidence.uses(leading)
    return [len(one.tried) for key in keys if not (one := evidence.searches[key]).complete]


def test_what_won_against_a_bad_schedule_is_undone_by_a_good_one(search: Search) -> None:
    default = search.standing.baselines["default"]
    assert search.standing.leading() != default and set(replaced(search)) == {1}
    question = equal_care(search)
    assert question is not None and question.closing and question.gain_us > 0.0 < question.cost_s
    assert {one.key for one in question.first} <= search.evidence.uses(default).keys()
    while (question := equal_care(search)) is not None:
        question.ask(Budget())
    assert min(replaced(search), default=CARE) >= CARE
    assert search.standing.leading_us() == search.evidence.composed_us(default)


def test_a_kernel_that_has_a_suggested_schedule_gets_the_rules_own_one(search: Search) -> None:
    evidence, leading = search.evidence, search.standing.leading()
    assert leading is not None
    come = evidence.uses(leading) - evidence.uses(search.standing.baselines["default"])
    one = next(evidence.searches[key] for key in come if not evidence.searches[key].complete)
    own = one.guesses()[0]
    other = next(step for step in one.peek(9) if step != own)
    one.tried, one.pending = {}, one.first_candidates()
    one.correct(other, 5.0)
    question = equal_care(search)
    assert question is not None and one in question.first
    question.ask(Budget())
    assert schedule_text(own) in one.tried


def test_it_is_asked_when_only_its_time_is_left(search: Search) -> None:
    questions, agenda = offered(search, Budget()), search.standing.agenda
    (closing,) = [one for one in questions if one.closing]
    plan_us = search.standing.leading_us() or 0.0
    early, late = (agenda.likely(questions, plan_us, seconds) for seconds in (1e6, closing.cost_s))
    assert early is not None and early is not closing and late is closing
