"""What a race of whole networks teaches of the sums that a search goes by."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.fusion.plan import FusionPlan
from autofuse.measure.networks.bench import ContenderResult
from autofuse.search.schedules.beyond_sums import Whole
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.values.ratios import compare

DEVIATIONS = 1.96
"""Deviations on either side that an interval of 95 % holds."""


def learn(evidence: SearchEvidence, plans: Mapping[str, FusionPlan], results: Mapping[str, ContenderResult]) -> None:
    """Takes in by how much the ratios of whole networks differ from those of sums."""
    summed = {name: one for name, plan in plans.items() if (one := evidence.summed(plan)) is not None}
    timed = {name: one.timed for name, one in results.items() if one.timed is not None and name in summed}
    first = next((name for name in plans if name in timed), None)
    if first is None:
        return
    others = []
    for name, time in timed.items():
        ratio = compare(time, timed[first])
        if name != first and ratio.value is not None and ratio.lo is not None and ratio.hi is not None:
            error = (ratio.hi - ratio.lo) / (2 * DEVIATIONS * ratio.value)
            others.append(Whole(summed[name], ratio.value, error, plans[name].key))
    kinds = {key: kind for name in timed for key, kind in evidence.kinds(plans[name]).items()}
    if others:
        evidence.beyond.learn(summed[first], others, kinds)
