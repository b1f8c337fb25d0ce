"""TVM with MetaSchedule, as its own pipeline for static shapes on CPUs does it (weights repacked beforehand).

Tuning stops at its budget of wall clock. Its records stay in the job's folder: a later run adds to them, and one with
a budget that was spent already only compiles.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.peers.runtimes.job import Array, Job, Ready, UnsupportedError

LIBRARY, SPENT, WEIGHTS = "model.so", "spent.json", "weights"
TRIALS_A_ROUND = 16
"""Small, so that within minutes every kernel of a network has its turn."""
ENDLESS = 1_000_000
FIRST_RUN_S = 120.0
"""Limit of one measurement; the first one waits for its process to import TVM."""


class TimeIsUpError(Exception):
    """The budget is spent."""


def prepare(job: Job) -> Ready:
    """Tune for what is left of the budget, then compile from the records."""
    import tvm
    from tvm import relax
    from tvm.relax import transform

    from autofuse.backend.compile_kernel import tvm_target

    spent_file = job.folder / SPENT
    spent = float(json.loads(spent_file.read_text(encoding="utf-8"))) if spent_file.exists() else 0.0
    if job.budget_s <= 0 and not spent:
        raise UnsupportedError("not tuned: give --metaschedule-budget")
    target = tvm_target(replace(job.target, cores=job.threads))
    module, weights = _imported(job.model)
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


def _imported(model: Path) -> tuple[Any, list[Any]]:
    """(module whose weights are parameters, the weights)."""
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    from autofuse.graph.files import read_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = from_onnx(read_model(model), keep_params_in_input=True)
    module, weights = relax.frontend.detach_params(module)
    return module, weights["main"]


def _tune(module: Any, target: Any, job: Job, budget_s: float) -> None:
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.measure_callback import MeasureCallback, PyMeasureCallback
    from tvm.s_tir.meta_schedule.relax_integration import tune_relax
    from tvm.s_tir.meta_schedule.runner import LocalRunner

    deadline = time.monotonic() + budget_s

    @derived_object
    class Deadline(PyMeasureCallback):
        """Stops the search between two rounds."""

        def apply(self, *_: Any) -> None:
            """See PyMeasureCallback."""
            if time.monotonic() > deadline:
                raise TimeIsUpError(f"{budget_s:.0f} s are over")

    callbacks = [*MeasureCallback.create("default"), Deadline()]
    try:
        tune_relax(
            module, {}, target, str(job.folder), ENDLESS, num_trials_per_iter=TRIALS_A_ROUND, builder=_builder(),
            runner=LocalRunner(timeout_sec=FIRST_RUN_S), measure_callbacks=callbacks, seed=0,
        )  # fmt: skip
    except Exception as error:  # TVM may wrap what a callback raises
        if not isinstance(error, TimeIsUpError) and TimeIsUpError.__name__ not in str(error):
            raise


def _builder() -> Any:
    """TVM's local builder without its processes.

    It starts fresh ones for each round, each of which imports for 18 s: more than 16 candidates take to build, and on
    a busy machine more than the 30 s that it allows, so that nothing is ever built.
    """
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
    from tvm.s_tir.meta_schedule.builder.local_builder import default_build, default_export

    @derived_object
    class InProcessBuilder(PyBuilder):
        """Builds one candidate after the other here."""

        def build(self, build_inputs: list[Any]) -> list[Any]:
            """See PyBuilder."""
            results = []
            for given in build_inputs:
                try:
                    path = default_export(default_build(given.mod, given.target, given.params))
                    results.append(BuilderResult(path, None))
                except Exception as error:  # noqa: BLE001 a candidate that does not build is an answer
                    results.append(BuilderResult(None, str(error)))
            return results

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

        from autofuse.backend.jit import tensor

        self._machine = relax.VirtualMachine(tvm.runtime.load_module(str(path / LIBRARY)), tvm.cpu())
        weights = [tensor(np.load(file)) for file in sorted((path / WEIGHTS).glob("*.npy"))]
        self._machine.set_input("main", *(tensor(array) for array in inputs.values()), *weights)

    def run(self) -> None:
        """See `autofuse.measure.networks.Network`."""
        self._machine.invoke_stateful("main")

    def outputs(self) -> list[Array]:
        """See `autofuse.measure.networks.Network`."""
        result = self._machine.get_outputs("main")
        return [result.numpy()] if hasattr(result, "numpy") else [part.numpy() for part in result]


open_network = MetaScheduleNetwork
