"""TVM with MetaSchedule, as its own pipeline for static shapes on CPUs does it (weights repacked beforehand).

Tuning stops at its budget of wall clock. Its records stay in the job's folder: a later run adds to them, and one with
a budget that was spent already only compiles.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.peers.runtimes.job import Array, Job, Ready, UnsupportedError

LIBRARY, SPENT, WEIGHTS = "model.so", "spent.json", "weights"
TRIALS_A_ROUND = 16
"""Small, so that within minutes every kernel of a network has its turn."""
POPULATION = 128
"""TVM's 512 take up to 20 s a round, of which a network of 47 kernels has 50 in ten minutes."""
ENDLESS = 1_000_000
TIME_IS_UP = "the budget of MetaSchedule is spent"
FIRST_RUN_S = 120.0
"""Limit of one measurement; the first one waits for its process to import TVM."""


def prepare(job: Job) -> Ready:
    """Tune for what is left of the budget, then compile from the records."""
    import tvm
    from tvm import relax
    from tvm.relax import transform

    from autofuse.backend.compile.function import tvm_target

    spent_file = job.folder / SPENT
    spent = float(json.loads(spent_file.read_text(encoding="utf-8"))) if spent_file.exists() else 0.0
    if job.budget_s <= 0 and not spent:
        raise UnsupportedError("not tuned: give --metaschedule-budget")
    target = tvm_target(replace(job.target, cores=job.threads))
    module, weights = imported(job.model)
    with target, tvm.transform.PassContext(opt_level=3):
        module = tvm.transform.Sequential(
            [
                transform.DecomposeOpsForInference(),
                transform.CanonicalizeBindings(),
                relax.get_pipeline("zero"),
                transform.AttachAttrLayoutFreeBuffers(),
            ]
        )(module)
        if spent < job.budget_s:
            started = time.monotonic()
            _tune(module, target, job, job.budget_s - spent)
            spent += time.monotonic() - started
            spent_file.write_text(json.dumps(spent), encoding="utf-8")
        module = tvm.transform.Sequential(
            [
                transform.MetaScheduleApplyDatabase(str(job.folder)),
                transform.SplitLayoutRewritePreproc(),
                transform.LiftTransformParams(),
                transform.FoldConstant(),
            ]
        )(module)
        executable = tvm.compile(module, target=target)
    executable.export_library(str(job.folder / LIBRARY))
    _save_weights(relax.VirtualMachine(executable, tvm.cpu()), weights, job.folder / WEIGHTS)
    return Ready(job.folder, f"tuned for {spent / 60:.1f} min")


def imported(model: Path) -> tuple[Any, list[Any]]:
    """(module whose larger weights are parameters, those weights).

    BatchNorms are folded first: weights that are parameters keep TVM's own pass from it, and each pixel would pay for
    a square root. Scalars are constants: of a Clip's limits, TVM would make operators that no schedule of it can place.
    """
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    from autofuse.graph.loading.load import load
    from autofuse.graph.submodel import to_model
    from autofuse.graph.transform.fold import fold, fold_sites

    graph = load(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = from_onnx(to_model(fold(graph, fold_sites(graph))), keep_params_in_input=True)
    module, detached = relax.frontend.detach_params(module)
    main = module["main"]
    parameters = main.params[int(main.attrs["num_input"]) :]
    given = dict(zip([var.name for var in parameters], detached["main"], strict=True))
    small = {name: array for name, array in given.items() if array.numpy().size == 1}
    module = relax.transform.BindParams("main", small)(module)
    return module, [array for name, array in given.items() if name not in small]


def _tune(module: Any, target: Any, job: Job, budget_s: float) -> None:
    from tvm.s_tir.meta_schedule.relax_integration import tune_relax
    from tvm.s_tir.meta_schedule.runner import LocalRunner
    from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch
    from tvm.s_tir.meta_schedule.task_scheduler import TaskScheduler

    scheduler = TaskScheduler.create("gradient")
    try:
        tune_relax(
            module, {}, target, str(job.folder), ENDLESS, num_trials_per_iter=TRIALS_A_ROUND,
            builder=_builder(time.monotonic() + budget_s), runner=LocalRunner(timeout_sec=FIRST_RUN_S),
            strategy=EvolutionarySearch(population_size=POPULATION), task_scheduler=scheduler, seed=0,
        )  # fmt: skip
    except Exception as error:  # TVM hands on what a builder raises as an error of its own
        if TIME_IS_UP not in str(error):
            raise
    for number in range(len(scheduler.tasks_)):
        # What was measured is recorded only when its kernel has its next turn; it refuses where nothing waits.
        with suppress(Exception):
            scheduler.join_running_task(number)


def _builder(deadline: float) -> Any:
    """TVM's local builder without its processes; it ends the search at the deadline.

    It starts fresh ones for each round, each of which imports for 18 s: more than 16 candidates take to build, and on
    a busy machine more than the 30 s that it allows, so that nothing is ever built.
    """
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
    from tvm.s_tir.meta_schedule.builder.local_builder import default_build, default_export

    def built(given: Any) -> Any:
        try:
            path = default_export(default_build(given.mod, given.target, given.params))
        except Exception as error:  # noqa: BLE001 a candidate that does not build is an answer
            return BuilderResult(None, str(error))
        return BuilderResult(path, None)

    @derived_object
    class InProcessBuilder(PyBuilder):
        """Builds the candidates here, on all cores."""

        def build(self, build_inputs: list[Any]) -> list[Any]:
            """See PyBuilder."""
            if time.monotonic() > deadline:
                raise TimeoutError(TIME_IS_UP)
            with ThreadPoolExecutor() as pool:
                return list(pool.map(built, build_inputs))

    return InProcessBuilder()


def _save_weights(machine: Any, weights: list[Any], folder: Path) -> None:
    """The weights as the compiled network wants them, one file each."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.npy"):
        old.unlink()
    for index, weight in enumerate(machine["main_transform_params"](weights)):
        np.save(folder / f"{index:05d}.npy", weight.numpy(), allow_pickle=False)


class MetaScheduleNetwork:
    """The compiled library with inputs and repacked weights bound."""

    def __init__(self, kind: str, path: Path, threads: int, inputs: Mapping[str, Array]) -> None:
        del kind, threads  # TVM takes its number of threads from the environment
        import tvm
        from tvm import relax

        from autofuse.backend.compile.jit import tensor

        self._machine = relax.VirtualMachine(tvm.runtime.load_module(str(path / LIBRARY)), tvm.cpu())
        weights = [tensor(np.load(file)) for file in sorted((path / WEIGHTS).glob("*.npy"))]
        self._machine.set_input("main", *(tensor(array) for array in inputs.values()), *weights)

    def run(self) -> None:
        """See `autofuse.measure.networks.network.Network`."""
        self._machine.invoke_stateful("main")

    def outputs(self) -> list[Array]:
        """See `autofuse.measure.networks.network.Network`."""
        result = self._machine.get_outputs("main")
        return [result.numpy()] if hasattr(result, "numpy") else [part.numpy() for part in result]


open_network = MetaScheduleNetwork
