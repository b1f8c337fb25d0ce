"""The sentinel: when it is measured, what it casts doubt on, how a device rests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.database.database import open_database
from autofuse.measure.measurement import Failure, Measurement, MeasureRequest, Slice, Timing
from autofuse.search.lab import drift_sentinel as sentinel_module
from autofuse.search.lab.drift_sentinel import EVERY, LEAST_S, DriftSentinel, Noted, worth_again
from autofuse.values.statistics import median_interval

WORKLOAD: Any = SimpleNamespace(label="sentinel")


def timed(us: float, trusted: bool = True) -> Measurement:
    slices = tuple(Slice(us, 1, 1.0, 0.0, True) for _ in range(5))
    return Measurement(Timing(median_interval([us] * 5), slices, trusted, "", "enough"))


class Device:
    """Takes `slower` times the sentinel's 100 us; rests make it `heal` better each."""

    def __init__(self) -> None:
        self.slower, self.heal, self.now = 1.0, 0.0, 0.0
        self.rests: list[float] = []
        self.fails = False

    def measure(self, batch: Sequence[object]) -> list[Measurement]:
        if self.fails:
            return [Measurement(failure=Failure("device_lost", "gone"))]
        return [timed(100.0 * self.slower) for _ in batch]

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds
        self.slower = max(1.0, self.slower - self.heal)


@pytest.fixture
def stub() -> Device:
    return Device()


@pytest.fixture
def sentinel(stub: Device) -> DriftSentinel:
    return DriftSentinel(stub, 10.0, lambda: stub.now)  # type: ignore[arg-type]


def note(sentinel: DriftSentinel, count: int, us: float = 100.0, trusted: bool = True) -> None:
    request = MeasureRequest(WORKLOAD, {}, ())
    search: Any = SimpleNamespace(best_us=us)
    for number in range(count):
        sentinel.note(request, timed(us, trusted), Noted(search, {}, f"{number}", us))


def test_it_is_due_after_so_many_candidates_and_so_much_time(sentinel: DriftSentinel, stub: Device) -> None:
    note(sentinel, EVERY)
    assert not sentinel.due
    stub.now = LEAST_S
    assert sentinel.due
    sentinel.inspect(sentinel.runner.rest)
    stub.now += 10 * LEAST_S
    assert not sentinel.due
    note(sentinel, EVERY)
    assert sentinel.due


def test_only_a_trusted_candidate_of_a_sensible_time_is_a_sentinel(sentinel: DriftSentinel, stub: Device) -> None:
    note(sentinel, EVERY, us=1.0)
    note(sentinel, EVERY, us=100.0, trusted=False)
    stub.now = 10 * LEAST_S
    assert not sentinel.due
    note(sentinel, 1, us=100.0)
    assert sentinel.due


def test_a_device_as_fast_as_before_casts_no_doubt(sentinel: DriftSentinel, stub: Device) -> None:
    note(sentinel, EVERY)
    finding = sentinel.inspect(sentinel.runner.rest)
    assert (finding.doubted, finding.recovered, stub.rests) == ((), True, [])


def test_a_slow_device_rests_and_what_it_measured_is_doubted(sentinel: DriftSentinel, stub: Device) -> None:
    note(sentinel, 5)
    sentinel.inspect(sentinel.runner.rest)
    note(sentinel, EVERY)
    stub.slower, stub.heal = 1.2, 0.1
    finding = sentinel.inspect(sentinel.runner.rest)
    assert len(finding.doubted) == EVERY, "not those before the last good sentinel"
    assert finding.recovered
    assert stub.rests == [10.0, 20.0]
    assert "1.20 times its best time" in finding.reason
    assert (sentinel.distrusted, sentinel.worst) == (EVERY, pytest.approx(1.2))


def test_a_device_that_stays_slow_is_taken_as_it_is_from_then_on(sentinel: DriftSentinel, stub: Device) -> None:
    note(sentinel, EVERY)
    stub.slower = 1.5
    finding = sentinel.inspect(sentinel.runner.rest)
    assert not finding.recovered
    assert stub.rests == [10.0, 20.0, 40.0, 80.0]
    note(sentinel, EVERY)
    assert sentinel.inspect(sentinel.runner.rest).doubted == ()
    stub.slower = 1.0
    sentinel.inspect(sentinel.runner.rest)
    stub.slower = 1.2
    note(sentinel, EVERY)
    assert sentinel.inspect(sentinel.runner.rest).doubted, "fast again, it is held to that"


def test_a_sentinel_that_fails_is_a_reason_to_doubt_too(sentinel: DriftSentinel, stub: Device) -> None:
    note(sentinel, EVERY)
    stub.fails = True
    finding = sentinel.inspect(sentinel.runner.rest)
    assert (len(finding.doubted), finding.recovered) == (EVERY, False)


def test_candidates_that_may_be_the_best_are_measured_again(sentinel: DriftSentinel) -> None:
    search: Any = SimpleNamespace(best_us=100.0)
    noted = [Noted(search, {"us": us}, "", us) for us in (130.0, 100.0, 111.0, 119.0, 200.0)]
    assert [one.us for one in worth_again(noted, 1.2, 8)] == [100.0, 111.0, 119.0]
    assert [one.us for one in worth_again(noted, 1.2, 2)] == [100.0, 111.0]


@pytest.mark.long
def test_a_throttled_device_ends_with_a_plan_as_fast(
    run: Any, device: Any, two_layers: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While it is throttled all times are up by a third; the doubted are measured again and the job ends as without."""
    monkeypatch.setattr(sentinel_module, "EVERY", 4)
    monkeypatch.setattr(sentinel_module, "LEAST_S", 0.0)
    calm = run(two_layers, database=str(tmp_path / "calm.db"))
    plain, count, candidate = device.cost, [0], [False]

    def begin() -> None:
        count[0], candidate[0] = count[0] + 1, True

    def throttled(workload: Any, schedule: Any) -> Any:
        """Candidates alone; whole plans are raced, and then all of them are as fast."""
        hot = candidate[0] and count[0] % 24 in range(6, 13)
        candidate[0] = False
        return plain(workload, schedule) * (1.33 if hot else 1.0)

    device.on_measure, device.cost = begin, throttled
    monkeypatch.setattr("autofuse.search.lab.lab.Lab._rest", lambda *_: count.__setitem__(0, 13))
    hot = run(two_layers, database=str(tmp_path / "hot.db"))
    composed = [result.plans[result.chosen].composed_us for result in (hot, calm)]
    assert composed[0] == pytest.approx(composed[1], rel=0.05)


@pytest.mark.long
def test_a_winner_that_is_never_trusted_is_measured_again_and_doubted_until_a_race_decides(
    run: Any, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    device.trusted = lambda workload: "Softmax" not in workload.label
    result = run(two_layers)
    assert result.decision.trusted and result.untrusted == (), "a race that decides needs no kernel's time"
    again = max(Counter(device.measured).values())
    assert again == 3, "winners that are not trusted are measured once more in the search, and once at its end"
    with open_database(tmp_path / "profile.db", read_only=True) as base:
        doubted = {row["label"] for row in base.table("candidates").records() if row["trusted"] is False}
    assert doubted and all("Softmax" in str(label) for label in doubted)


def test_a_winner_that_is_trusted_when_it_is_measured_again_is_named_no_more(
    run: Any, device: Any, two_layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autofuse.search.finals.ending.SECONDS_AGAIN", 0.5)
    device.trusted = lambda _workload: device.measured.count(device.measured[-1]) > 1
    assert run(two_layers).untrusted == ()
