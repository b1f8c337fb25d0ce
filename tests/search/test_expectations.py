"""What a measurement is expected to save: stated rules with bounds, and never more than is there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.search.schedules.expectations import (
    CAUGHT_UP,
    CHANGED,
    SCHEDULES,
    caught_up,
    chance,
    saved_by_change,
    saved_by_schedules,
)

US = st.floats(0.0, 1e7)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_more_schedules_save_more_and_add_up_and_never_take_all(tried: int, first: int, then: int) -> None:
    both = saved_by_schedules(tried, first + then)
    assert 0.0 <= saved_by_schedules(tried, first) <= both < 1.0
    if tried:
        assert both == pytest.approx(saved_by_schedules(tried, first) + saved_by_schedules(tried + first, then))


@given(st.integers(1, 60))
def test_the_nth_schedule_saves_about_what_recorded_searches_say(tried: int) -> None:
    """Over the square of its number, within a fifth of it (the sum of such shares is the difference of two)."""
    assert saved_by_schedules(tried, 1) == pytest.approx(SCHEDULES / (tried + 1) ** 2, rel=0.2)


@given(US, US)
def test_who_stands_behind_has_less_of_a_chance_and_never_none(saved_us: float, behind_us: float) -> None:
    here = chance(saved_us, behind_us)
    assert 0.0 <= here <= chance(saved_us, behind_us / 2) <= chance(saved_us, 0.0) == saved_us
    assert chance(saved_us, -behind_us) == saved_us


@given(US, st.floats(0.01, 1.0), st.floats(0.0, 1.0))
def test_a_side_behind_saves_half_of_what_it_would_save_if_it_stood_level(
    side_us: float, part: float, behind: float
) -> None:
    """The lag says little: a schedule that is five times as slow is a bad one, and the next one may be good."""
    saved_us, behind_us = part * side_us, behind * side_us
    assert caught_up(saved_us, 0.0, side_us) == saved_us
    here = caught_up(saved_us, behind_us, side_us)
    assert 0.0 <= here <= saved_us
    if behind_us:  # 0 where the lag is too small for a number, too
        assert here == pytest.approx(CAUGHT_UP * part * (side_us - behind_us), abs=1e-9)
        assert caught_up(saved_us, 2 * side_us, side_us) == 0.0


@given(US)
def test_a_change_saves_a_small_part_of_what_it_replaces_and_an_undone_fold_next_to_nothing(replaced_us: float) -> None:
    assert saved_by_change("break", replaced_us) == CHANGED * replaced_us <= replaced_us
    assert saved_by_change("fold", replaced_us) <= saved_by_change("break", replaced_us) / 10
    assert saved_by_change("whole", replaced_us) == saved_by_change("fold", replaced_us)
