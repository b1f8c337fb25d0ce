from dataclasses import replace

import pytest

from autofuse.measure.timing.race import (
    DECIDING,
    ContenderLostError,
    InterleavingPolicy,
    TimedBlock,
    interleaved,
    ratio_of,
    times_of,
)
from autofuse.values.ratios import decide

POLICY = InterleavingPolicy(budget_s=10.0)


def rival(machine, name: str, seconds: float):
    run = machine.kernel(seconds, name)

    def block(calls: int) -> TimedBlock:
        waited = machine.waited
        taken = run(calls)
        return TimedBlock(taken, (machine.waited - waited) / (taken * calls))

    return block


def raced(machine, policy: InterleavingPolicy = POLICY, **seconds: float):
    rivals = {name: rival(machine, name, each) for name, each in seconds.items()}
    return interleaved(rivals, machine.clock, policy, machine.now)


def test_rivals_take_turns_and_the_order_shifts(fake):
    machine = fake()
    raced(machine, a=5e-3, b=6e-3, c=7e-3)
    names = [name for name, calls in machine.ran][3:12]
    assert names == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]


def test_a_ratio_is_that_of_the_times_with_an_interval_around_it(fake):
    found = raced(fake(), a=5e-3, b=6e-3)
    ratio = ratio_of(found["b"], found["a"])
    assert ratio.value == pytest.approx(1.2)
    assert found["a"].trusted
    assert found["b"].us.median == pytest.approx(6000)


def test_drift_of_the_clock_does_not_bend_the_ratio(fake):
    machine = fake(lambda t: 1.0 - 0.04 * (t % 1.0))
    found = raced(machine, a=5e-3, b=6e-3)
    ratio = ratio_of(found["b"], found["a"])
    assert ratio.value == pytest.approx(1.2, rel=0.01)
    assert ratio.lo <= 1.2 <= ratio.hi


def test_a_rival_against_itself_shows_no_difference(fake):
    found = raced(fake(lambda t: 1.0 - 0.04 * (t % 0.3)), a=5e-3, b=5e-3)
    ratio = ratio_of(found["b"], found["a"])
    assert ratio.lo <= 1.0 <= ratio.hi and ratio.verdict in ("no difference", "undecided")


def test_a_slow_rival_keeps_to_its_share_of_the_budget(fake):
    machine = fake()
    found = raced(machine, a=5e-3, b=2.0)
    assert len(found["b"].slices) == 2
    assert machine.now() < 1.5 * POLICY.budget_s
    assert len(found["a"].slices) >= POLICY.min_rounds
    assert ratio_of(found["b"], found["a"]).value == pytest.approx(400)


def test_one_block_of_a_slow_rival_is_a_time_and_no_ratio(fake):
    found = raced(fake(), a=5e-3, b=4.0)
    assert len(found["b"].slices) == 1 and not found["b"].trusted
    ratio = ratio_of(found["b"], found["a"])
    assert (ratio.value, ratio.verdict) == (None, "too few good blocks")


def test_rivals_that_are_all_slow_use_the_budget_until_there_is_a_ratio(fake):
    """A third of a second a call: neither has the eleven rounds of fast ones in its share, and two are no ratio."""
    machine = fake(lambda t: 1.0 - 0.03 * (t % 1.0))
    policy = replace(POLICY, budget_s=6.0)
    found = raced(machine, policy, a=0.30, b=0.36)
    assert all(5 <= len(samples.slices) < POLICY.min_rounds for samples in found.values())
    assert ratio_of(found["b"], found["a"]).value == pytest.approx(1.2, rel=0.02)
    assert machine.now() < 1.5 * policy.budget_s


def test_a_fast_rival_is_timed_in_blocks_of_many_calls(fake):
    found = raced(fake(), a=30e-6)
    assert found["a"].slices[0].calls == round(POLICY.block_s / 30e-6)


def test_rounds_stop_once_the_ratios_are_precise(fake):
    machine = fake()
    found = raced(machine, a=5e-3, b=6e-3)
    assert len(found["a"].slices) == POLICY.min_rounds
    assert machine.now() < POLICY.budget_s / 2


def test_rounds_on_a_disturbed_machine_go_on_to_the_budget_and_are_not_trusted(fake):
    machine = fake(stolen=lambda t: 0.0 if t < 0.01 else 0.2)
    found = raced(machine, a=5e-3, b=6e-3)
    assert machine.now() >= POLICY.budget_s
    assert not found["a"].trusted
    assert "waited for a core" in found["a"].reason
    assert len(found["a"].slices) > 50


def test_beside_work_that_comes_and_goes_short_blocks_decide_what_long_ones_cannot(fake):
    """A neighbour takes a fifth of the core for 12 ms out of 30: some short blocks fall between, no long one does."""

    def calls_of(machine, seconds: float):
        def block(calls: int) -> TimedBlock:
            waited = machine.waited
            taken = sum(machine.work(seconds) for _ in range(calls))
            return TimedBlock(taken / calls, (machine.waited - waited) / taken)

        return block

    ends = {}
    for policy in (DECIDING, replace(DECIDING, block_s=0.03)):
        machine = fake(stolen=lambda t: 0.2 if t % 0.03 < 0.012 else 0.0)
        rivals = {name: calls_of(machine, seconds) for name, seconds in (("a", 1.2e-4), ("b", 1e-4))}
        found = interleaved(rivals, machine.clock, replace(policy, budget_s=5.0), machine.now)
        ends[policy.block_s] = decide(times_of(found)).verdict, len(found["b"].good()) > 0
    assert ends == {DECIDING.block_s: ("faster", True), 0.03: ("undecided", False)}


def test_a_lost_rival_is_reported_and_the_others_go_on(fake):
    machine = fake()
    calls_left = iter(range(4))

    def dies(calls: int) -> TimedBlock:
        if next(calls_left, None) is None:
            raise ContenderLostError("crashed with SIGSEGV")
        return TimedBlock(machine.work(5e-3 * calls) / calls)

    found = interleaved({"a": rival(machine, "a", 5e-3), "b": dies}, machine.clock, POLICY, machine.now)
    assert found["b"].error == "crashed with SIGSEGV"
    assert not found["b"].trusted
    assert found["a"].trusted


def test_rivals_that_are_all_lost_end_at_once(fake):
    machine = fake()

    def dead(calls: int) -> TimedBlock:
        raise ContenderLostError("does not start")

    found = interleaved({"a": dead}, machine.clock, POLICY, machine.now)
    assert found["a"].us is None
    assert ratio_of(found["a"], found["a"]) is None
