"""What a search did not come to, and what as much time again is expected to give: told at its end, nothing is measured.

The expectations are those that the search chose by: the stated rules, corrected by what each kind of question gained.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from autofuse.environment.worth import MoreTime, OpenQuestions
from autofuse.search.budget.agenda import Question
from autofuse.search.budget.time_budget import FIRST_CANDIDATE_S, PAYING
from autofuse.search.phases.phases import PLANS
from autofuse.search.phases.questions import Search
from autofuse.search.schedules.prospects import expected_saving

SCHEDULES = "schedules"


def not_asked(search: Search, seconds: float) -> tuple[OpenQuestions, ...]:
    """The questions that are open, those that promise most first; better schedules as far as `seconds` reach."""
    standing = search.standing
    best_us = standing.best_us()
    if best_us is None:
        return ()
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in standing.offered:
        if one.kind != SCHEDULES:
            share = _open_share(search, one) if one.kind == PLANS else 1.0
            sums[one.kind][0] += share * one.gain_us * _correction(search, one.kind, best_us)
            sums[one.kind][1] += share * one.cost_s
    found = [OpenQuestions(kind, gain_us, cost_s) for kind, (gain_us, cost_s) in sums.items() if cost_s > 0]
    found = [replace(one, gain_us=_together(search, one, best_us)) if one.kind == PLANS else one for one in found]
    found += _schedules(search, best_us, seconds)
    if standing.plan_search is None or standing.plan_search.unopened:
        found = [*(one for one in found if one.kind != PLANS), OpenQuestions(PLANS, None, None)]
    return tuple(sorted(found, key=lambda one: -(one.gain_us or 0.0)))


def _correction(search: Search, kind: str, best_us: float) -> float:
    """What experience leaves of an expectation: a lucky first answer is not taken for what comes."""
    return min(1.0, search.standing.agenda.account(kind).correction(best_us))


def _open_share(search: Search, one: Question) -> float:
    """How many times as many changes are open as one question asks about."""
    plans = search.standing.plan_search
    return plans.open_flips / one.parts if plans is not None else 0.0


def _together(search: Search, changes: OpenQuestions, best_us: float) -> float:
    """All open changes together: what each promises alone is about the same bytes as what others do."""
    return min(changes.gain_us or 0.0, PAYING * best_us * _correction(search, PLANS, best_us))


def _schedules(search: Search, best_us: float, seconds: float) -> list[OpenQuestions]:
    """Candidates of the best plan's kernels, as many as `seconds` reach or as are left."""
    standing = search.standing
    each_s, ahead = search.lab.candidate_s or FIRST_CANDIDATE_S, standing.ahead()
    count = min(seconds / each_s, float(sum(one.left for one in ahead)))
    if not ahead or count <= 0:
        return []
    gain_us = expected_saving(ahead, count) * _correction(search, SCHEDULES, best_us) * best_us
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
