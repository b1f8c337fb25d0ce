"""`tune --dry-run`: what a budget will reach, without measuring or writing anything."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autofuse import api
from autofuse.cli.main import app
from autofuse.search.budget.time_budget import FIRST_CANDIDATE_S, PROBING_S
from autofuse.search.progress import Forecast


def told(model: Path, database: Path, **arguments: Any) -> Forecast:
    found = api.tune(model, database=str(database), threads=1, dry_run=True, **arguments).forecast
    assert found is not None
    return found


def test_it_writes_nothing(two_layers: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    assert told(two_layers, tmp_path / "absent.db", budget="10m").known == 0
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.long
def test_it_changes_nothing_in_a_database_that_is_there(
    run: Any, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    run(two_layers)
    database = tmp_path / "profile.db"
    before = hashlib.sha256(database.read_bytes()).hexdigest()
    device.measured.clear()
    found = told(two_layers, database, budget="10m")
    assert device.measured == [] and hashlib.sha256(database.read_bytes()).hexdigest() == before
    assert found.known == found.workloads and found.first_s == 0.0, "every kernel has its first time"


def test_without_a_recorded_run_the_rate_is_the_stated_guess(two_layers: Path, tmp_path: Path) -> None:
    found = told(two_layers, tmp_path / "absent.db", budget="10m")
    assert found.candidates_per_s == 1 / FIRST_CANDIDATE_S and found.rate_from == ""


@pytest.mark.long
def test_the_rate_is_that_of_the_newest_run_here(run: Any, device: Any, two_layers: Path, tmp_path: Path) -> None:
    result = run(two_layers)
    found = told(two_layers, tmp_path / "profile.db", budget="10m")
    assert found.rate_from == result.run and found.candidates_per_s != 1 / FIRST_CANDIDATE_S


def test_the_parts_fill_the_budget_and_more_time_reaches_more(two_layers: Path, tmp_path: Path) -> None:
    short, long = (told(two_layers, tmp_path / "absent.db", budget=budget) for budget in ("60s", "30m"))
    parts = long.opening_s + long.first_s + long.search_s + long.finals_s
    assert parts == pytest.approx(1800.0, abs=1.0)
    assert long.candidates > short.candidates
    assert long.changes.count == short.changes.count == long.changes.reached > 0
    assert set(long.finalists) == {"default", "none", "tvm-partition"} and not long.left_out


def test_a_budget_that_is_too_small_measures_no_plan_whole(two_layers: Path, tmp_path: Path) -> None:
    found = told(two_layers, tmp_path / "absent.db", budget="2s")
    assert found.search_s == 0.0 and found.finalists == () and found.left_out
    screen = CliRunner().invoke(app, ["tune", str(two_layers), "--budget", "2s", "--dry-run", "-n", "1"])
    assert screen.exit_code == 0, screen.stderr
    assert "no plan is built and measured whole: give a larger --budget" in screen.stdout


def test_probing_the_machine_is_in_the_plan_where_no_run_has_its_rates(
    two_layers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = told(two_layers, tmp_path / "absent.db", budget="10m")
    assert first.probing_s == PROBING_S < first.opening_s
    assert told(two_layers, tmp_path / "absent.db", budget="20s").probing_s == 0.0, "a tuning leaves it out, too"
    screen = CliRunner().invoke(app, ["tune", str(two_layers), "--dry-run", "-n", "1", "--db", str(tmp_path / "a.db")])
    assert "2.5 s of it probe what this machine reaches" in " ".join(screen.stdout.split())
    monkeypatch.setattr("autofuse.environment.rates.known_rates", lambda base, environment: {"threads": 1})
    assert told(two_layers, tmp_path / "absent.db", budget="10m").probing_s == 0.0


def test_trials_bound_what_is_reached(two_layers: Path, tmp_path: Path) -> None:
    found = told(two_layers, tmp_path / "absent.db", trials=20)
    assert found.candidates == 20 - found.workloads


def test_a_job_is_asked_model_by_model(two_layers: Path, one_layer: Path) -> None:
    done = CliRunner().invoke(app, ["tune", str(two_layers), str(one_layer), "--dry-run"])
    assert done.exit_code == 2 and "--dry-run: not for a job" in done.stderr
