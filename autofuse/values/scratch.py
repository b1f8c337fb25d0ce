"""Temporary folders that do not pile up when jobs are killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from autofuse.values.locks import held, lock_folder

_LOCK = "in-use.lock"


@contextmanager
def scratch_folder(root: Path | None = None) -> Iterator[Path]:
    """A fresh folder that goes at the end; those that killed jobs of this user left behind go first.

    A job keeps a lock in its folder, which the system frees when the process ends in whatever way. `root`: where
    the folders stand (None: the system's temporary folder).
    """
    root = root or Path(tempfile.gettempdir())
    prefix = f"autofuse-scratch-{os.getuid()}-"
    with held(lock_folder() / "scratch.lock", "sweeps temporary folders"):
        for old in root.glob(f"{prefix}*"):
            _sweep(old)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        lock = FileLock(folder / _LOCK)
        lock.acquire()
    try:
        yield folder
    finally:
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(old: Path) -> None:
    if old.is_symlink() or not old.is_dir() or old.stat().st_uid != os.getuid():
        return
    try:
        with FileLock(old / _LOCK, timeout=0):
            shutil.rmtree(old, ignore_errors=True)
    except (Timeout, OSError):
        pass  # in use, or not ours to remove
