import pytest

from autofuse.measure.timing.sampling import SamplingPolicy, sample, settling

POLICY = SamplingPolicy()


def timed(machine, seconds: float, best_us: float | None = None, policy: SamplingPolicy = POLICY):
    return sample(machine.kernel(seconds), machine.clock, machine.waited_ns, policy, best_us, machine.now)


def test_a_quiet_machine_gives_a_trusted_time_from_few_slices(fake):
    timing = timed(fake(), 50e-6)
    assert timing.trusted
    assert timing.stopped == "enough"
    assert timing.us.median == pytest.approx(50)
    assert len(timing.slices) == 7
    assert timing.probe_us == pytest.approx(400)


@pytest.mark.parametrize("seconds", [1e-6, 50e-6, 3e-3, 0.02, 0.3])
def test_a_slice_lasts_about_as_long_as_the_policy_says_but_holds_a_call(fake, seconds):
    timing = timed(fake(), seconds)
    calls = timing.slices[0].calls
    assert calls == max(1, round(POLICY.block_s / seconds))


def test_slices_below_full_clock_are_flagged_kept_and_not_counted(fake):
    machine = fake(lambda t: 0.7 if 0.02 < t % 0.05 < 0.04 else 1.0)
    timing = timed(machine, 100e-6)
    bad = [piece for piece in timing.slices if not piece.good]
    assert bad
    assert timing.trusted
    assert timing.us.median == pytest.approx(100, rel=0.02)
    assert all(piece.us > 0 for piece in bad)


def test_a_core_that_stays_slow_is_not_waited_for_when_its_slices_agree_and_is_not_trusted(fake):
    machine = fake(lambda t: 1.0 if t < 0.01 else 0.8)
    timing = timed(machine, 5e-3)
    assert (timing.trusted, timing.stopped) == (False, "drifted")
    assert "below full clock" in timing.reason
    assert timing.us.median == pytest.approx(5e3 / 0.8)
    assert machine.now() < 0.4 * POLICY.cap_s


def test_a_core_whose_slow_slices_do_not_agree_is_waited_for_up_to_the_cap(fake):
    machine = fake(lambda t: 1.0 if t < 0.01 else 0.6 + 0.25 * (int(t / 0.013) % 2))
    timing = timed(machine, 5e-3)
    assert (timing.trusted, timing.stopped) == (False, "time")
    assert machine.now() == pytest.approx(POLICY.cap_s, rel=0.1)


def test_a_time_that_settles_something_is_waited_for_longer(fake):
    """The clock is back after the cap of other candidates."""
    ends = [
        timed(fake(lambda t: 0.8 if 0.01 < t < 2.0 else 1.0), 5e-3, policy=one) for one in (POLICY, settling(POLICY))
    ]
    assert [(timing.stopped, timing.trusted) for timing in ends] == [("drifted", False), ("enough", True)]


def test_time_taken_by_others_spoils_a_slice_even_at_full_clock(fake):
    machine = fake(stolen=lambda t: 0.03 if t > 0.01 else 0.0)
    timing = timed(machine, 100e-6)
    assert not timing.trusted
    assert "waited for a core" in timing.reason
    assert not any(piece.good for piece in timing.slices[3:])


def test_a_candidate_clearly_slower_than_the_incumbent_stops_after_two_slices(fake):
    machine = fake()
    timing = timed(machine, 100e-6, best_us=60)
    assert timing.stopped == "slower"
    assert timing.trusted
    assert len(timing.slices) == 2


def test_a_candidate_somewhat_slower_stops_after_three_slices(fake):
    timing = timed(fake(), 100e-6, best_us=80)
    assert timing.stopped == "slower"
    assert len(timing.slices) == 3


def test_a_candidate_a_little_slower_stops_as_soon_as_five_slices_agree(fake):
    timing = timed(fake(), 100e-6, best_us=97)
    assert (timing.stopped, len(timing.slices)) == ("slower", 5)
    assert timing.trusted


def test_a_candidate_that_one_slice_shows_as_fast_as_the_incumbent_can_still_win(fake):
    machine = fake()
    durations = iter([100e-6, 101e-6, 98e-6, 100e-6, 101e-6] * 100)
    timing = sample(
        lambda calls: machine.work(next(durations) * calls) / calls, machine.clock, machine.waited_ns, POLICY, 97.0,
        machine.now,
    )  # fmt: skip
    assert timing.stopped == "enough"
    assert len(timing.slices) > 5


def test_on_a_machine_that_is_never_quiet_a_slower_candidate_stops_long_before_the_cap(fake):
    """No slice is good, but each is slower than the incumbent by more than what disturbed it explains."""
    machine = fake(stolen=lambda t: 0.2 if t > 0.002 else 0.0)
    timing = timed(machine, 2e-3, best_us=1300)
    assert (timing.stopped, timing.trusted) == ("slower", False)
    assert len(timing.slices) == POLICY.disturbed_slices


def test_a_first_time_needs_less_precision_than_one_that_is_held_against_an_incumbent(fake):
    def slices(best_us: float | None) -> int:
        machine = fake()
        durations = iter([100e-6, 101.4e-6, 100.7e-6] * 100)
        run = lambda calls: machine.work(next(durations) * calls) / calls  # noqa: E731
        return len(sample(run, machine.clock, machine.waited_ns, POLICY, best_us, machine.now).slices)

    assert slices(None) == 7
    assert slices(100.0) == POLICY.good_slices


def test_a_candidate_many_times_slower_costs_a_single_call(fake):
    machine = fake()
    timing = timed(machine, 2.0, best_us=1000)
    assert timing.stopped == "slower"
    assert len(machine.ran) == 1
    assert timing.us.median == pytest.approx(2e6)


@pytest.mark.parametrize("stalled", [0, 2], ids=["first call", "first slice"])
def test_a_machine_that_stands_still_once_makes_no_candidate_look_slow(fake, stalled):
    """The host runs another guest: neither the clock nor the queue shows it."""
    machine = fake()
    whole = machine.kernel(1e-3)

    def run(calls):
        pause = 0.03 if len(machine.ran) == stalled else 0.0
        return whole(calls) + pause / calls

    timing = sample(run, machine.clock, machine.waited_ns, POLICY, 1000.0, machine.now)
    assert timing.stopped == "enough"
    assert timing.us.median == pytest.approx(1000, rel=0.01)


def test_a_slow_clock_alone_never_makes_a_candidate_look_slower_than_the_incumbent(fake):
    machine = fake(lambda t: 1.0 if t < 0.01 else 0.5)
    timing = timed(machine, 100e-6, best_us=95)
    assert timing.stopped == "drifted"


def test_a_candidate_as_fast_as_the_incumbent_is_timed_in_full(fake):
    assert timed(fake(), 100e-6, best_us=100).stopped == "enough"


def test_without_good_slices_the_least_disturbed_ones_are_reported(fake):
    machine = fake(stolen=lambda t: 0.0 if t < 0.01 else (0.05 if t % 0.1 < 0.03 else 0.8))
    timing = timed(machine, 20e-3)
    assert not timing.trusted
    assert timing.us.median == pytest.approx(20e3 / 0.95, rel=0.01)


def test_a_time_that_swings_at_full_clock_is_not_trusted(fake):
    machine = fake()
    durations = iter([100e-6, 140e-6, 100e-6, 150e-6] * 100)

    def run(calls: int) -> float:
        return machine.work(next(durations) * calls) / calls

    timing = sample(run, machine.clock, machine.waited_ns, POLICY, None, machine.now)
    assert not timing.trusted
    assert "wide" in timing.reason
    assert len([piece for piece in timing.slices if piece.good]) == 4 * POLICY.good_slices
