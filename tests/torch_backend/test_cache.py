"""Libraries of torch graphs on the disk; none of it needs torch."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

import autofuse
from autofuse import api
from autofuse.cli.main import app
from autofuse.errors import InputError
from autofuse.torch_backend.cache import LIBRARY, NOTE, Cache, Note, default_folder
from autofuse.values.scratch import part_name

FIRST = Note(stamp="1", decision="a")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "made.so"
    path.write_bytes(bytes(1000))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 10_000)


def age(cache: Cache, key: str, seconds: int) -> None:
    path = cache.folder / key / NOTE
    os.utime(path, (path.stat().st_atime - seconds, path.stat().st_mtime - seconds))


def test_what_is_kept_is_found(cache: Cache, library: Path) -> None:
    assert cache.find("key") is None
    cache.keep("key", library, FIRST)
    found = cache.find("key")
    assert found is not None
    assert (found.library.read_bytes(), found.note) == (bytes(1000), FIRST)


def test_the_folder_is_the_users_alone(cache: Cache, library: Path) -> None:
    cache.keep("key", library, FIRST)
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((cache.folder / "key").stat().st_mode) == 0o700


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "theirs")
    with pytest.raises(InputError, match="is not a folder of this user alone; remove it, set XDG_CACHE_HOME"):
        Cache(tmp_path / "cache", 1000)


def test_an_entry_takes_the_place_of_an_older_one(cache: Cache, library: Path) -> None:
    cache.keep("key", library, FIRST)
    library.write_bytes(b"new")
    cache.keep("key", library, Note(stamp="2", decision="b"))
    found = cache.find("key")
    assert found is not None and (found.library.read_bytes(), found.note.stamp) == (b"new", "2")
    assert cache.report().libraries == 1


@pytest.mark.parametrize("damage", ["note", "fields", "library", "no note"])
def test_a_damaged_entry_goes(damage: str, cache: Cache, library: Path) -> None:
    cache.keep("key", library, FIRST)
    folder = cache.folder / "key"
    if damage == "library":
        (folder / LIBRARY).unlink()
    elif damage == "no note":
        (folder / NOTE).unlink()
    else:
        (folder / NOTE).write_text("{" if damage == "note" else '{"stamp": 3}')
    assert cache.find("key") is None
    assert damage == "no note" or not folder.exists()
    cache.keep("key", library, FIRST)
    assert cache.find("key") is not None


def test_the_libraries_that_were_used_longest_ago_make_room(cache: Cache, library: Path) -> None:
    library.write_bytes(bytes(4000))
    for number, key in enumerate(("a", "b")):
        cache.keep(key, library, FIRST)
        age(cache, key, 100 - number)
    assert cache.find("a") is not None  # so `b` is the older one now
    cache.keep("c", library, FIRST)
    assert (cache.find("a") is None, cache.find("b") is None, cache.find("c") is None) == (False, True, False)
    assert cache.report().bytes <= cache.most_bytes


def test_a_library_larger_than_the_cache_stays_out(cache: Cache, library: Path) -> None:
    cache.keep("small", library, FIRST)
    library.write_bytes(bytes(20_000))
    cache.keep("large", library, FIRST)
    assert cache.find("large") is None
    assert cache.find("small") is not None


def test_what_agrees_with_a_newer_database_is_noted(cache: Cache, library: Path) -> None:
    cache.keep("key", library, FIRST)
    cache.agree("key", Note(stamp="2", decision="a"))
    found = cache.find("key")
    assert found is not None and found.note == Note(stamp="2", decision="a")
    cache.agree("gone", FIRST)
    assert cache.find("gone") is None


def test_what_a_killed_process_left_goes(cache: Cache, library: Path) -> None:
    left = cache.folder / part_name().replace(f"-{os.getpid()}-", f"-{2**22 + 1}-")  # more than any process id
    left.mkdir()
    (left / LIBRARY).write_bytes(bytes(1000))
    assert cache.report().libraries == 0
    cache.keep("key", library, FIRST)
    assert not left.exists()


def test_what_others_keep_there_stays(cache: Cache, library: Path, tmp_path: Path) -> None:
    """Folders of others, a link, and a file that somebody put beside a library."""
    thesis, notes = cache.folder / "thesis" / "chapter.txt", cache.folder / "mixed" / "notes.txt"
    for key in ("key", "mixed"):
        cache.keep(key, library, FIRST)
    thesis.parent.mkdir()
    for path in (thesis, notes):
        path.write_text("a year's work")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / LIBRARY).write_bytes(b"theirs")
    (cache.folder / "link").symlink_to(tmp_path / "elsewhere")
    assert cache.clear().removed == 1
    (notes.parent / NOTE).write_text("damaged")
    assert cache.find("mixed") is None
    cache.most_bytes = 1
    cache.keep("new", library, FIRST)
    assert thesis.exists() and notes.exists() and (tmp_path / "elsewhere" / LIBRARY).exists()


def test_the_verbs_show_and_clear_it(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    Cache(default_folder(), 10_000).keep("key", library, FIRST)
    assert str(default_folder()).startswith(str(tmp_path / "home"))
    found = autofuse.cache_info()
    assert (found.libraries, found.removed, found.bytes > 1000) == (1, 0, True)
    shown = CliRunner().invoke(app, ["cache", "info"])
    assert shown.exit_code == 0 and str(default_folder()) in shown.stdout.replace("\n", "")
    assert "1, " in shown.stdout and "as machine code" in shown.stdout and "removed" not in shown.stdout
    cleared = CliRunner().invoke(app, ["cache", "clear", "--format", "json"])
    assert cleared.exit_code == 0 and '"removed": 1' in cleared.stdout
    assert autofuse.cache_info().libraries == autofuse.cache_clear().removed == 0


def test_asking_what_is_kept_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for report in (api.cache_info(), api.cache_clear()):
        assert (report.libraries, report.bytes, report.removed) == (0, 0, 0)
        assert report.folder.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
