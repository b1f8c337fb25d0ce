"""The floor: how few candidates a policy needs that knows every answer before it asks.

It measures the default plan first, as the product always does, each kernel with the rule's first guess; then what one
of the plans that the oracle knows needs to come within 2 % of the best: the kernels that the default plan lacks, each
with its best schedule, and better schedules of the others, those first that save most.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.search.schedules.evidence import SearchEvidence


def floor(evidence: SearchEvidence, aim_us: float, close: float) -> int:
    """Candidates that perfect knowledge needs; 0 where no known plan comes so close. `evidence`: of every answer."""
    default = RewritingPlanner(evidence.graph, evidence.space.fusion).plan({})
    first = {search.key: search.rule_us for search in evidence.of(default)}
    counts = (_needed(evidence, plan, first, aim_us / close) for plan, _ in evidence.known_plans())
    return min((count for count in counts if count), default=0)


def _needed(evidence: SearchEvidence, plan: FusionPlan, first: Mapping[str, float | None], limit_us: float) -> int:
    """The same for one plan. `first`: time of each kernel of the default plan with the rule's first guess."""
    if evidence.composed_us(plan) is None:
        return 0
    uses = evidence.uses(plan)
    best = {key: evidence.searches[key].best_us or 0.0 for key in uses}
    start = {key: first.get(key) or best[key] for key in uses}
    savings = sorted((count * (start[key] - best[key]) for key, count in uses.items()), reverse=True)
    us = sum(count * (start[key] + LAUNCH_US) for key, count in uses.items())
    new = sum(key not in first for key in uses)
    reached = (more for more, saved in enumerate(accumulate(savings, initial=0.0)) if us - saved <= limit_us)
    more = next(reached, None)
    return 0 if more is None else len(first) + new + more
