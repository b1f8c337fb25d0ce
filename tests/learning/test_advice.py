"""Advice on whole plans: legal, better than the default where the default loses, silent where nothing is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autofuse.database.database import open_database
from autofuse.environment.environment import Environment
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.baselines import default_plan, none_plan
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowering
from autofuse.learning.advice import Adviser, PlanAdviser, advise
from autofuse.learning.features import Machine
from autofuse.learning.model import ProfitabilityModel


@pytest.fixture
def environment(recorder: Any) -> Environment:
    with open_database(recorder.path) as base:
        found: Environment = recorder.environment(base, 1)
        return found


def adviser_of(model: ProfitabilityModel, graph: Graph, environment: Environment, threads: int = 1) -> PlanAdviser:
    adviser = Adviser(model, environment.target, environment.device.fingerprint.facts, threads)
    return PlanAdviser(adviser, Lowering(graph, environment.target))


def true_us(recorder: Any, graph: Graph, plan: FusionPlan, environment: Environment) -> float:
    machine = Machine.of(environment.target, environment.device.fingerprint.facts, 1)
    return sum(
        recorder.cost(b.workload, machine) + 0.3 for b in Lowering(graph, environment.target).lower(plan).kernels
    )


def test_the_advised_plan_of_an_unseen_network_is_legal_and_faster(
    sure_model: ProfitabilityModel, networks: Mapping[str, Path], environment: Environment, recorder: Any
) -> None:
    """By the law a product and a softmax belong together; the default plan keeps them apart in "dense64" too."""
    graph = load(networks["dense64"], {})
    planner = RewritingPlanner(graph)
    adviser = adviser_of(sure_model, graph, environment)
    found = advise(graph, planner, adviser, 60.0)
    assert found.plan is not None and found.abstains == ""
    check_plan(graph, found.plan)
    default = planner.plan({})
    assert found.plan.key == planner.plan(found.answers).key
    assert true_us(recorder, graph, found.plan, environment) < true_us(recorder, graph, default, environment) * 0.98
    assert found.us < found.default_us and found.answers and found.unsure < 0.5
    last = next(set(group.operators) for group in found.plan.groups if "softmax" in group.operators)
    assert "last" in last, "the product before it"


def test_predicted_plans_rank_as_they_are(
    sure_model: ProfitabilityModel, networks: Mapping[str, Path], environment: Environment, recorder: Any
) -> None:
    graph = load(networks["dense64"], {})
    adviser = adviser_of(sure_model, graph, environment)
    none, default = none_plan(graph), default_plan(graph)
    predicted = adviser.us(none) / adviser.us(default)
    real = true_us(recorder, graph, none, environment) / true_us(recorder, graph, default, environment)
    assert predicted == pytest.approx(real, rel=0.25)
    change = adviser.change(none, default)
    assert change.saved_us == pytest.approx(adviser.us(none) - adviser.us(default))
    assert adviser.change(default, default) == replace(change, saved_us=0.0, deviation_us=0.0, unsure="")


def test_nothing_is_advised_for_a_device_that_was_not_learned_from(
    sure_model: ProfitabilityModel, networks: Mapping[str, Path], environment: Environment
) -> None:
    graph = load(networks["dense64"], {})
    elsewhere = replace(sure_model, families=("neon",))
    found = advise(graph, RewritingPlanner(graph), adviser_of(elsewhere, graph, environment), 60.0)
    assert found.plan is None and "trained on neon" in found.abstains
    more = advise(graph, RewritingPlanner(graph), adviser_of(sure_model, graph, environment, threads=2), 60.0)
    assert more.plan is None and "unsure of groups that take 100%" in more.abstains


def test_time_runs_out_with_the_default_plan(
    sure_model: ProfitabilityModel, networks: Mapping[str, Path], environment: Environment
) -> None:
    graph = load(networks["dense64"], {})
    planner = RewritingPlanner(graph)
    found = advise(graph, planner, adviser_of(sure_model, graph, environment), 0.0)
    assert found.plan is not None and found.plan.key == planner.plan({}).key and found.answers == {}
