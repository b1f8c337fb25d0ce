"""One definition of time and ratio: medians of the same blocks, an interval that holds their quotient, or no ratio."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.values.ratios import (
    FULL_CLOCK,
    LONG_US,
    MIN_BLOCKS,
    Contender,
    Timed,
    compare,
    differs,
    expected_ratio,
    kept,
    race,
    same_thing,
)
from autofuse.values.statistics import median_interval


def noise(us: float, seed: int, count: int = 11) -> list[float]:
    """Blocks with noise of 0.5 % that drift by half from the first to the last."""
    return list(us * np.random.default_rng(seed).normal(1.0, 0.005, count) * np.linspace(1.0, 1.5, count))


def timed(us: float, seed: int, *, series: str = "s", trusted: bool = True, count: int = 11) -> Timed:
    blocks = noise(us, seed, count)
    return Timed(median_interval(blocks), trusted, tuple(blocks), series, tuple(range(count)))


def raced(trusted: bool = True, **blocks: dict[int, float]) -> dict[str, Timed]:
    return race({name: Contender(good, trusted) for name, good in blocks.items()}, "s")


def drifting(blocks: dict[int, float], clocks: dict[int, float]) -> Contender:
    """A contender none of whose blocks waited, with the clock of each."""
    steady = {number: (us, clocks[number]) for number, us in blocks.items()}
    return Contender({n: us for n, (us, clock) in steady.items() if clock >= FULL_CLOCK}, False, None, steady)


def test_a_ratio_is_the_quotient_of_the_medians_beside_it_and_stands_in_its_interval() -> None:
    for seed in range(50):
        ratio = compare(timed(101.0, seed), timed(100.0, seed + 99))
        assert ratio.value == ratio.old_us / ratio.new_us
        assert ratio.value is not None and ratio.lo is not None and ratio.hi is not None
        assert ratio.lo <= ratio.value <= ratio.hi


def test_pairs_show_what_drift_hides() -> None:
    paired = compare(timed(103.0, 1), timed(100.0, 2))
    assert paired.verdict == "faster" and paired.lo and paired.lo > 1.01
    apart = compare(timed(103.0, 1, series="a"), timed(100.0, 2, series="b"))
    assert apart.verdict == "no difference" and apart.lo and apart.hi and apart.lo < 1 < apart.hi


@pytest.mark.parametrize("series", ["s", ""])
@pytest.mark.parametrize("count", [5, 7, 15, 60])
def test_equal_times_differ_no_more_often_than_chance(count: int, series: str) -> None:
    pairs = (
        (timed(100, s, series=series, count=count), timed(100, s + 9999, count=count, series=series))
        for s in range(200)
    )
    assert sum(compare(*pair).verdict in ("faster", "slower") for pair in pairs) <= (10 if series else 24)


@pytest.mark.parametrize(("old", "new", "verdict"), [(150.0, 100.0, "faster"), (100.0, 150.0, "slower")])
def test_the_verdict_is_on_the_new_time(old: float, new: float, verdict: str) -> None:
    ratio = compare(timed(old, 1), timed(new, 2))
    assert ratio.verdict == verdict and ratio.value == pytest.approx(old / new, rel=0.02)


@pytest.mark.parametrize("untrusted", [0, 1])
def test_an_untrusted_time_earns_no_verdict(untrusted: int) -> None:
    """Of times that were measured apart: the clock of one says nothing of the other's."""
    times = timed(200.0, 1, series="", trusted=untrusted != 0), timed(100.0, 2, series="", trusted=untrusted != 1)
    ratio = compare(*times)
    assert (ratio.verdict, ratio.trusted) == ("not trusted", False) and ratio.value and ratio.value > 1.9


def test_a_ratio_of_one_race_is_trusted_when_its_interval_decides_it_whatever_the_clock_was() -> None:
    faster = compare(timed(200.0, 1, trusted=False), timed(100.0, 2, trusted=False))
    assert (faster.verdict, faster.trusted) == ("faster", True)
    tie = compare(timed(100.0, 1, count=60), timed(100.0, 2, count=60))
    assert (tie.verdict, tie.trusted) == ("no difference", True)
    few = compare(timed(200.0, 1, count=6), timed(100.0, 2, count=6))
    assert (few.verdict, few.trusted) == ("undecided", False) and few.value and few.value > 1.9


def test_rounds_below_full_clock_count_where_the_clock_was_the_same_for_all() -> None:
    clocks = {number: 0.8 + 0.01 * (number % 10) for number in range(20)}
    a, b = ({number: us / clocks[number] for number in clocks} for us in (100.0, 110.0))
    found = race({"a": drifting(a, clocks), "b": drifting(b, clocks)}, "s")
    assert found["a"].rounds == tuple(range(20)) and not found["a"].trusted
    ratio = compare(found["b"], found["a"])
    assert ratio.value == pytest.approx(1.1) and (ratio.verdict, ratio.trusted) == ("faster", True)


def test_rounds_in_which_the_clock_changed_between_contenders_do_not_count() -> None:
    slow = dict.fromkeys(range(20), 0.8)
    mixed = {number: 0.8 if number < 12 else 0.93 for number in range(20)}
    found = race(
        {"a": drifting(dict.fromkeys(slow, 100.0), slow), "b": drifting(dict.fromkeys(slow, 90.0), mixed)}, "s"
    )
    assert found["a"].rounds == found["b"].rounds == tuple(range(12))


def test_rounds_in_which_nobody_waited_count_where_the_clock_swings_from_block_to_block() -> None:
    """A probe that swings by 20 % beside blocks that swing by 3 %: hardly a round has one clock for all."""
    random = np.random.default_rng(3)
    names = {"a": 100.0, "b": 110.0, "c": 150.0}
    clocks = {name: {n: float(random.uniform(0.74, 0.94)) for n in range(60)} for name in names}
    blocks = {name: {n: us * float(random.normal(1.0, 0.015)) for n in range(60)} for name, us in names.items()}
    found = race({name: drifting(blocks[name], clocks[name]) for name in names}, "s")
    assert all(one.rounds == tuple(range(60)) and not one.trusted for one in found.values())
    ratio = compare(found["b"], found["a"])
    assert ratio.value == pytest.approx(1.1, rel=0.02) and (ratio.verdict, ratio.trusted) == ("faster", True)


def test_a_contender_that_is_never_at_full_clock_is_compared_by_rounds_in_which_nobody_waited() -> None:
    full, slow = dict.fromkeys(range(20), 1.0), dict.fromkeys(range(20), 0.85)
    blocks = dict.fromkeys(range(20), 100.0)
    found = race({"a": drifting(blocks, full), "b": drifting(blocks, full), "c": drifting(blocks, slow)}, "s")
    assert compare(found["c"], found["a"]).verdict == "no difference"


def test_good_rounds_count_alone_where_there_are_enough_of_them() -> None:
    clocks = {number: 1.0 if number < 12 else 0.8 for number in range(20)}
    blocks = {number: 100.0 / clock for number, clock in clocks.items()}
    found = race({"a": drifting(blocks, clocks), "b": drifting(blocks, clocks)}, "s")
    assert found["a"].rounds == tuple(range(12)) and found["a"].us.median == 100.0


@pytest.mark.parametrize(("old", "new"), [(MIN_BLOCKS - 1, 11), (11, MIN_BLOCKS - 1), (0, 11)])
def test_below_the_blocks_that_it_needs_there_is_no_ratio_and_both_medians_stand(old: int, new: int) -> None:
    few = Timed(median_interval([200.0]), True, (200.0,) * old), Timed(median_interval([100.0]), True, (100.0,) * new)
    ratio = compare(*few)
    assert (ratio.value, ratio.lo, ratio.hi, ratio.verdict) == (None, None, None, "too few good blocks")
    assert (ratio.old_us, ratio.new_us, ratio.blocks) == (200.0, 100.0, min(old, new))


def test_two_blocks_of_long_calls_suffice() -> None:
    long = Timed(median_interval([LONG_US] * 2), True, (LONG_US,) * 2, "s", (0, 1))
    ratio = compare(long, timed(LONG_US / 100, 1))
    assert ratio.value == pytest.approx(80, rel=0.05)
    short = Timed(median_interval([1000.0] * 2), True, (1000.0,) * 2, "s", (0, 1))
    assert compare(short, timed(10.0, 1)).value is None


def test_the_rounds_that_count_are_those_in_which_all_are_good() -> None:
    a = {number: 100.0 + number for number in range(10)}
    b = {number: 200.0 + number for number in range(2, 12)}
    c = {number: 300.0 for number in range(10) if number != 5}
    found = raced(a=a, b=b, c=c)
    assert {one.rounds for one in found.values()} == {(2, 3, 4, 6, 7, 8, 9)}
    assert found["a"].us.median == 106.0 and found["b"].us.median == 206.0
    ratio = compare(found["b"], found["a"])
    assert (ratio.old_us, ratio.new_us) == (206.0, 106.0)


def test_an_interval_is_of_all_rounds_in_which_the_two_are_good_whatever_a_third_was() -> None:
    a, b = (dict.fromkeys(range(first, 20), us) for us, first in ((100.0, 0), (110.0, 4)))
    found = raced(a=a, b=b, c=dict.fromkeys(range(10, 17), 105.0))
    assert {one.rounds for one in found.values()} == {tuple(range(10, 17))}
    ratio = compare(found["b"], found["a"])
    assert (ratio.blocks, ratio.verdict) == (16, "faster") and compare(found["c"], found["a"]).blocks == 7


def test_every_pair_of_a_race_agrees_with_the_order_of_its_medians() -> None:
    """What two screens show of three plans can never say that each is faster than the other."""
    for seed in range(30):
        blocks = {name: dict(enumerate(noise(100.0, 7 * seed + place))) for place, name in enumerate("abc")}
        found = raced(**blocks)
        for one in found.values():
            for other in found.values():
                ratio = compare(one, other).value
                assert ratio is not None and (ratio > 1) == (one.us.median > other.us.median)


def test_a_noisy_rival_stands_aside_and_spoils_no_other_ratio() -> None:
    fine, noisy = dict.fromkeys(range(20), 100.0), {**dict.fromkeys(range(16, 30), 300.0)}
    found = raced(a=fine, b=fine, noisy=noisy)
    assert compare(found["b"], found["a"]).blocks == 20
    aside = compare(found["noisy"], found["a"])
    assert (aside.value, aside.verdict) == (None, "never good in the same rounds")
    assert found["noisy"].us.median == 300.0


def test_a_contender_with_too_few_good_blocks_keeps_the_median_that_it_is_stored_with() -> None:
    stored = median_interval([123.0])
    found = race({"a": Contender({0: 1.0, 1: 2.0}, False, stored), "b": Contender({}, False, stored)}, "s")
    assert [one.us.median for one in found.values()] == [123.0, 123.0]
    assert compare(found["a"], found["b"]).value is None


def test_a_time_against_itself_is_one() -> None:
    ratio = same_thing(timed(100.0, 1, count=2))
    assert (ratio.value, ratio.lo, ratio.hi, ratio.verdict) == (1.0, 1.0, 1.0, "no difference")


def test_a_difference_within_the_margin_is_none() -> None:
    assert differs(compare(timed(110.0, 1), timed(100.0, 2)), 0.05)
    assert not differs(compare(timed(103.0, 1), timed(100.0, 2)), 0.05)
    assert not differs(compare(timed(110.0, 1, count=2), timed(100.0, 2)), 0.0)


def test_blocks_have_the_digits_that_are_stored() -> None:
    assert kept(1234.56789) == 1234.57 and kept(kept(0.123456789)) == kept(0.123456789)


def test_sums_of_kernels_promise_a_ratio_only_where_both_are_known() -> None:
    assert expected_ratio(20.0, 10.0) == 2.0
    assert expected_ratio(None, 10.0) is expected_ratio(20.0, None) is expected_ratio(20.0, 0.0) is None
