"""The command `autofuse`: all its verbs. What they do stands in `autofuse.api`; heavy libraries load inside them."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from autofuse import __version__
from autofuse.cli.failures import Verbs, guarded
from autofuse.cli.verbs import (
    databases,
    jobs,
    keys,
    learned,
    machine,
    modeling,
    plans,
    reports,
    serving,
    tuning,
    upkeep,
)
from autofuse.values.names import FORMER_OPTIONS

app = typer.Typer(
    cls=Verbs,
    help="Search operator-fusion plans of ONNX models by measuring, and compile the best one.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: loading the Markdown renderer would double the start-up time
    pretty_exceptions_enable=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda option: FORMER_OPTIONS.get(option, option),
    },
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"autofuse {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Search operator-fusion plans of ONNX models by measuring, and compile the best one."""


app.command("doctor")(machine.doctor)
app.add_typer(machine.device_verbs, name="device")
app.command("serve")(serving.serve)
app.command("inspect")(modeling.inspect)
app.command("tune")(tuning.tune)
app.command("quantize")(tuning.quantize)
app.command("status")(jobs.status)
app.command("stop")(jobs.stop)
app.command("compile")(modeling.compile_)
app.command("run")(modeling.run)
app.command("cflags")(machine.cflags)
app.command("package")(modeling.package)
app.command("bench")(modeling.bench)
app.add_typer(plans.plan_verbs, name="plan")
app.command("explain")(plans.explain)
app.command("report")(reports.report)
app.command("compare")(reports.compare)
upkeep.add_to(databases.database_verbs)
app.add_typer(databases.database_verbs, name="db")
app.add_typer(learned.model_verbs, name="model")
app.add_typer(keys.key_verbs, name="key")
app.add_typer(keys.library_verbs, name="library")
app.add_typer(keys.cache_verbs, name="cache")


FEWER_COLLECTIONS = (100_000, 50, 100)
"""Of objects in circles, as `gc.set_threshold` takes them. TVM's Python side makes millions of objects that end by
themselves: looking for circles among them took 3 s of the 43 s that compiling 121 kernels takes."""


def run() -> None:
    """Entry point of the console script."""
    gc.set_threshold(*FEWER_COLLECTIONS)
    guarded(lambda: app(prog_name="autofuse"))
