"""The tuning job of one model: baselines, schedules, plans, schedules of the best plan, finalists measured whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, count
from pathlib import Path

import optuna

from autofuse.database.connection import check_file
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import Json, RunStart
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
from autofuse.graph.transform.quantize.certificate import CERTIFICATE, certificate_of
from autofuse.kernels.lowering.coverage import require_kernels
from autofuse.measure.checking.reference import ReferenceStore, capture
from autofuse.measure.children.process import available_cores
from autofuse.measure.networks.libraries import Model
from autofuse.measure.timing.race import DECIDING
from autofuse.measure.timing.sampling import SamplingPolicy
from autofuse.search.budget.budget import Budget, crowding, now, worked
from autofuse.search.budget.time_budget import alone_race_seconds, finale_most_s
from autofuse.search.composition.pareto import known_front
from autofuse.search.finals.early import EarlyRace
from autofuse.search.finals.finale import OBJECTS, Estimates, Opening, Reserve
from autofuse.search.finals.finals import Finals
from autofuse.search.lab.drift_sentinel import DriftSentinel
from autofuse.search.lab.lab import Lab
from autofuse.search.phases.questions import Search
from autofuse.search.plans.guide import guide_for
from autofuse.search.progress import FrontPoint, PlanTime, Progress, SearchRequest, TuneResult
from autofuse.search.schedules.evidence import SearchEvidence, searched_space
from autofuse.search.session import ModelSession, running
from autofuse.search.standing.standing import Standing
from autofuse.search.standing.telling import Teller
from autofuse.values.arguments import file_title, named_inputs
from autofuse.values.names import ONNX_RUNTIME
from autofuse.values.scratch import scratch_folder

SAMPLING = SamplingPolicy(cold_constants=True, block_s=0.002, cap_s=0.5)
"""How a tune times its candidates: in short slices, of which more stay undisturbed beside other work, and for half a
second at most, because what comes to matter is timed again (see `Lab.remeasure`)."""
__all__ = ["PlanTime", "Progress", "TuneResult", "open_session", "tune"]


def tune(model: Path, place: Place, request: SearchRequest, since: float | None = None) -> TuneResult:
    """Search schedules and plans of `model` at a place and record everything; see `autofuse.api.tune`.

    `since`: when the budget began (of `time.monotonic`; None: now).
    """
    budget = Budget.lasting(request.budget_s, request.stop, since)
    asked = place.find(measuring=True)  # before a database is made for nothing
    asked.require_measurable()
    thread_count(place.threads, asked)
    check_file(place.database)
    read = read_model(model, request)
    with open_database(place.database) as base, open_session(model, base, place, request, asked, read) as opened:
        opened.advance(budget.keeping(opened.reserve(finale_most_s(request.budget_s))), request.trials)
        result = None if budget.stopped() else opened.conclude(budget, goes_on=request.trials is None)
        if result is None:
            raise KeyboardInterrupt
        return replace(result, front=_front(opened)) if request.pareto else result


def _front(session: ModelSession) -> tuple[FrontPoint, ...]:
    """Time against memory of everything that the session's database knows of its model."""
    evidence = session.search.evidence
    points = known_front(evidence.graph, evidence.database, evidence.environment)
    return tuple(FrontPoint(point.us, point.peak_bytes, point.kernels, point.plan.key) for point in points)


@dataclass(frozen=True)
class ReadModel:
    """A model that was read to be searched: when that began, how long it took, and how crowded the machine was."""

    graph: Graph
    started: float
    load_s: float
    crowded: float


def read_model(model: Path, request: SearchRequest) -> ReadModel:
    """Read a model; InputError for one that cannot be searched, UncoveredError for one that is to be cut in parts."""
    started, worked_s = now(), worked()
    _tell_opening(request, started, f"reading {model.name}")
    graph = load(model, request.given)
    require_kernels(graph)
    load_s = now() - started
    return ReadModel(graph, started, load_s, crowding(load_s, worked() - worked_s))


def quiet_studies() -> None:
    """Keeps Optuna from telling of each of its studies."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@contextmanager
def open_session(
    model: Path,
    base: ProfilingDatabase,
    place: Place,
    request: SearchRequest,
    asked: NamedDevice | None = None,
    read: ReadModel | None = None,
    *,
    scheduler: str | None = None,
    policy: SamplingPolicy = SAMPLING,
) -> Iterator[ModelSession]:
    """What the search of one model needs: its graph, its reference results, a runner, its run in the database.

    `base`: the opened database of `place`; `asked`: its device, where it was asked what it is already; `read`: the
    model, where it was read already. `scheduler`: of a Dask cluster, `policy`: how candidates are timed (see
    `RunnerOptions`). Goes on with the newest interrupted run of this model in this setting. The run ends as
    `ModelSession.state` says, or as "failed" when an error leaves the block.
    """
    quiet_studies()
    read = read or read_model(model, request)
    graph, started = read.graph, read.started
    opening = partial(_tell_opening, request, started)
    with ExitStack() as stack:
        environment = place.environment(base, measuring=True, asked=asked)
        chosen_space = searched_space(request.space, environment, request.exact)
        scratch = stack.enter_context(scratch_folder())
        _go_on(request.stop)
        opening("running ONNX Runtime for the results to check against")
        reference, reference_s = _reference(graph, request.seed, scratch / "reference")
        _go_on(request.stop)
        base.release_dead()
        run_id, name = _run(base, environment, model, graph, request, started)
        opening(f"starting to measure on {environment.profile.name}")
        options = RunnerOptions(policy, DECIDING, scheduler=scheduler, objects=scratch / OBJECTS)
        runner = stack.enter_context(open_runner(environment.device, environment.setting.threads, options))
        evidence = SearchEvidence(graph, chosen_space, environment, base, request.seed)
        standing = Standing(evidence)
        opened = Opening(read.load_s, reference_s, read.crowded)
        estimates = Estimates.of(evidence, opened, available_cores(), request.budget_s, scratch)
        estimates = replace(estimates, alone_race_s=alone_race_seconds(request.budget_s) if request.alone else 0.0)
        reserve = Reserve(standing, estimates, finale_most_s(request.budget_s))
        rival_us = newest_median_us(base, environment.setting, graph_key(graph), ONNX_RUNTIME)
        tell = Teller(standing, request.progress, started, request.budget_s, request.trials, reserve, rival_us)
        lab = Lab(evidence, runner, reference, run_id, tell, DriftSentinel(runner, environment.profile.cool_down_s))
        with running(base, run_id) as ending:
            guide = guide_for(request.trained, environment, evidence.lowering, request.seed)
            whole = Model(model, request.given)
            race = EarlyRace(Finals(lab, standing, whole, scratch, estimates))
            search = Search(evidence, lab, standing, guide, evidence.peak_bytes if request.pareto else None, race)
            session = ModelSession(search, whole, name, scratch, estimates, started)
            ending.append(session)
            yield session


def _go_on(stop: Callable[[], bool]) -> None:
    """KeyboardInterrupt when somebody wants the session to end before it was opened."""
    if stop():
        raise KeyboardInterrupt


def _reference(graph: Graph, seed: int, folder: Path) -> tuple[ReferenceStore, float]:
    """Every tensor that a group may be checked against, and the seconds that making them took."""
    started = now()
    wanted = [t for op in graph.operators for t in op.outputs if t and t not in graph.constants]
    return capture(graph, generate_inputs(graph, seed), folder, wanted), now() - started


def _tell_opening(request: SearchRequest, started: float, what: str) -> None:
    """Tells what is done before there is a session."""
    elapsed_s, budget_s = now() - started, request.budget_s
    left_s = None if budget_s is None else max(0.0, budget_s - elapsed_s)
    request.progress(Progress("opening", what, elapsed_s, budget_s, total=request.trials, left_s=left_s))


def _run(
    base: ProfilingDatabase, environment: Environment, model: Path, graph: Graph, request: SearchRequest, started: float
) -> tuple[int, str]:
    """Goes on with the interrupted run of this model in this setting, or starts a new one (at `started`)."""
    sha = model_sha256(model.read_bytes(), request.given)
    old = base.interrupted_run(environment.setting, sha)
    if old is not None:
        base.resume_run(old.id)
        return old.id, old.name
    title = file_title(model)
    now_text = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    name = unused_name(base, f"{title}-{environment.setting.threads}t-{now_text}")
    told = {**named_inputs(request.given), "space": request.space, "exact": request.exact}
    start = RunStart(
        name=name,
        model_name=title,
        model_sha256=sha,
        graph_key=graph_key(graph),
        seed=request.seed,
        arguments={
            "model": title + model.suffix,
            "threads": environment.setting.threads,
            "device": environment.profile.name,
            **{name: one for name, one in told.items() if one},
        },
        budget={"seconds": request.budget_s, "trials": request.trials},
        provenance={
            **environment.provenance.as_dict(),
            RATES: machine_rates(base, environment, request.budget_s),
            **_quantisation(graph),
        },
        started_at=datetime.now(UTC) - timedelta(seconds=now() - started),
    )
    return base.start_run(environment.setting, start), name


def unused_name(base: ProfilingDatabase, wished: str) -> str:
    """A name that no run has: the `wished` one, or that with a number where a run began in the same second."""
    numbered = (f"{wished}-{number}" for number in count(2))
    return next(name for name in chain([wished], numbered) if base.run(name=name) is None)


def _quantisation(graph: Graph) -> dict[str, Json]:
    """The certificate of a model that `quantize` wrote, for its run's provenance; nothing for other models."""
    found = certificate_of(graph.origin)
    return {} if found is None else {CERTIFICATE: found.to_json()}
