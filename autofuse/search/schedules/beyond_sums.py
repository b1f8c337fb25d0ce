"""What kernels take inside a network, beyond the sum of what each takes alone: learned from races of whole networks.

A kernel that is timed alone finds its inputs in the cache and its weights outside of it; inside a network that depends
on its neighbours. A race of whole networks says by how much sums are wrong: where a plan is to another one as its sum
is not, the difference is shared out among the kernels in which the two differ. Kernels of a kind (with a
contraction or without, of one operator or several) are wrong by a common part, and each by one of its own; how much is
learned of either follows from how far they are thought to differ beforehand, and how noisy the race was. Only ratios
of one race count, so the clock of that hour has no say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from autofuse.database.records import Json
from autofuse.kernels.workload.workload import Workload
from autofuse.search.schedules.schedule_search import anchor_key

COMMON = 0.3
"""Part of their time by which all kernels of a kind are thought to be off together (one deviation)."""
OWN = 0.15
"""The same for each kernel by itself."""
LEAST_ERROR = 0.01
"""A ratio of whole networks is thought to be off by so much at least: a library's code lies elsewhere in another."""
LEAST, MOST = 0.3, 2.0
"""Bounds of what a kernel takes inside a network, as a part of its time alone."""


@dataclass(frozen=True)
class Summed:
    """A plan as the sum of its kernels: microseconds of each workload by its key, and of their launches."""

    kernels: Mapping[str, float]
    launches_us: float

    @property
    def us(self) -> float:
        """The sum."""
        return sum(self.kernels.values()) + self.launches_us


@dataclass(frozen=True)
class Whole:
    """A plan in a race. `over_first`: its time over that of the first one, `error`: by what part that may be off.
    `plan`: its key."""

    summed: Summed
    over_first: float
    error: float
    plan: str = ""


@dataclass(frozen=True)
class _Seen:
    """What one plan of a race says: `missing` is what its sum lacks, as a part of the first plan's sum, and `shares`
    how much of it 1 % more of each workload would make up."""

    shares: Mapping[str, float]
    missing: float
    error: float


@dataclass
class BeyondSums:
    """What races of whole networks have taught so far. `told`: of each plan that was raced its ratio to the first one
    of its race, by whole networks and by sums."""

    kinds: dict[str, str] = field(default_factory=dict)
    told: list[dict[str, Json]] = field(default_factory=list)
    _seen: list[_Seen] = field(default_factory=list)
    _own: dict[str, float] = field(default_factory=dict)
    _common: dict[str, float] = field(default_factory=dict)

    def learn(self, first: Summed, others: Sequence[Whole], kinds: Mapping[str, str]) -> None:
        """Takes in one race. `kinds`: of its workloads, see `kind_of`."""
        self.kinds |= kinds
        for one in others:
            shares = defaultdict[str, float](float)
            for key, us in one.summed.kernels.items():
                shares[key] += us / first.us
            for key, us in first.kernels.items():
                shares[key] -= one.over_first * us / first.us
            by_sums = one.summed.us / first.us
            self.told.append({"plan": one.plan, "whole": one.over_first, "error": one.error, "by_sums": by_sums})
            error = sqrt(one.error**2 + LEAST_ERROR**2) * one.over_first
            self._seen.append(_Seen(shares, one.over_first - by_sums, error))
        self._share_out()

    def factor(self, workload: str, kind: str) -> float:
        """What a kernel takes inside the network, as a part of its time alone."""
        return min(MOST, max(LEAST, 1.0 + self._common.get(kind, 0.0) + self._own.get(workload, 0.0)))

    def corrected_us(self, summed: Summed, kinds: Mapping[str, str]) -> float:
        """What a plan is expected to take by its kernels' times inside the network."""
        kernels = (us * self.factor(key, kinds[key]) for key, us in summed.kernels.items())
        return sum(kernels) + summed.launches_us

    def _share_out(self) -> None:
        """The corrections that are likeliest (all deviations taken as normal ones): a regression of as many rows as
        plans were raced."""
        own = [dict(one.shares) for one in self._seen]
        common = [self._by_kind(one) for one in self._seen]
        count = len(self._seen)
        known = np.zeros((count, count))
        for i in range(count):
            for j in range(count):
                known[i, j] = COMMON**2 * _product(common[i], common[j]) + OWN**2 * _product(own[i], own[j])
        known += np.diag([one.error**2 for one in self._seen])
        pulls = np.linalg.solve(known, np.array([one.missing for one in self._seen]))
        self._common, self._own = _weighed(pulls, common, COMMON**2), _weighed(pulls, own, OWN**2)

    def _by_kind(self, seen: _Seen) -> dict[str, float]:
        found = defaultdict[str, float](float)
        for key, share in seen.shares.items():
            found[self.kinds[key]] += share
        return found


def kind_of(workload: Workload) -> str:
    """Which kernels are thought to share an error: those with a contraction or without, of one operator or several."""
    what = "no contraction" if anchor_key(workload) == workload.key else "contraction"
    return what if len(workload.operators) == 1 else f"{what}, fused"


def _product(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return sum(value * other.get(key, 0.0) for key, value in one.items())


def _weighed(pulls: np.ndarray, rows: Sequence[Mapping[str, float]], variance: float) -> dict[str, float]:
    found = defaultdict[str, float](float)
    for pull, row in zip(pulls, rows, strict=True):
        for key, value in row.items():
            found[key] += variance * float(pull) * value
    return found
