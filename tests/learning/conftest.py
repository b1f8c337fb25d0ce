"""Databases of small networks whose times follow a law, so that what a model should learn is known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from autofuse.database.ask.training import TimedWorkload
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import Candidate, CandidateOutcome, RunStart
from autofuse.environment.environment import Environment, environment_of
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.baselines import always_plan, default_plan, none_plan
from autofuse.fusion.planner.planner import Planner
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowering
from autofuse.kernels.workload.workload import Workload
from autofuse.learning.dataset import Dataset, make_dataset
from autofuse.learning.features import Machine, facts_of, roofline_us
from autofuse.learning.model import ProfitabilityModel, train

Law = Callable[[Workload, Machine], float]
BONUS, CLASH = 0.5, 3.0
MOST_FLIPS = 8


def chance(*parts: object) -> float:
    """A number in [0, 1) that depends on `parts` alone."""
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:12], 16) / 16**12


def law(workload: Workload, machine: Machine) -> float:
    """Near the roofline; a product with a softmax in one kernel takes half as long, a convolution with a sum thrice."""
    kinds = {operator.op_type for operator in workload.operators}
    factor = BONUS if {"MatMul", "Softmax"} <= kinds else CLASH if {"Conv", "Add"} <= kinds else 1.0
    return factor * roofline_us(facts_of(workload), machine) * (1 + 0.04 * chance(workload.key))


def plans_of(graph: Graph) -> list[FusionPlan]:
    """The fixed plans, and the default with one answer changed."""
    planner = Planner(graph)
    flips = [{one.name: choice} for one in planner.decisions for choice in one.choices[1:]]
    found = [none_plan(graph), default_plan(graph), always_plan(graph), *map(planner.plan, flips[:MOST_FLIPS])]
    return list({plan.key: plan for plan in found}.values())


def kernels_of(model: Path, environment: Environment) -> dict[str, Workload]:
    """Every kernel of every plan of `plans_of`, by key."""
    graph = load(model, {})
    lowering = Lowering(graph, environment.target)
    bound = (bound.workload for plan in plans_of(graph) for bound in lowering.lower(plan).kernels)
    return {workload.key: workload for workload in bound}


def timed(model: Path, environment: Environment, cost: Law = law) -> Iterator[TimedWorkload]:
    """The kernels of a network with the times of the law, as the database would hand them out."""
    facts = environment.device.fingerprint.facts
    machine = Machine.of(environment.target, facts, environment.setting.threads)
    for key, workload in kernels_of(model, environment).items():
        us = cost(workload, machine)
        yield TimedWorkload(
            workload_key=key, workload=workload.text, label=workload.label, device="desk", fingerprint="f" * 64,
            device_facts=facts, target=json.dumps(asdict(environment.target)), threads=environment.setting.threads,
            median_us=us, ci_lo_us=us * 0.99, ci_hi_us=us * 1.01, trusted=True, candidates=1,
        )  # fmt: skip


class Recorder:
    """Fills one database with the times of networks."""

    cost = staticmethod(law)

    def __init__(self, path: Path) -> None:
        self.path = path

    def environment(self, base: ProfilingDatabase, threads: int) -> Environment:
        return environment_of(base, "local", threads, measuring=False)

    def record(self, model: Path, threads: int = 1, trusted: bool = True) -> None:
        """Every kernel of every plan of `plans_of`, as a run of the model's name."""
        key = graph_key(load(model, {}))
        start = RunStart(name=model.stem, model_name=model.stem, model_sha256="0" * 64, graph_key=key, seed=0)
        with open_database(self.path) as base:
            environment = self.environment(base, threads)
            run = base.start_run(environment.setting, start)
            for row in timed(model, environment):
                outcome = CandidateOutcome(
                    candidate=Candidate(row.workload_key, row.workload, row.label, "{}"), state="ok",
                    median_us=row.median_us, ci_lo_us=row.ci_lo_us, ci_hi_us=row.ci_hi_us, trusted=trusted,
                )  # fmt: skip
                base.record_candidate(environment.setting, outcome, run)
            base.finish_run(run)


def dense(onnx_builder: Any, folder: Path, name: str, width: int, layers: int) -> Path:
    """Dense layers with a Relu and a residual each, and a softmax."""
    b = onnx_builder()
    x = "x"
    for number in range(layers):
        y = b.op("Relu", f"relu{number}", b.dense(f"d{number}", x, (width, width)))
        x = b.op("Add", f"sum{number}", y, x) if number % 2 else b.op("Sigmoid", f"sig{number}", y)
    y = b.op("Softmax", "softmax", b.dense("last", x, (width, width)))
    return Path(b.save(folder / f"{name}.onnx", {"x": [width // 2, width]}, [y]))


def convolutional(onnx_builder: Any, folder: Path, name: str, channels: int, size: int, layers: int) -> Path:
    """Convolutions with BatchNormalization, an activation and sometimes a residual, then a pooling."""
    b = onnx_builder()
    x = b.op("Relu", "stem_relu", b.conv_bn("stem", "x", (3, channels)))
    for number in range(layers):
        y = b.op(
            "Relu" if number % 2 else "Sigmoid", f"act{number}", b.conv_bn(f"body{number}", x, (channels, channels))
        )
        x = b.op("Add", f"sum{number}", y, x) if number % 2 else y
    return Path(b.save(folder / f"{name}.onnx", {"x": [1, 3, size, size]}, [b.op("GlobalAveragePool", "pool", x)]))


@pytest.fixture(scope="session")
def networks(tmp_path_factory: pytest.TempPathFactory, onnx_builder: Any) -> Mapping[str, Path]:
    """Small networks by name."""
    folder = tmp_path_factory.mktemp("networks")
    made = [dense(onnx_builder, folder, f"dense{w}", w, n) for w, n in ((16, 2), (32, 3), (48, 3), (64, 4), (96, 3))]
    shapes = ((8, 12, 2), (16, 16, 3), (24, 20, 3), (32, 10, 4))
    made += [convolutional(onnx_builder, folder, f"conv{c}", c, s, n) for c, s, n in shapes]
    return {path.stem: path for path in made}


@pytest.fixture(scope="session")
def dataset(networks: Mapping[str, Path]) -> Dataset:
    """All networks but "dense64", by the law."""
    with open_database(":memory:") as base:
        environment = environment_of(base, "local", 1, measuring=False)
    rows: dict[str, TimedWorkload] = {}
    names: dict[str, list[str]] = {}
    for name, model in networks.items():
        if name != "dense64":
            found = {row.workload_key: row for row in timed(model, environment)}
            rows |= found
            for key in found:
                names.setdefault(key, []).append(name)
    return make_dataset(rows.values(), {key: tuple(found) for key, found in names.items()})


@pytest.fixture(scope="session")
def model(dataset: Dataset) -> ProfitabilityModel:
    return train(dataset)


@pytest.fixture(scope="session")
def sure_model(model: ProfitabilityModel) -> ProfitabilityModel:
    """The model with narrow intervals: so few rows leave them wide, and it would abstain."""
    narrow = {name: replace(getattr(model, name), factor=0.1) for name in ("time", "gain")}
    return replace(model, **narrow)  # type: ignore[arg-type]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "own.db")
