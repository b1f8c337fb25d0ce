"""What a model is worth to who brings a new network: measurements, libraries compiled unseen, models without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.database.database import open_database
from autofuse.environment.circumstances import circumstances
from autofuse.errors import InputError
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import Lowering
from autofuse.learning.stored import load as load_model
from experiments.profitability import candidates, effort, networks, unseen
from experiments.profitability.held_out import models_without
from tests.experiments.by_law import law, record

NAMES = ("pointwise0", "pointwise1", "pointwise2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("in-use")


@pytest.fixture(scope="module")
def database(folder: Path) -> Path:
    for name in NAMES:
        record(folder / "times.db", folder, name)
    return folder / "times.db"


def test_a_model_without_a_network_saw_nothing_of_it(database: Path, folder: Path) -> None:
    ((network, path),) = models_without(["pointwise1"], [database], folder / "models")
    assert network == "pointwise1"
    assert load_model(path).about["networks"] == ["pointwise0", "pointwise2"]


def test_only_what_was_learned_from_can_be_held_out(database: Path, folder: Path) -> None:
    with pytest.raises(InputError, match=r"network 'resnet' is in none of the databases; allowed: pointwise0, "):
        list(models_without(["resnet"], [database], folder / "models"))


def test_a_trajectory_ends_with_the_best_plan_and_begins_where_one_is_whole(database: Path, folder: Path) -> None:
    model = networks.find("pointwise0", folder)
    sums = effort.trajectory(model, database, 1)
    graph = load(model, {})
    with open_database(database, read_only=True) as base:
        target = circumstances(base, "local", 1, measuring=False).target
    first = next(plan for _, plan in candidates.plans(graph, 0))
    kernels = Lowering(graph, target).lower(first).kernels
    distinct = len({bound.workload.key for bound in kernels})
    assert sums[distinct - 2 : distinct] == [
        float("inf"), pytest.approx(sum(law(bound.workload) + LAUNCH_US for bound in kernels)),
    ]  # fmt: skip
    assert sums == sorted(sums, reverse=True) and sums[-1] < sums[distinct - 1]


def test_measurements_are_counted_until_the_aim_is_reached() -> None:
    assert effort.needed([float("inf"), 12.0, 10.0, 9.0], 10.0) == 3
    assert effort.needed([12.0], 10.0) == 0


def test_the_table_of_effort_says_what_was_never_reached() -> None:
    row = effort.Row("net", 1, 300, 90, 200, 50, 98.0, 100.0)
    text = effort.markdown([row, replace(row, guided_needed=0)])
    assert "| net | 1 | 300, 90 | 200, 50 | 0.25 | 0.980 |" in text
    assert "| net | 1 | 300, 90 | 200, never | - | 0.980 |" in text


def test_the_table_of_unseen_networks_has_means_and_doubts() -> None:
    row = unseen.Row("net", 2, 0.96, 0.95, 0.97, 0.90, 0.89, 0.91, True, "model", 12.4)
    text = unseen.markdown([row, replace(row, model=1.0, rule=0.8, trusted=False)])
    assert "| net | 2 | 96% (95%-97%) | 90% (89%-91%) | model | 12 s |" in text
    assert "| 100% (95%-97%) ? |" in text
    assert "| geometric mean of 2 |  | 98% | 85% |" in text


@pytest.mark.slow
def test_an_unseen_network_is_compiled_three_ways_and_compared(database: Path, folder: Path) -> None:
    pair = f"{networks.find('pointwise0', folder)}={folder / 'tuned.db'}"
    record(folder / "tuned.db", folder, "pointwise0")
    arguments = [pair, "--train", str(database), "--bench", "10", "--out", str(folder / "unseen")]
    assert unseen.main(arguments) in (0, 1)
    assert "| pointwise0 | 1 | " in (folder / "unseen" / "results.md").read_text(encoding="utf-8")
