"""The local runner between two batches: what the next one will ask for is built while the last of this one is timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from autofuse.measure.children.process import available_cores
from autofuse.measure.local_runner import LocalRunner
from autofuse.measure.measurement import Limits, MeasureRequest
from autofuse.measure.timing.sampling import SamplingPolicy
from tests.measure.runner_contract import outcome

pytestmark = [pytest.mark.slow, pytest.mark.skipif(available_cores() < 2, reason="one core builds or times")]

TRUSTING = SamplingPolicy(cap_s=0.3, clock_floor=0.0, waited_limit=1.0, width_limit=100.0)
"""Noise of this machine is no question here."""


class Watched(LocalRunner):
    """A runner that says which candidates it built and timed, by their schedules."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.built: list[dict[str, Any]] = []
        self.timed: list[dict[str, Any]] = []

    def _build(self, trial: Any) -> Any:
        self.built.append(dict(trial.request.schedule))
        return super()._build(trial)

    def _time(self, trial: Any) -> Any:
        self.timed.append(dict(trial.request.schedule))
        return super()._time(trial)

    def held(self) -> int:
        return sum(len(member.held) for member in self._pool.members)


@pytest.fixture(scope="module")
def shared(target: Any, rogues: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    lock = tmp_path_factory.mktemp("lock") / "measure.lock"
    with Watched(target, workers=2, limits=Limits(build_s=25), policy=TRUSTING, lock=lock, **rogues) as made:
        yield made


@pytest.fixture
def runner(shared: Watched) -> Watched:
    shared.built.clear()
    shared.timed.clear()
    return shared


def outcomes(runner: Watched, batch: Sequence[MeasureRequest], ahead: Sequence[MeasureRequest] = ()) -> dict[int, str]:
    return {index: outcome(measured) for index, measured in runner.stream(batch, ahead=lambda: ahead)}


def test_what_comes_next_is_built_once_and_before_it_is_asked_for(runner: Watched, ask: Any) -> None:
    first, following = [ask(work=11), ask(work=12)], [ask(work=13), ask(work=14)]
    assert outcomes(runner, first, following) == {0: "ok", 1: "ok"}
    assert len(runner.built) > len(first)
    assert outcomes(runner, following) == {0: "ok", 1: "ok"}
    assert sorted(one["work"] for one in runner.built) == [11, 12, 13, 14]
    assert sorted(one["work"] for one in runner.timed) == [11, 12, 13, 14]


def test_what_is_built_ahead_and_not_asked_for_is_forgotten(runner: Watched, ask: Any) -> None:
    outcomes(runner, [ask(work=21), ask(work=22)], [ask(work=23), ask(work=24)])
    assert outcomes(runner, [ask(work=25)]) == {0: "ok"}
    assert runner.held() == 0
    assert {"act": "good", "work": 23} not in runner.timed
    assert outcomes(runner, [ask(work=23)]) == {0: "ok"}


@pytest.mark.parametrize("act", ["raise", "crash_build", "wrong"])
def test_a_candidate_that_fails_ahead_harms_none_and_fails_when_it_is_asked_for(
    runner: Watched, ask: Any, act: str
) -> None:
    assert outcomes(runner, [ask(work=31), ask(work=32)], [ask(act), ask(work=33)]) == {0: "ok", 1: "ok"}
    kind = "wrong" if act == "wrong" else "build_error"
    assert outcomes(runner, [ask(act), ask(work=33)]) == {0: kind, 1: "ok"}


def test_what_must_not_be_disturbed_is_timed_with_nothing_built_ahead(runner: Watched, ask: Any) -> None:
    outcomes(runner, [ask(work=41), ask(work=42)], [ask(work=43), ask(work=44)])
    assert outcomes(runner, [ask(work=45, undisturbed=True)]) == {0: "ok"}
    assert (runner.held(), runner.timed[-1]) == (0, {"act": "good", "work": 45})


def test_a_child_that_is_to_be_replaced_builds_nothing_ahead(target: Any, rogues: Any, ask: Any, tmp_path: Any) -> None:
    limits = Limits(candidates=1, build_s=25)
    with Watched(target, workers=2, limits=limits, policy=TRUSTING, lock=tmp_path / "lock", **rogues) as runner:
        outcomes(runner, [ask(work=n) for n in (51, 52, 53)], [ask(work=54)])
        before = set(runner.processes())
        outcomes(runner, [ask(work=55), ask(work=56)], [ask(work=57)])
        assert before.isdisjoint(runner.processes())


def test_equal_code_is_timed_once(runner: Watched, ask: Any) -> None:
    """The schedules differ in a knob that changes nothing, in one batch and in the next one."""
    batch = [ask(work=61, mark=str(number)) for number in range(3)]
    found = dict(runner.stream(batch))
    later = runner.measure([ask(work=61, mark="later")])[0]
    assert {outcome(measured) for measured in (*found.values(), later)} == {"ok"}
    assert (len(runner.built), len(runner.timed)) == (4, 1)
    assert {one.timing for one in (*found.values(), later)} == {found[0].timing}


def test_what_settles_something_is_timed_again_although_its_code_was(runner: Watched, ask: Any) -> None:
    runner.measure([ask(work=71)])
    runner.measure([ask(work=71, undisturbed=True)])
    assert len(runner.timed) == 2
