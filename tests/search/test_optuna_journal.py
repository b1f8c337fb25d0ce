"""The journal for Optuna's tools: studies of every run, whatever its budget, opened with Optuna's own loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from autofuse import api


def studies_of(database: str, folder: Path) -> dict[str, optuna.Study]:
    """What `db export --optuna` wrote, as Optuna reads it."""
    journal = folder / "studies.journal"
    api.db_export(database=database, optuna=journal)
    storage = JournalStorage(JournalFileBackend(str(journal)))
    names = optuna.get_all_study_names(storage)
    return {name: optuna.load_study(study_name=name, storage=storage) for name in names}


def test_a_search_is_a_study_of_its_plans(run: Any, device: Any, two_layers: Path, tmp_path: Path) -> None:
    result = run(two_layers)
    study = studies_of(result.database, tmp_path)[f"{result.run_id}-{result.run}"]
    assert len(study.trials) == result.plan_trials > 1
    composed = [time.composed_us for time in result.plans.values() if time.composed_us is not None]
    assert min(composed) <= study.best_value + 1e-9


@pytest.mark.long
def test_the_schedules_of_its_kernels_are_studies_too(run: Any, device: Any, two_layers: Path, tmp_path: Path) -> None:
    result = run(two_layers)
    studies = {name: study for name, study in studies_of(result.database, tmp_path).items() if " " in name}
    assert studies
    for study in studies.values():
        assert len(study.trials) > 1 and study.best_params
        assert study.best_value == min(trial.value for trial in study.trials if trial.value is not None)


def test_the_smallest_budget_leaves_a_study(run: Any, device: Any, two_layers: Path, tmp_path: Path) -> None:
    result = run(two_layers, budget_s=0.0)
    study = studies_of(result.database, tmp_path)[f"{result.run_id}-{result.run}"]
    assert study.user_attrs["model_name"] == "two_layers"


def test_one_candidate_leaves_a_study_with_a_trial(run: Any, device: Any, two_layers: Path, tmp_path: Path) -> None:
    result = run(two_layers, trials=1)
    assert len(studies_of(result.database, tmp_path)[f"{result.run_id}-{result.run}"].trials) >= 1
