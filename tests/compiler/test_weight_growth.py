"""Winograd's larger weights: reported by `compile`, and kept within `--weight-growth`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import autofuse
from autofuse.compiler import CompileReport
from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome
from autofuse.environment.environment import environment_of
from autofuse.errors import InputError, StrictMissError
from autofuse.fusion.plan import ScheduleLimits
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import lower

NETWORK = """net (float[1,16,24,24] x) => (float[1,16,24,24] y)
    { a = Conv <pads=[1,1,1,1]> (x, u) r = Relu (a) b = Conv <pads=[1,1,1,1]> (r, v) y = Sigmoid (b) }"""
WEIGHTS = 4 * (32 * 16 * 9 + 16 * 32 * 9)
TIMES = {"u": {"direct": 60.0, "winograd2": 50.0, "winograd4": 40.0}, "v": {"direct": 41.0, "winograd4": 40.0}}
"""Microseconds of the first and the second convolution by algorithm."""


class Tuned:
    """A network of two 3x3 convolutions, and a database that knows times of its kernels."""

    def __init__(self, folder: Path) -> None:
        made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {NETWORK}')
        random = np.random.default_rng(0)
        for name, shape in {"u": (32, 16, 3, 3), "v": (16, 32, 3, 3)}.items():
            weights = random.standard_normal(shape).astype("float32")
            made.graph.initializer.append(numpy_helper.from_array(weights, name))
        self.model, self.database = folder / "net.onnx", folder / "profile.db"
        onnx.save(made, self.model)

    def measure(self, times: dict[str, dict[str, float]]) -> None:
        """Records a time for each convolution and algorithm, as kernels of the default plan."""
        graph = load(self.model, {})
        plan = default_plan(graph)
        with open_database(self.database) as base:
            environment = environment_of(base, "local", 1, measuring=False)
            kernels = lower(graph, plan, environment.target, [group.operators for group in plan.groups]).kernels
            for bound, known in zip(kernels, times.values(), strict=True):
                for algorithm, us in known.items():
                    schedule = json.dumps({"contraction.algorithm": algorithm})
                    workload = bound.workload
                    digest = environment.codes.now(workload, json.loads(schedule))
                    candidate = Candidate(workload.key, workload.text, workload.label, schedule, digest)
                    outcome = CandidateOutcome(
                        state="ok", median_us=us, ci_lo_us=us, ci_hi_us=us, trusted=True, candidate=candidate
                    )
                    base.record_candidate(environment.setting, outcome)

    def compile(self, growth: float | None, on_miss: str = "rule") -> CompileReport:
        """A dry run."""
        return autofuse.compile(
            self.model, dry_run=True, database=str(self.database), threads=1, on_miss=on_miss, weight_growth=growth,
            plan="default",
        )  # fmt: skip


@pytest.fixture
def tuned(tmp_path: Path) -> Iterator[Tuned]:
    yield Tuned(tmp_path)


def algorithms(report: CompileReport) -> list[str]:
    return [str(json.loads(group.schedule)["contraction.algorithm"]) for group in report.groups]


def test_the_growth_of_the_weights_is_reported(tuned: Tuned) -> None:
    tuned.measure(TIMES)
    report = tuned.compile(None)
    assert algorithms(report) == ["winograd4", "winograd4"]
    assert (report.weights_bytes, report.held_weights_bytes) == (WEIGHTS, 4 * WEIGHTS)


@pytest.mark.long
def test_what_costs_least_time_for_a_byte_is_given_up_first(tuned: Tuned) -> None:
    tuned.measure(TIMES)
    cases = {4.0: ("winograd4", "winograd4"), 3.0: ("winograd4", "direct"), 1.5: ("winograd2", "direct")}
    for growth, expected in {**cases, 1.0: ("direct", "direct")}.items():
        report = tuned.compile(growth)
        assert algorithms(report) == list(expected), growth
        assert report.held_weights_bytes <= growth * report.weights_bytes
        changed = [group for group in report.groups if group.source]
        assert all("allowed" in group.source and group.tier == "hit" for group in changed)
        assert len(changed) == sum(algorithm != "winograd4" for algorithm in expected)


def test_without_times_the_rules_have_smaller_weights_too(tuned: Tuned) -> None:
    assert tuned.compile(None).held_weights_bytes > WEIGHTS
    report = tuned.compile(1.0)
    assert (set(algorithms(report)), report.held_weights_bytes) == ({"direct"}, WEIGHTS)


def test_strict_does_not_take_what_was_not_measured(tuned: Tuned) -> None:
    tuned.measure({name: {"winograd4": 40.0} for name in TIMES})
    assert tuned.compile(1.5).held_weights_bytes <= 1.5 * WEIGHTS
    with pytest.raises(StrictMissError, match=r"--weight-growth 1.5: the kernels' weights are 4.00 times"):
        tuned.compile(1.5, on_miss="fail")


def test_a_limit_below_the_models_own_weights_is_refused() -> None:
    for growth in (0.9, float("nan")):
        with pytest.raises(InputError, match="--weight-growth"):
            ScheduleLimits(weight_growth=growth)
