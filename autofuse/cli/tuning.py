"""`tune`: the search, with a live view and a stop that loses nothing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autofuse.arguments import parse_shapes
from autofuse.cli import options
from autofuse.cli.failures import graceful_stop, say
from autofuse.cli.live import TuneView
from autofuse.cli.render import plain, show

if TYPE_CHECKING:
    from autofuse.job.outcome import JobOutcome
    from autofuse.search.tune import Progress, TuneResult

Models = Annotated[list[Path], typer.Argument(metavar="MODEL...", help="ONNX files.", show_default=False)]


def tune(
    models: Models,
    budget: options.Budget = None,
    trials: options.Trials = None,
    database: options.Database = None,
    threads: options.Threads = None,
    device: options.Devices = None,
    rpc: options.Boards = None,
    rpc_tracker: options.RpcTracker = None,
    rpc_key: options.RpcKey = None,
    boards: options.BoardCount = None,
    seed: options.Seed = 0,
    space: options.Space = None,
    exact: options.Exact = False,
    shape: options.Shapes = None,
    run: options.JobName = None,
    until: options.Until = None,
    early_stopping: options.EarlyStopping = None,
    memory_limit: options.MemoryLimit = None,
    disk_limit: options.DiskLimit = None,
    executor: options.Executor = None,
    on_finish: options.OnFinish = None,
    log: options.Log = None,
    form: options.OutputFormat = "text",
) -> None:
    """Search fusion plans and schedules by measuring.

    Everything measured is recorded at once: Ctrl-C, and the same command goes on where it was. Several models or
    devices, or one of --run, --until, --early-stopping, --memory-limit, --disk-limit, --executor, --on-finish, --log,
    make it a job: its time is shared by expected gain, and `autofuse status` and `autofuse stop` find it by its name.
    """
    devices, addresses = device or ["local"], rpc or []
    common: dict[str, Any] = {
        "database": database, "budget": budget, "trials": trials, "threads": threads, "rpc_tracker": rpc_tracker,
        "rpc_key": rpc_key, "seed": seed, "space": space, "exact": exact, "shapes": parse_shapes(shape or []),
    }  # fmt: skip
    asked_for = (run, until, early_stopping, memory_limit, disk_limit, executor, on_finish, log, boards)
    several = max(len(models), len(devices), len(addresses)) > 1
    if not several and all(option is None for option in asked_for):
        show(_tune_one(models[0], {**common, "device": devices[0], "rpc": addresses[0] if addresses else None}), form)
        return
    from autofuse import api
    from autofuse.cli.job_view import JobView, outcome_text
    from autofuse.job.coordinator import Ear

    with graceful_stop() as stop_if_asked, JobView(log=log) as view:
        outcome = api.tune_all(
            models, devices=devices, rpc=addresses, boards=boards, run=run, until=until, early_stopping=early_stopping,
            memory_limit=memory_limit, disk_limit=disk_limit, executor=executor or "local",
            ear=Ear(asked(stop_if_asked), view, lambda text: say(f"autofuse: {text}")), **common,
        )  # fmt: skip
    show(outcome, form, outcome_text(outcome))
    if on_finish is not None:
        _call(on_finish, outcome)
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def asked(check: Callable[[], None]) -> Callable[[], bool]:
    """Whether a stop was asked for, from a check that raises then."""

    def whether() -> bool:
        try:
            check()
        except KeyboardInterrupt:
            return True
        return False

    return whether


def _tune_one(model: Path, named: Mapping[str, Any]) -> TuneResult:
    from autofuse import api

    with graceful_stop() as stop_if_asked, TuneView() as view:

        def progress(state: Progress) -> None:
            view(state)
            stop_if_asked()

        return api.tune(model, progress=progress, **named)


def _call(command: str, outcome: JobOutcome) -> None:
    """Runs the user's command with what came out; its failure is told, and changes nothing."""
    environment = {
        "AUTOFUSE_RUN": outcome.run, "AUTOFUSE_STATE": outcome.state, "AUTOFUSE_EXIT_CODE": str(outcome.exit_code)
    }  # fmt: skip
    body = json.dumps(plain(outcome), indent=1, allow_nan=False)
    done = subprocess.run(command, shell=True, input=body, text=True, env={**os.environ, **environment}, check=False)
    if done.returncode:
        say(f"autofuse: --on-finish: {command!r} ended with {done.returncode}")
