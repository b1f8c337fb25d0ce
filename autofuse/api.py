"""The functions of the command line, for Python: same names, same arguments, same results.

`model` is the path of an ONNX file. `database`: an SQLite file or a database URL (None: one in the user's data
folder). `device`: "local", the name of a profile or the path of a .toml file. `rpc`, `rpc_tracker` (HOST:PORT) and
`rpc_key`: a device elsewhere, where `autofuse serve` runs. `threads`: those that run the model (None: the device's
cores). `shapes`: sizes of each dynamic input. Durations are seconds or texts such as "10m". Everything that is wrong
with an argument is an `autofuse.errors.AutofuseError` that says what to change.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from autofuse.environment.space import load_space
from autofuse.errors import InputError
from autofuse.values.arguments import (
    DEFAULT_BUDGET,
    RIVALS,
    Duration,
    MissPolicy,
    Shapes,
    check_miss_policy,
    check_seed,
    check_trials,
    parse_duration,
    parse_executor,
    parse_percent,
    parse_rivals,
    parse_size,
    parse_until,
)

if TYPE_CHECKING:
    from autofuse.backend.library.library import Library
    from autofuse.backend.library.session import Session
    from autofuse.benchmark import BenchReport
    from autofuse.compiler import CompileReport, Context, Policy
    from autofuse.environment.device import NamedDevice
    from autofuse.job.coordinator import Ear
    from autofuse.job.outcome import JobOutcome
    from autofuse.search.pareto import Point
    from autofuse.search.tune import Progress, TuneResult
    from autofuse.views.frames.analysis import Analysis
    from autofuse.views.inspect import GraphSummary
    from autofuse.views.plans import Explanation, PlanExport

StrPath = str | os.PathLike[str]

DEFAULT_BENCH_BUDGET = "60s"
DEFAULT_ON_MISS: MissPolicy = "rule"


def inspect(model: StrPath, *, shapes: Shapes | None = None, space: str | None = None) -> GraphSummary:
    """What the model offers to a search: operators, costs, open decisions, and what cannot be tuned and why."""
    from autofuse.graph.loading.load import load as load_graph
    from autofuse.kernels.lowering.coverage import without_kernel
    from autofuse.views.inspect import inspect as inspect_graph

    fusion = load_space(space, "generic").fusion
    graph = load_graph(Path(model), shapes)
    return inspect_graph(graph, fusion, without_kernel(graph))


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
    seed: int = 0,
    space: str | None = None,
    exact: bool = False,
    pareto: bool = False,
    trained: str | None = None,
    shapes: Shapes | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> TuneResult:
    """Search fusion plans and schedules by measuring them; everything measured is recorded at once.

    Ends after `budget` or `trials`, whichever comes first (neither given: after 10 minutes). An interrupted search
    goes on where it was when it is started again. `progress` is called after each candidate. `stop` is asked often:
    once it says True the search ends, and KeyboardInterrupt is raised. `pareto`: search plans that need little memory
    as well, and end with the front of both (`TuneResult.front`). `trained`: the model that guides the search: a file,
    or the name of a shipped one ("default"); None: no model. What the budget left no time for stands in
    `TuneResult.left_out`.
    """
    began = time.monotonic()  # the budget counts from here on, loading the compiler included
    check_trials(trials)
    check_seed(seed)
    if budget is None and trials is None:
        budget = DEFAULT_BUDGET
    budget_s = None if budget is None else parse_duration(budget, "--budget")
    load_space(space, "generic")
    from autofuse.environment.device import find_device
    from autofuse.search.tune import tune as run_search

    named = find_device(device, rpc, rpc_tracker, rpc_key)
    return run_search(
        Path(model),
        database=database,
        budget_s=budget_s,
        trials=trials,
        threads=thread_count(threads, named),
        device=named,
        seed=seed,
        space=space,
        exact=exact,
        pareto=pareto,
        trained=trained,
        shapes=shapes or {},
        progress=progress or _silent,
        stop=stop or _never,
        since=began,
    )


def tune_all(
    models: Iterable[StrPath],
    *,
    devices: Sequence[str] = ("local",),
    rpc: Sequence[str] = (),
    rpc_tracker: str | None = None,
    rpc_key: str | None = None,
    boards: int | None = None,
    executor: str = "local",
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
    memory_limit: str | int | None = None,
    disk_limit: str | int | None = None,
    ear: Ear | None = None,
) -> JobOutcome:
    """Tune many models on many devices as one job, which shares its time by what each is expected to gain.

    `rpc`: several boards elsewhere; `boards`: how many behind `rpc_tracker` (see `autofuse.job.boards.named_boards`).
    `executor`: "local", or "dask://HOST:PORT" of a cluster that builds for boards elsewhere.
    `run`: the job's name; one that was interrupted goes on, one that runs already is joined. `until`: a time of day
    such as "06:30", instead of a `budget`. `early_stopping`: percent of a model's time that an hour more must promise.
    `memory_limit`: of each device's search process; `disk_limit`: of the database ("2G"). `ear`: who watches and stops.
    """
    if budget is not None and until is not None:
        raise InputError("--budget and --until exclude each other: how long, or when it shall end")
    check_trials(trials)
    check_seed(seed)
    budget = DEFAULT_BUDGET if (budget, until, trials) == (None, None, None) else budget
    from autofuse.job.boards import named_boards
    from autofuse.job.coordinator import Ear
    from autofuse.job.run import run_job
    from autofuse.job.settings import JobSettings

    settings = JobSettings(
        budget_s=None if budget is None else parse_duration(budget, "--budget"),
        ends_at=None if until is None else parse_until(until, datetime.now().astimezone()),
        trials=trials,
        threads=threads,
        scheduler=parse_executor(executor),
        seed=seed,
        space=space,
        exact=exact,
        trained=trained,
        shapes=shapes or {},
        early_stopping=None if early_stopping is None else parse_percent(early_stopping, "--early-stopping"),
        memory_bytes=None if memory_limit is None else parse_size(memory_limit, "--memory-limit"),
        disk_bytes=None if disk_limit is None else parse_size(disk_limit, "--disk-limit"),
    )
    found = named_boards(devices, rpc, rpc_tracker, rpc_key, boards, (ear := ear or Ear()).say)
    return run_job([Path(model) for model in models], found, settings, database=database, name=run, ear=ear)


def compile(  # noqa: A001 the verb's name, in a namespace of its own
    model: StrPath,
    output: StrPath | None,
    *,
    context: Context | None = None,
    database: str | None = None,
    threads: int | None = None,
    device: str = "local",
    rpc: str | None = None,
    rpc_tracker: str | None = None,
    rpc_key: str | None = None,
    on_miss: str = DEFAULT_ON_MISS,
    strict: bool = False,
    require_complete: bool = False,
    exact: bool = False,
    weight_growth: float | None = None,
    trained: str | None = None,
    shapes: Shapes | Sequence[Shapes] | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
    plan: str | None = None,
    sign: StrPath | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> CompileReport:
    """Build the library `output` from the best plan and schedules of the database, without measuring.

    `output`: None builds nothing, and only reports. `on_miss`, `strict`, `require_complete`, `exact`, `weight_growth`:
    see `autofuse.compiler.context.Policy`. `shapes`: several give a library that takes each of them, and so do
    `buckets`, which name open sizes of the model: {"batch": (1, 4, 8)}. `plan`: "best" (None), "none",
    "tvm-partition", "dnnfusion", or the path of a plan file. `sign`: a private key (`autofuse key new` makes one) that
    signs the library, for those who load it with `trust`. `context`: what a build system makes once for many models;
    it takes the place of the arguments from `database` to `trained`, which is the model of `on_miss` "model".
    `progress`: called with a phase, and how many kernels of how many are done.
    """
    from autofuse.compiler import Context, Policy, compile_in
    from autofuse.environment.device import find_device

    forms = [shapes] if isinstance(shapes, Mapping) else list(shapes or [{}])
    if buckets:
        from autofuse.graph.loading.buckets import bucket_shapes

        forms = [form for fixed in forms for form in bucket_shapes(Path(model), buckets, fixed)]
    target = None if output is None else Path(output)
    key = None if sign is None else Path(sign)
    policy = Policy(check_miss_policy(on_miss), strict, require_complete, exact, weight_growth, trained)
    if context is not None:
        own = (database, threads, device, rpc, rpc_tracker, rpc_key)
        if own != (None, None, "local", None, None, None) or policy != Policy():
            raise InputError("context: it has its own database, device, threads and policy; give them to Context(...)")
        return compile_in(context, Path(model), target, forms, plan, key, progress)
    named = find_device(device, rpc, rpc_tracker, rpc_key, measuring=False)
    with Context(database=database, device=named, threads=threads, policy=policy) as made:
        return compile_in(made, Path(model), target, forms, plan, key, progress)


def load(library: StrPath, *, trust: Sequence[StrPath] = ()) -> Library:
    """A compiled library, ready to be called: `load("model.so")({"input": array})`.

    Loading runs its code, with all rights of this process. `trust`: files of public keys; a library that none of them
    signed is refused before anything of it runs.
    """
    from autofuse.backend.library.library import load as load_library

    return load_library(Path(library), trust=[Path(key) for key in trust])


def bench(
    model: StrPath,
    *,
    library: StrPath | None = None,
    database: str | None = None,
    threads: int | None = None,
    device: str = "local",
    rpc: str | None = None,
    rpc_tracker: str | None = None,
    rpc_key: str | None = None,
    on_miss: str = "rule",
    against: str | Iterable[str] = RIVALS,
    budget: Duration = DEFAULT_BENCH_BUDGET,
    shapes: Shapes | None = None,
    trust: Sequence[StrPath] = (),
) -> BenchReport:
    """Check the model's compiled form against ONNX Runtime, and time it interleaved with its rivals.

    `library`: an artefact to be timed (None: compiled now, from the database). `trust`: files of public keys, one of
    which must have signed it.
    """
    if trust and library is None:
        raise InputError("--trust: it is for the library that --library names; what is compiled now is not signed")
    policy, rivals, budget_s = check_miss_policy(on_miss), parse_rivals(against), parse_duration(budget, "--budget")
    from autofuse.benchmark import bench as run_bench
    from autofuse.environment.device import find_device

    named = find_device(device, rpc, rpc_tracker, rpc_key)
    return run_bench(
        Path(model),
        library=None if library is None else Path(library),
        database=database,
        threads=thread_count(threads, named),
        device=named,
        on_miss=policy,
        against=rivals,
        budget_s=budget_s,
        shapes=shapes or {},
        trust=[Path(key) for key in trust],
    )


def explain(
    model: StrPath,
    *,
    plan: str = "default",
    database: str | None = None,
    device: str = "local",
    threads: int | None = None,
    shapes: Shapes | None = None,
) -> Explanation:
    """Which edges of the model a plan fuses, why, and both measured times of each edge: fused, and apart.

    `plan`: "best", "default", "none", "tvm-partition", "dnnfusion", or the path of a plan file.
    """
    from autofuse.graph.loading.load import load as load_graph
    from autofuse.views.plans import Place, explained

    return explained(load_graph(Path(model), shapes), plan, Place(database, device, thread_count(threads, device)))


def export_plan(
    model: StrPath,
    output: StrPath,
    *,
    plan: str = "default",
    weights: bool = True,
    database: str | None = None,
    device: str = "local",
    threads: int | None = None,
    shapes: Shapes | None = None,
) -> PlanExport:
    """Write a plan for a viewer: an .onnx file whose nodes name their kernel, or an .svg picture of the partition.

    `weights=False` leaves the weights out of an .onnx file: it is small, and good for viewing only.
    """
    from autofuse.graph.loading.files import weight_files
    from autofuse.graph.loading.load import load as load_graph
    from autofuse.views.plans import Place, check_export, chosen_plan, export

    place = Place(database, device, thread_count(threads, device))
    read = {"the model": Path(model), "the plan": Path(plan)}
    read |= {f"a file of the model's weights ({path.name})": path for path in weight_files(Path(model))}
    inputs = check_export(Path(output), place, read)
    graph = load_graph(Path(model), shapes)
    return export(graph, chosen_plan(graph, plan, place), place, Path(output), weights, inputs)


def plan_front(
    model: StrPath,
    *,
    save: StrPath | None = None,
    database: str | None = None,
    device: str = "local",
    threads: int | None = None,
    shapes: Shapes | None = None,
) -> tuple[Point, ...]:
    """The plans between the fastest and the one with the smallest peak of memory, the fastest first.

    From what the database knows of the model; nothing is measured. `save`: a folder for the plans' files.
    """
    from autofuse.graph.loading.load import load as load_graph
    from autofuse.search.pareto import plan_front as find

    graph = load_graph(Path(model), shapes)
    return find(graph, database, device, thread_count(threads, device), None if save is None else Path(save))


def open(database: str | None = None) -> Analysis:  # noqa: A001 the verb's name, in a namespace of its own
    """The profiling database as DataFrames, read-only."""
    from autofuse.views.frames.analysis import open_analysis

    return open_analysis(database)


def thread_count(threads: int | None, device: str | NamedDevice) -> int:
    """`threads`, or the device's own number; InputError when it has fewer cores."""
    from autofuse.environment.device import thread_count as count

    return count(threads, device)


def _never() -> bool:
    """Nobody asks for a stop."""
    return False


def _silent(_progress: Progress) -> None:
    """No view of the progress."""


def __getattr__(name: str) -> type[Session] | type[Context] | type[Policy]:
    """`Session` (as ONNX Runtime has it), `Context`, its `Policy`; loaded when asked for, so that verbs start fast."""
    if name == "Session":
        from autofuse.backend.library.session import Session

        return Session
    if name in ("Context", "Policy"):
        from autofuse.compiler.context import Context, Policy

        return Context if name == "Context" else Policy
    raise AttributeError(f"module 'autofuse.api' has no attribute {name!r}")
