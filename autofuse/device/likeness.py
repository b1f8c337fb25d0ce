"""How alike two devices are, in numbers: whether what was measured on one is worth taking on the other, unmeasured.

What a kernel's best schedule depends on is the code (architecture, lanes, registers), the sizes of the caches, and how
fast arithmetic, memory and a dispatch are. Names of CPUs say none of that, so none is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log2

FARTHEST = 1.0
"""Mean doublings between the numbers of two devices beyond which one says nothing about the other."""
_CODE = ("lanes", "registers")
_SIZES = ("l1_bytes", "l2_bytes")
RATES = (
    "gflops_1", "add_gflops_1", "divide_gflops_1", "l1_gbs_1", "l2_gbs_1", "l3_gbs_1", "dram_gbs_1", "l1_ns", "l2_ns",
    "l3_ns", "dram_ns",
)  # fmt: skip
"""What is probed of one thread; the numbers of several threads depend on how many there are."""


@dataclass(frozen=True)
class DeviceNumbers:
    """The numbers of a device. `code`: architecture, lanes and registers, which must be equal; `sizes`: bytes of the
    caches of one core; `rates`: those of `RATES` that were probed (none: nobody probed it)."""

    code: tuple[object, ...]
    sizes: Mapping[str, float]
    rates: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, facts: Mapping[str, object], target: str, rates: Mapping[str, object] | None = None
    ) -> DeviceNumbers | None:
        """Of a device with these `facts` of its fingerprint, for code of `target` (JSON); None for damaged ones."""
        try:
            made = json.loads(target)
            code = (facts.get("architecture"), *(int(made[name]) for name in _CODE))
            sizes = {name: float(made[name]) for name in _SIZES}
        except (ValueError, KeyError, TypeError):
            return None
        return cls(code, sizes | _last_cache(facts), _positive(rates or {}))

    def doublings(self, other: DeviceNumbers) -> float | None:
        """Mean distance of the numbers that both have, in doublings; None where the code is another.

        Sizes count together as much as rates do, where both were probed.
        """
        if self.code != other.code:
            return None
        parts = [_mean_doublings(self.sizes, other.sizes), _mean_doublings(self.rates, other.rates)]
        known = [part for part in parts if part is not None]
        return sum(known) / len(known) if known else None


def _mean_doublings(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float | None:
    both = [abs(log2(ours[name] / theirs[name])) for name in ours.keys() & theirs.keys()]
    return sum(both) / len(both) if both else None


def _last_cache(facts: Mapping[str, object]) -> dict[str, float]:
    """One core's share of the last cache, where there is one."""
    caches = facts.get("caches")
    if not isinstance(caches, Mapping):
        return {}
    size, cores = caches.get("l3_kib"), caches.get("l3_cores")
    if not isinstance(size, int) or not isinstance(cores, int) or size <= 0 or cores <= 0:
        return {}
    return {"l3_bytes": 1024.0 * size / cores}


def _positive(rates: Mapping[str, object]) -> dict[str, float]:
    found = {name: rates.get(name) for name in RATES}
    return {name: float(rate) for name, rate in found.items() if isinstance(rate, int | float) and rate > 0}
