"""The experiments on first guesses and on memory compute what they say, from small databases and models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome
from autofuse.environment.environment import environment_of
from autofuse.environment.space import load_space
from autofuse.graph.loading.load import load
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.workload.workload import Workload, bind_workload
from experiments.memory.run import markdown as memory_markdown
from experiments.memory.run import row_of as memory_row
from experiments.priors.run import knob_lines, markdown, table
from experiments.priors.tasks import Task, read_tasks


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = '<ir_version: 8, opset_import: ["": 18]> net (float[40,64] x) => (float[40,80] y) { y = MatMul (x, w) }'
    made = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).standard_normal((64, 80)).astype("float32")
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    path = tmp_path_factory.mktemp("priors") / "net.onnx"
    onnx.save(made, path)
    return path


def product(model: Path) -> Workload:
    graph = load(model, {})
    return bind_workload(graph, [operator.name for operator in graph.operators], {}).workload


def tasks_of(folder: Path, workload: Workload, times: list[tuple[dict[str, int | str], float, bool]]) -> list[Task]:
    """What a database says that was told these candidates (schedule, microseconds, trusted) in this order."""
    path = folder / "profile.db"
    with open_database(path) as base:
        setting = environment_of(base, "local", 1, measuring=False).setting
        for schedule, us, trusted in times:
            candidate = Candidate(workload.key, workload.text, workload.label, json.dumps(schedule))
            base.record_candidate(
                setting,
                CandidateOutcome(
                    state="ok", median_us=us, ci_lo_us=us, ci_hi_us=us, trusted=trusted, candidate=candidate
                ),
            )
    return list(read_tasks([path]))


def test_first_guesses_are_held_against_the_best(model: Path, tmp_path: Path) -> None:
    workload = product(model)
    with open_database(tmp_path / "empty.db") as base:
        target = environment_of(base, "local", 1, measuring=False).target
    rule = first_schedules(workload, open_knobs(workload, target, load_space(None, target.isa).schedule), target)[0]
    slow = {**rule, "contraction.vectors": 1}
    others = [({**slow, "contraction.panels_per_task": panels}, 20.0 + panels, True) for panels in (2, 4, 0)]
    again = {**rule, "contraction.pixel_rows": 1, "contraction.rows_per_task": 8}
    (task,) = tasks_of(tmp_path, workload, [(slow, 30.0, True), (rule, 12.0, True), (again, 10.0, False), *others])
    assert task.family == "product"
    assert (task.candidates[0].us, task.best_us, task.best_of_first(2)) == (30.0, 10.0, 12.0)
    assert task.guesses[0] == 10.0 and task.noise == [1.2], "two names of one kernel"
    row, everything = table([task])[::-1]
    assert (row.family, everything.family, row.workloads) == ("product", "all", 1)
    assert (row.first, row.typical, row.ruled, row.rule) == (0.0, 3.0, 1, 1.0)
    assert row.rule_total == pytest.approx(1.0) and row.noise == pytest.approx(1.2)
    assert row.trusted == pytest.approx(5 / 6)
    assert "| product | 1 |" in markdown([row])
    assert any("contraction.vectors" in line and "3.000" not in line for line in knob_lines([task]))


def test_a_short_search_is_judged_by_its_first_twenty(model: Path, tmp_path: Path) -> None:
    workload = product(model)
    pixels = [{"contraction.pixels": 1 + number, "contraction.vectors": 1} for number in range(22)]
    times = [(schedule, 100.0 - number, True) for number, schedule in enumerate(pixels)]
    (task,) = tasks_of(tmp_path, workload, times)  # type: ignore[arg-type]
    (row, _) = table([task])
    assert (row.long, row.short) == (1, 0.0), "the best of twenty is 81, the best of all 79: 97.5 %"


def test_the_memory_of_both_is_measured_in_processes_of_their_own(model: Path, tmp_path: Path) -> None:
    row = memory_row(model, None, 1, tmp_path)
    assert row.autofuse_peak >= row.autofuse_running > 1 and row.onnxruntime_peak >= row.onnxruntime_running > 1
    assert row.ratio == pytest.approx(row.autofuse_peak / row.onnxruntime_peak)
    assert row.weights == pytest.approx(64 * 80 * 4 / 2**20)
    assert "| net |" in memory_markdown([row])
