"""`tune`: the search, with a live view and a stop that loses nothing; `quantize`, what may come before it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Group
from rich.text import Text

from autofuse.cli import options
from autofuse.cli.failures import graceful_stop, say
from autofuse.cli.screens.compile_view import verb_progress
from autofuse.cli.screens.live import TuneView
from autofuse.cli.screens.next_steps import after_forecast, after_job, after_quantizing, after_tuning
from autofuse.cli.screens.parts_view import is_in_parts, of_segments
from autofuse.cli.screens.render import Format, plain, show
from autofuse.cli.screens.tune_view import tune_text
from autofuse.errors import AutofuseError, InputError
from autofuse.values.arguments import DEFAULT_MAX_DROP, format_duration, parse_constants, parse_shapes
from autofuse.values.outputs import model_file

if TYPE_CHECKING:
    from autofuse.api.results import Forecast, JobOutcome

Models = Annotated[list[Path], typer.Argument(metavar="MODEL", help="ONNX files.", show_default=False)]


def tune(
    models: Models,
    budget: options.Budget = None,
    trials: options.Trials = None,
    database: options.Database = None,
    threads: options.Threads = None,
    device: options.Devices = None,
    rpc: options.Addresses = None,
    rpc_tracker: options.RpcTracker = None,
    rpc_key: options.RpcKey = None,
    rpc_key_file: options.RpcKeyFile = None,
    workers: options.WorkerCount = None,
    seed: options.Seed = 0,
    space: options.Space = None,
    exact: options.Exact = False,
    trained: options.Guide = None,
    pareto: options.Pareto = False,
    shape: options.Shapes = None,
    sizes: options.Sizes = None,
    trace: options.Trace = None,
    constant: options.Constants = None,
    run: options.JobName = None,
    until: options.Until = None,
    early_stopping: options.EarlyStopping = None,
    memory_limit: options.MemoryLimit = None,
    disk_limit: options.DiskLimit = None,
    executor: options.Executor = None,
    on_finish: options.OnFinish = None,
    dry_run: options.Forecast = False,
    log: options.Log = None,
    form: options.OutputFormat = "text",
) -> None:
    """Search fusion plans and schedules by measuring.

    Everything measured is recorded at once: Ctrl-C, and the same command goes on where it was. Several models or
    devices, or one of --run, --until, --early-stopping, --memory-limit, --disk-limit, --executor, --on-finish, --log,
    make it a job: its time is shared by expected gain, and `autofuse status` and `autofuse stop` find it by its name.
    Each model of a job has those of the --sizes open that it has.
    """
    devices, addresses = device or ["local"], rpc or []
    common: dict[str, Any] = {
        "database": database, "budget": budget, "trials": trials, "threads": threads, "rpc_tracker": rpc_tracker,
        "rpc_key": rpc_key, "rpc_key_file": rpc_key_file, "seed": seed, "space": space, "exact": exact,
        "trained": trained, "shapes": parse_shapes(shape or []), "constants": parse_constants(constant or []),
        "sizes": sizes or [], "trace": trace,
    }  # fmt: skip
    asked_for = (run, until, early_stopping, memory_limit, disk_limit, executor, on_finish, log, workers)
    several = max(len(models), len(devices), len(addresses)) > 1
    if not several and all(option is None for option in asked_for):
        own = {"device": devices[0], "rpc": addresses[0] if addresses else None, "pareto": pareto}
        (_tell_forecast if dry_run else _tune_one)(models[0], {**common, **own}, form)
        return
    _refuse_for_a_job(dry_run, pareto)
    job = {
        "devices": devices, "rpc": addresses, "workers": workers, "run": run, "until": until,
        "early_stopping": early_stopping, "memory_limit": memory_limit, "disk_limit": disk_limit, "executor": executor,
    }  # fmt: skip
    _refuse_log(log, models, database)
    _tune_job(models, {**common, **job}, log, on_finish, form)


def quantize(
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The model to write.")],
    calibration: Annotated[
        Path,
        typer.Option(
            "--calibration", metavar="FOLDER", help="Inputs of the model: .npy files, or .npz by their names."
        ),
    ],
    acceptance: Annotated[
        Path | None,
        typer.Option(
            "--acceptance",
            metavar="FOLDER",
            help="Other inputs, which decide. [default: every second of --calibration]",
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option("--precision", metavar="LIST", help="Some of int8, bf16, int8-weights, int4-weights.")
    ] = "int8",
    max_drop: Annotated[
        str, typer.Option("--max-drop", metavar="PERCENT", help="Most that the metric may lose, with 95 % confidence.")
    ] = DEFAULT_MAX_DROP,
    metric: Annotated[
        str, typer.Option("--metric", metavar="NAME", help="cosine, top1 or kl, against the float model.")
    ] = "cosine",
    ranges: Annotated[
        str, typer.Option("--ranges", metavar="RULE", help="Of the levels: best, min-max or percentile.")
    ] = "best",
    database: options.AskedDatabase = None,
    device: options.Device = "local",
    threads: options.Threads = None,
    shape: options.Shapes = None,
    constant: options.Constants = None,
    form: options.OutputFormat = "text",
) -> None:
    """Write the model with contractions in int8, bfloat16 or with narrow weights, as far as its accuracy bears it.

    The fastest ones are chosen under the bound, measured on data that chose nothing, and given back until it holds. The
    written model is standard ONNX, to be tuned as any other; its metadata have its certificate. --db is only read.
    """
    from autofuse import api
    from autofuse.cli.screens.quantize_view import quantize_body, quantize_text

    place: dict[str, Any] = {"database": database, "device": device, "threads": threads}
    found = api.quantize(
        model,
        output,
        calibration=calibration,
        acceptance=acceptance,
        precision=precision,
        max_drop=max_drop,
        metric=metric,
        ranges=ranges,
        shapes=parse_shapes(shape or []),
        constants=parse_constants(constant or []),
        progress=verb_progress("quantize"),
        **place,
    )
    show(quantize_body(found), form, quantize_text(found), after_quantizing(output, place))


def _refuse_for_a_job(dry_run: bool, pareto: bool) -> None:
    """InputError for what only the search of one model can do."""
    if dry_run:
        raise InputError("--dry-run: not for a job; ask for each of its models alone, with its share of the time")
    if pareto:
        raise InputError("--pareto: not for a job; run it, then `autofuse plan pareto MODEL` for each model")


def _tell_forecast(model: Path, named: Mapping[str, Any], form: Format) -> None:
    """What a budget will reach."""
    from autofuse import api
    from autofuse.cli.screens.forecast_view import forecast_text, rows_text

    found = api.tune(model, dry_run=True, **named).forecast
    assert found is not None
    if is_in_parts(found):
        texts = [forecast_text(one, f"{model.stem}, a segment") for one in found.segments]
        told = f"then, for {format_duration(found.race_s)}: the whole model against ONNX Runtime alone"
        whole = [Text(told)] if found.race_s else []
        text = Group(of_segments(found.parts, found.rest, texts), "", *map(rows_text, found.rows), *whole)
    else:
        text = forecast_text(cast("Forecast", found), model.stem)
    show(found, form, text, after_forecast(model, named))


def _refuse_log(log: Path | None, models: Sequence[Path], database: str | None) -> None:
    """InputError when the log would be written into what is not one, or a file that the job reads."""
    if log is None:
        return
    from autofuse import api
    from autofuse.cli.screens.job_view import check_log

    check_log(log, api.files_of_tuning(models, database))


def _tune_job(
    models: Sequence[Path], named: Mapping[str, Any], log: Path | None, on_finish: str | None, form: Format
) -> None:
    """The job, its view, its outcome; `on_finish` is called however it ends."""
    from autofuse import api
    from autofuse.cli.screens.job_view import JobView, outcome_text

    try:
        for model in models:
            model_file(model)
        with graceful_stop() as stop_asked, JobView(log=log) as view:
            listener = api.JobListener(stop_asked, view, lambda text: say(f"autofuse: {text}"))
            outcome = api.tune_all(models, listener=listener, **named)
    except AutofuseError as error:
        _call(
            on_finish,
            {"run": named["run"], "state": "failed", "exit_code": error.exit_code, "failure": str(error)},
        )
        raise
    done = [(Path(task.model), task.device, task.sizes) for task in outcome.tasks if task.chosen is not None]
    unfinished = models if outcome.state == "interrupted" else ()
    show(outcome, form, outcome_text(outcome), after_job(done, outcome.run, named, unfinished))
    _call(on_finish, outcome)
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def _tune_one(model: Path, named: Mapping[str, Any], form: Format) -> None:
    """The search of one model, and what it came to."""
    from autofuse import api

    with graceful_stop() as stop_asked, TuneView() as view:
        result = api.tune(model, progress=view, stop=stop_asked, **named)
    show(result, form, tune_text(result), after_tuning(model, named))


def _call(command: str | None, outcome: JobOutcome | Mapping[str, object]) -> None:
    """Runs the user's command, if there is one, with what came out; its failure is told, and changes nothing."""
    if command is None:
        return
    body: Any = plain(outcome)
    environment = {f"AUTOFUSE_{name.upper()}": str(body[name] or "") for name in ("run", "state")}
    environment["AUTOFUSE_EXIT_CODE"] = str(body["exit_code"])
    text = json.dumps(body, indent=1, allow_nan=False)
    done = subprocess.run(command, shell=True, input=text, text=True, env={**os.environ, **environment}, check=False)
    if done.returncode:
        say(f"autofuse: --on-finish: {command!r} ended with {done.returncode}")
