"""Files that a user named: whole or untouched, and never over what autofuse did not write."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from autofuse.errors import InputError
from autofuse.values.outputs import (
    Kind,
    all_or_none,
    check_output,
    database_files,
    has_head,
    output_file,
    output_folder,
    write_output,
)

OURS = Kind("a note of autofuse", lambda path: has_head(path, b"ours"))
NEW = Kind("a journal")


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(path.parent)
        try:
            one.bind(path.name)  # a socket's name is short
        finally:
            os.chdir(here)


def device(path: Path) -> None:
    path.symlink_to("/dev/null")


def nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "absent")


def circle(path: Path) -> None:
    path.symlink_to(path)


def foreign(path: Path) -> None:
    path.write_text("a thesis")


def read_only(path: Path) -> None:
    path.write_text("ours, kept")
    path.chmod(0o444)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (folder, "is a folder; name a file in it"),
        (pipe, "is a pipe, no regular file"),
        (listening, "is a socket, no regular file"),
        (device, "is a device, no regular file"),
        (nowhere, "leads nowhere"),
        (circle, "symbolic link that leads"),
        (foreign, "exists and is not a note of autofuse; name another file, or move that one away"),
    ],
)
def test_what_is_not_ours_to_replace_is_refused_and_stays(
    make: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "output"
    make(path)
    before = os.lstat(path)
    with pytest.raises(InputError, match=words):
        write_output(path, "ours", OURS)
    assert os.lstat(path).st_ino == before.st_ino
    assert [found.name for found in tmp_path.iterdir()] == ["output"]


def test_a_read_only_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "output"
    read_only(path)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(InputError, match="is read-only; make it writable"):
        write_output(path, "ours", OURS)
    assert path.read_text() == "ours, kept"


def test_a_link_to_a_device_is_refused_and_the_device_stays_one() -> None:
    with pytest.raises(InputError, match="is a device"):
        write_output(Path("/dev/null"), "ours", OURS)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("by", ["name", "hard link", "symbolic link", "another spelling"])
def test_an_input_is_never_an_output_by_whatever_name(by: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_text("ours too")
    path = tmp_path / "other"
    if by == "name":
        path = model
    elif by == "hard link":
        path.hardlink_to(model)
    elif by == "symbolic link":
        path.symlink_to(model)
    else:
        (tmp_path / "sub").mkdir()
        path = tmp_path / "sub" / ".." / "model"
    with pytest.raises(InputError, match="is the model, which is read; name another file"):
        write_output(path, "ours", OURS, {"the model": model})
    assert model.read_text() == "ours too"


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_the_files_of_a_database_are_inputs_also_before_they_exist(end: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the database"):
        check_output(tmp_path / f"profile.db{end}", OURS, database_files(tmp_path / "profile.db"))


def test_a_file_of_ours_and_an_empty_one_are_replaced_with_their_permissions(tmp_path: Path) -> None:
    for old in ("ours, old", ""):
        path = tmp_path / "output"
        path.write_text(old)
        path.chmod(0o640)
        write_output(path, "ours, new", OURS)
        assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("ours, new", 0o640)


def test_a_symbolic_link_to_a_file_of_ours_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("ours, old")
    link.symlink_to(real)
    write_output(link, "ours, new", OURS)
    assert link.is_symlink()
    assert real.read_text() == "ours, new"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ZeroDivisionError()])
def test_an_error_keeps_the_old_file_and_leaves_nothing_beside_it(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_text("ours, old")
    expected = InputError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected), output_file(path, OURS) as part:
        part.write_text("ours, hal")
        raise error
    assert path.read_text() == "ours, old"
    assert [found.name for found in tmp_path.iterdir()] == ["output"]


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="No space left on device; free some space"),
        output_file(tmp_path / "output", OURS),
    ):
        raise OSError(28, "No space left on device")


def test_what_came_to_stand_there_meanwhile_is_kept(tmp_path: Path) -> None:
    for kind in (OURS, NEW):
        path = tmp_path / kind.name
        with pytest.raises(InputError, match="exists"), output_file(path, kind) as part:
            part.write_text("ours")
            path.write_text("a thesis")
        assert path.read_text() == "a thesis"


def test_a_kind_that_replaces_nothing_only_makes_new_files(tmp_path: Path) -> None:
    write_output(tmp_path / "journal", "x", NEW)
    with pytest.raises(InputError, match="exists already; name a new file"):
        write_output(tmp_path / "journal", "y", NEW)
    assert (tmp_path / "journal").read_text() == "x"


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 300, "file/output"])
def test_names_that_are_none_have_a_message(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="name another file|names no file|is a folder"):
        write_output(tmp_path / name, "ours", OURS)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is no folder; name a folder"):
        output_folder(tmp_path / "file")


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_no_file_and_no_folder_gets_a_name_that_a_database_needs(end: str, tmp_path: Path) -> None:
    """SQLite cannot open a database beside which a folder has such a name, and removes a file."""
    (tmp_path / "own.db").write_bytes(b"SQLite format 3\0 and the rest")
    for write in (lambda path: output_folder(path), lambda path: write_output(path, "new", NEW)):
        with pytest.raises(InputError, match=r"a name that the database own\.db needs; name another one"):
            write(tmp_path / f"own.db{end}")
    write_output(tmp_path / f"other.db{end}", "new", NEW)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["own.db", f"other.db{end}"])


def test_after_an_error_only_what_was_there_before_is_there(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "old").write_text("old")
    files = [tmp_path / "kept" / "old", tmp_path / "kept" / "new", tmp_path / "made" / "deep" / "new"]
    with pytest.raises(OSError), all_or_none([], files):
        files[2].parent.mkdir(parents=True)
        for file in files:
            file.write_text("half")
        raise OSError
    assert {path.name for path in tmp_path.rglob("*")} == {"kept", "old"}


def test_a_new_folder_in_which_others_wrote_meanwhile_stays(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with pytest.raises(OSError), all_or_none([folder]):
        folder.mkdir()
        (folder / "theirs").write_text("theirs")
        raise OSError
    assert (folder / "theirs").read_text() == "theirs"
