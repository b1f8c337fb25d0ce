"""What keeps the libraries that we use from sending anything: autofuse itself has no telemetry.

ONNX Runtime from 1.29 on writes a device identifier and a queue of events to the user's cache, and uploads them from
a thread of its own, unless this variable holds 1 (or another word; empty and 0 do not count) when it is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SWITCHED_OFF: Mapping[str, str] = {"ORT_DISABLE_TELEMETRY": "1"}
"""Environment variables of this process and of all its children."""


def switch_off() -> None:
    """Set the variables here; before any import of ONNX Runtime, and so in `autofuse/__init__.py`."""
    os.environ.update(SWITCHED_OFF)
