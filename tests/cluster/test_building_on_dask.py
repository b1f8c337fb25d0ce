"""Kernels built on a Dask cluster: the same as here; a worker and the scheduler may go away in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from servers import Cluster, free_port

from autofuse.backend.compile.host_cpu import local_device
from autofuse.fusion.planner.baselines import none_plan
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.measure.checking.reference import capture
from autofuse.measure.children.process import wait_any
from autofuse.measure.cluster.farm import BuildFarm, Built
from autofuse.measure.measurement import Failure, Limits, MeasureRequest

pytestmark = pytest.mark.cluster
TARGET = local_device().target()
Found = dict[int, Built | Failure]


@pytest.fixture(scope="module")
def requests_of_a_model(onnx_builder: Any, tmp_path_factory: pytest.TempPathFactory) -> list[MeasureRequest]:
    """Every guess for each kernel of a small network with weights."""
    b = onnx_builder()
    x = b.op("Relu", "relu", b.conv_bn("conv", "x", (3, 16)))
    x = b.op("Relu", "relu2", b.conv_bn("deep", x, (16, 16), group=16))
    x = b.op("Flatten", "flatten", b.op("GlobalAveragePool", "average", x))
    x = b.op("Gemm", "classes", x, b.weights(10, 16), b.weights(10), transB=1)
    folder = tmp_path_factory.mktemp("requests")
    graph = load(Path(b.save(folder / "net.onnx", {"x": [1, 3, 24, 24]}, [x])), {})
    plan = none_plan(graph)
    lowered = lower(graph, plan, TARGET, [group.operators for group in plan.groups])
    wanted = [t for op in graph.operators for t in op.outputs if t]
    store = capture(graph, generate_inputs(graph, 0), folder / "reference", wanted)
    return [
        MeasureRequest(bound.workload, schedule, (), store.constants(lowered.graph, bound))
        for bound in lowered.kernels
        for schedule in first_schedules(bound.workload, open_knobs(bound.workload, TARGET, {}), TARGET)
    ]


def build_all(
    farm: BuildFarm, requests: list[MeasureRequest], folder: Path, meanwhile: Callable[[int], None] = lambda _n: None
) -> Found:
    farm.submit(list(enumerate(requests)), folder)
    found: Found = {}
    try:
        while len(found) < len(requests):
            found.update(farm.feed(hold=False))
            for child, reply in wait_any(farm.busy()) if farm.busy() else ():
                for index, built in farm.take(child, reply):
                    assert index not in found, "built twice"
                    found[index] = built
                    meanwhile(len(found))
    finally:
        farm.close()
    return found


def constants(found: Found, index: int) -> list[Any]:
    built = found[index]
    assert isinstance(built, Built), built
    assert built.files.kernel.read_bytes()[:4] == b"\x7fELF"
    return [np.load(path) for path in built.files.constants]


def require_equal(found: Found, other: Found) -> None:
    assert found.keys() == other.keys()
    for index in found:
        for mine, theirs in zip(constants(found, index), constants(other, index), strict=True):
            assert np.array_equal(mine, theirs)


@pytest.fixture(scope="module")
def built_here(requests_of_a_model: list[MeasureRequest], tmp_path_factory: pytest.TempPathFactory) -> Found:
    return build_all(BuildFarm(TARGET, workers=2), requests_of_a_model, tmp_path_factory.mktemp("here"))


def test_a_cluster_builds_what_this_machine_builds(
    cluster: Cluster, requests_of_a_model: list[MeasureRequest], built_here: Found, tmp_path: Path
) -> None:
    farm = BuildFarm(TARGET, scheduler=f"tcp://{cluster.address}")
    found = build_all(farm, requests_of_a_model, tmp_path / "there")
    assert (farm.scheduler, farm.notice) == (f"tcp://{cluster.address}", "")
    require_equal(found, built_here)
    logs = [(cluster.folder / f"worker-{number}.log").read_text() for number in range(2)]
    assert all("Registered to" in log for log in logs)


def test_a_killed_worker_costs_nothing_but_time(
    cluster: Cluster, requests_of_a_model: list[MeasureRequest], built_here: Found, tmp_path: Path
) -> None:
    def kill(done: int) -> None:
        if done == 2:
            cluster.workers[0].kill()

    farm = BuildFarm(TARGET, scheduler=f"tcp://{cluster.address}")
    found = build_all(farm, requests_of_a_model, tmp_path / "there", kill)
    require_equal(found, built_here)


def test_when_the_scheduler_goes_away_building_goes_on_here(
    cluster: Cluster, requests_of_a_model: list[MeasureRequest], built_here: Found, tmp_path: Path
) -> None:
    def kill(done: int) -> None:
        if done == 2:
            cluster.scheduler.kill()

    farm = BuildFarm(TARGET, scheduler=f"tcp://{cluster.address}")
    found = build_all(farm, requests_of_a_model, tmp_path / "there", kill)
    assert farm.scheduler is None
    assert "building goes on with" in farm.notice
    require_equal(found, built_here)


def test_without_a_scheduler_everything_is_built_here(
    requests_of_a_model: list[MeasureRequest], built_here: Found, tmp_path: Path
) -> None:
    farm = BuildFarm(TARGET, scheduler=f"tcp://127.0.0.1:{free_port()}")
    require_equal(build_all(farm, requests_of_a_model, tmp_path / "there"), built_here)
    assert "no Dask scheduler answers" in farm.notice


def test_a_build_that_never_ends_is_ended_on_the_worker(
    cluster: Cluster, requests_of_a_model: list[MeasureRequest], tmp_path: Path
) -> None:
    """Its building process is killed there; the worker builds the next one."""
    farm = BuildFarm(
        TARGET, scheduler=f"tcp://{cluster.address}", limits=Limits(build_s=4.0), builder="hanging_builder:hangs"
    )
    found = build_all(farm, requests_of_a_model[:2], tmp_path / "there")
    assert {one.kind for one in found.values() if isinstance(one, Failure)} == {"timeout"}
    workers = [psutil.Process(worker.process.pid) for worker in cluster.workers]
    left = [one.cmdline() for worker in workers for one in worker.children(recursive=True)]
    assert not [command for command in left if "autofuse.measure.children.builder" in command]
    healthy = build_all(
        BuildFarm(TARGET, scheduler=f"tcp://{cluster.address}"), requests_of_a_model[:2], tmp_path / "again"
    )
    assert all(isinstance(one, Built) for one in healthy.values())
