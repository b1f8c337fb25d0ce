"""Metrics of decisions, on numbers whose answers are known."""

from __future__ import annotations

from itertools import combinations, permutations
from math import isnan

import numpy as np
import pytest

from experiments.profitability import metrics

TIMES = np.array([3.0, 1.0, 2.0, 4.0])


def test_regret_is_the_best_of_the_first_choices_over_the_best_of_all() -> None:
    wrong_way = TIMES
    assert metrics.regret(-TIMES, TIMES, 1) == 0.0
    assert metrics.regret(wrong_way, TIMES, 1) == 3.0
    assert metrics.regret(wrong_way, TIMES, 2) == 2.0
    assert metrics.regret(wrong_way, TIMES, 9) == 0.0


@pytest.mark.parametrize("count", [1, 2, 3])
def test_equal_scores_are_the_random_choice(count: int) -> None:
    every = [min(chosen) for chosen in combinations(TIMES, count)]
    assert metrics.regret(np.zeros(4), TIMES, count) == pytest.approx(np.mean(every) - 1.0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_tied_scores_any_may_come_first(count: int) -> None:
    scores = np.array([1.0, 0.0, 1.0, 1.0])
    orders = [order for order in permutations(range(4)) if order[3] == 1]
    every = [min(TIMES[place] for place in order[:count]) for order in orders]
    assert metrics.regret(scores, TIMES, count) == pytest.approx(np.mean(every) - 1.0)


def test_harm_counts_what_is_slower_beyond_noise_than_the_choice_of_the_rule() -> None:
    gain = np.array([0.5, -0.5, -0.01, 0.5, -0.5])
    fuse, noise = np.array([True, True, True, False, False]), np.full(5, 0.02)
    assert metrics.harm(fuse, ~fuse, gain, noise) == pytest.approx(2 / 5)
    assert metrics.harm(fuse, np.ones(5, bool), gain, noise) == pytest.approx(1 / 5)
    assert metrics.harm(fuse, fuse, gain, noise) == 0.0


def test_accepted_fusions_that_lost_beyond_noise_and_refused_ones_that_would_have_won_are_counted() -> None:
    gain = np.array([0.5, -0.5, -0.01, 0.5, -0.5])
    fuse = np.array([True, True, True, False, False])
    noise = np.full(5, 0.02)
    assert metrics.lost(fuse, gain, noise) == pytest.approx(1 / 3)
    assert metrics.missed(fuse, gain, noise) == pytest.approx(1 / 2)
    assert metrics.lost(np.zeros(5, bool), gain, noise) == 0.0
    assert metrics.missed(np.ones(5, bool), gain, noise) == 0.0


def test_decisions_cost_their_time_over_the_better_choices() -> None:
    fused, apart = np.array([1.0, 4.0]), np.array([2.0, 2.0])
    assert metrics.cost_of_decisions(np.array([True, False]), fused, apart) == 0.0
    assert metrics.cost_of_decisions(np.array([True, True]), fused, apart) == pytest.approx(5 / 3 - 1)
    assert metrics.cost_of_decisions(np.array([False, False]), fused, apart) == pytest.approx(4 / 3 - 1)


def test_auc_counts_pairs_in_the_right_order() -> None:
    pays = np.array([True, True, False, False])
    assert metrics.auc(np.array([4.0, 3.0, 2.0, 1.0]), pays) == 1.0
    assert metrics.auc(np.array([1.0, 2.0, 3.0, 4.0]), pays) == 0.0
    assert metrics.auc(np.zeros(4), pays) == 0.5
    assert metrics.auc(np.array([4.0, 2.0, 3.0, 1.0]), pays) == 0.75
    assert metrics.auc(np.array([3.0, 2.0, 2.0, 1.0]), pays) == 0.875
    assert isnan(metrics.auc(np.zeros(2), np.array([True, True])))


def test_reliability_compares_stated_with_observed() -> None:
    stated = np.array([0.05, 0.05, 0.95, 1.0])
    bins = metrics.reliability(stated, np.array([False, True, True, True]))
    assert [(part.count, part.observed) for part in bins] == [(2, 0.5), (2, 1.0)]
    assert metrics.calibration_error(bins) == pytest.approx((0.45 + 0.025) / 2)
    assert isnan(metrics.calibration_error([]))
    honest = np.repeat([0.0, 1.0], 5)
    assert metrics.calibration_error(metrics.reliability(honest, honest > 0)) == 0.0


def test_coverage_is_the_share_of_truths_inside_their_intervals() -> None:
    truth = np.array([0.0, 1.0, 2.0, 3.0])
    assert metrics.coverage(truth, truth - 1, truth + 1) == 1.0
    assert metrics.coverage(truth, np.full(4, 0.5), np.full(4, 2.0)) == 0.5
    assert isnan(metrics.coverage(truth[:0], truth[:0], truth[:0]))
