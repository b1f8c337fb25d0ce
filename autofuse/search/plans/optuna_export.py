"""The searches of a profiling database as Optuna studies, for Optuna's own tools. A copy, never read back."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from autofuse.database.ask.labels import unique_labels
from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import PENDING, Trial
from autofuse.errors import InputError
from autofuse.values.outputs import Kind, output_file

JOURNAL = Kind("a journal of Optuna")
MOST_KERNELS = 12
"""Kernels of a run whose schedules are studies of their own."""
_STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "fail": TrialState.FAIL}
Scalar = str | int | float | bool | None


def write_optuna_journal(database: ProfilingDatabase, path: Path) -> tuple[str, ...]:
    """Write each run into the new journal file `path`, as a study of its plans and one for each kernel whose schedules
    it searched most; names of the studies.

    Values are times in microseconds, to be minimised: a plan's composed one, a candidate's own. Parameters are a
    trial's answers, a schedule's knobs. A run that was over before it tried a plan is a study without trials.
    InputError when the file exists or cannot be written, or there is no run; then there is no file.
    """
    with output_file(path, JOURNAL, option="--optuna") as part:
        names = _write_studies(database, part)
        if not names:
            raise InputError(f"--optuna {path}: {database.location.text} holds no run")
    return names


def _write_studies(database: ProfilingDatabase, path: Path) -> tuple[str, ...]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    runs = database.table("runs").records()
    names = []
    storage = JournalStorage(JournalFileBackend(str(path)))
    for run in runs:
        number, name = int(str(run["run_id"])), f"{run['run_id']}-{run['name']}"
        searches: dict[str, Sequence[Trial]] = {name: database.trials(number)}
        searches |= {f"{name} {kernel}": found for kernel, found in _schedule_trials(database, number).items()}
        for study_name, trials in searches.items():
            study = optuna.create_study(storage=storage, study_name=study_name)
            for fact in ("model_name", "device", "threads", "state"):
                study.set_user_attr(fact, run[fact])
            study.add_trials(frozen_trials(trials))
            names.append(study.study_name)
    return tuple(names)


def _schedule_trials(database: ProfilingDatabase, run_id: int) -> dict[str, list[Trial]]:
    """The candidates of a run as trials, by the label of their kernel; of those kernels that had most of them."""
    with database.reading() as sql:
        labels = unique_labels(sql)
    found: dict[str, list[Trial]] = defaultdict(list)
    for row in database.table("candidates", run_id).records():
        if row["state"] in PENDING:
            continue
        label = labels.get(str(row["workload_key"]), str(row["label"]))
        trials, us = found[label], row["median_us"]
        state = "fail" if us is None else "complete"
        time_us = None if us is None else float(str(us))
        answers = json.loads(str(row["schedule"]))
        trials.append(Trial(number=len(trials), answers=answers, state=state, plan_key=None, composed_us=time_us))
    most = sorted(found, key=lambda label: -len(found[label]))[:MOST_KERNELS]
    return {label: found[label] for label in most if len(found[label]) > 1}


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
    known = {"number": trial.number} if trial.plan_key is None else {"number": trial.number, "plan": trial.plan_key}
    return optuna.trial.create_trial(
        state=_STATES[trial.state],
        value=trial.composed_us,
        params=answers,
        distributions=distributions,
        user_attrs=known,
    )


def _scalars(trial: Trial) -> dict[str, Scalar]:
    return {
        name: answer if answer is None or isinstance(answer, str | int | float | bool) else str(answer)
        for name, answer in trial.answers.items()
    }
