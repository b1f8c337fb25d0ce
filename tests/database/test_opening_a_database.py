"""Whatever is wrong with the place of a database: one clear message, and nothing recorded is lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autofuse.database.connection import default_path, locate
from autofuse.database.database import ProfilingDatabase, open_database, open_for_lookup
from autofuse.database.records import CandidateOutcome, Setting, content_key
from autofuse.errors import DatabaseError

Outcome = Callable[..., CandidateOutcome]
Settings = Callable[..., Setting]
CONV = content_key("conv")


@pytest.fixture
def filled(database: ProfilingDatabase, setting: Setting, make_outcome: Outcome) -> Path:
    """A closed database file of 40 candidates, without a log beside it."""
    for tile in range(40):
        database.record_candidate(setting, make_outcome(tile=tile))
    database.close()
    assert database.location.path is not None
    return database.location.path


def count(path: Path) -> int:
    with open_database(path, read_only=True) as opened:
        return len(opened.table("candidates").rows)


def refusal(place: str | Path | None, **options: object) -> str:
    with pytest.raises(DatabaseError) as caught:
        open_database(place, **options)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_new_database_makes_its_folder(tmp_path: Path) -> None:
    with open_database(tmp_path / "a" / "b" / "profile.db") as opened:
        assert opened.problems() == []
    assert (tmp_path / "a" / "b" / "profile.db").is_file()


def test_without_a_path_it_lies_in_the_users_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "autofuse" / "profile.db"
    assert locate(None).path == default_path()


@pytest.mark.parametrize("form", ["{path}", "sqlite:///{path}", "sqlite+pysqlite:///{path}"])
def test_a_path_and_an_sqlite_url_mean_the_same(filled: Path, form: str) -> None:
    with open_database(form.format(path=filled), read_only=True) as opened:
        assert len(opened.table("candidates").rows) == 40


def test_in_memory_it_lives_as_long_as_the_object(make_setting: Settings, make_outcome: Outcome) -> None:
    with open_database(":memory:") as opened:
        opened.record_candidate(make_setting(into=opened), make_outcome())
        assert len(opened.table("candidates").rows) == 1
    with open_database("sqlite://") as opened:
        assert opened.table("candidates").rows == []


def test_reopened_it_holds_what_was_recorded(filled: Path) -> None:
    with open_database(filled) as opened:
        assert len(opened.table("candidates").rows) == 40
        assert opened.problems() == []


def test_an_empty_file_becomes_a_database_but_cannot_be_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    assert "empty" in refusal(path, read_only=True)
    with open_database(path) as opened:
        assert opened.problems() == []


def test_a_missing_file_is_not_made_by_a_reader(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "profile.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_a_text_file_and_a_device_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, whatever its name says")
    assert "name a file in it" in refusal(tmp_path)
    for read_only in (True, False):
        assert "not an SQLite database" in refusal(tmp_path / "notes.txt", read_only=read_only)
    assert "no regular file" in refusal("/dev/null")
    assert "path is empty" in refusal("")
    assert (tmp_path / "notes.txt").read_text().startswith("not a database")


def test_a_file_where_a_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "--db" in refusal(tmp_path / "file" / "profile.db")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("nosuch://host/name", "unknown kind 'nosuch'"),
        ("mysql+nosuch://host/name", "unknown kind"),
        ("postgresql+pg8000://user:secret@host/name", "pg8000"),
        ("oracle:/x", "'oracle:/' begins neither a path nor a URL"),
        ("oracle://host/x", "unknown kind 'oracle'"),
        ("://", "not a URL"),
        ("sqlite:///x.db?mode=ro", "not supported"),
    ],
)
def test_an_unknown_url_names_the_allowed_ones_and_never_a_password(url: str, text: str) -> None:
    message = refusal(url)
    assert text in message and "secret" not in message


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9])
def test_a_truncated_database_is_called_damaged(filled: Path, kept: float) -> None:
    whole = filled.read_bytes()
    filled.write_bytes(whole[: int(len(whole) * kept)])
    before = filled.read_bytes()
    for read_only in (True, False):
        assert "damaged" in refusal(filled, read_only=read_only)
    assert filled.read_bytes() == before


def test_damage_in_the_middle_is_reported_when_it_is_met(filled: Path) -> None:
    content = bytearray(filled.read_bytes())
    page = int.from_bytes(content[16:18], "big")
    for start in range(3 * page, len(content), page):
        content[start : start + 200] = os.urandom(200)
    filled.write_bytes(content)
    with pytest.raises(DatabaseError, match="damaged"), open_database(filled) as opened:
        opened.table("candidates")


def test_another_programs_database_is_left_untouched(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE photo (id INTEGER)")
    other.close()
    before = path.read_bytes()
    assert "another program (its tables: photo)" in refusal(path)
    assert "no profiling database" in refusal(path, read_only=True)
    assert path.read_bytes() == before


def test_a_table_that_was_changed_by_hand_is_named(filled: Path) -> None:
    with sqlite3.connect(filled) as other:
        other.execute("ALTER TABLE af_device RENAME COLUMN facts TO fakts")
    other.close()
    assert "table af_device lacks facts" in refusal(filled)


def test_tables_without_a_version_are_refused(filled: Path) -> None:
    with sqlite3.connect(filled) as other:
        other.execute("DROP TABLE af_alembic_version")
    other.close()
    assert "no schema version" in refusal(filled)


@pytest.mark.parametrize("revision", ["r9999", ""])
def test_a_newer_schema_asks_for_a_newer_autofuse(filled: Path, revision: str) -> None:
    with sqlite3.connect(filled) as other:
        other.execute("UPDATE af_alembic_version SET version_num = ?", (revision,))
    other.close()
    for read_only in (True, False):
        message = refusal(filled, read_only=read_only)
        assert f"{revision!r}" in message and "upgrade autofuse" in message


def test_a_lock_is_waited_for_and_then_named(filled: Path, make_setting: Settings, make_outcome: Outcome) -> None:
    holder = sqlite3.connect(filled, isolation_level=None)
    with open_database(filled, busy_timeout_s=0.2) as opened:
        setting = make_setting(into=opened)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="locked"):
            opened.record_candidate(setting, make_outcome(tile=99))
        assert len(opened.table("candidates").rows) == 40  # a reader is never in the way
        holder.execute("ROLLBACK")
        opened.record_candidate(setting, make_outcome(tile=99))
    holder.close()
    assert count(filled) == 41


def test_a_reader_writes_nothing(filled: Path, make_outcome: Outcome) -> None:
    before = filled.read_bytes()
    with open_database(filled, read_only=True) as reader:
        setting = Setting("d", "t", 1, "v")
        with pytest.raises(DatabaseError, match="read-only"):
            reader.record_candidate(setting, make_outcome())
    assert filled.read_bytes() == before


def as_nobody(path: Path, mode: str) -> str:
    """What an unprivileged process gets; permissions mean nothing to root, so it runs in a child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            with open_database(path, read_only=mode == "read") as opened:
                answer = f"rows {len(opened.table('candidates').rows)}"
        except DatabaseError as error:
            answer = f"refused: {error}"
        finally:
            os.write(writing, answer.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


@pytest.fixture
def shelf(filled: Path) -> Iterator[Path]:
    """A copy of the filled database in a folder that everybody can reach."""
    folder = Path(tempfile.mkdtemp(prefix="autofuse-shelf-"))
    folder.chmod(0o777)
    shutil.copy(filled, folder / "profile.db")
    (folder / "profile.db").chmod(0o666)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


def test_a_read_only_file_or_folder_is_named_and_can_still_be_read(shelf: Path) -> None:
    path = shelf / "profile.db"
    path.chmod(0o444)
    assert f"{path} is read-only" in as_nobody(path, "write")
    assert as_nobody(path, "read") == "rows 40"
    path.chmod(0o666)
    shelf.chmod(0o555)
    assert f"{shelf} is read-only" in as_nobody(path, "write")
    assert as_nobody(path, "read") == "rows 40"
    assert "refused" in as_nobody(shelf / "new" / "profile.db", "write")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 and count(path) == 40


def test_a_file_that_may_not_be_read_is_refused(shelf: Path) -> None:
    path = shelf / "profile.db"
    path.chmod(0o000)
    for mode in ("read", "write"):
        assert "not readable" in as_nobody(path, mode)


def test_asking_only_changes_nothing_and_makes_no_file(tmp_path: Path, filled: Path) -> None:
    with open_for_lookup(tmp_path / "absent.db") as opened:
        assert opened.table("runs").rows == []
    assert not (tmp_path / "absent.db").exists()
    with open_for_lookup(filled) as opened:
        assert opened.read_only
        assert opened.table("candidates").rows


def test_what_fails_on_rows_that_name_missing_ones_is_no_defect_of_ours(filled: Path) -> None:
    with sqlite3.connect(filled) as other:
        other.execute("DELETE FROM af_device")
    other.close()
    problem = "names a missing af_device.*`autofuse db check`"
    with pytest.raises(DatabaseError, match=problem), open_database(filled):
        raise KeyError(21)  # as an export did, which looks for the key of that row


def test_a_text_that_is_no_json_is_no_defect_of_ours(filled: Path) -> None:
    with sqlite3.connect(filled) as other:
        other.execute("UPDATE af_device SET facts = 'x'")
    other.close()
    with open_database(filled) as opened, pytest.raises(DatabaseError, match="unfit for its column.*db check"):
        opened.table("devices")


def test_a_defect_beside_a_sound_database_stays_one(tmp_path: Path) -> None:
    with pytest.raises(KeyError), open_database(tmp_path / "sound.db"):
        raise KeyError(21)
