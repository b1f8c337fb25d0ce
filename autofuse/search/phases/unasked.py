"""What a search did not come to, and what as much time again is expected to give: told at its end, nothing is measured.

The expectations are those that the search chose by: the stated rules, corrected by what each kind of question gained.
"""

from __future__ import annotations

from collections import defaultdict

from autofuse.search.budget.time_budget import FIRST_CANDIDATE_S
from autofuse.search.phases.questions import Search
from autofuse.search.progress import MoreTime, OpenQuestions
from autofuse.search.schedules.prospects import expected_saving

PLANS, SCHEDULES = "plans", "schedules"


def not_asked(search: Search, seconds: float) -> tuple[OpenQuestions, ...]:
    """The questions that are open, those that promise most first; better schedules as far as `seconds` reach."""
    standing = search.standing
    best_us = standing.best_us()
    if best_us is None:
        return ()
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in standing.offered:
        if one.kind != SCHEDULES:
            gain_us = one.gain_us * standing.agenda.account(one.kind).correction(best_us)
            share = _left(search, one.parts) if one.kind == PLANS else 1.0
            sums[one.kind][0] += share * gain_us
            sums[one.kind][1] += share * one.cost_s
    found = [OpenQuestions(kind, gain_us, cost_s) for kind, (gain_us, cost_s) in sums.items() if cost_s > 0]
    found += _schedules(search, best_us, seconds)
    if standing.plan_search is None or standing.plan_search.unopened:
        found = [*(one for one in found if one.kind != PLANS), OpenQuestions(PLANS, None, None)]
    return tuple(sorted(found, key=lambda one: -(one.gain_us or 0.0)))


def _left(search: Search, parts: int) -> float:
    """How many times as many changes are open as one question of `parts` asks about."""
    plans = search.standing.plan_search
    return plans.open_flips / max(1, parts) if plans is not None else 0.0


def _schedules(search: Search, best_us: float, seconds: float) -> list[OpenQuestions]:
    """Candidates of the best plan's kernels, as many as `seconds` reach or as are left."""
    standing = search.standing
    each_s, ahead = search.lab.candidate_s or FIRST_CANDIDATE_S, standing.ahead()
    count = min(seconds / each_s, float(sum(one.left for one in ahead)))
    if not ahead or count <= 0:
        return []
    correction = standing.agenda.account(SCHEDULES).correction(best_us)
    gain_us = min(1.0, expected_saving(ahead, count) * correction) * best_us
    return [OpenQuestions(SCHEDULES, gain_us, count * each_s)]


def more_time(questions: tuple[OpenQuestions, ...], seconds: float) -> MoreTime:
    """What `seconds` more are expected to give when the best of the open questions are asked first."""
    known = [(one.gain_us, one.cost_s) for one in questions if one.gain_us is not None and one.cost_s]
    left_s, gain_us = seconds, 0.0
    for gain, cost_s in sorted(known, key=lambda pair: -pair[0] / pair[1]):
        part = min(1.0, left_s / cost_s)
        gain_us += part * gain
        left_s -= part * cost_s
    return MoreTime(seconds, gain_us)
