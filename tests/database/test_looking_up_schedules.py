"""A look-up finds the best candidate of this device, target and thread count, and says how good a hit it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autofuse.database.ask.lookups import MOST_RANKED
from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import CandidateOutcome, Setting, content_key

Outcome = Callable[..., CandidateOutcome]
Settings = Callable[..., Setting]
CONV = content_key("conv")


def test_the_lowest_median_wins(database: ProfilingDatabase, setting: Setting, make_outcome: Outcome) -> None:
    for tile, us in ((1, 30.0), (2, 10.0), (3, 20.0), (4, None)):
        database.record_candidate(setting, make_outcome(tile=tile, us=us))
    best = database.lookup(setting, [CONV])[CONV]
    assert (best.schedule, best.median_us, best.tier, best.trusted) == ('{"tile":2}', 10.0, "exact", True)


def test_schedules_that_do_not_fit_are_left_out_however_many_are_better(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    for tile in range(MOST_RANKED + 8):
        database.record_candidate(setting, make_outcome(tile=tile, us=10.0 + tile))
    last = f'{{"tile":{MOST_RANKED + 7}}}'
    assert database.lookup(setting, [CONV], lambda _, schedule: schedule == last)[CONV].schedule == last
    assert database.lookup(setting, [CONV], lambda *_: False) == {}
    (rows,) = database.ranked(setting, [CONV], lambda _, schedule: schedule != '{"tile":0}').values()
    assert len(rows) == MOST_RANKED and rows[0].schedule == '{"tile":1}'


def test_many_workloads_are_found_at_once_and_misses_are_absent(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    names = [f"w{number}" for number in range(1203)]
    for name in names[::2]:
        database.record_candidate(setting, make_outcome(name))
    found = database.lookup(setting, [content_key(name) for name in names])
    assert set(found) == {content_key(name) for name in names[::2]}
    assert database.lookup(setting, []) == {}


def test_a_time_that_is_not_trusted_wins_only_where_it_is_clearly_faster(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    """What disturbs a measurement makes it longer: a disturbed 5 us beats an undisturbed 9, and 8.5 us do not."""
    database.record_candidate(setting, make_outcome(tile=1, us=8.5, trusted=False))
    assert database.lookup(setting, [CONV])[CONV].trusted is False
    database.record_candidate(setting, make_outcome(tile=2, us=9.0))
    assert database.lookup(setting, [CONV])[CONV].median_us == 9.0
    database.record_candidate(setting, make_outcome(tile=3, us=5.0, trusted=False))
    assert database.lookup(setting, [CONV])[CONV].median_us == 5.0


def test_a_tie_goes_to_the_lower_schedule_key_whatever_the_order(
    database: ProfilingDatabase, make_setting: Settings, make_outcome: Outcome
) -> None:
    tiles = list(range(8))
    lowest = min(content_key(f'{{"tile":{tile}}}') for tile in tiles)
    for threads, order in ((1, tiles), (2, tiles[::-1])):
        setting = make_setting(threads=threads)
        for tile in order:
            database.record_candidate(setting, make_outcome(tile=tile))
        assert database.lookup(setting, [CONV])[CONV].schedule_key == lowest


@pytest.mark.parametrize("other", [{"device": "board"}, {"threads": 2}])
def test_another_device_or_thread_count_is_a_miss(
    database: ProfilingDatabase, make_setting: Settings, make_outcome: Outcome, other: dict[str, object]
) -> None:
    database.record_candidate(make_setting(), make_outcome())
    assert database.lookup(make_setting(**other), [CONV]) == {}
    assert database.measured_schedules(make_setting(**other), CONV) == ()


def test_other_versions_are_a_stale_hit_and_exact_ones_go_first(
    database: ProfilingDatabase, make_setting: Settings, make_outcome: Outcome
) -> None:
    database.record_candidate(make_setting(tvm="0.27"), make_outcome(tile=1, us=5.0))
    newer = make_setting(tvm="0.28")
    stale = database.lookup(newer, [CONV])[CONV]
    assert (stale.tier, stale.median_us) == ("stale", 5.0)
    database.record_candidate(newer, make_outcome(tile=2, us=9.0))
    exact = database.lookup(newer, [CONV])[CONV]
    assert (exact.tier, exact.median_us) == ("exact", 9.0)
    assert [one.tier for one in database.measured_schedules(newer, CONV)] == ["stale", "exact"]


def test_versions_never_seen_make_a_stale_hit_even_when_read_only(
    database: ProfilingDatabase, make_setting: Settings, make_outcome: Outcome
) -> None:
    from autofuse.database.database import open_database

    known = make_setting()
    database.record_candidate(known, make_outcome())
    with open_database(database.location.path, read_only=True) as reader:
        asked = make_setting(tvm="9.9", into=reader)
        assert reader.lookup(asked, [CONV])[CONV].tier == "stale"
        assert reader.lookup(known, [CONV])[CONV].tier == "exact"


@pytest.mark.parametrize(("state", "hit"), [("wrong", False), ("build_error", False), ("timeout", True)])
def test_a_stale_schedule_that_fails_with_the_present_versions_is_no_hit(
    database: ProfilingDatabase, make_setting: Settings, make_outcome: Outcome, state: str, hit: bool
) -> None:
    old, new = make_setting(tvm="0.27"), make_setting(tvm="0.28")
    database.record_candidate(old, make_outcome(tile=1))
    database.record_candidate(new, make_outcome(tile=1, us=None, state=state, failure="x"))
    assert (CONV in database.lookup(new, [CONV])) is hit
    assert CONV in database.lookup(old, [CONV])


def test_a_look_up_walks_the_index_only(database: ProfilingDatabase, setting: Setting, make_outcome: Outcome) -> None:
    """The ranking reads no candidate's row; at ten million samples that is what keeps it in milliseconds."""
    from sqlalchemy.dialects import sqlite

    from autofuse.database.ask.lookups import _best_schedules

    parameters = {"device": "d", "target": "t", "threads": 1, "versions": "v", "keys": ["k"], "most": 1}
    statement = str(
        _best_schedules()
        .params(**parameters)
        .compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True, "render_postcompile": True})
    )
    database.record_candidate(setting, make_outcome())
    with database._engine.connect() as sql:
        steps = [row[3] for row in sql.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}")]
    assert any("COVERING INDEX ix_af_candidate_best" in step for step in steps), steps
    assert not any(step.startswith("SCAN af_") for step in steps), steps


def test_other_code_comes_behind_other_versions_and_is_said_to_be_stale(
    database: ProfilingDatabase, make_setting: Settings, make_outcome: Outcome
) -> None:
    setting, newer = make_setting(), make_setting(tvm="0.28")
    database.record_candidate(setting, make_outcome(tile=1, us=10.0, code="before the change"))
    assert database.lookup(setting, [CONV])[CONV].tier == "exact", "the database has not seen other code"
    database.record_candidate(setting, make_outcome(tile=1, us=30.0))
    database.record_candidate(setting, make_outcome(tile=2, us=20.0))
    found = database.ranked(setting, [CONV])[CONV]
    assert [(row.tier, row.median_us) for row in found] == [("exact", 20.0), ("exact", 30.0), ("stale code", 10.0)]
    elsewhere = database.ranked(newer, [CONV])[CONV]
    assert [(row.tier, row.median_us) for row in elsewhere] == [("stale", 10.0), ("stale", 20.0), ("stale", 30.0)]
    assert {row.versions for row in found} == {'{"tvm":"0.27"}'} and len({row.digest for row in found}) == 3


def test_a_schedule_that_fails_since_its_code_changed_is_none(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    database.record_candidate(setting, make_outcome(tile=1, code="before the change"))
    database.record_candidate(setting, make_outcome(tile=1, us=None, state="wrong", failure="x"))
    assert CONV not in database.lookup(setting, [CONV])
    database.record_candidate(setting, make_outcome(tile=1, code="mended"))
    assert database.lookup(setting, [CONV])[CONV].digest == make_outcome(tile=1, code="mended").candidate.digest
