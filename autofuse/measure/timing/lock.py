"""The lock that keeps two jobs of one user from timing at once on one machine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from autofuse.values.locks import held, lock_folder


def alone(lock: Path | None = None) -> AbstractContextManager[None]:
    """A timing phase, of which one at a time runs; a wait for another one is announced. `lock`: the file that says so
    (None: one for all processes of this user)."""
    return held(lock or lock_folder() / "measure.lock", "is timing on this machine")
