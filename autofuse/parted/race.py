"""A model in parts against ONNX Runtime alone: checked, interleaved, recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.library.library import check
from autofuse.backend.library.parted import example_inputs
from autofuse.compiler import Context, Policy, compile_in
from autofuse.compiler.parts.rest import SEGMENTS, parts_key
from autofuse.database.database import open_database
from autofuse.environment.device import RunnerOptions, open_runner
from autofuse.environment.environment import environment_of
from autofuse.environment.outcomes import record_race
from autofuse.environment.place import Place
from autofuse.errors import WrongResultError
from autofuse.fusion.plan import ScheduleLimits
from autofuse.measure.measurement import Left, no_end
from autofuse.measure.networks.bench import Contender, ContenderResult, written
from autofuse.measure.networks.judgement import all_nudged, judged_by, limit_of_answers, quantises
from autofuse.ort.apart import Run, run_apart
from autofuse.segments.choice import Choice
from autofuse.values.arguments import Given
from autofuse.values.names import ONNX_RUNTIME
from autofuse.values.scratch import scratch_folder

Array = NDArray[np.generic]
SEED = 0


@dataclass(frozen=True)
class Task:
    """A case of a model in parts: inputs, what ONNX Runtime makes of them, and its file with its sizes set.

    `kernels`: those of our own that a call of its library launches.
    """

    inputs: Mapping[str, Array]
    expected: tuple[Array, ...]
    model: Path
    kernels: int


def task_of(choice: Choice, library: Path, folder: Path) -> Task:
    """The case that a library of the model is raced on. InputError for a model that takes or makes no plain tensors."""
    metadata, *_ = check(library)
    inputs = example_inputs(metadata, SEED)
    path = folder / "whole.onnx"
    path.write_bytes(choice.source.sized())
    (wanted,) = answers(choice, path, [inputs], optimise=False)
    return Task(inputs, tuple(wanted[name] for name in choice.source.results), path, metadata.kernels)


def answers(
    choice: Choice, model: Path, cases: Sequence[Mapping[str, Array]], *, optimise: bool
) -> list[dict[str, Array]]:
    """What ONNX Runtime makes of each case, by the outputs' names; `model`: the file with its sizes set."""
    with scratch_folder() as folder:
        runs = []
        for number, inputs in enumerate(cases):
            place = folder / str(number)
            place.mkdir()
            wanted = {name: place / f"wanted-{index}.npy" for index, name in enumerate(choice.source.outputs)}
            runs.append(Run(written(place, inputs, None)[0], wanted))
        run_apart(choice.source.name, model, runs, optimise=optimise)
        return [{name: np.load(path) for name, path in run.outputs.items()} for run in runs]


def _limit(choice: Choice, task: Task) -> float:
    """Largest error of the model's outputs: it is held to ONNX Runtime as closely as that is to itself."""
    plain = dict(zip(choice.source.results, task.expected, strict=True))
    given = answers(choice, task.model, all_nudged(task.inputs), optimise=False)
    given += answers(choice, task.model, [task.inputs], optimise=True)
    quantised = quantises(node.op_type for node in choice.source.nodes)
    return limit_of_answers(plain, given, quantised=quantised)


def raced(
    context: Context, choice: Choice, contenders: Sequence[Contender], task: Task, budget_s: float, left: Left = no_end
) -> dict[str, ContenderResult]:
    """The times of the contenders; WrongResultError when the first computes something else than ONNX Runtime."""
    device = context.environment.device
    with open_runner(device, context.threads, RunnerOptions()) as runner:
        results = runner.race(contenders, task.inputs, budget_s, expected=list(task.expected), left=left)
    results = judged_by(results, lambda: _limit(choice, task))
    own = results[contenders[0].name]
    if own.wrong:
        raise WrongResultError(f"{contenders[0].name}: the library is wrong: {own.wrong}; report this model")
    return results


def record(context: Context, choice: Choice, results: Mapping[str, ContenderResult]) -> None:
    """Keep the times of segments and of ONNX Runtime alone: a compile takes what was faster in the newest race."""
    with open_database(context.place.database) as base:
        setting = environment_of(base, context.environment.device, context.threads, measuring=False).setting
        record_race(base, setting, parts_key(choice, context.environment.provenance.onnxruntime), results)


def raced_whole(
    model: Path,
    place: Place,
    choice: Choice,
    given: Given,
    exact: bool,
    race_s: float,
    folder: Path,
    left: Left = no_end,
) -> dict[str, ContenderResult]:
    """The model with its segments as they are tuned now, against ONNX Runtime alone; recorded.

    `left`: seconds that it may still take.
    """
    policy = Policy(limits=ScheduleLimits(exact=exact), every_segment=True)
    with ExitStack() as stack:
        context = stack.enter_context(Context(place, policy=policy))
        library = folder / "segments.so"
        compile_in(context, model, library, [given], None)
        task = task_of(choice, library, folder)
        contenders = [
            Contender(SEGMENTS, "autofuse", library),
            Contender(ONNX_RUNTIME, "onnxruntime", task.model),
        ]
        results = raced(context, choice, contenders, task, race_s, left)
        record(context, choice, results)
        return results
