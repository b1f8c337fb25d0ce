"""The tuning job of one model: baselines, schedules, plans, schedules of the best plan, finalists measured whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import optuna

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import RunStart
from autofuse.environment.device import NamedDevice, RunnerOptions, open_runner, thread_count
from autofuse.environment.environment import Environment
from autofuse.environment.outcomes import newest_median_us
from autofuse.environment.place import Place
from autofuse.environment.rates import RATES, machine_rates
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.key import graph_key
from autofuse.graph.loading.given.constants import model_sha256
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.coverage import require_kernels
from autofuse.measure.checking.reference import ReferenceStore, capture
from autofuse.measure.children.process import available_cores
from autofuse.measure.networks.libraries import Model
from autofuse.measure.timing.race import DECIDING
from autofuse.measure.timing.sampling import SamplingPolicy
from autofuse.search.budget.budget import Budget, crowding, never, now, worked
from autofuse.search.budget.time_budget import finale_most_s
from autofuse.search.composition.pareto import known_front
from autofuse.search.finals.early import EarlyRace
from autofuse.search.finals.finale import OBJECTS, Estimates, Opening, Reserve
from autofuse.search.finals.finals import Finals
from autofuse.search.lab.drift_sentinel import DriftSentinel
from autofuse.search.lab.lab import Lab
from autofuse.search.phases.questions import Search
from autofuse.search.plans.guide import guide_for
from autofuse.search.progress import FrontPoint, PlanTime, Progress, TuneResult
from autofuse.search.schedules.evidence import SearchEvidence, searched_space
from autofuse.search.session import ModelSession
from autofuse.search.standing.standing import Standing
from autofuse.search.standing.telling import Teller
from autofuse.values.arguments import Given, file_title, named_inputs
from autofuse.values.names import ONNX_RUNTIME
from autofuse.values.scratch import scratch_folder

SAMPLING = SamplingPolicy(cold_constants=True, block_s=0.002, cap_s=0.5)
"""How a tune times its candidates: in short slices, of which more stay undisturbed beside other work, and for half a
second at most, because what comes to matter is timed again (see `Lab.remeasure`)."""
__all__ = ["PlanTime", "Progress", "TuneResult", "open_session", "tune"]


def tune(
    model: Path,
    place: Place,
    *,
    budget_s: float | None,
    trials: int | None,
    seed: int,
    space: str | None,
    exact: bool = False,
    pareto: bool = False,
    trained: str | None = None,
    given: Given,
    progress: Callable[[Progress], None],
    stop: Callable[[], bool] = never,
    since: float | None = None,
) -> TuneResult:
    """Search schedules and plans of `model` at a place and record everything; see `autofuse.api.tune`.

    `since`: when the budget began (of `time.monotonic`; None: now).
    """
    budget = Budget.lasting(budget_s, stop, since)
    asked = place.find(measuring=True)  # before a database is made for nothing
    thread_count(place.threads, asked)
    with open_database(place.database) as base:
        session = open_session(
            model, base, place, asked=asked, budget_s=budget_s, trials=trials, seed=seed, space=space,
            exact=exact, pareto=pareto, trained=trained, given=given, progress=progress, stop=stop,
        )  # fmt: skip
        with session as opened:
            opened.advance(budget.keeping(opened.reserve(finale_most_s(budget_s))), trials)
            result = None if budget.stopped() else opened.conclude(budget)
            if result is None:
                raise KeyboardInterrupt
            return replace(result, front=_front(opened)) if pareto else result


def _front(session: ModelSession) -> tuple[FrontPoint, ...]:
    """Time against memory of everything that the session's database knows of its model."""
    evidence = session.search.evidence
    points = known_front(evidence.graph, evidence.database, evidence.environment)
    return tuple(FrontPoint(point.us, point.peak_bytes, point.kernels, point.plan.key) for point in points)


@contextmanager
def open_session(
    model: Path,
    base: ProfilingDatabase,
    place: Place,
    *,
    budget_s: float | None,
    trials: int | None,
    seed: int,
    space: str | None,
    exact: bool = False,
    pareto: bool = False,
    trained: str | None = None,
    given: Given,
    progress: Callable[[Progress], None],
    stop: Callable[[], bool] = never,
    scheduler: str | None = None,
    asked: NamedDevice | None = None,
    policy: SamplingPolicy = SAMPLING,
) -> Iterator[ModelSession]:
    """What the search of one model needs: its graph, its reference results, a runner, its run in the database.

    `base`: the opened database of `place`; `asked`: its device, where it was asked what it is already. `trained`: the
    model that guides it, see `guide_for`. `pareto`: memory is a second objective. `scheduler`: of a Dask cluster,
    `policy`: how candidates are timed (see `RunnerOptions`). `stop`: whether somebody wants it to end; asked between
    the steps of opening, which KeyboardInterrupt ends then. Goes on with the newest interrupted run of this model in
    this setting. The run ends as `ModelSession.state` says, or as "failed" when an error leaves the block.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    started = now()
    opening = partial(_tell_opening, progress, started, budget_s, trials)
    opening(f"reading {model.name}")
    graph, load_s, crowded = _read(model, given)
    with ExitStack() as stack:
        environment = place.environment(base, measuring=True, asked=asked)
        chosen_space = searched_space(space, environment, exact)
        scratch = stack.enter_context(scratch_folder())
        _go_on(stop)
        opening("running ONNX Runtime for the results to check against")
        reference, reference_s = _reference(graph, seed, scratch / "reference")
        _go_on(stop)
        base.release_dead()
        told = {**named_inputs(given), "space": space, "exact": exact}
        run_id, name = _run(base, environment, model, given, graph, seed, budget_s, trials, started, told)
        opening(f"starting to measure on {environment.profile.name}")
        options = RunnerOptions(policy, DECIDING, scheduler=scheduler, objects=scratch / OBJECTS)
        runner = stack.enter_context(open_runner(environment.device, environment.setting.threads, options))
        evidence = SearchEvidence(graph, chosen_space, environment, base, seed)
        standing = Standing(evidence)
        estimates = Estimates.of(evidence, Opening(load_s, reference_s, crowded), available_cores(), budget_s, scratch)
        reserve = Reserve(standing, estimates, finale_most_s(budget_s))
        rival_us = newest_median_us(base, environment.setting, graph_key(graph), ONNX_RUNTIME)
        tell = Teller(standing, progress, started, budget_s, trials, reserve, rival_us)
        lab = Lab(evidence, runner, reference, run_id, tell, DriftSentinel(runner, environment.profile.cool_down_s))
        with _running(base, run_id) as ending:
            guide = guide_for(trained, environment, evidence.lowering, seed)
            race = EarlyRace(Finals(lab, standing, Model(model, given), scratch, estimates))
            search = Search(evidence, lab, standing, guide, evidence.peak_bytes if pareto else None, race)
            session = ModelSession(search, Model(model, given), name, scratch, estimates, started)
            ending.append(session)
            yield session


@contextmanager
def _running(base: ProfilingDatabase, run_id: int) -> Iterator[list[ModelSession]]:
    """Ends the run as its session says, which is put into the list; as "failed" when an error leaves the block."""
    sessions: list[ModelSession] = []
    state = ""
    try:
        yield sessions
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    except BaseException:
        state = "failed"
        raise
    finally:
        summary = sessions[0].summary() if sessions else {}
        base.finish_run(run_id, state or sessions[0].state, summary)


def _read(model: Path, given: Given) -> tuple[Graph, float, float]:
    """The graph, the seconds that reading it took, and how crowded the machine was meanwhile."""
    started, worked_s = now(), worked()
    graph = load(model, given)
    require_kernels(graph)
    load_s = now() - started
    return graph, load_s, crowding(load_s, worked() - worked_s)


def _go_on(stop: Callable[[], bool]) -> None:
    """KeyboardInterrupt when somebody wants the session to end before it was opened."""
    if stop():
        raise KeyboardInterrupt


def _reference(graph: Graph, seed: int, folder: Path) -> tuple[ReferenceStore, float]:
    """Every tensor that a group may be checked against, and the seconds that making them took."""
    started = now()
    wanted = [t for op in graph.operators for t in op.outputs if t and t not in graph.constants]
    return capture(graph, generate_inputs(graph, seed), folder, wanted), now() - started


def _tell_opening(
    progress: Callable[[Progress], None], started: float, budget_s: float | None, trials: int | None, what: str
) -> None:
    """Tells what is done before there is a session."""
    elapsed_s = now() - started
    left_s = None if budget_s is None else max(0.0, budget_s - elapsed_s)
    progress(Progress("opening", what, elapsed_s, budget_s, total=trials, left_s=left_s))


def _run(
    base: ProfilingDatabase,
    environment: Environment,
    model: Path,
    given: Given,
    graph: Graph,
    seed: int,
    budget_s: float | None,
    trials: int | None,
    started: float,
    told: Mapping[str, Any],
) -> tuple[int, str]:
    """Goes on with the interrupted run of this model in this setting, or starts a new one (at `started`).

    `told`: what else the command that goes on with it has to say.
    """
    sha = model_sha256(model.read_bytes(), given)
    old = base.interrupted_run(environment.setting, sha)
    if old is not None:
        base.resume_run(old.id)
        return old.id, old.name
    title = file_title(model)
    name = f"{title}-{environment.setting.threads}t-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    start = RunStart(
        name=name,
        model_name=title,
        model_sha256=sha,
        graph_key=graph_key(graph),
        seed=seed,
        arguments={
            "model": title + model.suffix,
            "threads": environment.setting.threads,
            "device": environment.profile.name,
            **{name: one for name, one in told.items() if one},
        },
        budget={"seconds": budget_s, "trials": trials},
        provenance={**environment.provenance.as_dict(), RATES: machine_rates(base, environment)},
        started_at=datetime.now(UTC) - timedelta(seconds=now() - started),
    )
    return base.start_run(environment.setting, start), name
