"""A device on which reading, building and measuring take long, by a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.measure.networks.bench import OUT_OF_TIME, ContenderResult
from autofuse.measure.networks.libraries import NO_TIME
from tests.search.conftest import SyntheticDevice

TICK_S = 0.5
FURTHER = "finals.finals.difference"
"""The function that has the model run in ONNX Runtime on further inputs."""


@dataclass
class World:
    """How long everything takes, in seconds of the virtual clock.

    `load_s`, `reference_s`: opening. `candidate_s`: building and timing a candidate. `kernel_s`: a kernel of a whole
    library, and `told_s`, what the builds of candidates let expect of one. `start_s`: a process that builds. `run_s`:
    loading and checking a library. `cores`: builds side by side. `crowding`: how many times as long as alone each step
    takes on this machine; all of these are as long as they are in it. `decided_s`: after which a race is decided.
    """

    load_s: float = 1.0
    reference_s: float = 2.0
    candidate_s: float = 1.0
    kernel_s: float = 0.8
    told_s: float | None = None
    start_s: float = 3.0
    run_s: float = 2.0
    cores: int = 1
    crowding: float = 1.0
    decided_s: float = float("inf")
    now: float = 0.0
    built: list[str] = field(default_factory=list)

    def take(self, seconds: float, left: Callable[[], float]) -> bool:
        """Lets time pass, in ticks after which a budget is looked at, as real waits do; whether it came to its end."""
        end = self.now + seconds
        while self.now < end:
            if left() <= 0:
                return False
            self.now += min(TICK_S, end - self.now)
        return True


class SlowDevice(SyntheticDevice):
    """The synthetic device in a `world`."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def stream(self, batch: Any, left: Any = lambda: float("inf"), ahead: Any = tuple) -> Any:
        told_s = self.world.kernel_s if self.world.told_s is None else self.world.told_s
        for request in range(len(batch)):
            if not self.world.take(self.world.candidate_s, left):
                return
            for _, measurement in super().stream([batch[request]], left):
                object.__setattr__(measurement, "build_s", told_s)
                yield request, measurement

    def build(
        self, model: Any, target: Any, threads: int, orders: Any, tell: Any, left: Any = None, objects: Any = None
    ) -> dict[str, str]:
        self.world.take(self.world.start_s + self.world.load_s, left)
        problems = {}
        for order in orders:
            late = order is not orders[0] and order.expected_s > left()
            if late or not self.world.take(len(order.schedules) * self.world.kernel_s, left):
                problems[order.name] = NO_TIME
                continue
            self.world.built.append(order.name)
            super().build(model, target, threads, [order], tell)
        return problems

    def race(self, contenders: Sequence[Any], inputs: Any, budget_s: float, **named: Any) -> Any:
        left, loaded = named["left"], []
        for contender in contenders:
            if self.world.take(self.world.run_s, left):
                loaded.append(contender)
        self.world.take(min(budget_s, self.world.decided_s), left)
        late = ContenderResult(None, None, None, None, False, error=OUT_OF_TIME)
        return {**dict.fromkeys((one.name for one in contenders), late), **(super().race(loaded) if loaded else {})}

    def outputs(self, library: Path, inputs: Mapping[str, Any], left: Any = lambda: float("inf")) -> list[Any]:
        self.world.take(self.world.run_s, left)
        return super().outputs(library, inputs)


def put_in_place(world: World, monkeypatch: pytest.MonkeyPatch) -> SlowDevice:
    """A device on which time passes, on which searches run, and a clock that nothing else moves."""
    made = SlowDevice(world)
    monkeypatch.setattr("autofuse.search.tune.open_runner", made)
    monkeypatch.setattr("autofuse.search.finals.finals.build_libraries", made.build)
    monkeypatch.setattr("autofuse.search.tune.available_cores", lambda: world.cores)
    monkeypatch.setattr("autofuse.search.phases.phases.FIXED", ())  # its one kernel would take a single `kernel_s`

    def sleep(seconds: float) -> None:
        world.now += seconds

    clock = SimpleNamespace(monotonic=lambda: world.now, sleep=sleep, thread_time=lambda: world.now / world.crowding)
    monkeypatch.setattr("autofuse.search.budget.budget.time", clock)
    for name, seconds in (("tune.load", "load_s"), ("tune.capture", "reference_s"), (FURTHER, "reference_s")):
        slow(monkeypatch, f"autofuse.search.{name}", world, seconds)
    return made


def slow(monkeypatch: pytest.MonkeyPatch, name: str, world: World, seconds: str) -> None:
    """The function called `name` takes the `seconds` of the world."""
    module, _, function = name.rpartition(".")
    real = getattr(__import__(module, fromlist=[function]), function)

    def taking(*arguments: Any, **named: Any) -> Any:
        world.now += getattr(world, seconds)
        return real(*arguments, **named)

    monkeypatch.setattr(name, taking)
