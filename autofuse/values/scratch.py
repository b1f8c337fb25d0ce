"""Temporary folders, and parts of files beside an output, that do not pile up when jobs are killed."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from autofuse.values.locks import held, lock_folder

PART_SUFFIX = ".part"
"""What the name of every file or folder ends with that is not whole yet."""
_LOCK = "in-use.lock"
_PART = re.compile(r"\.autofuse-([0-9a-f]{12})-([0-9]+)-([0-9]+)-[0-9a-f]{16}\.part")
_START_TOLERANCE_S = 5.0
"""Start times derive from a clock that may be set; a reused process id is rarely this close."""


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
    try:
        if old.is_symlink() or not old.is_dir() or old.stat().st_uid != os.getuid():
            return
        with FileLock(old / _LOCK, timeout=0):
            shutil.rmtree(old, ignore_errors=True)
    except (Timeout, OSError):
        pass  # in use, not ours to remove, or its job has just removed it


def part_name() -> str:
    """A fresh name for what will be moved to its place once it is whole; it tells whose it is."""
    started = int(psutil.Process().create_time())
    return f".autofuse-{_system()}-{os.getpid()}-{started}-{secrets.token_hex(8)}{PART_SUFFIX}"


def left_parts(folder: Path) -> list[Path]:
    """What processes of this user and this system left in `folder` under a `part_name` when they were killed."""
    found = []
    for path in folder.glob(f".autofuse-*{PART_SUFFIX}"):
        name = _PART.fullmatch(path.name)
        if name and name[1] == _system() and path.lstat().st_uid == os.getuid() and _ended(int(name[2]), int(name[3])):
            found.append(path)
    return found


def sweep_parts(folder: Path) -> None:
    """Remove the files among `left_parts`; those that cannot be removed stay."""
    with suppress(OSError):
        for path in left_parts(folder):
            if stat.S_ISREG(path.lstat().st_mode):
                path.unlink()


def _system() -> str:
    """Digits that tell apart where process ids mean different processes: machines, and containers on one."""
    marks = [socket.gethostname()]
    with suppress(OSError):
        marks.append(str(Path("/proc/self/ns/pid").readlink()))
    with suppress(OSError):
        marks.append(Path("/etc/machine-id").read_text(encoding="utf-8"))
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()[:12]


def _ended(pid: int, started: int) -> bool:
    """Whether a process is gone, also when its number is another's now."""
    try:
        return abs(psutil.Process(pid).create_time() - started) > _START_TOLERANCE_S
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
