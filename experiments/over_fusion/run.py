"""The cases where fusing loses: never fuse, always fuse, and what the search finds.

.venv/bin/python -m experiments over_fusion --budget 60s
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.over_fusion.cases import CASES
from experiments.plan_race import plan_table, run_cases

TABLES = (plan_table("over_fusion"),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune each case against both ends."""
    return run_cases(arguments, CASES, TABLES[0], "Cases where fusing loses.")
