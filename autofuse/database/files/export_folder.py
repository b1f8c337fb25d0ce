"""The folder of an export: only files of an export are ever replaced or removed in it, one by one."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from autofuse.database.tables.schema import PREFIX
from autofuse.errors import InputError
from autofuse.values.outputs import force
from autofuse.values.scratch import left_parts, part_name


@contextmanager
def new_files(folder: Path) -> Iterator[Path]:
    """An empty folder within `folder` for the files of an export; it goes at the end."""
    fresh = folder / part_name()
    fresh.mkdir(mode=0o700)
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def sweep_exports(folder: Path, manifest: str) -> None:
    """Remove what killed exports left in `folder` of `new_files`: files of an export, then the folder that held them.

    `manifest`: its name. Whatever else lies there stays.
    """
    for left in left_parts(folder):
        if not stat.S_ISDIR(left.lstat().st_mode):
            continue
        for path in list(left.iterdir()):
            if path.name == manifest or path.name.startswith(PREFIX):
                path.unlink()
        if not any(left.iterdir()):
            left.rmdir()


def files_to_replace(folder: Path, listed: Callable[[], Sequence[str]]) -> set[str]:
    """Names of the files of the export in `folder`, none when it is empty or missing.

    `listed`: reads them from its manifest (which comes first), InputError when that is none of ours. InputError when
    the folder holds something else than an export, or its manifest names what no export consists of.
    """
    place = f"export folder {folder}"
    if not folder.exists() and not folder.is_symlink():
        return set()
    if not folder.is_dir():
        raise InputError(f"{place}: it is no folder; name a new one")
    if not any(folder.iterdir()):
        return set()
    try:
        manifest, *names = listed()
    except InputError as error:
        raise InputError(f"{place}: it exists and holds something else; name a new one") from error
    for name in names:
        if not name.startswith(PREFIX) or Path(name).name != name:
            raise InputError(f"{place}: its manifest names {name!r:.60}, no file of an export; name a new folder")
    return {manifest, *names}


def replace_files(folder: Path, fresh: Path, old: set[str], new: Sequence[str]) -> None:
    """Moves the files called `new` from `fresh` to `folder`, then removes those of `old` that are not among them.

    InputError, before anything is changed, when a name is taken by something else than a file of `old`.
    """
    for name in {*old, *new}:
        path = folder / name
        if path.is_symlink() or (path.exists() and not (path.is_file() and name in old)):
            raise InputError(f"export folder {folder}: {name} is there, but no file of an export; name a new folder")
    for name in new:
        force(fresh / name)
    for name in new:
        (fresh / name).replace(folder / name)
    force(folder)
    for name in old - set(new):
        (folder / name).unlink(missing_ok=True)
