"""What a step of one workload's schedule gained is expected of others of its kind, and of no others."""

from __future__ import annotations

import pytest

from autofuse.search.schedules.lessons import CERTAIN, Lessons, step_between

SLOW = {"contraction.algorithm": "direct", "contraction.pixels": 6}
FAST = {"contraction.algorithm": "group_lanes", "contraction.pixels": 6}
RULE = 0.02


def test_a_step_is_what_two_schedules_have_otherwise() -> None:
    kind, knobs = step_between("Conv", SLOW, FAST)
    assert (kind, knobs) == ("Conv", (("contraction.algorithm", "direct", "group_lanes"),))
    assert step_between("Conv", SLOW, {"contraction.algorithm": "direct"})[1] == (("contraction.pixels", 6, None),)


def test_nothing_known_leaves_the_rule_and_what_is_known_outweighs_it() -> None:
    lessons, step = Lessons(), step_between("Conv", SLOW, FAST)
    assert lessons.expected(step, RULE) == pytest.approx(RULE)
    lessons.enter(step, 100.0, 25.0)
    assert lessons.expected(step, RULE) == pytest.approx((CERTAIN * RULE + 0.75) / (CERTAIN + 1))
    for _ in range(100):
        lessons.enter(step, 100.0, 25.0)
    assert lessons.expected(step, RULE) == pytest.approx(0.75, abs=0.05)
    assert lessons.expected(step_between("MatMul", SLOW, FAST), RULE) == pytest.approx(RULE), "another kind"


def test_what_lost_is_expected_less_of_and_the_way_back_gains() -> None:
    lessons, step = Lessons(), step_between("Conv", SLOW, FAST)
    lessons.enter(step, 50.0, 100.0)
    assert 0.0 < lessons.expected(step, RULE) < RULE, "a loss counts as none"
    back = step_between("Conv", FAST, SLOW)
    assert lessons.expected(back, RULE) == pytest.approx((CERTAIN * RULE + 0.5) / (CERTAIN + 1))
