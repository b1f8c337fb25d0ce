"""What a model is worth to who brings a new network: measurements, libraries compiled unseen, models without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.database.database import open_database
from autofuse.environment.environment import environment_of
from autofuse.errors import InputError
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import Lowering
from autofuse.learning.stored import load_model
from autofuse.measure.networks.bench import ContenderResult
from experiments.profitability import candidates, effort, networks, unseen
from experiments.profitability.held_out import models_without
from experiments.races import NO_RATIO
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
        target = environment_of(base, "local", 1, measuring=False).target
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


def test_an_unseen_network_without_a_ratio_is_a_row_with_its_reason() -> None:
    row = unseen.Row("net", 2, None, None, None, None, None, None, False, "model", 12.4)
    bare = ContenderResult(9.0, None, None, None, False)
    raced = {"tuned": bare, "model": replace(bare, ratio=2.0, ci_lo=1.6, ci_hi=2.5), "rule": replace(bare, wrong="off")}
    found = unseen.judged(row, raced)
    assert (found.model, found.model_lo, found.model_hi) == (0.5, 0.4, 0.625)
    assert (found.rule, found.problem) == (None, f"tuned: {NO_RATIO}; rule: off")
    text = unseen.markdown([found, unseen.judged(row, dict.fromkeys(raced, bare))])
    assert "| net | 2 | 50% (40%-62%) ? | - | model | 12 s |" in text
    assert "| net | 2 | - | - | model | 12 s |" in text
    assert "| geometric mean of 1 |  | 50% | - |" in text
    assert f"net: tuned: {NO_RATIO}; rule: off" in text.splitlines()


@pytest.mark.parametrize("ratio", [None, 1.25])
def test_the_bar_of_unseen_networks_is_not_kept_where_a_ratio_is_missing(
    ratio: float | None, database: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = unseen.Row("pointwise0", 1, ratio, ratio, ratio, 1.0, 1.0, 1.0, True, "model", 1.0, "" if ratio else "busy")
    monkeypatch.setattr(unseen, "row_of", lambda *_: found)
    pair = f"{networks.find('pointwise0', folder)}={database}"
    assert unseen.main([pair, "--train", str(database), "--out", str(tmp_path)]) == (0 if ratio else 1)
    assert "| pointwise0 | 1 | " in (tmp_path / "results.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.long
def test_an_unseen_network_is_compiled_three_ways_and_compared(
    database: Path, folder: Path, counted_rounds: None
) -> None:
    path = networks.find("pointwise0", folder)
    record(folder / "tuned.db", folder, "pointwise0")
    ((_, trained),) = models_without(["pointwise0"], [database], folder / "models")
    row = unseen.row_of(path, folder / "tuned.db", trained, 1, 1.0)
    assert row.problem == "" and row.model and row.rule
    assert row.model_lo and row.model_hi and row.model_lo <= row.model <= row.model_hi
