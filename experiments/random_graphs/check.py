"""One random model: any plan of it, any schedules, built and compared with ONNX Runtime."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from autofuse.backend.compile.host_cpu import device_named
from autofuse.backend.compile.realise import build_library
from autofuse.backend.library.library import load as load_library
from autofuse.device.target import Target
from autofuse.fusion.legality import Legality, check_plan
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.fusion.skeleton import realise
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowered, Lowering
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import fits_registers, open_knobs
from autofuse.measure.checking.reference import Array, capture
from autofuse.measure.checking.tolerance import ROUNDINGS, compare
from experiments.random_graphs.generate import MOST_OPERATORS, model

LIMIT = 2e-4
"""Largest error of an output, as a part of its range: thirty operators in float32, summed in another order."""


@dataclass(frozen=True)
class Outcome:
    """What became of one seed. `state`: "ok", "wrong", "illegal", "crash" or "refused"; `message`: why not ok."""

    seed: int
    state: str
    operators: int = 0
    kernels: int = 0
    rewrites: int = 0
    folds: int = 0
    copies: int = 0
    horizontal: int = 0
    error: float = 0.0
    seconds: float = 0.0
    message: str = ""

    def row(self) -> dict[str, object]:
        """The outcome as a JSON object."""
        return asdict(self)


def check(seed: int, folder: Path, most_operators: int = MOST_OPERATORS) -> Outcome:
    """Generate, plan with random answers, build and compare; never raises but for an interrupt."""
    return outcome_of(seed, model(seed, most_operators), folder / f"random_{seed}.onnx", _checked)


def outcome_of(seed: int, made: onnx.ModelProto, path: Path, checked: Callable[[int, Path], Outcome]) -> Outcome:
    """What `checked` says of a model, which stands at `path` meanwhile; whatever it raises is a crash."""
    started = time.monotonic()
    onnx.save(made, path)
    try:
        outcome = checked(seed, path)
    except Exception as error:  # noqa: BLE001 any failure is what this looks for
        outcome = Outcome(seed, "crash", message=f"{type(error).__name__}: {str(error).strip()[-500:]}")
    finally:
        for left in path.parent.glob(f"{path.stem}.*"):
            left.unlink()
    return replace(outcome, seconds=round(time.monotonic() - started, 3))


def _checked(seed: int, path: Path) -> Outcome:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Its optimiser joins a Pad of zeros with a MaxPool, whose own padding is minus infinity (seed 1555).
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    chance = random.Random(seed)
    values = np.random.default_rng(seed)
    feeds = {spec.name: values.standard_normal(spec.shape).astype(np.float32) for spec in session.get_inputs()}
    names = [spec.name for spec in session.get_outputs()]
    expected = dict(zip(names, session.run(None, feeds), strict=True))

    graph = load(path, {})
    plan = random_plan(graph, chance)
    facts = Outcome(
        seed, "ok", len(graph.operators), len(plan.groups), len(plan.rewrites), len(plan.folds), len(plan.copies),
        _horizontal(graph, plan),
    )  # fmt: skip
    try:
        check_plan(graph, plan)
    except Exception as error:  # noqa: BLE001 the planner must never make such a plan
        return replace(facts, state="illegal", message=str(error))
    target = device_named("local").target()
    lowered = Lowering(graph, target).lower(plan)
    library = path.with_suffix(".so")
    build_library(lowered, _schedules(lowered, target, chance), target, 1, library)
    results = load_library(library)(feeds)
    worst, reason = 0.0, ""
    for name, got in zip(graph.outputs, results, strict=True):
        verdict = compare(np.asarray(got), np.asarray(expected[name]), LIMIT)
        # What cancels out leaves the rounding errors of larger values, other ones in every order.
        finite = not verdict.ok and verdict.max_rel_error < float("inf")
        if finite and np.abs(got - expected[name]).max() <= _rounding(graph, feeds, path.with_suffix("")):
            continue
        if verdict.max_rel_error >= worst:
            worst, reason = verdict.max_rel_error, f"{name}: {verdict.reason}" if not verdict.ok else reason
    return replace(facts, state="wrong" if reason else "ok", error=float(worst), message=reason)


def _rounding(graph: Graph, feeds: Mapping[str, Array], folder: Path) -> float:
    """The error that rounding may leave where the graph's largest values cancel out."""
    floats = [name for name, tensor in graph.tensors.items() if tensor.dtype == "float32" and name in graph.producers]
    store = capture(graph, feeds, folder, floats)
    largest = max(float(np.abs(np.load(store.paths[name])).max(initial=0.0)) for name in floats)
    shutil.rmtree(folder)
    return ROUNDINGS * float(np.finfo(np.float32).eps) * largest


def random_plan(graph: Graph, chance: random.Random) -> FusionPlan:
    """The plan of random answers: to each decision the default, or (by chance, a quarter to all of them) any choice."""
    planner = RewritingPlanner(graph)
    share = chance.choice((0.25, 0.5, 1.0))
    answers = {
        decision.name: chance.choice(decision.choices) for decision in planner.decisions if chance.random() < share
    }
    return planner.plan(answers)


def _horizontal(graph: Graph, plan: FusionPlan) -> int:
    """Groups whose operators exchange nothing."""
    legality = Legality(realise(graph, plan))
    refused = (legality.refusal(group.operators) for group in plan.groups)
    return sum(refusal is not None and refusal.code == "not_connected" for refusal in refused)


def _schedules(lowered: Lowered, target: Target, chance: random.Random) -> dict[str, dict[str, int | str]]:
    """The rule's schedule of each workload, or a random one that fits the registers."""
    found: dict[str, dict[str, int | str]] = {}
    for bound in lowered.kernels:
        knobs = open_knobs(bound.workload, target, {})
        schedule = dict(first_schedules(bound.workload, knobs, target)[0])
        drawn = {name: chance.choice(values) for name, values in knobs.items()}
        if chance.random() < 0.5 and fits_registers(drawn, target):
            schedule = drawn
        found[bound.workload.key] = schedule
    return found
