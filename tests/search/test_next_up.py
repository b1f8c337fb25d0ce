"""What a search will ask for next is known while the last answers are awaited: runners build it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.search.budget.agenda import EXPLORE_EVERY, Agenda, Question
from autofuse.search.budget.budget import Budget
from autofuse.search.progress import TuneResult
from autofuse.search.schedules.schedule_search import schedule_text
from tests.search.conftest import SyntheticDevice, put_in_place

Tune = Callable[..., TuneResult]
Name = tuple[str, str]


class Foreseeing(SyntheticDevice):
    """Asks for what comes next while the last of a batch is timed, as a runner does whose builders have nothing else
    to do."""

    def __init__(self) -> None:
        super().__init__()
        self.foreseen: list[set[Name]] = []
        self.asked: list[set[Name]] = []
        self.looks = True

    def stream(self, batch: Any, left: Any = lambda: float("inf"), ahead: Any = tuple) -> Iterator[Any]:
        self.asked.append(self.names(batch))
        *early, last = super().stream(batch, left)
        yield from early
        self.foreseen.append(self.names(ahead()) if self.looks else set())
        yield last

    @staticmethod
    def names(requests: Any) -> set[Name]:
        return {(one.workload.key, schedule_text(one.schedule)) for one in requests}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Foreseeing:
    return put_in_place(Foreseeing(), monkeypatch)


def test_a_third_of_what_is_asked_for_was_foreseen(run: Tune, device: Foreseeing, two_layers: Path) -> None:
    run(two_layers, trials=40)
    batches = list(zip(device.foreseen, device.asked[1:], strict=False))
    hits = sum(len(foreseen & asked) for foreseen, asked in batches)
    assert hits >= sum(len(asked) for _, asked in batches) / 3


def test_looking_ahead_changes_nothing_that_is_measured(
    run: Tune, device: Foreseeing, two_layers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each candidate takes a second of a clock that nothing else moves."""
    clock = SimpleNamespace(
        monotonic=lambda: float(len(device.measured)), sleep=lambda _seconds: None, thread_time=lambda: 0.0
    )
    monkeypatch.setattr("autofuse.search.budget.budget.time", clock)
    run(two_layers, trials=30)
    looking = list(device.measured)
    device.measured.clear()
    device.looks = False
    run(two_layers, trials=30, database=str(tmp_path / "other.db"))
    assert device.measured == looking


def test_nothing_is_foreseen_that_is_known(run: Tune, device: Foreseeing, two_layers: Path) -> None:
    run(two_layers, trials=40)
    before: set[Name] = set()
    for foreseen, asked in zip(device.foreseen, device.asked, strict=True):
        before |= asked
        assert foreseen.isdisjoint(before)


def test_the_likely_question_is_the_one_that_is_chosen_then_and_costs_no_turn() -> None:
    def nothing(_budget: Budget) -> None:
        """It is never asked."""

    agenda = Agenda()
    dear, cheap = (Question(kind, 5.0, cost_s, nothing) for kind, cost_s in (("dear", 5.0), ("cheap", 1.0)))
    for _ in range(2 * EXPLORE_EVERY):
        likely = agenda.likely([dear, cheap], 100.0, 60.0)
        assert likely is agenda.likely([dear, cheap], 100.0, 60.0)
        assert likely is agenda.choose([dear, cheap], 100.0, 60.0)
        agenda.account("cheap").spent_s += 1.0
