"""The text of a plan, as this version and older ones write it; the limits of its schedules stand beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autofuse.errors import PlanError
from autofuse.fusion.explain import describe, plan_diff
from autofuse.fusion.plan import FusionPlan, Group, ScheduleLimits, read_plan
from autofuse.fusion.planner.baselines import none_plan
from autofuse.graph.model import Graph
from autofuse.graph.transform.copies import Copy

OLD = Path(__file__).with_name("golden") / "plan-with-winograd.json"
"""Written by the version before limits stood beside the plan."""
PLAN = FusionPlan(
    (Group(("relu",)), Group(("conv", "add", "relu@add"))), ("norm",), (Copy("relu", "add"),), ("sum_of_one@sum",)
)


def test_a_plan_and_its_limits_are_read_as_they_were_written() -> None:
    for limits in (ScheduleLimits(), ScheduleLimits(2), ScheduleLimits(0, 1.5, True)):
        assert read_plan(PLAN.to_json(limits)) == (PLAN, limits)
    assert "limits" not in PLAN.to_json()
    assert json.loads(PLAN.to_json())["schema"] == 1
    assert json.loads(PLAN.to_json(ScheduleLimits(2)))["schema"] == 2, "a version that knows no limits refuses it"


def test_a_file_of_an_older_version_keeps_its_limit() -> None:
    assert read_plan(OLD.read_text()) == (PLAN, ScheduleLimits(2))
    assert json.loads(OLD.read_text())["key"] != PLAN.key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "plan is not JSON"),
        ("[" * 100_000, "plan is not JSON: .*recursion"),
        ("[]", "plan: Input should be an object"),
        ('{"schema": 3, "folds": [], "groups": []}', "plan: schema: Input should be 1 or 2"),
        ('{"schema": 1, "folds": []}', "plan: groups: Field required"),
        ('{"schema": 1, "folds": [1], "groups": []}', "plan: folds.0: Input should be a valid string"),
        ('{"schema": 1, "folds": [], "groups": [["a"], "b"]}', "plan: groups.1: "),
        ('{"schema": 1, "folds": [], "groups": [], "copies": [["a"]]}', "plan: copies.0"),
        ('{"schema": 1, "folds": [], "groups": [], "winograd": 3}', "plan: winograd: Input should be 4, 2 or 0"),
        ('{"schema": 1, "folds": [], "groups": [], "winograd": true}', "plan: winograd: Input should be 4, 2 or 0"),
        ('{"schema": 1, "folds": [], "groups": [], "limits": {"winograd_tile": 3}}', "limits.winograd_tile: Input"),
        ('{"schema": 1, "folds": [], "groups": [], "limits": {"colour": 3}}', "limits.colour: Unexpected"),
        ('{"schema": 1, "folds": [], "groups": [["a"]], "key": "b"}', "does not match its content"),
    ],
)
def test_a_text_that_is_no_plan_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read_plan(text)


def test_two_limits_are_kept_by_the_stricter_of_each() -> None:
    first, second = ScheduleLimits(2, 3.0), ScheduleLimits(4, 1.5, True)
    assert first & second == second & first == ScheduleLimits(2, 1.5, True)
    assert first & ScheduleLimits() == first


def test_a_description_and_a_comparison_name_the_limit(zoo: dict[str, object]) -> None:
    graph = zoo["conv_bn_relu"]()  # type: ignore[operator]
    assert isinstance(graph, Graph)
    plain = none_plan(graph)
    assert describe(graph, plain, ScheduleLimits(2)).splitlines()[0].endswith("Winograd up to 2x2")
    difference = plan_diff(plain, plain, (ScheduleLimits(), ScheduleLimits(0)))
    assert not difference.same and difference.algorithms_only_b == ("no Winograd",)
    assert plan_diff(plain, plain).same
