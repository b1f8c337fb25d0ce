"""What one core does at best, as far as first guesses of schedules ask: arithmetic, and reads from the last cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

USUAL_GFLOPS_A_LANE, USUAL_L3_GBS = 12.0, 40.0
"""Of a core that nobody probed: at three gigahertz with two units; between server cores of Intel (Emerald Rapids reads
30 GB/s from its last cache) and of AMD (98 to 110)."""


@dataclass(frozen=True)
class CoreRates:
    """`gflops`: float32 multiply-adds (2 operations each), `l3_gbs`: reads from the last cache; decimal giga."""

    gflops: float
    l3_gbs: float

    @classmethod
    def of(cls, probed: Mapping[str, object] | None) -> Self | None:
        """Those of a probed machine (see `autofuse.measure.machine.MachineRates`); None where one was not probed."""
        found = [(probed or {}).get(name) for name in ("gflops_1", "l3_gbs_1")]
        known = [float(rate) for rate in found if isinstance(rate, int | float) and rate > 0]
        return cls(*known) if len(known) == len(found) else None

    @classmethod
    def usual(cls, lanes: int) -> Self:
        """Those to go by where none are known; `lanes`: float32 elements of a vector register."""
        return cls(USUAL_GFLOPS_A_LANE * lanes, USUAL_L3_GBS)
