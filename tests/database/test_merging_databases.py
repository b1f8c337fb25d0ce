"""Merging appends and never changes what stands here; the same again changes nothing; equal contents export equally."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, ForeignKey, Integer, MetaData, String, Table

from autofuse.database.content.forms import LOCAL, forms
from autofuse.database.database import open_database
from autofuse.database.files.upkeep import export_database, import_database, merge_database
from autofuse.database.records import RunStart, content_key
from autofuse.database.tables.schema import Base
from autofuse.errors import DatabaseError
from tests.database.recorded import fill, lease, outcome, setting_of


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sources")
    return [fill(folder / f"{seed}.db", seed) for seed in range(3)]


def content(path: Path) -> dict[str, bytes]:
    """Everything in a database but numbers and leases."""
    folder = path.with_name(f"{path.name}-export")
    with open_database(path, read_only=True) as database:
        export_database(database, folder)
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    shutil.rmtree(folder)
    return found


def knowledge(path: Path) -> dict[str, list[str]]:
    """The rows of every table without what each database keeps of its own: dates, and where a plan came from."""
    found = {}
    for name, lines in content(path).items():
        rows = [json.loads(line) for line in lines.splitlines()] if name.endswith(".jsonl") else []
        for row in rows if name != "af_measurement.jsonl" else []:
            for own in ("created_at", "updated_at", "origin"):
                row.pop(own, None)
        found[name] = sorted(json.dumps(row, sort_keys=True) for row in rows)
    return found


def merged(path: Path, *sources: Path) -> Path:
    with open_database(path) as database:
        for source in sources:
            merge_database(database, source)
        assert database.problems() == []
    return path


def test_every_table_of_the_schema_is_merged_and_told_apart() -> None:
    known = {form.name: form for form in forms(Base.metadata)}
    assert set(known) | LOCAL == set(Base.metadata.tables)
    for name, form in known.items():
        table = Base.metadata.tables[name]
        assert set(form.columns) | {"owner_host", "owner_pid", "owner_boot_id", "owner_started"} >= set(
            table.columns.keys()
        )
        assert form.identity and set(form.identity) <= set(form.columns)
        assert set(form.references) == {column.name for column in table.columns if column.foreign_keys}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_times_of_two_codes_stay_apart_whatever_is_merged_into_which(order: tuple[int, int], tmp_path: Path) -> None:
    """As two machines measure one schedule, of which one has an older autofuse."""
    paths = []
    for number, (code, us) in enumerate((("today", 30.0), ("before a change", 10.0))):
        paths.append(tmp_path / f"{number}.db")
        with open_database(paths[-1]) as database:
            database.record_candidate(setting_of(database), outcome("conv", 1, us, code=code))
    merged(tmp_path / "both.db", *(paths[number] for number in order))
    with open_database(tmp_path / "both.db") as database:
        rows = database.measured_schedules(setting_of(database), outcome("conv", 1, None).candidate.workload_key)
    assert {row.digest: row.median_us for row in rows} == {
        outcome("conv", 1, None).candidate.digest: 30.0,
        outcome("conv", 1, None, code="before a change").candidate.digest: 10.0,
    }


def test_a_table_that_is_added_needs_no_entry_anywhere() -> None:
    metadata = MetaData()
    Table("af_device", metadata, Column("id", Integer, primary_key=True), Column("name", String(8), unique=True))
    Table("af_new", metadata, Column("id", Integer, primary_key=True), Column("device", ForeignKey("af_device.id")))
    device, new = forms(metadata)
    assert (device.name, device.identity) == ("af_device", ("name",))
    assert (new.identity, dict(new.references)) == (("device",), {"device": "af_device"})


def test_all_rows_arrive_and_the_same_again_changes_nothing(sources: list[Path], tmp_path: Path) -> None:
    copy = merged(tmp_path / "all.db", sources[0])
    assert content(copy) == content(sources[0])
    with open_database(copy) as database:
        again = merge_database(database, sources[0])
    assert (again.changes, again.verdicts) == (0, 0)
    assert {table.table: table.rows for table in again.tables}["af_measurement"] == 25
    assert content(copy) == content(sources[0])


def test_the_order_of_merges_does_not_matter(sources: list[Path], tmp_path: Path) -> None:
    """But for when and from whom a row was first seen: each database keeps its own."""
    results = [
        knowledge(merged(tmp_path / f"{number}.db", *order))
        for number, order in enumerate(itertools.permutations(sources))
    ]
    assert all(result == results[0] for result in results)
    tree = merged(tmp_path / "tree.db", merged(tmp_path / "left.db", *sources[1:]), sources[0], sources[2])
    assert knowledge(tree) == results[0]


def test_a_dry_run_says_what_would_happen_and_does_nothing(sources: list[Path], tmp_path: Path) -> None:
    copy = merged(tmp_path / "all.db", sources[0])
    before = content(copy)
    with open_database(copy) as database:
        said = merge_database(database, sources[1], dry_run=True)
        assert content(copy) == before
        done = merge_database(database, sources[1])
    assert (said.tables, said.verdicts) == (done.tables, done.verdicts) and done.changes > 0


def test_a_candidate_is_judged_by_the_measurements_of_both(tmp_path: Path) -> None:
    """The same verdict as if one database had seen them all."""
    paths = [tmp_path / name for name in ("one.db", "two.db", "both.db")]
    for path, times in zip(paths, ([100.0, 90.0], [80.0, None], [100.0, 90.0, 80.0, None]), strict=True):
        with open_database(path) as database:
            for us in times:
                database.record_candidate(setting_of(database), outcome("conv", 1, us, uid=f"uid of {us}"))
    with open_database(paths[0]) as one, open_database(paths[2]) as both:
        merge_database(one, paths[1])
        key = outcome("conv", 1, None).candidate.workload_key
        got, wanted = (base.lookup(setting_of(base), [key])[key] for base in (one, both))
        assert (got.median_us, got.ci_lo_us, got.ci_hi_us) == (wanted.median_us, wanted.ci_lo_us, wanted.ci_hi_us)
        assert got.median_us == 90.0 and len(one.samples(got.candidate_id)) == 12


def test_a_verdict_that_no_measurement_supports_is_judged_anew(tmp_path: Path) -> None:
    with open_database(tmp_path / "boasting.db") as boasting:
        for tile in (1, 2):
            boasting.record_candidate(setting_of(boasting), outcome("conv", tile, 100.0 * tile, uid=f"uid {tile}"))
    with sqlite3.connect(tmp_path / "boasting.db") as raw:
        raw.execute("UPDATE af_candidate SET median_us = 1, ci_lo_us = 1, ci_hi_us = 1")
        raw.execute("DELETE FROM af_sample WHERE measurement_id = 2")
        raw.execute("DELETE FROM af_measurement WHERE id = 2")
    raw.close()
    with open_database(tmp_path / "into.db") as into:
        assert merge_database(into, tmp_path / "boasting.db").verdicts == 2
        rows = into.measured_schedules(setting_of(into), outcome("conv", 1, None).candidate.workload_key)
        assert [(row.state, row.median_us) for row in rows] == [("ok", 100.0), ("queued", None)]
        assert merge_database(into, tmp_path / "boasting.db").verdicts == 0


def test_the_newest_choice_wins_whichever_file_it_comes_from(tmp_path: Path) -> None:
    older, newer = fill(tmp_path / "older.db", 4, 2), fill(tmp_path / "newer.db", 4, 2)
    for first, second in ((older, newer), (newer, older)):
        path = merged(tmp_path / f"{first.stem}-first.db", first, second)
        with open_database(path) as database:
            choice = database.best_plan(setting_of(database, "laptop"), content_key("graph"))
            choice = choice or database.best_plan(setting_of(database, "board"), content_key("graph"))
            assert choice is not None and choice.run_id is not None
            run = database.run(choice.run_id)
            newest = database.run()
            assert run is not None and newest is not None and run.started_at == newest.started_at


def test_what_a_process_is_working_on_stays_in_its_own_file(tmp_path: Path) -> None:
    with open_database(tmp_path / "busy.db") as busy:
        setting = setting_of(busy)
        start = RunStart(name="r", model_name="m", model_sha256="0" * 64, graph_key="1" * 64, seed=0)
        run = busy.start_run(setting, start)
        lease(busy, setting, outcome("conv", 1, None))
        with open_database(tmp_path / "other.db") as other:
            merge_database(other, tmp_path / "busy.db")
            found = other.run()
            assert found is not None and (found.state, other.release_dead()) == ("interrupted", [])
            assert [
                row.state for row in other.measured_schedules(setting, outcome("conv", 1, None).candidate.workload_key)
            ] == ["queued"]
            assert merge_database(busy, tmp_path / "other.db").changes == 0
        assert (busy.run(run)).state == "running"  # type: ignore[union-attr]


Damage = Callable[[sqlite3.Connection], Any]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "text that is not its key's": (lambda c: c.execute("UPDATE af_workload SET text = '{}'"), "SHA-256"),
    "a time that is none": (lambda c: c.execute("UPDATE af_sample SET us = '[1e999]'"), "list of times"),
    "an endless time": (lambda c: c.execute("UPDATE af_candidate SET build_s = 9e999"), "finite"),
    "bytes for text": (lambda c: c.execute("UPDATE af_run SET name = x'ff00'"), "name: expected text"),
    "no JSON": (lambda c: c.execute("UPDATE af_run SET budget = 'import os'"), "budget: expected a JSON document"),
    "deep JSON": (lambda c: c.execute("UPDATE af_run SET budget = ?", ("[" * 100_000,)), "JSON document"),
    "a missing row": (lambda c: c.execute("DELETE FROM af_schedule WHERE id = 1"), "af_schedule, which is missing"),
    "a trigger": (
        lambda c: c.execute("CREATE TRIGGER t AFTER INSERT ON af_run BEGIN DELETE FROM af_run; END"),
        "trigger",
    ),
    "a view": (lambda c: c.execute("CREATE VIEW v AS SELECT 1"), "view"),
    "a table of its own making": (
        lambda c: (c.execute("DROP TABLE af_edge"), c.execute("CREATE TABLE af_edge (id INTEGER PRIMARY KEY)")),
        "not as autofuse makes it",
    ),
    "a table less": (lambda c: c.execute("DROP TABLE af_edge"), "lacks af_edge"),
    "a newer schema": (lambda c: c.execute("UPDATE af_alembic_version SET version_num = 'r9999'"), "r9999"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_source_that_is_not_sound_changes_nothing(damage: str, sources: list[Path], tmp_path: Path) -> None:
    spoil, message = DAMAGES[damage]
    bad = tmp_path / "bad.db"
    shutil.copy(sources[1], bad)
    with sqlite3.connect(bad) as connection:
        spoil(connection)
    connection.close()
    into = merged(tmp_path / "into.db", sources[0])
    before = content(into)
    with open_database(into) as database, pytest.raises(DatabaseError, match=message):
        merge_database(database, bad)
    assert content(into) == before


def test_measurements_that_contradict_each_other_are_refused(sources: list[Path], tmp_path: Path) -> None:
    for number, change in enumerate(("UPDATE af_measurement SET build_s = 77", "UPDATE af_sample SET us = '[7.5]'")):
        bad = tmp_path / f"bad{number}.db"
        shutil.copy(sources[0], bad)
        with sqlite3.connect(bad) as connection:
            connection.execute(change)
        connection.close()
        into = merged(tmp_path / f"into{number}.db", sources[0])
        with open_database(into) as database, pytest.raises(DatabaseError, match="never change"):
            merge_database(database, bad)


def altered(source: Path, path: Path, *changes: str) -> Path:
    """A copy of a database with its rows changed."""
    shutil.copy(source, path)
    with sqlite3.connect(path) as connection:
        for change in changes:
            assert connection.execute(change).rowcount > 0, change
    connection.close()
    return path


OVERWRITES = {
    "an older date of devices, and another name": "UPDATE af_device SET created_at = '1970-01-02 00:00:00.000000', "
    "name = 'theirs'",
    "an older date of workloads, and another label": "UPDATE af_workload SET label = 'theirs', "
    "created_at = '1970-01-02 00:00:00.000000'",
    "other dates of candidates": "UPDATE af_candidate SET created_at = '1970-01-02 00:00:00.000000', "
    "updated_at = '2198-01-02 00:00:00.000000'",
    "a run that ended later, with another summary": "UPDATE af_run SET summary = '{\"best_us\":1}', "
    "finished_at = '2198-01-02 00:00:00.000000' WHERE state = 'finished'",
    "a run that failed": "UPDATE af_run SET state = 'failed' WHERE state = 'finished'",
    "edges with another reason": "UPDATE af_edge SET reason = 'measured_slower', gain_us = 1000000",
    "choices with a better time": "UPDATE af_choice SET median_us = 0.001",
    "trials with a better time": "UPDATE af_trial SET composed_us = 0.001 WHERE state = 'complete'",
    "plans of another origin": "UPDATE af_plan SET origin = 'theirs'",
}


@pytest.mark.parametrize("name", OVERWRITES)
def test_nothing_that_stands_here_is_overwritten(name: str, sources: list[Path], tmp_path: Path) -> None:
    theirs = altered(sources[0], tmp_path / "theirs.db", OVERWRITES[name])
    into = merged(tmp_path / "into.db", sources[0])
    before = content(into)
    for dry_run in (True, False):
        with open_database(into) as database:
            report = merge_database(database, theirs, dry_run=dry_run)
        assert (report.changes, report.verdicts) == (0, 0)
        assert content(into) == before


def test_facts_that_are_not_those_of_the_fingerprint_here_are_refused(sources: list[Path], tmp_path: Path) -> None:
    change = "UPDATE af_device SET facts = '{\"cores\":9999}', created_at = '1970-01-02 00:00:00.000000'"
    theirs = altered(sources[0], tmp_path / "theirs.db", change)
    into = merged(tmp_path / "into.db", sources[0])
    before = content(into)
    with open_database(into) as database, pytest.raises(DatabaseError, match="facts is not what this database holds"):
        merge_database(database, theirs)
    with open_database(theirs, read_only=True) as database:
        export_database(database, tmp_path / "export")
    with open_database(into) as database, pytest.raises(DatabaseError, match="facts is not what this database holds"):
        import_database(database, tmp_path / "export")
    assert content(into) == before


def test_a_run_that_went_on_elsewhere_is_brought_forward_and_never_back(sources: list[Path], tmp_path: Path) -> None:
    going = "UPDATE af_run SET state = 'interrupted', summary = NULL, finished_at = '2020-01-02 00:00:00.000000'"
    early = altered(sources[0], tmp_path / "early.db", going)
    into = merged(tmp_path / "into.db", early, sources[0])
    assert content(into) == content(sources[0])
    assert content(merged(tmp_path / "again.db", into, early)) == content(sources[0])


def test_a_database_is_not_merged_into_itself_nor_from_nowhere(sources: list[Path], tmp_path: Path) -> None:
    with open_database(tmp_path / "p.db") as database:
        with pytest.raises(DatabaseError, match="into itself"):
            merge_database(database, tmp_path / "p.db")
        with pytest.raises(DatabaseError, match="no such file"):
            merge_database(database, tmp_path / "absent.db")
        (tmp_path / "text.db").write_text("hello, I am no database")
        with pytest.raises(DatabaseError, match="not an SQLite database"):
            merge_database(database, tmp_path / "text.db")
