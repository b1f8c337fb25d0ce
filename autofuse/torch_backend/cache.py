"""Libraries of torch graphs on the disk: in a folder of this user alone, bounded in size, the oldest used go first.

What is removed are the files of entries, by their names; what others put there stays.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError

from autofuse.errors import InputError
from autofuse.values.locks import own_folder
from autofuse.values.scratch import PART_SUFFIX, left_parts, part_name

LIBRARY, NOTE, LOCK = "library.so", "entry.json", "cache.lock"
OWN = (LIBRARY, NOTE)
"""The files of an entry."""


class Note(BaseModel):
    """What an entry says about its library. `stamp`: of the database when it was compiled, or last found to agree.

    `decision`: a digest of the plan and of all schedules in it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    stamp: str
    decision: str


@dataclass(frozen=True)
class Entry:
    """A library that is kept, and what is said about it."""

    library: Path
    note: Note


@dataclass(frozen=True)
class CacheReport:
    """The cache of a user: its folder, how many libraries it holds, their bytes. `removed`: how many went just now.

    `objects`, `object_bytes`: kernels as machine code, which the next compile of an equal one takes.
    """

    folder: str
    libraries: int
    bytes: int
    removed: int = 0
    objects: int = 0
    object_bytes: int = 0


def default_folder() -> Path:
    """`torch` in the user's cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("autofuse") / "torch"


def default_cache(most_bytes: int = 0) -> Cache:
    """The cache of this user. `most_bytes`: see `Cache`; 0 where nothing is added to it."""
    return Cache(default_folder(), most_bytes)


def kept() -> CacheReport:
    """What this user's cache holds; asking makes no folder."""
    folder = default_folder()
    return default_cache().report() if folder.is_dir() else CacheReport(str(folder), 0, 0)


def cleared() -> CacheReport:
    """What clearing this user's cache removed."""
    return default_cache().clear() if default_folder().is_dir() else kept()


class Cache:
    """A folder with one folder a library; `most_bytes` of all files in it. Safe between processes of the user.

    InputError where the folder cannot be this user's alone: what lies there is run.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        if not own_folder(folder):
            raise InputError(
                f"cache: {folder} is not a folder of this user alone; remove it, set XDG_CACHE_HOME, "
                "or give options={'cache': False}"
            )
        self.folder, self.most_bytes = folder, most_bytes

    def find(self, key: str) -> Entry | None:
        """The entry of a key, used just now; None where there is none, and for a damaged one, which goes."""
        folder = self.folder / key
        try:
            note = Note.model_validate_json((folder / NOTE).read_bytes())
            os.utime(folder / NOTE)
        except FileNotFoundError:
            return None
        except (OSError, ValidationError):
            self.drop(key)
            return None
        if not (folder / LIBRARY).is_file():
            self.drop(key)
            return None
        return Entry(folder / LIBRARY, note)

    def keep(self, key: str, library: Path, note: Note) -> None:
        """Copy a library into the cache, and make room for it; one that is larger than the cache stays out.

        OSError when it cannot be written.
        """
        if library.stat().st_size > self.most_bytes:
            return
        with FileLock(self.folder / LOCK):
            self._sweep()
            part = self.folder / part_name()
            try:
                part.mkdir(mode=0o700)
                shutil.copyfile(library, part / LIBRARY)
                (part / NOTE).write_text(note.model_dump_json(), encoding="utf-8")
                self.drop(key)
                part.rename(self.folder / key)
            finally:
                _remove(part)
            self._bound(key)

    def agree(self, key: str, note: Note) -> None:
        """Note that an entry is what the database of now would give, too."""
        part = self.folder / key / part_name()
        with suppress(OSError):  # it was cleared meanwhile: the library is loaded, or built again
            part.write_text(note.model_dump_json(), encoding="utf-8")
            part.replace(self.folder / key / NOTE)

    def drop(self, key: str) -> None:
        """Remove an entry; none is no error."""
        _remove(self.folder / key)

    def clear(self) -> CacheReport:
        """Remove all entries."""
        with FileLock(self.folder / LOCK):
            self._sweep()
            entries = self._entries()
            for folder in entries:
                self.drop(folder.name)
        return self.report(len(entries))

    def report(self, removed: int = 0) -> CacheReport:
        """What is in the cache."""
        entries = self._entries()
        return CacheReport(str(self.folder), len(entries), sum(map(_size, entries)), removed)

    def _entries(self) -> list[Path]:
        """Folders of libraries, those used last first."""
        found = [(_used(folder), folder) for folder in self.folder.iterdir() if _is_entry(folder)]
        return [folder for _, folder in sorted(found, reverse=True)]

    def _bound(self, newest: str) -> None:
        left = self.most_bytes - _size(self.folder / newest)
        for folder in self._entries():
            if folder.name != newest:
                left -= _size(folder)
                if left < 0:
                    self.drop(folder.name)

    def _sweep(self) -> None:
        """What killed processes left half-written goes."""
        for part in left_parts(self.folder):
            _remove(part)


def _is_entry(folder: Path) -> bool:
    """Whether a folder holds files of an entry, and nothing else."""
    if folder.name.startswith(".") or folder.is_symlink() or not folder.is_dir():
        return False
    names = {file.name for file in folder.iterdir()}
    return bool(names) and all(name in OWN or name.endswith(PART_SUFFIX) for name in names)


def _remove(folder: Path) -> None:
    """Remove the files of an entry and its folder, which stays where anything else lies in it; none is no error."""
    with suppress(OSError):
        for path in [*(folder / name for name in OWN), *left_parts(folder)]:
            path.unlink(missing_ok=True)
        folder.rmdir()


def _used(folder: Path) -> float:
    with suppress(OSError):
        return (folder / NOTE).stat().st_mtime
    return 0.0


def _size(folder: Path) -> int:
    total = 0
    with suppress(OSError):
        total = sum(file.stat().st_size for file in folder.iterdir())
    return total
