"""An export is text that can be read, checked and taken in again; equal contents make equal bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from autofuse.database.database import open_database
from autofuse.database.files.manifest import MANIFEST
from autofuse.database.files.upkeep import export_database, import_database, merge_database
from autofuse.database.tables.schema import HEAD_REVISION
from autofuse.errors import DatabaseError, InputError
from tests.database.recorded import fill, outcome, setting_of


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("source") / "p.db", 1)


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    with open_database(source, read_only=True) as database:
        export_database(database, tmp_path / "export")
    return tmp_path / "export"


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rewrite(folder: Path, table: str, old: str, new: str) -> None:
    """Change a file, and the manifest with it."""
    path = folder / f"{table}.jsonl"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    manifest = json.loads((folder / MANIFEST).read_text())
    for file in manifest["files"]:
        data = (folder / f"{file['table']}.jsonl").read_bytes()
        file |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_it_can_be_reviewed_line_by_line(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    assert (manifest["format"], manifest["schema"]) == ("autofuse-export", HEAD_REVISION)
    for file in manifest["files"]:
        data = (folder / f"{file['table']}.jsonl").read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
        assert len(data.splitlines()) == file["rows"]
    run = json.loads((folder / "af_run.jsonl").read_text())
    assert (run["name"], run["summary"]) == ("run1", {"seed": 1})
    schedules = {row["id"]: row["text"] for row in map(json.loads, (folder / "af_schedule.jsonl").open())}
    for row in map(json.loads, (folder / "af_candidate.jsonl").open()):
        assert row["schedule_id"] in schedules and "owner_pid" not in row


def test_it_comes_back_whole(source: Path, folder: Path, tmp_path: Path) -> None:
    with open_database(tmp_path / "q.db") as database:
        report = import_database(database, folder)
        assert report.changes > 50 and database.problems() == []
        assert import_database(database, folder).changes == 0
        export_database(database, tmp_path / "again")
        assert merge_database(database, source).changes == 0
        key = outcome("conv", 0, None).candidate.workload_key
        with open_database(source, read_only=True) as old:
            for device in ("laptop", "board"):
                ours, theirs = (base.lookup(setting_of(base, device), [key]) for base in (database, old))
                assert [best.median_us for best in ours.values()] == [best.median_us for best in theirs.values()]
                assert [best.digest for best in ours.values()] == [best.digest for best in theirs.values()] != [""]
    assert files_of(tmp_path / "again") == files_of(folder)


def test_a_dry_run_of_an_import_changes_nothing(folder: Path, tmp_path: Path) -> None:
    with open_database(tmp_path / "q.db") as database:
        said = import_database(database, folder, dry_run=True)
        assert said.changes > 50 and database.run() is None


def test_without_samples_it_is_smaller_and_still_taken_in(source: Path, folder: Path, tmp_path: Path) -> None:
    with open_database(source, read_only=True) as database:
        manifest = export_database(database, tmp_path / "small", samples=False)
    assert "af_sample" not in {file.table for file in manifest.files}
    with open_database(tmp_path / "q.db") as database:
        import_database(database, tmp_path / "small")
        assert len(database.table("measurements").rows) == 25 and database.table("samples").rows == []


def test_it_replaces_an_export_but_nothing_else(source: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.txt").write_text("meow")
    with open_database(source, read_only=True) as database:
        (folder / "af_run.jsonl").write_text("old")
        export_database(database, folder)
        assert "run1" in (folder / "af_run.jsonl").read_text()
        with pytest.raises(InputError, match="holds something else"):
            export_database(database, tmp_path / "photos")
    assert (tmp_path / "photos" / "cat.txt").read_text() == "meow"
    assert not list(tmp_path.glob(".*"))


CHANGES = {
    "a table that is none": (
        "af_run",
        '"name":"run1"',
        '"name":["run1"]',
        r"af_run.jsonl, line 1: column name: expected",
    ),
    "a key more": ("af_run", '"name":', '"extra":1,"name":', "line 1: expected an object with exactly"),
    "NaN": ("af_measurement", '"build_s":1.0', '"build_s":NaN', "NaN is no JSON"),
    "a row that is missing": ("af_choice", '"run_id":"', '"run_id":"x', "which names no row of af_run"),
    "a broken rule": ("af_trial", '"state":"complete"', '"state":"pruned"', "breaks a rule of the table"),
    "a word that is none": ("af_run", '"state":"finished"', '"state":"dreaming"', "expected one of running, finished"),
    "a workload of another key": ("af_workload", "workload", "workl0ad", "SHA-256"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_wrong_is_named_with_file_and_line(change: str, folder: Path, tmp_path: Path) -> None:
    table, old, new, message = CHANGES[change]
    rewrite(folder, table, old, new)
    with open_database(tmp_path / "q.db") as database:
        with pytest.raises((InputError, DatabaseError), match=message):
            import_database(database, folder)
        assert all(table.rows == [] for table in (database.table("devices"), database.table("candidates")))


def test_an_altered_file_is_refused_before_it_is_read(folder: Path, tmp_path: Path) -> None:
    path = folder / "af_run.jsonl"
    path.write_text(path.read_text().replace("run1", "run2"))
    with open_database(tmp_path / "q.db") as database:
        with pytest.raises(InputError, match=r"its SHA-256 is .* the manifest states"):
            import_database(database, folder)
        path.write_text("")
        with pytest.raises(InputError, match="0 bytes, the manifest states"):
            import_database(database, folder)
        path.unlink()
        path.symlink_to("/etc/passwd")
        with pytest.raises(InputError, match="no such file"):
            import_database(database, folder)
        with pytest.raises(InputError, match="db export"):
            import_database(database, tmp_path)


def test_an_export_of_a_newer_autofuse_says_so(folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text()) | {"schema": "r9999"}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with open_database(tmp_path / "q.db") as database, pytest.raises(DatabaseError, match="upgrade autofuse"):
        import_database(database, folder)
