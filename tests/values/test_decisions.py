"""Noise never decides: the choice among contenders of a race, looked at after each round, is wrong in 5 % at most."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.values.ratios import TOLERANCE, Contender, Decision, Timed, decide, decided_share, race
from autofuse.values.statistics import median_interval, sequential_interval

Noise = dict[str, np.ndarray]


def rounds(seed: int, count: int, spread: float, **us: float) -> Noise:
    """Blocks of contenders with drift of 20 % that all share, noise of their own, and spikes of a third and more."""
    random = np.random.default_rng(seed)
    drift = 1 + 0.2 * np.abs(np.cumsum(random.normal(0, 0.2, count)) % 2 - 1)
    spikes = {name: 1 + (random.random(count) < 0.1) * random.exponential(0.3, count) for name in us}
    return {name: each * drift * np.exp(random.normal(0, spread, count)) * spikes[name] for name, each in us.items()}


def decided(blocks: Noise, count: int) -> Decision:
    """The decision after `count` rounds."""
    numbers = tuple(range(count))
    return decide(
        {
            name: Timed(median_interval(us[:count]), False, tuple(us[:count]), "r", numbers)
            for name, us in blocks.items()
        }
    )


def raced(blocks: Noise) -> tuple[Decision, int]:
    """The decision of a race that ends as soon as it is settled, and the rounds that it took."""
    most = len(next(iter(blocks.values())))
    for count in range(7, most):
        found = decided(blocks, count)
        if found.settled:
            return found, count
    return decided(blocks, most), most


def test_equal_contenders_are_told_apart_in_one_race_of_twenty_at_most_however_often_one_looks() -> None:
    wrong = sum(
        raced(rounds(seed, 60, 0.02, default=100.0, search=100.0))[0].chosen != "default" for seed in range(200)
    )
    assert wrong <= 10


def test_the_interval_leaves_the_median_out_of_one_sequence_in_twenty_at_most_at_any_look() -> None:
    random, missed = np.random.default_rng(5), 0
    for _ in range(200):
        samples = random.standard_cauchy(120)
        looks = (sequential_interval(samples[:count]) for count in range(7, 120))
        missed += any(not one.lo <= 0.0 <= one.hi for one in looks)
    assert missed <= 10


def test_five_equal_contenders_are_no_more_often_told_apart_than_two() -> None:
    us = dict.fromkeys(("default", "search", "composed", "tvm-partition", "none"), 100.0)
    wrong = sum(decided(rounds(seed, 40, 0.02, **us), 40).chosen != "default" for seed in range(200))
    assert wrong <= 10


@pytest.mark.parametrize(("default", "search", "chosen"), [(130.0, 100.0, "search"), (100.0, 130.0, "default")])
def test_a_large_difference_ends_a_race_early(default: float, search: float, chosen: str) -> None:
    for seed in range(20):
        found, count = raced(rounds(seed, 300, 0.02, default=default, search=search))
        assert (found.chosen, found.verdict, found.trusted) == (chosen, "faster", True)
        assert count <= 25


def test_a_tie_is_recorded_as_one_and_goes_to_the_simpler() -> None:
    found, count = raced(rounds(3, 600, 0.004, default=100.0, search=99.7))
    assert (found.chosen, found.verdict, found.settled) == ("default", "no difference", True) and count < 600


def disturbed(blocks: Noise, seed: int, share: float, count: int) -> Decision:
    """The decision after `count` rounds where this share of all blocks was disturbed, each contender's by itself."""
    random = np.random.default_rng(seed)
    good = {name: random.random(len(us)) >= share for name, us in blocks.items()}
    contenders = {
        name: Contender({number: us[number] for number in range(count) if good[name][number]}, False)
        for name, us in blocks.items()
    }
    return decide(race(contenders, "r"))


def test_two_of_six_are_told_apart_though_hardly_a_round_is_good_for_all() -> None:
    """Where a third of all blocks is disturbed, one round in eleven is good for all six."""
    names = ("default", "none", "tvm-partition", "always", "composed", "search")
    apart = {name: 100.0 - 2.0 * place for place, name in enumerate(names)}
    found = [disturbed(rounds(seed, 90, 0.01, **apart), seed, 0.33, 90) for seed in range(40)]
    assert all(one.chosen == "search" for one in found if one.settled)
    assert sum(one.settled for one in found) >= 30
    assert sum(one.chosen != "default" for one in found) == 40
    equal = [disturbed(rounds(seed, 90, 0.01, **dict.fromkeys(names, 100.0)), seed, 0.33, 90) for seed in range(100)]
    assert sum(one.chosen != "default" for one in equal) <= 5


def test_noise_that_prevents_a_decision_leaves_the_default() -> None:
    found, count = raced(rounds(7, 40, 0.3, default=100.0, search=96.0))
    assert (found.chosen, found.verdict, found.trusted, count) == ("default", "undecided", False, 40)


def test_fewer_rounds_than_can_decide_decide_nothing() -> None:
    found = decided(rounds(1, 6, 0.0001, default=300.0, search=100.0), 6)
    assert (found.chosen, found.verdict, found.settled) == ("default", "undecided", False)


def test_of_two_that_beat_the_default_the_simpler_stays_unless_the_other_is_faster_too() -> None:
    tie, _ = raced(rounds(2, 600, 0.004, default=120.0, search=100.0, composed=100.0))
    better, _ = raced(rounds(2, 600, 0.004, default=120.0, search=100.0, composed=90.0))
    assert (tie.chosen, tie.against, tie.verdict) == ("search", "default", "faster")
    assert (better.chosen, better.against) == ("composed", "default")


@pytest.mark.parametrize(
    ("search", "trusted", "chosen"),
    [(100.0, True, "search"), (100.0, False, "default"), (180.0, True, "default")],
    ids=["half the time", "half the time, not trusted", "a tenth less"],
)
def test_a_rival_without_common_rounds_is_chosen_only_where_trusted_times_lie_far_apart(
    search: float, trusted: bool, chosen: str
) -> None:
    """Noise spoiled the one's rounds while the other's were good."""
    times = {
        name: Timed(median_interval(us), trusted, us, "r", rounds)
        for name, us, rounds in (
            ("default", (200.0, 201.0, 199.0, 200.5, 199.5, 200.2, 199.8), tuple(range(7))),
            ("search", tuple(search * part for part in (1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 0.99)), tuple(range(7, 14))),
        )
    }
    found = decide(times)
    assert (found.chosen, found.trusted) == (chosen, chosen == "search")


def test_one_contender_alone_is_chosen_and_nothing_was_decided() -> None:
    found = decided(rounds(1, 9, 0.01, default=100.0), 9)
    assert (found.chosen, found.against, found.verdict, found.settled, found.trusted) == (
        "default",
        "",
        "",
        True,
        False,
    )


def test_a_slow_contender_of_a_few_rounds_keeps_no_race_going() -> None:
    fast = rounds(4, 15, 0.003, default=100.0, search=80.0)
    times = {name: Timed(median_interval(us), False, tuple(us), "r", tuple(range(15))) for name, us in fast.items()} | {
        "none": Timed(median_interval([900.0, 910.0]), False, (900.0, 910.0), "r", (0, 1))
    }
    found = decide(times)
    assert (found.chosen, found.verdict, found.settled) == ("search", "faster", True)


@pytest.mark.parametrize("seed", range(3))
def test_by_time_four_fifths_of_decisions_on_a_drifting_machine_are_trusted_and_none_of_the_wrong_ones(
    seed: int,
) -> None:
    """Forty races of up to 300 rounds; true differences of -20 to +20 %, noise of 0.5 to 3 % in every block."""
    random = np.random.default_rng(seed)
    total = trusted = 0.0
    for number in range(40):
        us, gain, spread = random.uniform(50, 5000), random.uniform(-0.2, 0.2), random.uniform(0.005, 0.03)
        found, _ = raced(rounds(1000 * seed + number, 300, spread, default=us, search=us * (1 - gain)))
        total, trusted = total + us, trusted + us * found.trusted
        if found.trusted:
            best_us = min(us, us * (1 - gain))
            chosen_us = us if found.chosen == "default" else us * (1 - gain)
            assert chosen_us <= best_us * (1 + TOLERANCE) + 1e-9
    assert trusted >= 0.8 * total


def test_the_share_that_rests_on_trusted_decisions_is_by_time() -> None:
    parts = [(60.0, "faster"), (10.0, "no difference"), (25.0, "not trusted"), (5.0, "")]
    assert decided_share(parts, together=False) == pytest.approx(0.7)
    assert decided_share(parts, together=True) == 1.0
    assert decided_share([], together=True) is None
