"""The command `autofuse`: its verbs, and what happens when one fails."""

from __future__ import annotations

import sys


def run() -> None:
    """Entry point of the console script."""
    sys.exit(0)
