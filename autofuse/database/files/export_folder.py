"""The folder of an export: only files of an export are ever replaced or removed in it, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from autofuse.database.tables.schema import PREFIX
from autofuse.errors import InputError
from autofuse.values.outputs import force


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
