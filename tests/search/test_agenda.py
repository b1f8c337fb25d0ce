"""Which measurement comes next: by what it promises for its seconds, corrected by what such questions gained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.database.database import open_database
from autofuse.fusion.planner.planner import Planner
from autofuse.graph.loading.load import load
from autofuse.search.budget.agenda import EXPLORE_EVERY, LEAST, MOST, Account, Agenda, Question
from autofuse.search.budget.budget import Budget, now
from autofuse.search.plans.plan_search import PlanSearch

PLAN_US = 1000.0


def question(
    kind: str, gain_us: float, cost_s: float = 1.0, ask: Callable[[Budget], None] = lambda _budget: None,
    owed: bool = False,
) -> Question:  # fmt: skip
    return Question(kind, gain_us, cost_s, ask, owed)


def chosen(agenda: Agenda, *questions: Question, left_s: float = 1e6) -> str:
    found = agenda.choose(questions, PLAN_US, left_s)
    return found.kind if found is not None else ""


def test_the_best_gain_for_its_seconds_is_asked_first() -> None:
    assert chosen(Agenda(), question("schedules", 30.0, 10.0), question("plans", 8.0, 2.0)) == "plans"


def test_a_kind_that_does_not_pay_is_soon_not_believed() -> None:
    agenda = Agenda()
    costly = question("schedules", 30.0), question("plans", 10.0)
    assert chosen(agenda, *costly) == "schedules"
    for _ in range(4):
        agenda.ask(costly[0], Budget(), lambda: PLAN_US)
    assert chosen(agenda, *costly) == "plans"


def test_what_a_kind_gained_is_kept_with_its_time() -> None:
    times, clock = iter([PLAN_US, 900.0]), now()
    agenda = Agenda()
    agenda.ask(question("plans", 50.0), Budget(), lambda: next(times))
    account = agenda.account("plans")
    assert (account.asked, account.gained_us, account.promised_us) == (1, 100.0, 50.0)
    assert 0.0 <= account.spent_s <= now() - clock
    assert account.correction(PLAN_US) == 1.0, "one large gain is not taken for what comes"


def test_what_a_composition_gains_is_to_the_credit_of_the_changes_that_made_it_possible() -> None:
    agenda = Agenda()
    for _ in range(4):
        agenda.ask(question("plans", 30.0), Budget(), lambda: PLAN_US)
    doubted = agenda.account("plans").correction(PLAN_US)
    times = iter([PLAN_US, 900.0])
    composition = Question("compositions", 50.0, 1.0, lambda _budget: None, credit="plans")
    agenda.ask(composition, Budget(), lambda: next(times))
    assert doubted < agenda.account("plans").correction(PLAN_US) <= 1.0
    assert agenda.account("plans").asked == 4


def test_one_question_in_a_few_goes_to_the_kind_with_the_least_time_that_promises_anything() -> None:
    agenda = Agenda()
    agenda.account("schedules").spent_s = 5.0
    hopeless = question("fixed plans", 0.001)
    offered = question("schedules", 30.0), question("plans", 4.0), hopeless
    asked = [chosen(agenda, *offered) for _ in range(2 * EXPLORE_EVERY)]
    assert asked == 2 * [*(EXPLORE_EVERY - 1) * ["schedules"], "plans"]


def test_a_search_ends_when_nothing_is_worth_the_time_that_is_left() -> None:
    small = question("plans", 0.01)
    assert chosen(Agenda(), small, left_s=1.0) == ""
    assert chosen(Agenda(), small, left_s=1000.0) == "plans"
    assert chosen(Agenda(), small, left_s=float("inf")) == "plans"
    assert chosen(Agenda()) == ""


def test_what_is_owed_is_asked_before_the_search_ends() -> None:
    owed = question("fixed plans", 0.0, owed=True)
    assert chosen(Agenda(), question("plans", 0.01), owed, left_s=1.0) == "fixed plans"


def test_a_closing_question_waits_until_only_its_time_and_that_of_one_other_is_left() -> None:
    closing = Question("equal care", 5.0, 4.0, lambda _budget: None, closing=True)
    other = question("plans", 1.0, 2.0)
    assert chosen(Agenda(), closing, other, left_s=100.0) == "plans"
    assert chosen(Agenda(), closing, other, left_s=6.0) == "equal care"
    assert chosen(Agenda(), closing, left_s=100.0) == "equal care", "nothing else is left to ask"
    assert chosen(Agenda(), closing, question("plans", 1e-6), left_s=10.0) == "equal care"


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=30), st.floats(1e-3, 1e6))
def test_a_correction_stays_in_its_bounds_whatever_was_promised_and_paid(
    answers: list[tuple[float, float]], plan_us: float
) -> None:
    account = Account()
    assert account.correction(plan_us) == 1.0
    for promised_us, paid_us in answers:
        account.enter(promised_us, paid_us, 1.0, 1.0)
        assert LEAST <= account.correction(plan_us) <= MOST


def test_plans_are_tried_long_before_all_schedules_are(run: Any, device: Any, two_layers: Path, tmp_path: Path) -> None:
    """Forty candidates are a few more than the default plan's first times and one round of schedules. They take next
    to no time here, so that planning is what a plan costs, and plans come later than on a machine."""
    result = run(two_layers, trials=40)
    assert result.measured <= 40
    assert result.plan_trials >= 4
    with open_database(tmp_path / "profile.db", read_only=True) as base:
        info = base.run(result.run_id)
    assert info is not None and info.summary is not None
    questions = info.summary["questions"]
    assert isinstance(questions, dict)
    assert {"schedules", "plans"} <= set(questions)
    assert all(account["asked"] >= 1 and account["spent_s"] >= 0.0 for account in questions.values())


@pytest.mark.parametrize("world", range(3))
def test_a_fusion_that_pays_is_found_with_few_candidates(world: int, run: Any, device: Any, two_layers: Path) -> None:
    """A pair of operators is slow in one kernel; its flip is found although schedules are left to be tried."""

    def cost(workload: Any, schedule: Any) -> float:
        kinds = {operator.op_type for operator in workload.operators}
        return (300.0 if {"MatMul", "Softmax"} <= kinds else 10.0) * (1 + 0.2 * device.chance(world, schedule))

    device.cost = cost
    result = run(two_layers, trials=60)
    assert result.plans[result.chosen].composed_us < 150.0


def test_flips_are_planned_once_and_the_defaults_come_first(two_layers: Path) -> None:
    search = PlanSearch(Planner(load(two_layers, {})), 0)
    assert search.unopened
    default, *others = search.flips(100)
    assert (dict(default.answers), default.kind) == ({}, "")
    assert len({flip.plan.key for flip in (default, *others)}) == 1 + len(others)
    _, answers, plan = search.take(default)
    search.tell(answers, plan, 10.0)
    assert not search.unopened
    assert [flip.plan.key for flip in search.flips(100)] == [flip.plan.key for flip in others]
    assert [flip.plan.key for flip in search.flips(1)] == [others[0].plan.key]


def test_what_takes_longer_than_expected_is_worth_less() -> None:
    agenda, slow, steady = Agenda(), question("distrusted winners", 1.0), question("plans", 0.9)
    assert chosen(agenda, slow, steady, left_s=100.0) == "distrusted winners"
    account = agenda.account("distrusted winners")
    assert account.pace() == 1.0
    account.enter(1.0, 1.0, planned_s=10.0, seconds=30.0)
    assert 2.0 < account.pace() < 3.0
    assert chosen(agenda, slow, steady, left_s=100.0) == "plans"
