"""The tuning job of one model: baselines, schedules, plans, schedules of the best plan, finalists measured whole."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import optuna

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import OK, RunStart, Setting
from autofuse.environment.circumstances import Circumstances, circumstances
from autofuse.environment.device import NamedDevice, RunnerOptions, open_runner
from autofuse.environment.rates import RATES, machine_rates
from autofuse.environment.space import load_space
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.coverage import require_kernels
from autofuse.kernels.schedule.knobs import declared_names
from autofuse.measure.checking.reference import capture
from autofuse.measure.timing.sampling import SamplingPolicy
from autofuse.search.guard import Guard
from autofuse.search.guide import guide_for
from autofuse.search.pareto import known_front
from autofuse.search.progress import FrontPoint, PlanTime, Progress, TuneResult
from autofuse.search.session import ModelSession
from autofuse.search.shares import finals_seconds
from autofuse.search.workbench import Workbench
from autofuse.values.scratch import scratch_folder

__all__ = ["PlanTime", "Progress", "TuneResult", "open_session", "tune"]


def tune(
    model: Path,
    *,
    database: str | None,
    budget_s: float | None,
    trials: int | None,
    threads: int,
    device: str | NamedDevice,
    seed: int,
    space: str | None,
    exact: bool = False,
    pareto: bool = False,
    trained: str | None = None,
    shapes: Mapping[str, tuple[int, ...]],
    progress: Callable[[Progress], None],
) -> TuneResult:
    """Search schedules and plans of `model` and record everything; see `autofuse.api.tune`."""
    with open_database(database) as base:
        session = open_session(
            model, base, budget_s=budget_s, trials=trials, threads=threads, device=device, seed=seed, space=space,
            exact=exact, trained=trained, shapes=shapes, progress=progress,
        )  # fmt: skip
        with session as opened:
            if pareto:
                opened.bench.second_objective = opened.bench.peak_bytes
            opened.search()
            result = opened.conclude(finals_seconds(budget_s))
            return replace(result, front=_front(opened)) if pareto else result


def _front(session: ModelSession) -> tuple[FrontPoint, ...]:
    """Time against memory of everything that the session's database knows of its model."""
    points = known_front(session.graph, session.bench.database, session.bench.around)
    return tuple(FrontPoint(point.us, point.peak_bytes, point.kernels, point.plan.key) for point in points)


@contextmanager
def open_session(
    model: Path,
    base: ProfilingDatabase,
    *,
    budget_s: float | None,
    trials: int | None,
    threads: int,
    device: str | NamedDevice,
    seed: int,
    space: str | None,
    exact: bool = False,
    trained: str | None = None,
    shapes: Mapping[str, tuple[int, ...]],
    progress: Callable[[Progress], None],
    scheduler: str | None = None,
) -> Iterator[ModelSession]:
    """What the search of one model needs: its graph, its reference results, a runner, its run in the database.

    `trained`: the model that guides it, see `guide_for`. `scheduler`: of a Dask cluster that builds (see
    `RunnerOptions`). Goes on with the run of this model in this setting that was interrupted last, if there is one. The
    run ends as `ModelSession.state` says, or as "failed" when an error leaves the block.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    started = time.monotonic()
    opening = partial(_tell_opening, progress, started, budget_s, trials)
    opening(f"reading {model.name}")
    graph = load(model, shapes)
    require_kernels(graph)
    with ExitStack() as stack:
        around = circumstances(base, device, threads, measuring=True)
        chosen_space = load_space(space, around.target.isa, declared_names())
        if exact:
            chosen_space = replace(chosen_space, fusion=replace(chosen_space.fusion, exact=True))
        scratch = stack.enter_context(scratch_folder())
        opening("running ONNX Runtime for the results to check against")
        wanted = [t for op in graph.operators for t in op.outputs if t and t not in graph.constants]
        reference = capture(graph, generate_inputs(graph, seed), scratch / "reference", wanted)
        base.release_dead()
        run_id, name = _run(base, around, model, graph, seed, budget_s, trials)
        opening(f"starting to measure on {around.profile.name}")
        options = RunnerOptions(SamplingPolicy(cold_constants=True), scheduler=scheduler)
        runner = stack.enter_context(open_runner(around.device, threads, options))
        session = ModelSession(graph, name, (model, shapes, scratch), budget_s, trials, progress, started)
        session.rival_us = _onnxruntime_us(base, around.setting, graph_key(graph))
        session.bench = Workbench(
            graph, chosen_space, around, base, runner, reference, run_id, seed, session.on_candidate,
            guard=Guard(runner, around.profile.cool_down_s, session.rest),
        )  # fmt: skip
        try:
            session.bench.guide = guide_for(trained, around, session.bench.lowering, seed)
            yield session
        except KeyboardInterrupt:
            session.state = "interrupted"
            raise
        except BaseException:
            session.state = "failed"
            raise
        finally:
            base.finish_run(run_id, session.state, session.summary())


def _tell_opening(
    progress: Callable[[Progress], None], started: float, budget_s: float | None, trials: int | None, what: str
) -> None:
    """Tells what is done before there is a session."""
    elapsed_s = time.monotonic() - started
    left_s = None if budget_s is None else max(0.0, budget_s - elapsed_s)
    progress(Progress("opening", what, elapsed_s, budget_s, total=trials, left_s=left_s))


def _onnxruntime_us(base: ProfilingDatabase, setting: Setting, graph: str) -> float | None:
    """The newest time that ONNX Runtime took for this graph here, if it was ever measured."""
    wanted = ("onnxruntime", OK, graph, setting.device, setting.target, setting.threads)
    columns = ("name", "state", "graph_key", "device_fingerprint", "target_key", "threads")
    rows = base.table("plan_measurements").records()
    found = [row["median_us"] for row in rows if tuple(row[column] for column in columns) == wanted]
    return float(str(found[-1])) if found else None


def _run(
    base: ProfilingDatabase,
    around: Circumstances,
    model: Path,
    graph: Graph,
    seed: int,
    budget_s: float | None,
    trials: int | None,
) -> tuple[int, str]:
    """Goes on with the interrupted run of this model in this setting, or starts a new one."""
    sha = hashlib.sha256(model.read_bytes()).hexdigest()
    old = base.interrupted_run(around.setting, sha)
    if old is not None:
        base.resume_run(old.id)
        return old.id, old.name
    name = f"{model.stem}-{around.setting.threads}t-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    start = RunStart(
        name=name,
        model_name=model.stem,
        model_sha256=sha,
        graph_key=graph_key(graph),
        seed=seed,
        arguments={"model": model.name, "threads": around.setting.threads, "device": around.profile.name},
        budget={"seconds": budget_s, "trials": trials},
        provenance={**around.provenance.as_dict(), RATES: machine_rates(base, around)},
    )
    return base.start_run(around.setting, start), name
