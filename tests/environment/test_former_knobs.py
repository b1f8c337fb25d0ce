"""Renaming a knob costs nothing: what was measured under its former name is known, and is a hit."""

from __future__ import annotations

import json

import pytest

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import Candidate, CandidateOutcome, Setting
from autofuse.environment.codes import Codes
from autofuse.kernels.schedule.knobs import declared_names
from autofuse.kernels.schedule.transfer import schedule_fault
from autofuse.kernels.workload.workload import Workload
from autofuse.values.names import FORMER_KNOBS, current_schedule
from tests.database.recorded import outcome, setting_of
from tests.kernels.conftest import Bench
from tests.kernels.kernel_sample import SAMPLES, TARGETS

TARGET = TARGETS["avx2"]
VERSIONS = {"tvm": "0.27", "llvm": "22"}
FORMER = '{"contraction.parts":4,"contraction.pixels":4,"contraction.rows_per_job":2,"contraction.vectors":2}'
TODAY = '{"contraction.pixels":4,"contraction.rows_per_task":2,"contraction.split_k":4,"contraction.vectors":2}'


def recorded(database: ProfilingDatabase, workload: Workload, schedule: str, digest: str, us: float) -> Setting:
    """The setting in which a candidate was recorded, under the text of a schedule as it was written then."""
    setting = setting_of(database)
    like = outcome("any", 1, us)
    candidate = Candidate(workload.key, workload.text, workload.label, schedule, digest)
    database.record_candidate(setting, CandidateOutcome(**(vars(like) | {"candidate": candidate})))
    return setting


def few_rows() -> Workload:
    return Bench().bind(SAMPLES["product, parts"].small).workload


def test_every_former_name_is_of_a_knob_of_today() -> None:
    knobs = {f"{family}.{knob}" for family, own in declared_names().items() for knob in own}
    assert set(FORMER_KNOBS.values()) <= knobs
    assert set(FORMER_KNOBS) & knobs == set()


def test_a_schedule_is_read_under_the_names_of_today() -> None:
    assert current_schedule(FORMER) == TODAY
    assert current_schedule(TODAY) == TODAY
    assert current_schedule('{"tile":1}') == '{"tile":1}'
    assert schedule_fault(json.loads(FORMER), TARGET) == "'contraction.parts' is no knob"
    assert schedule_fault(json.loads(current_schedule(FORMER)), TARGET) is None


@pytest.mark.parametrize("damaged", ['{"row.rows":', '["row.rows"]', '"row.rows"'])
def test_a_damaged_text_is_left_to_those_who_read_it(damaged: str) -> None:
    assert current_schedule(damaged) == damaged


def test_a_time_under_a_former_name_is_found_and_known_as_the_code_of_today(database: ProfilingDatabase) -> None:
    workload, codes = few_rows(), Codes(TARGET, VERSIONS)
    digest = codes.now(workload, json.loads(TODAY))
    setting = recorded(database, workload, FORMER, digest, 7.0)
    found = database.lookup(setting, [workload.key])[workload.key]
    assert (found.schedule, found.median_us) == (TODAY, 7.0)
    (stored,) = database.measured_schedules(setting, workload.key)
    assert stored.schedule == TODAY
    kept = database.table("candidates")
    assert TODAY in {row[kept.columns.index("schedule")] for row in kept.rows}
    assert codes.now(workload, json.loads(stored.schedule)) == stored.digest == digest
    assert codes.now(workload, json.loads(FORMER)) != digest, "without its knobs it is another kernel"


def test_what_other_devices_measured_is_read_so_too(database: ProfilingDatabase) -> None:
    workload = few_rows()
    recorded(database, workload, FORMER, "d" * 64, 7.0)
    (row,) = database.schedules_elsewhere(setting_of(database, "board"), [workload.key])
    assert row.schedule == TODAY
