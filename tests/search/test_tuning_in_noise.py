"""Tuning beside a noisy neighbour: simulated clocks drift, blocks are hit, and nothing slower is shipped for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse
from autofuse.measure.networks.bench import Contender, ContenderResult, compared
from autofuse.measure.timing.clock import Clock
from autofuse.measure.timing.race import DECIDING, TimedBlock, interleaved
from autofuse.search.progress import TuneResult
from autofuse.values.ratios import TOLERANCE

Tune = Callable[..., TuneResult]
PROBE_S = 4e-4


@dataclass
class NoisyMachine:
    """A machine whose clock drifts by 20 % within seconds; beside that, every block has noise of `spread`, and one in
    ten is hit by something that no probe sees."""

    seed: int
    spread: float
    time: float = 0.0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def now(self) -> float:
        return self.time

    def work(self, seconds: float, noise: float = 1.0) -> float:
        """Does what takes `seconds` at full clock; what it took."""
        clock = 0.9 + 0.1 * np.sin(self.time / (1.5 + self.seed % 3))
        taken = seconds / clock * noise
        self.time += taken
        return float(taken)

    def block(self, us: float) -> Callable[[int], TimedBlock]:
        """Runs calls of `us` microseconds."""

        def run(calls: int) -> TimedBlock:
            hit = 1 + (self.random.random() < 0.1) * self.random.exponential(0.3)
            noise = hit * float(np.exp(self.random.normal(0, self.spread)))
            return TimedBlock(self.work(us * 1e-6 * calls, noise) / calls)

        return run

    def race(
        self, contenders: Sequence[Contender], _inputs: object, budget_s: float, **_named: object
    ) -> dict[str, ContenderResult]:
        """The networks in turn, as long as it takes to decide; each library holds its true time."""
        blocks = {one.name: self.block(json.loads(one.path.read_text())) for one in contenders}
        clock = Clock(lambda: self.work(PROBE_S))
        clock.calibrate()
        samples = interleaved(blocks, clock, replace(DECIDING, budget_s=budget_s), self.now)
        return compared(
            {
                name: ContenderResult(None, None, None, None, one.trusted, max_rel_error=1e-7, samples=one)
                for name, one in samples.items()
            }
        )


@pytest.fixture
def tune_in_noise(run: Tune, device: Any) -> Callable[..., tuple[TuneResult, Mapping[str, float]]]:
    """`tune_in_noise(model, seed, spread)`: the result, and the true time of each finalist (µs)."""

    def call(model: Path, seed: int, spread: float, **changes: Any) -> tuple[TuneResult, dict[str, float]]:
        truth, true_us = device.cost, {}

        def seen(workload: Any, schedule: Any) -> float:
            """Times of candidates are off by up to a half, and the same candidate always by as much."""
            return float(truth(workload, schedule) * (1 + 0.5 * device.chance(seed, workload.key, repr(schedule))))

        def build(model: Any, target: Any, threads: Any, orders: Any, *rest: Any, **named: Any) -> dict[str, str]:
            device.cost = truth
            problems: dict[str, str] = device.build(model, target, threads, orders, *rest, **named)
            true_us.update({one.name: json.loads(one.output.read_text()) for one in orders})
            device.cost = seen
            return problems

        device.race = NoisyMachine(seed, spread).race
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("autofuse.search.finals.finals.build_libraries", build)
            device.cost = seen
            result = run(model, seed=seed, **changes)
            device.cost = truth
        return result, true_us

    return call


NETWORKS = ("two_layers", "convolution", "one_layer")


@pytest.mark.parametrize("network", [pytest.param("two_layers", marks=pytest.mark.long), *NETWORKS[1:]])
def test_what_is_shipped_is_never_slower_than_what_is_compiled_untuned(
    network: str, tune_in_noise: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    total = decided = 0.0
    for seed in range(3):
        database = str(tmp_path / f"{seed}.db")
        result, true_us = tune_in_noise(request.getfixturevalue(network), seed, 0.02, database=database)
        assert true_us[result.chosen] <= true_us["untuned"] * (1 + TOLERANCE)
        assert true_us[result.chosen] < true_us["untuned"], "the noise of this machine hides nothing of this size"
        total, decided = total + true_us[result.chosen], decided + true_us[result.chosen] * result.decision.trusted
    assert decided >= 0.8 * total


def test_noise_that_prevents_a_decision_ships_what_is_compiled_untuned(
    tune_in_noise: Any, two_layers: Path, tmp_path: Path
) -> None:
    result, _ = tune_in_noise(two_layers, 5, 3.0)
    assert (result.chosen, result.decision.verdict, result.decision.trusted) == ("untuned", "undecided", False)
    with autofuse.open(tmp_path / "profile.db") as opened:
        choice, groups = opened.choices.iloc[-1], opened.groups
        assert choice["details"] == {
            "name": "untuned", "pinned": True, "verdict": "undecided", "against": result.decision.against,
            "together": False,
        }  # fmt: skip
        assert not choice["trusted"]
        best = opened.best.set_index("workload_key")["median_us"]
    assert groups["us"].sum() > 1.01 * groups["workload_key"].map(best).sum(), "the best were not taken"
    report = autofuse.compile(two_layers, None, database=str(tmp_path / "profile.db"), threads=1, dry_run=True)
    assert sorted(one.us for one in report.groups) == pytest.approx(sorted(groups["us"]))


def test_a_decision_of_an_earlier_run_outlives_noise(tune_in_noise: Any, two_layers: Path) -> None:
    first, _ = tune_in_noise(two_layers, 1, 0.01)
    again, _ = tune_in_noise(two_layers, 5, 3.0)
    assert first.decision.trusted and not again.decision.trusted
    assert first.chosen != "untuned" and again.plan_key == first.plan_key
