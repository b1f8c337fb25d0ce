"""`tune`: the search, with a live view and a stop that loses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autofuse.api import DEFAULT_BUDGET
from autofuse.arguments import parse_shapes
from autofuse.cli.failures import graceful_stop
from autofuse.cli.live import TuneView
from autofuse.cli.options import Database, Device, Model, OutputFormat, Rpc, RpcKey, RpcTracker, Shapes, Threads
from autofuse.cli.render import show

if TYPE_CHECKING:
    from autofuse.search.tune import Progress


def tune(
    model: Model,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="DURATION",
            help=f"Wall time, such as 90s, 10m or 8h. [default: {DEFAULT_BUDGET} unless --trials is given]",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, metavar="N", help="Stop after this many new candidates.")
    ] = None,
    database: Database = None,
    threads: Threads = None,
    device: Device = "local",
    rpc: Rpc = None,
    rpc_tracker: RpcTracker = None,
    rpc_key: RpcKey = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the samplers and of generated inputs.")] = 0,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="A search space, or a .toml file. [default: default]")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="No rewrite and no fold that changes rounding.")] = False,
    shape: Shapes = None,
    form: OutputFormat = "text",
) -> None:
    """Search fusion plans and schedules by measuring.

    Everything measured is recorded at once: Ctrl-C, and the same command goes on where it was.
    """
    from autofuse import api

    with graceful_stop() as stop_if_asked, TuneView() as view:

        def progress(state: Progress) -> None:
            view(state)
            stop_if_asked()

        result = api.tune(
            model,
            database=database,
            budget=budget,
            trials=trials,
            threads=threads,
            device=device,
            rpc=rpc,
            rpc_tracker=rpc_tracker,
            rpc_key=rpc_key,
            seed=seed,
            space=space,
            exact=exact,
            shapes=parse_shapes(shape or []),
            progress=progress,
        )
    show(result, form)
