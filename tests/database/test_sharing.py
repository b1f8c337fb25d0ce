"""Shared rows name nobody, and do no harm: they are priors, whoever sent them and whatever they claim."""

from __future__ import annotations

import getpass
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from autofuse import api
from autofuse.database.ask.transfers import any_shared, elsewhere
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.errors import AutofuseError, InputError
from autofuse.values.signatures import new_key
from tests.database.recorded import fill, outcome, setting_of

OF_KERNELS = {
    "af_device", "af_target", "af_versions", "af_workload", "af_schedule", "af_code", "af_candidate", "af_measurement",
    "af_sample", "af_doubt",
}  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A database with rows of every kind."""
    path: Path = fill(tmp_path / "mine.db", 1, busy=False)
    with open_database(path) as database:
        setting = setting_of(database)
        for tile in range(4):
            database.record_candidate(setting, outcome("conv", tile, 60.0 + tile))
    return path


def shared(path: Path, folder: Path, **named: Any) -> Path:
    api.db_export(folder, database=str(path), share=True, **named)
    return folder


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    files = {path.name.partition(".")[0]: path.read_text() for path in folder.glob("*.jsonl")}
    return {table: [json.loads(line) for line in text.splitlines()] for table, text in files.items()}


def best(database: ProfilingDatabase, device: str = "laptop") -> dict[str, tuple[str, float]]:
    setting = setting_of(database, device)
    keys = {str(row["workload_key"]) for row in database.table("candidates").records()}
    return {key: (found.schedule, found.median_us) for key, found in database.lookup(setting, keys).items()}


def test_what_is_shared_names_nobody_and_nothing(mine: Path, tmp_path: Path) -> None:
    folder = shared(mine, tmp_path / "out")
    rows = rows_of(folder)
    assert {table for table, found in rows.items() if found} <= OF_KERNELS
    assert rows["af_candidate"] and rows["af_measurement"] and rows["af_sample"]
    text = "\n".join(path.read_text() for path in folder.iterdir())
    for name in ("laptop", "run1", "net", "over 30 s", socket.gethostname(), getpass.getuser(), str(tmp_path)):
        assert not re.search(rf"\b{re.escape(name)}\b", text), name
    assert {row["name"] for row in rows["af_device"]} == {"shared"}
    assert all(row["fingerprint"].startswith("shared:") for row in rows["af_device"])
    assert {row["state"] for row in rows["af_candidate"]} == {"ok"}


def test_of_winners_only_the_fastest_schedule_of_each_kernel_is_shared(mine: Path, tmp_path: Path) -> None:
    whole, first = rows_of(shared(mine, tmp_path / "all")), rows_of(shared(mine, tmp_path / "first", winners=True))

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in ("workload_id", "device_id", "target_id", "threads"))

    places = [place(row) for row in first["af_candidate"]]
    assert len(set(places)) == len(places) < len(whole["af_candidate"])
    assert set(places) == {place(row) for row in whole["af_candidate"]}, "each kernel has one"
    for row in first["af_candidate"]:
        assert row["median_us"] == min(
            other["median_us"] for other in whole["af_candidate"] if place(other) == place(row)
        )
    assert len(first["af_schedule"]) < len(whole["af_schedule"]), "nothing is sent that no winner needs"
    api.db_import(tmp_path / "first", database=str(tmp_path / "into.db"))
    assert api.db_check(str(tmp_path / "into.db")).ok


def test_winners_without_share_are_refused(mine: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="add --share"):
        api.db_export(tmp_path / "out", database=str(mine), winners=True)
    assert not (tmp_path / "out").exists()


def test_the_original_stays_as_it_is(mine: Path, tmp_path: Path) -> None:
    before = api.db_info(str(mine)).rows
    shared(mine, tmp_path / "out")
    assert api.db_info(str(mine)).rows == before


def test_a_share_can_be_signed_and_asked_for_its_signature(mine: Path, tmp_path: Path) -> None:
    new_key(tmp_path / "me")
    new_key(tmp_path / "other")
    folder = shared(mine, tmp_path / "out", sign=tmp_path / "me")
    into = str(tmp_path / "into.db")
    api.db_import(folder, database=into, trust=[tmp_path / "me.pub"])
    with pytest.raises(AutofuseError, match="sign"):
        api.db_import(folder, database=into, trust=[tmp_path / "other.pub"])


@pytest.mark.long
def test_shared_rows_never_outvote_own_ones(mine: Path, tmp_path: Path) -> None:
    """A poisoned database of the very same device claims that everything takes next to nothing."""
    theirs = tmp_path / "theirs.db"
    with open_database(theirs) as database:
        setting = setting_of(database)
        for tile in range(1, 9):
            database.record_candidate(setting, outcome("conv", 100 + tile, 0.001, uid=f"poison{tile}"))
        api.db_export(tmp_path / "whole", database=str(theirs))
    folder = shared(theirs, tmp_path / "share")
    with open_database(mine) as database:
        before = best(database)
    api.db_import(folder, database=str(mine))
    api.db_import(tmp_path / "whole", database=str(mine), shared=True)  # and what does not say that it is shared
    with open_database(mine, read_only=True) as database:
        assert best(database) == before
        assert database.problems() == []
        with database.reading() as sql:
            keys = list(before)
            setting = setting_of(database)
            assert any_shared(sql)
            assert elsewhere(sql, setting, keys) == [], "compile takes nothing that was not measured here"
            assert elsewhere(sql, setting, keys, shared=True)
    assert api.db_check(str(mine)).ok


def test_a_whole_export_that_is_imported_as_shared_brings_no_plan_and_no_run(mine: Path, tmp_path: Path) -> None:
    api.db_export(tmp_path / "whole", database=str(mine))
    into = str(tmp_path / "into.db")
    api.db_import(tmp_path / "whole", database=into, shared=True)
    rows = api.db_info(into).rows
    assert not any(rows[table] for table in ("run", "plan", "choice", "trial", "edge", "plan_measurement"))
    assert rows["candidate"] > 0


def test_importing_the_same_share_again_changes_nothing(mine: Path, tmp_path: Path) -> None:
    folder, into = shared(mine, tmp_path / "out"), str(tmp_path / "into.db")
    api.db_import(folder, database=into)
    before = api.db_info(into).rows
    (report,) = api.db_import(folder, database=into).merged
    assert not any(table.new or table.updated for table in report.tables)
    assert api.db_info(into).rows == before


def test_own_rows_that_come_back_shared_are_no_second_measurement(mine: Path, tmp_path: Path) -> None:
    with open_database(mine) as database:
        before = best(database)
        counts = {row["candidate_id"] for row in database.table("candidates").records()}
    api.db_import(shared(mine, tmp_path / "out"), database=str(mine))
    with open_database(mine, read_only=True) as database:
        assert best(database) == before
        own = [row for row in database.table("measurements").records() if row["candidate_id"] in counts]
        assert len({row["measurement_id"] for row in own}) == len(own)


def test_what_others_shared_is_not_passed_on(mine: Path, tmp_path: Path) -> None:
    into = tmp_path / "into.db"
    api.db_import(shared(mine, tmp_path / "out"), database=str(into))
    again = rows_of(shared(into, tmp_path / "again"))
    assert not any(again.values())


def test_a_model_does_not_learn_from_shared_rows(mine: Path, tmp_path: Path) -> None:
    from autofuse.database.ask.training import timed_workloads

    into = tmp_path / "into.db"
    api.db_import(shared(mine, tmp_path / "out"), database=str(into))
    with open_database(into, read_only=True) as database, database.reading() as sql:
        assert timed_workloads(sql) == []


def test_an_altered_share_is_refused(mine: Path, tmp_path: Path) -> None:
    folder = shared(mine, tmp_path / "out")
    path = folder / "af_candidate.jsonl"
    path.write_text(path.read_text().replace('"threads":1', '"threads":2'))
    with pytest.raises(AutofuseError, match="SHA-256"):
        api.db_import(folder, database=str(tmp_path / "into.db"))


def test_a_share_of_an_older_schema_is_taken(mine: Path, tmp_path: Path) -> None:
    folder = shared(mine, tmp_path / "out")
    manifest = folder / "manifest.json"
    body = json.loads(manifest.read_text())
    assert body["schema"].startswith("r")
    body["schema"] = "r0005"
    manifest.write_text(json.dumps(body))
    into = str(tmp_path / "into.db")
    api.db_import(folder, database=into)
    assert api.db_info(into).rows["candidate"] > 0
