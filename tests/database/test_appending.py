"""What is appended to a database that does not exist makes it whole or not at all; other verbs never make one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from autofuse import api
from autofuse.database.database import open_database
from autofuse.database.files.appending import open_to_append
from autofuse.errors import AutofuseError, DatabaseError, InputError
from tests.database.recorded import fill


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("source") / "p.db", 1)


@pytest.fixture(scope="module")
def export(source: Path) -> Path:
    api.db_export(source.parent / "export", database=str(source))
    return source.parent / "export"


def rows(path: Path) -> dict[str, int]:
    return dict(api.db_info(str(path)).rows)


@pytest.mark.parametrize("place", ["new.db", "new/folder/new.db"])
def test_a_new_database_stands_alone_in_its_folder(source: Path, export: Path, tmp_path: Path, place: str) -> None:
    new = tmp_path / place
    found = api.db_import(export, database=str(new))
    assert [path.name for path in new.parent.iterdir()] == [new.name]
    assert found.location == str(new) and rows(new) == rows(source)
    assert api.db_merge([source], database=str(new)).merged[0].changes == 0
    with open_database(new) as opened:  # the setting that readers and the writer pass each other stays
        assert opened.problems(content=True) == []
    with sqlite3.connect(new) as own:
        assert own.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("place", ["new.db", "new/folder/new.db"])
def test_an_error_or_a_dry_run_leaves_nothing(source: Path, export: Path, tmp_path: Path, place: str) -> None:
    new = str(tmp_path / place)
    (tmp_path / "text").write_text("no database")
    for verb in (
        lambda: api.db_import(tmp_path / "no-export", database=new),
        lambda: api.db_merge([tmp_path / "no.db"], database=new),
        lambda: api.db_merge([source, tmp_path / "text"], database=new),
    ):
        with pytest.raises(AutofuseError):
            verb()
    said = [api.db_import(export, database=new, dry_run=True), api.db_merge([source], database=new, dry_run=True)]
    assert [(one.location, one.merged[0].changes > 50) for one in said] == [(new, True)] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_an_error_keeps_a_database_that_was_there(source: Path, tmp_path: Path) -> None:
    there = fill(tmp_path / "there.db", 2)
    before = rows(there)
    with pytest.raises(InputError, match="no such file"):
        api.db_import(tmp_path / "no-export", database=str(there))
    assert rows(there) == before and api.db_check(str(there)).ok


def test_one_that_somebody_else_makes_meanwhile_is_theirs(source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    with pytest.raises(InputError, match="exists already"), open_to_append(str(new), False):
        fill(new, 2)
        theirs = rows(new)
    assert rows(new) == theirs and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "verb",
    [
        lambda path: api.db_prune(path, older_than="1d"),
        lambda path: api.db_check(path, revalidate=1),
        lambda path: api.stop(path),
    ],
    ids=["prune", "check", "stop"],
)
def test_verbs_that_need_what_is_there_never_make_it(verb: Callable[[str], object], tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="no such file; check --db"):
        verb(str(tmp_path / "folder" / "new.db"))
    assert list(tmp_path.iterdir()) == []
