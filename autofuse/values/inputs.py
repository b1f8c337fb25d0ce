"""Small text files that a user named, read with a bound: a device without end must not fill the memory."""

from __future__ import annotations

import errno
from pathlib import Path

MOST_TEXT_BYTES = 64 << 20
"""Far more than a plan, a device or a search space has."""


def read_text(path: Path) -> str:
    """The UTF-8 text in a file or pipe; OSError when it is larger than any file of ours, or cannot be read."""
    with path.open("rb") as file:
        content = file.read(MOST_TEXT_BYTES + 1)
    if len(content) > MOST_TEXT_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_TEXT_BYTES >> 20} MiB")
    return content.decode("utf-8")
