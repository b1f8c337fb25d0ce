"""From a network to the tables: what is measured, what can be chosen from, and an experiment on times by a law."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.device.profile import load_profile
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.legality import check_plan
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import Lowering
from experiments.profitability import candidates, collect, networks, run
from experiments.profitability.cases import read_cases
from experiments.profitability.judges import Constant
from tests.experiments.by_law import PLANS, law, record


def column(base: ProfilingDatabase, view: str, name: str) -> list[object]:
    table = base.table(view)
    return [row[table.columns.index(name)] for row in table.rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profitability")


@pytest.fixture(scope="module")
def database(folder: Path) -> Path:
    for name in ("pointwise0", "pointwise1"):
        record(folder / "times.db", folder, name)
    return folder / "times.db"


def test_networks_come_with_their_families_in_turn() -> None:
    order = networks.in_turn()
    assert sorted(order) == sorted(networks.FAMILIES) and len(order) >= 20
    assert {networks.FAMILIES[name] for name in order[:6]} == set(networks.FAMILIES.values())


@pytest.mark.parametrize("name", ["cnn2", "attention2", "pointwise0"])
def test_every_plan_to_measure_is_legal_and_each_pair_of_neighbours_is_fused_once(name: str, folder: Path) -> None:
    graph = load(networks.find(name, folder), {})
    folded = candidates.Folded.of(graph)
    pairs = [group.operators for plan in candidates.pair_plans(folded) for group in plan.groups if group.operators[1:]]
    assert len(pairs) == len(set(pairs)) > 10 and set(pairs) <= set(folded.edges)
    for number in range(4):
        plan = candidates.random_plan(folded, Random(number))
        check_plan(graph, plan, candidates.MOST_OPERATORS)
        assert plan == candidates.random_plan(folded, Random(number))
    found = dict(islice(candidates.plans(graph, 0), PLANS))
    assert {"apart", "default", "pairs"} <= set(found)
    for plan in found.values():
        check_plan(graph, plan)


def test_the_second_device_is_this_machine_with_narrow_vectors() -> None:
    profile = load_profile(Path(collect.__file__).parent / "sse4.toml")
    assert (profile.name, profile.target().lanes, profile.target().isa) == ("sse4", 4, "generic")
    assert "fma" not in profile.features


def test_a_case_composes_the_times_of_plans_that_were_measured_and_of_new_ones(database: Path, folder: Path) -> None:
    graph = load(networks.find("pointwise0", folder), {})
    with open_database(database, read_only=True) as base:
        case = next(case for case in read_cases(base, folder) if case.network == "pointwise0")
    assert len(case.times) > PLANS and case.uses.min() == 0
    apart = Lowering(graph, case.where.target).lower(candidates.Folded.of(graph).plan(()))
    expected = sum(law(bound.workload) + LAUNCH_US for bound in apart.kernels)
    assert case.times[case.named["apart"]] == pytest.approx(expected)
    assert Constant("never fuse", False).rank(case).argmax() == case.named["apart"]


@pytest.mark.slow
def test_a_whole_experiment_writes_tables_and_a_picture(database: Path, folder: Path, tmp_path: Path) -> None:
    arguments = ["--db", str(database), "--models", str(folder), "--out", str(tmp_path), "--folds", "2"]
    assert run.main(arguments) == 0
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    for part in ("With networks held out", "| model |", "| TVM's FuseOps |", "one-to-one > one-to-one", "harm rate"):
        assert part in text
    assert "a device held out" not in text, "there is only one"
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        rows = {row["judge"]: row for row in csv.DictReader(file)}
    assert float(rows["model"]["auc"]) > float(rows["random"]["auc"]) == 0.5
    assert float(rows["never fuse"]["lost"]) == 0.0 < float(rows["always fuse"]["lost"])
    assert rows["model"]["cases"] == rows["random"]["cases"] == "2"
    assert (tmp_path / "regret.svg").read_text(encoding="utf-8").count("<title>pointwise0") == len(rows)


@pytest.mark.long
def test_collecting_measures_a_network_once_and_records_its_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "TRIES", 1)
    monkeypatch.setattr(collect, "POLICY", replace(collect.POLICY, cap_s=0.05, settle_probes=2))
    arguments = ["weenet", "--db", str(tmp_path / "own.db"), "--models", str(tmp_path), "--budget", "5m"]
    assert collect.main(arguments) == 0
    assert collect.main(arguments) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "candidates measured" in first and "finished before" in second
    with open_database(tmp_path / "own.db", read_only=True) as base:
        assert column(base, "runs", "state") == ["finished"]
        assert column(base, "candidates", "state").count("ok") >= 4
        assert "apart" in column(base, "plans", "origin")
