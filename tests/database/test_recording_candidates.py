"""A candidate stands once, its measurements are appended, and its verdict follows from all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import FAILURES, CandidateOutcome, SampleBlock, Setting, content_key
from autofuse.database.tables.schema import CandidateRow, MeasurementRow
from autofuse.errors import DatabaseError, InputError
from tests.database.recorded import lease, outcome

Outcome = Callable[..., CandidateOutcome]
CONV = content_key("conv")


def test_a_candidate_reads_back_as_it_was_recorded(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    number = database.record_candidate(setting, make_outcome(us=123.456, max_rel_error=1e-6, build_s=0.5))
    (found,) = database.measured_schedules(setting, CONV)
    assert (found.candidate_id, found.state, found.tier) == (number, "ok", "exact")
    assert (found.median_us, found.max_rel_error, found.build_s, found.trusted) == (123.456, 1e-6, 0.5, True)
    assert found.schedule == '{"tile":8}' and found.schedule_key == content_key('{"tile":8}')
    assert len(database.samples(number)) == 3


def test_measured_again_it_gets_more_samples_and_one_pooled_time(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    first = database.record_candidate(setting, make_outcome(us=100.0))
    assert database.record_candidate(setting, make_outcome(us=110.0)) == first
    (found,) = database.measured_schedules(setting, CONV)
    assert len(database.samples(first)) == 6
    assert found.median_us == pytest.approx(105.0)
    assert found.ci_lo_us == pytest.approx(100.0) and found.ci_hi_us == pytest.approx(110.0)


def test_the_same_schedule_written_differently_is_the_same_candidate(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    first = make_outcome()
    written = replace(first.candidate, schedule='{ "tile" :8 }')
    other = CandidateOutcome(candidate=written, state="timeout", failure="30 s")
    assert database.record_candidate(setting, first) == database.record_candidate(setting, other)


def test_the_same_schedule_as_other_code_is_another_candidate(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    """Their times never become one verdict."""
    old = database.record_candidate(setting, make_outcome(us=90.0, code="before the change"))
    new = database.record_candidate(setting, make_outcome(us=110.0))
    assert old != new and database.record_candidate(setting, make_outcome(us=111.0)) == new
    times = {row.candidate_id: row.median_us for row in database.measured_schedules(setting, CONV)}
    assert times[old] == 90.0 and 110.0 <= (times[new] or 0.0) <= 111.0


def test_a_measurement_recorded_twice_by_its_uid_counts_once(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    number = database.record_candidate(setting, make_outcome(uid="abc"))
    assert database.record_candidate(setting, make_outcome(uid="abc", us=500.0)) == number
    assert len(database.samples(number)) == 3
    assert database.measured_schedules(setting, CONV)[0].median_us == 100.0


def test_flagged_blocks_are_kept_but_not_pooled(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    outlier = SampleBlock((900.0,), 0.5, flagged=True)
    number = database.record_candidate(setting, make_outcome(us=100.0))
    database.record_candidate(setting, make_outcome(us=100.0, blocks=(SampleBlock((100.0,)), outlier)))
    assert database.measured_schedules(setting, CONV)[0].median_us == 100.0
    assert outlier in database.samples(number)


def test_trusted_times_outweigh_untrusted_ones(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    database.record_candidate(setting, make_outcome(us=50.0, trusted=False))
    database.record_candidate(setting, make_outcome(us=100.0))
    database.record_candidate(setting, make_outcome(us=60.0, trusted=False))
    (found,) = database.measured_schedules(setting, CONV)
    assert (found.median_us, found.trusted) == (100.0, True)


@pytest.mark.parametrize("failure", [state for state in FAILURES if state != "wrong"])
def test_a_failure_never_erases_a_time_but_stays_on_record(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome, failure: str
) -> None:
    database.record_candidate(setting, make_outcome(us=None, state=failure, failure="first"))
    assert database.measured_schedules(setting, CONV)[0].state == failure
    database.record_candidate(setting, make_outcome(us=100.0))
    database.record_candidate(setting, make_outcome(us=None, state=failure, failure="later"))
    (found,) = database.measured_schedules(setting, CONV)
    assert (found.state, found.failure, found.median_us) == ("ok", None, 100.0)
    assert [row[7] for row in database.table("failures").rows] == ["first", "later"]


@pytest.mark.parametrize("wrong_first", [True, False])
def test_a_result_that_was_wrong_once_stays_wrong(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome, wrong_first: bool
) -> None:
    wrong = make_outcome(us=None, state="wrong", failure="off by 0.3", max_rel_error=0.3)
    order = [wrong, make_outcome()] if wrong_first else [make_outcome(), wrong]
    for measured in order:
        database.record_candidate(setting, measured)
    (found,) = database.measured_schedules(setting, CONV)
    assert (found.state, found.median_us, found.max_rel_error) == ("wrong", None, 0.3)
    assert database.lookup(setting, [CONV]) == {}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"failure": "both"}, "no failure"),
        ({"median_us": None}, "needs median_us"),
        ({"trusted": None}, "trusted"),
        ({"ci_lo_us": 101.0}, "ordered"),
        ({"state": "fine"}, "allowed are"),
        ({"state": "queued"}, "no outcome"),
        ({"us": None, "failure": ""}, "failure message"),
        ({"us": None, "median_us": 1.0}, "no times"),
    ],
)
def test_a_time_with_a_failure_or_neither_is_refused(make_outcome: Outcome, change: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        make_outcome(**change)


@pytest.mark.parametrize("samples", [(), (0.0,), (float("nan"),), (1.0, float("inf"))])
def test_a_block_without_real_times_is_refused(samples: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="at least one time"):
        SampleBlock(samples)


@pytest.mark.parametrize("row", [CandidateRow, MeasurementRow])
@pytest.mark.parametrize(
    "values",
    [
        {"state": "ok"},
        {"state": "ok", "median_us": 1.0, "ci_lo_us": 1.0, "ci_hi_us": 1.0, "trusted": True, "failure": "x"},
        {"state": "ok", "median_us": 1.0, "trusted": True},
        {"state": "ok", "median_us": 0.0, "ci_lo_us": 0.0, "ci_hi_us": 0.0, "trusted": True},
        {"state": "timeout"},
        {"state": "timeout", "failure": "x", "median_us": 1.0},
        {"state": "anything", "failure": "x"},
    ],
)
def test_sql_itself_refuses_a_time_with_a_failure_or_neither(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome, row: type, values: dict[str, object]
) -> None:
    number = database.record_candidate(setting, make_outcome())
    now = datetime.now(UTC)
    columns: dict[str, object] = {"created_at": now}
    with database._writer.begin() as sql:
        if row is CandidateRow:
            found = sql.exec_driver_sql("SELECT * FROM af_candidate").mappings().one()
            numbers = ("device_id", "workload_id", "target_id", "schedule_id", "versions_id", "code_id")
            columns |= {"updated_at": now, "threads": 9, **{name: found[name] for name in numbers}}
        else:
            columns |= {"candidate_id": number, "uid": "u"}
        with pytest.raises(IntegrityError, match="time_or_failure"):
            sql.execute(insert(row).values(**columns, **values))


def test_a_candidate_that_an_older_version_was_building_waits_for_its_outcome(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    number = lease(database, setting, replace(outcome("conv", 1, None), candidate=make_outcome().candidate))
    assert database.measured_schedules(setting, CONV)[0].state == "building"
    assert database.lookup(setting, [CONV]) == {}
    assert database.record_candidate(setting, make_outcome()) == number
    assert database.measured_schedules(setting, CONV)[0].state == "ok"


def test_a_schedule_that_is_no_json_and_a_foreign_setting_are_refused_and_leave_nothing(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    broken = type(make_outcome().candidate)(CONV, "x", "x", "{tile")
    with pytest.raises(InputError, match="no JSON"):
        database.record_candidate(setting, CandidateOutcome(candidate=broken, state="timeout", failure="x"))
    with pytest.raises(InputError, match="unknown device"):
        database.record_candidate(Setting("?", setting.target, 1, setting.versions), make_outcome())
    with pytest.raises(DatabaseError, match="FOREIGN KEY"):
        database.record_candidate(setting, make_outcome(), run_id=99)
    assert database.table("candidates").rows == []
    database.record_candidate(setting, make_outcome())
    assert database.problems() == []


def test_threads_record_side_by_side(database: ProfilingDatabase, setting: Setting, make_outcome: Outcome) -> None:
    def work(first: int) -> None:
        for tile in range(first, first + 20):
            database.record_candidate(setting, make_outcome(tile=tile))

    threads = [threading.Thread(target=work, args=(10 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = database.measured_schedules(setting, CONV)
    assert len(found) == len({candidate.schedule for candidate in found}) == 50
    assert len(database.table("measurements").rows) == 80
    assert database.problems() == []
