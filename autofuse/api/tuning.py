"""The search: of one model on one device, or of many as a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofuse.device.address import told_key
from autofuse.errors import InputError, UncoveredError
from autofuse.values.arguments import (
    DEFAULT_BUDGET,
    Constants,
    Duration,
    Shapes,
    StrPath,
    check_seed,
    check_trials,
    file_title,
    given_inputs,
    parse_duration,
    parse_executor,
    parse_percent,
    parse_size,
    parse_until,
)
from autofuse.values.outputs import model_file

if TYPE_CHECKING:
    from autofuse.environment.place import Place
    from autofuse.graph.loading.given.sizes import OpenSize, Ranges
    from autofuse.graph.loading.given.trace import Trace
    from autofuse.job.coordinator import JobListener
    from autofuse.job.outcome import JobOutcome
    from autofuse.search.progress import Forecast, PartsForecast, SearchRequest
    from autofuse.search.tune import Progress, TuneResult


def tune(
    model: StrPath,
    *,
    database: str | None = None,
    budget: Duration | None = None,
    trials: int | None = None,
    threads: int | None = None,
    device: str = "local",
    rpc: str | None = None,
    rpc_tracker: str | None = None,
    rpc_key: str | None = None,
    rpc_key_file: StrPath | None = None,
    seed: int = 0,
    space: str | None = None,
    exact: bool = False,
    pareto: bool = False,
    trained: str | None = None,
    shapes: Shapes | None = None,
    sizes: Ranges | None = None,
    trace: StrPath | None = None,
    constants: Constants | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    dry_run: bool = False,
) -> TuneResult:
    """Search fusion plans and schedules by measuring them; everything measured is recorded at once.

    Ends after `budget` or `trials`, whichever comes first (neither given: after 10 minutes). An interrupted search
    goes on where it was when it is started again. `progress` is called after each candidate. `stop` is asked often:
    once it says True the search ends, and KeyboardInterrupt is raised. `pareto`: search plans that need little memory
    as well, and end with the front of both (`TuneResult.front`). `trained`: the model that guides the search: a file,
    or the name of a shipped one ("default"); None: no model. `sizes`: one named size stays open in a range, as for
    `compile`; then plans are compared by the tiles of their kernels, weighted by sizes from the smallest to the
    largest, or by those that happen: `trace`, a file that `Session.write_sizes` wrote. What the budget left no time for
    stands in `TuneResult.left_out`. `dry_run`: nothing is measured or written; `TuneResult.forecast` says what the
    budget will reach, for each segment of a model in parts.
    """
    began = time.monotonic()  # the budget counts from here on, loading the compiler included
    _check(seed, trained, space)
    budget_s = _budget_s(budget, trials)
    opened, calls = _sizes(sizes, trace)
    _check_beside(opened, {"--pareto": pareto, "--model": trained})
    key, model = told_key(rpc_key, rpc_key_file), model_file(model, device)
    from autofuse.environment.place import Place
    from autofuse.search.budget.budget import never
    from autofuse.search.progress import SearchRequest, silent

    place = Place(database, device, threads, rpc, rpc_tracker, key)
    request = SearchRequest(
        budget_s=budget_s, trials=trials, seed=seed, space=space, exact=exact, pareto=pareto, trained=trained,
        given=given_inputs(shapes, constants), progress=progress or silent, stop=stop or never, alone=True,
        sizes=opened, trace=calls,
    )  # fmt: skip
    if dry_run:
        return _forecast(model, place, request)
    if opened:
        return _tiles(model, place, request, began)
    return _plans(model, place, request, began)


def _plans(model: Path, place: Place, request: SearchRequest, began: float) -> TuneResult:
    """The search of a model of fixed sizes, whole or in parts."""
    from autofuse.database.database import open_database
    from autofuse.parted.tune import tune_parts
    from autofuse.search.tune import tune as run_search
    from autofuse.views.frames.whole import decided_share_of

    try:
        found = run_search(model, place, request, began)
    except UncoveredError as error:
        if request.pareto:
            raise InputError(f"--pareto: {error}") from error
        return tune_parts(model, place, error, request, began)
    with open_database(place.database, read_only=True) as base:
        return replace(found, decided_share=decided_share_of(base, found.run_id))


def _tiles(model: Path, place: Place, request: SearchRequest, began: float) -> TuneResult:
    """The search of a model with an open size, or of its head where only that can have one."""
    from autofuse.compiler.parts.open_head import finds_places, of_a_head
    from autofuse.opened.tune import tune_open

    try:
        return tune_open(model, place, request, began)
    except InputError as error:
        if not finds_places(model):
            raise
        from autofuse.parted.heads import tune_head

        tune_one = partial(tune_head, model, place=place, request=request, since=began)
        return of_a_head(model, request.given, request.sizes, error, tune_one)


def _forecast(model: Path, place: Place, request: SearchRequest) -> TuneResult:
    """What a budget will reach, as the result of a search that was not begun."""
    from autofuse.database.connection import locate
    from autofuse.search.progress import Forecast, TuneResult

    found = (_forecast_open if request.sizes else _forecast_fixed)(model, place, request)
    all_of_it = [found] if isinstance(found, Forecast) else [*found.segments]
    known, kernels = (sum(getattr(one, name) for one in all_of_it) for name in ("known", "kernels"))
    return TuneResult(
        file_title(model), "", 0, locate(place.database).text, found.device, found.threads, "not begun",
        0.0, 0, 0, known, 0, "", "", kernels, forecast=found,
    )  # fmt: skip


def _forecast_fixed(model: Path, place: Place, request: SearchRequest) -> Forecast | PartsForecast:
    """The same of a model of fixed sizes, whole or in parts."""
    from autofuse.parted.forecast import forecast_parts
    from autofuse.search.phases.forecast import forecast

    try:
        return forecast(model, place, request)
    except UncoveredError as error:
        return forecast_parts(model, place, error, request)


def _forecast_open(model: Path, place: Place, request: SearchRequest) -> Forecast | PartsForecast:
    """The same of a model with an open size, or of its head where only that can have one."""
    from autofuse.compiler.parts.open_head import finds_places, of_a_head
    from autofuse.opened.forecast import forecast_open
    from autofuse.parted.forecast import forecast_head

    try:
        return forecast_open(model, place, request)
    except InputError as error:
        if not finds_places(model):
            raise
        use = partial(forecast_head, place=place, request=request)
        return of_a_head(model, request.given, request.sizes, error, use)


def tune_all(
    models: Iterable[StrPath],
    *,
    devices: Sequence[str] = (),
    rpc: Sequence[str] = (),
    rpc_tracker: str | None = None,
    rpc_key: str | None = None,
    rpc_key_file: StrPath | None = None,
    workers: int | None = None,
    executor: str | None = None,
    run: str | None = None,
    database: str | None = None,
    budget: Duration | None = None,
    until: str | None = None,
    trials: int | None = None,
    early_stopping: str | float | None = None,
    threads: int | None = None,
    seed: int = 0,
    space: str | None = None,
    exact: bool = False,
    trained: str | None = None,
    shapes: Shapes | None = None,
    sizes: Ranges | None = None,
    trace: StrPath | None = None,
    constants: Constants | None = None,
    memory_limit: str | int | None = None,
    disk_limit: str | int | None = None,
    listener: JobListener | None = None,
) -> JobOutcome:
    """Tune many models on many devices as one job, which shares its time by what each is expected to gain.

    `rpc`: several devices elsewhere; `workers`: how many behind `rpc_tracker` (see `autofuse.job.places.places`).
    `devices`: none given, this machine. `executor`: "dask://HOST:PORT" of a cluster that builds for devices elsewhere.
    `run`: the job's name; one that was interrupted goes on, one that runs already is joined. `until`: a time of day
    such as "06:30", instead of a `budget`. `early_stopping`: percent of a model's time that an hour more must promise.
    `memory_limit`: of each device's search process; `disk_limit`: of the database ("2G"). `listener`: see it. `sizes`,
    `trace`: as for `tune`, of those models that have such sizes; the others are searched at fixed ones.
    """
    _check(seed, trained, space)
    opened, calls = _sizes(sizes, trace)
    _check_beside(opened, {"--model": trained})
    budget_s, key = _budget_s(budget, trials, until), told_key(rpc_key, rpc_key_file)
    paths = [model_file(model) for model in models]
    from autofuse.job.coordinator import JobListener
    from autofuse.job.places import answering, places
    from autofuse.job.run import run_job
    from autofuse.job.settings import JobSettings
    from autofuse.parted.session import OPENER

    settings = JobSettings(
        budget_s=budget_s, ends_at=None if until is None else parse_until(until, datetime.now().astimezone()),
        trials=trials, threads=threads,
        scheduler=parse_executor(executor), seed=seed, space=space, exact=exact, trained=trained,
        given=given_inputs(shapes, constants), sizes=opened, trace=calls,
        **_limits(early_stopping, memory_limit, disk_limit),
    )  # fmt: skip
    told = listener or JobListener()
    found = answering(places(devices or ["local"], rpc, rpc_tracker, key, workers), told.say)
    named: dict[str, Any] = {"database": database, "name": run, "listener": told, "opener": OPENER}
    return run_job(paths, found, settings, **named)


def _limits(
    early_stopping: str | float | None, memory_limit: str | int | None, disk_limit: str | int | None
) -> dict[str, Any]:
    """When a job ends early, and what it may take, by the names of its settings."""
    return {
        "early_stopping": None if early_stopping is None else parse_percent(early_stopping, "--early-stopping"),
        "memory_bytes": None if memory_limit is None else parse_size(memory_limit, "--memory-limit"),
        "disk_bytes": None if disk_limit is None else parse_size(disk_limit, "--disk-limit"),
    }


def files_of_tuning(models: Iterable[StrPath], database: str | None = None) -> dict[str, Path]:
    """What tuning reads and writes, by what it is: files that nothing else, such as a log, may be written to."""
    from autofuse.database.connection import locate
    from autofuse.graph.loading.files import weight_files
    from autofuse.values.outputs import database_files

    paths = [Path(model) for model in models]
    read = {f"the model ({path.name})": path for path in paths}
    read |= {f"a file of a model's weights ({path.name})": path for model in paths for path in weight_files(model)}
    return {**read, **database_files(locate(database).path)}


def _budget_s(budget: Duration | None, trials: int | None, until: str | None = None) -> float | None:
    """Seconds that a search may take, with the default where nothing limits it; None where something else does."""
    if budget is not None and until is not None:
        raise InputError("--budget and --until exclude each other: how long, or when it shall end")
    check_trials(trials)
    budget = DEFAULT_BUDGET if (budget, until, trials) == (None, None, None) else budget
    return None if budget is None else parse_duration(budget, "--budget")


def _sizes(sizes: Ranges | None, trace: StrPath | None) -> tuple[tuple[OpenSize, ...], Trace | None]:
    """The sizes that are named, and the trace of them. InputError for a file that is none, before a model is read."""
    from autofuse.graph.loading.given.sizes import open_ones, open_sizes
    from autofuse.graph.loading.given.trace import read_trace

    found = open_sizes(sizes or {})
    if trace is None:
        return found, None
    if not found:
        raise InputError("--trace: it weighs the sizes of a range; give --sizes as well")
    return found, read_trace(Path(trace), *open_ones(found))


def _check_beside(sizes: Sequence[OpenSize], options: Mapping[str, object]) -> None:
    """InputError for what does not go with open sizes."""
    for option, value in options.items() if sizes else ():
        if value:
            raise InputError(f"--sizes: {option} is for searches at fixed sizes; leave it out")


def _check(seed: int, trained: str | None, space: str | None) -> None:
    """InputError at once for a seed that is none, and a model or a search space that is not there."""
    check_seed(seed)
    from autofuse.environment.space import load_space

    load_space(space, "generic")
    if trained is not None:
        from autofuse.learning.stored import find_model

        find_model(trained)
