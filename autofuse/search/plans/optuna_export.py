"""The plan searches of a profiling database as Optuna studies, for Optuna's own tools. A copy, never read back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import Trial
from autofuse.errors import InputError
from autofuse.values.outputs import Kind, output_file

JOURNAL = Kind("a journal of Optuna")
_STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "fail": TrialState.FAIL}
Scalar = str | int | float | bool | None


def write_optuna_journal(database: ProfilingDatabase, path: Path) -> tuple[str, ...]:
    """Write each run that tried plans as a study into the new journal file `path`; names of the studies.

    The value is the plan's composed time in microseconds, to be minimised; the parameters are the trial's answers.
    InputError when the file exists or cannot be written, or no run tried a plan; then there is no file.
    """
    with output_file(path, JOURNAL, option="--optuna") as part:
        names = _write_studies(database, part)
        if not names:
            raise InputError(f"--optuna {path}: {database.location.text} holds no trial of a plan search")
    return names


def _write_studies(database: ProfilingDatabase, path: Path) -> tuple[str, ...]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    runs = database.table("runs").records()
    names = []
    storage = JournalStorage(JournalFileBackend(str(path)))
    for run in runs:
        trials = database.trials(int(str(run["run_id"])))
        if not trials:
            continue
        study = optuna.create_study(storage=storage, study_name=f"{run['run_id']}-{run['name']}")
        for name in ("model_name", "device", "threads", "state"):
            study.set_user_attr(name, run[name])
        study.add_trials(frozen_trials(trials))
        names.append(study.study_name)
    return tuple(names)


def frozen_trials(trials: Sequence[Trial]) -> list[FrozenTrial]:
    """Ended trials as Optuna keeps them, with the choices that appear among them."""
    seen: dict[str, dict[Scalar, None]] = defaultdict(dict)
    for trial in trials:
        for name, answer in _scalars(trial).items():
            seen[name][answer] = None
    space = {name: CategoricalDistribution(list(answers)) for name, answers in seen.items()}
    return [_frozen(trial, space) for trial in trials if trial.state in _STATES]


def _frozen(trial: Trial, space: Mapping[str, CategoricalDistribution]) -> FrozenTrial:
    answers = _scalars(trial)
    distributions: dict[str, BaseDistribution] = {name: space[name] for name in answers}
    return optuna.trial.create_trial(
        state=_STATES[trial.state],
        value=trial.composed_us,
        params=answers,
        distributions=distributions,
        user_attrs={"number": trial.number, "plan": trial.plan_key},
    )


def _scalars(trial: Trial) -> dict[str, Scalar]:
    return {
        name: answer if answer is None or isinstance(answer, str | int | float | bool) else str(answer)
        for name, answer in trial.answers.items()
    }
