"""Two Dask workers against one, building kernels.

`python -m experiments scale.dask_speed MODEL.onnx [--kernels N] [--rounds N]`.

Two clusters on this machine, which needs two cores that nothing else uses; they build in turn, so that what changes
meanwhile disturbs both. The workers are warm: each built a kernel before.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from autofuse.backend.compile.host_cpu import local_device
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.measure.checking.reference import capture
from autofuse.measure.children.process import wait_any
from autofuse.measure.cluster.farm import BuildFarm, Built
from autofuse.measure.measurement import MeasureRequest
from experiments.fault_drill.scene import free_port, listens, wait_until
from experiments.options import new_parser
from experiments.scale.figures import keep_figures

START_S = 120.0


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
        for _, ended in farm.feed(hold=False):
            raise SystemExit(str(ended))
        for child, reply in wait_any(farm.busy()) if farm.busy() else ():
            for _, built in farm.take(child, reply):
                assert isinstance(built, Built), built
                done += 1
    return time.monotonic() - started


@contextmanager
def cluster(workers: int, folder: Path) -> Iterator[BuildFarm]:
    """A farm whose kernels are built by so many workers of one thread each."""
    folder.mkdir(parents=True)
    port = free_port()
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    common = ["--no-dashboard", "--host", "127.0.0.1"]
    from distributed import Client  # an extra of autofuse: the index lists this experiment without it

    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", str(port), *common]
    servers = [subprocess.Popen(scheduler, **quiet)]
    try:
        wait_until(lambda: listens(port), START_S)
        for number in range(workers):
            worker = [sys.executable, "-m", "distributed.cli.dask_worker", f"127.0.0.1:{port}", "--nthreads", "1"]
            place = ["--no-nanny", "--local-directory", str(folder / f"worker-{number}")]
            servers.append(subprocess.Popen([*worker, *place, *common], **quiet))
        with Client(f"tcp://127.0.0.1:{port}", set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=START_S)
        farm = BuildFarm(local_device().target(), scheduler=f"tcp://127.0.0.1:{port}")
        yield farm
        assert farm.scheduler is not None, farm.notice
        farm.close()
    finally:
        for server in reversed(servers):
            server.kill()
            server.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the seconds of each round with one worker and with two, and the median of the ratios."""
    parser = new_parser(__doc__)
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--kernels", type=int, default=40, help="to build in each round (default: 40)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="autofuse-dask-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        requests = requests_of(options.model, folder, options.kernels)
        farms = {workers: stack.enter_context(cluster(workers, folder / str(workers))) for workers in (1, 2)}
        for workers, farm in farms.items():
            seconds(farm, requests[: 4 * workers], folder / f"warm-{workers}")
        times: dict[int, list[float]] = {1: [], 2: []}
        for number in range(options.rounds):
            for workers, farm in farms.items():
                times[workers].append(seconds(farm, requests, folder / f"round-{number}-{workers}"))
    ratios = [one / two for one, two in zip(times[1], times[2], strict=True)]
    shown = {workers: [round(second, 2) for second in found] for workers, found in times.items()}
    body = {"kernels": len(requests), "one_s": shown[1], "two_s": shown[2]}
    speedup = round(statistics.median(ratios), 3)
    one, two = (round(statistics.median(times[workers]), 2) for workers in (1, 2))
    keep_figures("dask_speed", {"kernels": len(requests), "one_s": one, "two_s": two, "speedup": speedup})
    print(json.dumps({**body, "speedup": speedup}))
    return 0
