"""The lock that keeps two jobs of one machine from timing at once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def measuring_lock() -> Path:
    """The file that one timing phase of this machine locks at a time."""
    return Path(tempfile.gettempdir()) / f"autofuse-measure-{os.getuid()}.lock"
