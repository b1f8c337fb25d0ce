"""A builder that never ends."""

from __future__ import annotations

import time
from typing import Any


def hangs(_workload: Any, _schedule: Any, _target: Any) -> None:
    time.sleep(3600)
