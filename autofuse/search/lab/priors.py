"""Schedules that others shared and nobody measured here: each is measured beside the rule's own first guess.

A shared time is not believed: the row only says what is worth a measurement. As the rule's schedule is measured with
it, what `compile` takes from then on is never slower than what it would have taken.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.database.ask.transfers import elsewhere, shared_workloads
from autofuse.database.database import ProfilingDatabase
from autofuse.environment.environment import Environment
from autofuse.environment.rates import core_rates
from autofuse.environment.space import load_space
from autofuse.errors import InputError
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import declared_names, open_knobs
from autofuse.kernels.schedule.transfer import adapted, schedule_fault
from autofuse.kernels.workload.workload import Workload
from autofuse.search.schedules.schedule_search import schedule_text

Schedule = Mapping[str, int | str]


@dataclass(frozen=True)
class Prior:
    """What others shared of a workload: their best `schedule` as it can be built here, and the time that they had.

    `rule`: the first guess for it here. `text`: of the workload.
    """

    key: str
    label: str
    text: str
    schedule: Schedule
    rule: Schedule
    shared_us: float


def shared_priors(database: ProfilingDatabase, environment: Environment) -> list[Prior]:
    """The best shared schedule of each workload that it was not measured for here, the longest workloads first."""
    setting = environment.setting
    with database.reading() as sql:
        labels = shared_workloads(sql, setting)
        rows = elsewhere(sql, setting, labels, shared=True)
    texts = database.workload_texts(labels)
    space = load_space(None, environment.target.isa, declared_names()).schedule
    rates = core_rates(database, environment)
    found: dict[str, Prior] = {}
    for row in rows:
        if row.workload_key in found or schedule_fault(_parsed(row.schedule), environment.target) is not None:
            continue
        try:
            workload = Workload.from_text(texts[row.workload_key])
        except InputError:
            continue
        knobs = open_knobs(workload, environment.target, space)
        schedule = adapted(json.loads(row.schedule), knobs, environment.target)
        rule = first_schedules(workload, knobs, environment.target, setting.threads, rates)[0]
        if schedule is not None and not _measured(database, environment, row.workload_key, schedule):
            label, text = labels[row.workload_key], texts[row.workload_key]
            found[row.workload_key] = Prior(row.workload_key, label, text, schedule, rule, row.median_us)
    return [found[key] for key in labels if key in found]


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _measured(database: ProfilingDatabase, environment: Environment, key: str, schedule: Schedule) -> bool:
    """Whether a schedule was tried here already, whatever it came to."""
    wanted = schedule_text(schedule)
    known = database.measured_schedules(environment.setting, key)
    return any(schedule_text(json.loads(row.schedule)) == wanted for row in known)
