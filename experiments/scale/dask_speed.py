"""Two Dask workers against one, building kernels: `python -m experiments.scale.dask_speed MODEL.onnx [KERNELS]`.

Both on this machine, which needs two cores that nothing else uses. The workers are warm: each built a kernel before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autofuse.backend.host_cpu import local_device
from autofuse.fusion.baselines import default_plan
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.load import load
from autofuse.kernels.knobs import first_schedules, open_knobs
from autofuse.kernels.lower import lower
from autofuse.measure.farm import BuildFarm, Built
from autofuse.measure.measurement import MeasureRequest
from autofuse.measure.process import wait_any
from autofuse.measure.reference import capture

PORT = 8799
ROUNDS = 3


def requests_of(model: Path, folder: Path, count: int) -> list[MeasureRequest]:
    """Guesses for the kernels of the default plan."""
    target, graph = local_device().target(), load(model, {})
    plan = default_plan(graph)
    lowered = lower(graph, plan, target, [group.operators for group in plan.groups])
    wanted = [t for op in graph.operators for t in op.outputs if t and t not in graph.constants]
    store = capture(graph, generate_inputs(graph, 0), folder / "reference", wanted)
    unique = {bound.workload.key: bound for bound in lowered.kernels}
    made = [
        MeasureRequest(bound.workload, schedule, (), store.constants(lowered.graph, bound))
        for bound in unique.values()
        for schedule in first_schedules(bound.workload, open_knobs(bound.workload, target, {}), target)
    ]
    return made[:count]


def seconds(farm: BuildFarm, requests: list[MeasureRequest], folder: Path) -> float:
    """Seconds of building all of them."""
    started, done = time.monotonic(), 0
    farm.submit(list(enumerate(requests)), folder)
    while done < len(requests):
        for _, failure in farm.feed(hold=False):
            raise SystemExit(str(failure))
        for child, reply in wait_any(farm.busy()) if farm.busy() else ():
            for _, built in farm.take(child, reply):
                assert isinstance(built, Built), built
                done += 1
    return time.monotonic() - started


def with_workers(workers: int, requests: list[MeasureRequest], folder: Path) -> float:
    """Best of some rounds on a cluster of so many workers."""
    address = f"127.0.0.1:{PORT}"
    start = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", str(PORT), "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    servers = [subprocess.Popen([*start, "--host", "127.0.0.1"], **quiet)]  # type: ignore[call-overload]
    for number in range(workers):
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
        place = str(folder / f"worker-{number}")
        servers.append(subprocess.Popen([*worker, "--no-dashboard", "--local-directory", place], **quiet))  # type: ignore[call-overload]
    try:
        time.sleep(8.0)
        farm = BuildFarm(local_device().target(), scheduler=f"tcp://{address}")
        seconds(farm, requests[: 2 * workers], folder / "warm")
        times = [seconds(farm, requests, folder / f"round-{number}") for number in range(ROUNDS)]
        assert farm.scheduler is not None, farm.notice
        farm.close()
        return min(times)
    finally:
        for server in reversed(servers):
            server.kill()
            server.wait()


def main(model: Path, count: int) -> None:
    """Print kernels a second with one and two workers, and the ratio."""
    with tempfile.TemporaryDirectory(prefix="autofuse-dask-") as name:
        requests = requests_of(model, Path(name), count)
        one, two = (with_workers(workers, requests, Path(name) / str(workers)) for workers in (1, 2))
    body = {"kernels": len(requests), "one_s": round(one, 2), "two_s": round(two, 2), "speedup": round(one / two, 3)}
    print(json.dumps(body))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 40)
