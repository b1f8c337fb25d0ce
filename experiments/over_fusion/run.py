"""The cases where fusing loses: never fuse, always fuse, and what the search finds.

.venv/bin/python -m experiments over_fusion --seconds 60 --out out/over_fusion
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.over_fusion.cases import CASES
from experiments.rivals import run_cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune each case against both ends."""
    return run_cases(arguments, CASES, Path("out/over_fusion"), "Cases where fusing loses.")
