"""Locks between processes of one user, in a folder that nobody else can write to."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from autofuse.errors import InputError
from autofuse.values.arguments import without_secrets

PATIENCE_S = 1.0
"""Seconds for which a wait is not worth a word."""
AGAIN_S = 60.0
"""Seconds between two words about the same wait."""
MAX_COMMAND = 200

_LOG = logging.getLogger(__name__)


def lock_folder() -> Path:
    """A folder of this user alone (mode 0700), made where it is missing; all processes of the user find the same.

    In $XDG_RUNTIME_DIR, or else in the temporary folder; in the user's cache when somebody else holds that name.
    InputError when none of them can be had.
    """
    from platformdirs import user_cache_path

    uid = os.getuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    places = [Path(runtime) / "autofuse"] if runtime and _is_own(Path(runtime)) else []
    places += [Path(tempfile.gettempdir()) / f"autofuse-{uid}", user_cache_path("autofuse") / "locks"]
    for place in places:
        if own_folder(place):
            return place
    tried = ", ".join(map(str, places))
    raise InputError(f"no folder for lock files is this user's own (tried {tried}): set XDG_RUNTIME_DIR or TMPDIR")


def _is_own(folder: Path) -> bool:
    """Whether it is a folder, no link, of this user, that nobody else may write to."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def own_folder(place: Path) -> bool:
    """Makes the folder where it is missing, and closes it to others; whether it is this user's own now."""
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        if _is_own(place) and os.access(place, os.W_OK | os.X_OK):
            place.chmod(0o700)
            return True
    return False


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold the lock `path` (from `lock_folder`); a wait for it is announced with its holder, now and then again.

    `what`: what the holder does meanwhile, for the message ("is timing on this machine").
    """
    lock, holder = FileLock(path), path.with_name(f"{path.name}.holder")
    patience_s = PATIENCE_S
    while True:
        try:
            lock.acquire(timeout=patience_s)
            break
        except Timeout:
            _LOG.warning("autofuse: waiting for %s, which %s", _told(holder), what)
            patience_s = AGAIN_S
    try:
        _sign(holder)
        yield
    finally:
        lock.release()


def _sign(holder: Path) -> None:
    """Leave word of this process beside the lock; a holder that cannot is only less easily found."""
    own = {"pid": os.getpid(), "started": psutil.Process().create_time(), "command": _command()}
    with suppress(OSError):
        holder.write_text(json.dumps(own), encoding="utf-8")


def _command() -> str:
    """This process's command line, without what is secret in it."""
    words = [Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv else []
    return " ".join(without_secrets(words))[:MAX_COMMAND]


def _told(holder: Path) -> str:
    """The process that holds a lock, in words."""
    try:
        body = json.loads(holder.read_text(encoding="utf-8"))
        pid, command = int(body["pid"]), str(body["command"])
        if abs(psutil.Process(pid).create_time() - float(body["started"])) < 1.0:
            return f"process {pid} ({command})"
    except (OSError, ValueError, LookupError, TypeError, psutil.Error):
        pass  # it did not sign, or has ended: then the lock is about to be free
    return "another process of yours"
