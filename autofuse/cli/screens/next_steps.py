"""The commands that come next, as they are typed: what the screens of the verbs end with.

`named`: the arguments of the verb by their names in `api`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from autofuse.values.arguments import command_line

MODEL = "MODEL.onnx"
"""Stands for a model where none was named."""
ADDRESS = "HOST:PORT"
"""Stands for a device elsewhere where none was named."""
MOST_MODELS = 3
"""Models of a job whose compilation is written out."""


def after_tuning(model: Path, named: Mapping[str, Any]) -> Table:
    """What follows a run of one model."""
    there = [*_there(named), *_reached(named)]
    if named.get("sizes"):
        return _listed([_compile(model, [*there, *_sizes(named)])])
    return _listed(
        [
            _compile(model, there),
            ["report", *_database(named), "--html", f"{model.stem}.html"],
            ["bench", str(model), "--against", "onnxruntime,none", *there],
        ]
    )


def after_forecast(model: Path, named: Mapping[str, Any]) -> Table:
    """What follows a dry run: the run."""
    limits = [part for name in ("budget", "trials") if named.get(name) for part in (f"--{name}", str(named[name]))]
    return _listed([["tune", str(model), *(limits or ["--budget", "10m"]), *_measured(named), *_open(named)]])


def after_quantizing(output: Path, named: Mapping[str, Any]) -> Table:
    """What follows a quantised model: it is tuned and compiled as any other."""
    tune = ["tune", str(output), "--budget", "10m", *_measured(named)]
    return _listed([tune, _compile(output, _there(named))])


def after_inspecting(model: Path, named: Mapping[str, Any]) -> Table:
    """What follows a look at a model."""
    space = ["--space", str(named["space"])] if named.get("space") else []
    return _listed([["tune", str(model), "--budget", "10m", *space, *_measured(named)]])


def after_compiling(model: Path, library: str, untuned: bool, named: Mapping[str, Any]) -> Table:
    """What follows a library ("": a dry run). `untuned`: nothing of it was measured here, and `tune` would do that."""
    form = str(named.get("format") or "so")
    measured = [*_measured(named), *_sizes(named)]
    tune = [["tune", str(model), "--budget", "10m", *measured]] if untuned else []
    if not library:
        return _listed([*tune, _compile(model, [*_there(named), *_sizes(named), *_caches(named)], form)])
    if form == "c":
        return _listed([*tune, ["package", library, "-o", f"{Path(library).stem}-package"]])
    if form == "ort":
        return _listed([*tune, ["bench", str(model), *measured]])
    run = [] if _elsewhere(named) else [["run", library]]
    bench = [] if _caches(named) else [["bench", str(model), "--library", library, *measured]]
    return _listed([*tune, *run, *bench])


def after_bench(model: Path, recorded: bool, named: Mapping[str, Any]) -> Table:
    """What follows a comparison with rivals: the page that has its times, where they are `recorded`, and why it is so,
    edge by edge.
    """
    explain = ["explain", str(model), "--plan", "best", *_there(named)]
    return _listed([["report", *_database(named), "--html", f"{model.stem}.html"], explain] if recorded else [explain])


def after_explaining(model: Path, plan: str, named: Mapping[str, Any]) -> Table:
    """What follows a plan's kernels or edges: what it changes, and a picture of it."""
    there, other = _there(named), "default" if plan == "none" else "none"
    return _listed(
        [
            ["plan", "diff", str(model), other, plan, *there],
            ["plan", "export", str(model), "--plan", plan, "-o", f"{model.stem}.svg", *there],
        ]
    )


def after_front(model: Path, file: str, named: Mapping[str, Any]) -> Table:
    """What follows time against memory; `file`: of its fastest plan ("": none was written)."""
    there = _there(named)
    if not file:
        return _listed([["plan", "pareto", str(model), "--save", "plans", *there]])
    return _listed([[*_compile(model, there), "--plan", file]])


def after_doctor(named: Mapping[str, Any]) -> Table:
    """What follows a machine, or a device elsewhere, that is ready."""
    options = [*_place(named, _device(named)), *_reached(named), *_database(named)]
    return _listed([["inspect", MODEL], ["tune", MODEL, "--budget", "10m", *options]])


def after_diff(model: Path, plan: str, named: Mapping[str, Any]) -> Table:
    """What follows the difference to this plan: why it is so, and what the database knows of its speed."""
    there = _there(named)
    return _listed(
        [["explain", str(model), "--plan", plan, *there], [*_compile(model, there), *_of_plan(plan), "--dry-run"]]
    )


def after_export(model: Path, plan: str, named: Mapping[str, Any]) -> Table:
    """What follows a picture of a plan."""
    there = _there(named)
    return _listed([["explain", str(model), "--plan", plan, *there], [*_compile(model, there), *_of_plan(plan)]])


def after_report(run: str | None, named: Mapping[str, Any]) -> Table:
    """What follows a report that was read: its page with plots, and its tables for a spreadsheet."""
    again = ["report", *(["--run", run] if run else []), *_database(named)]
    return _listed([[*again, "--html", f"{run or 'report'}.html"], [*again, "-o", run or "report"]])


def after_appending(dry: Sequence[str], named: Mapping[str, Any], priors: bool = False) -> Table:
    """What follows rows that were appended; `dry`: the command that would have done so, of a dry run. `priors`: rows
    of others are among them."""
    if dry:
        return _listed([[*dry, *_database(named)]])
    again = ["--revalidate", "10"] if priors else []
    return _listed([["db", "check", *again, *_database(named)], ["status", *_database(named)]])


def after_writing_export(folder: str, signed: bool) -> Table:
    """What follows an export: how it is read elsewhere."""
    trust = ["--trust", "KEY.pub"] if signed else []
    return _listed([["db", "import", folder, *trust, "--db", "other.db"]])


def after_pruning(options: Sequence[str], dry_run: bool, named: Mapping[str, Any]) -> Table:
    """What follows a pruning, or a look at what it would remove: the same in earnest."""
    return _listed([["db", "prune", *options, *_database(named)] if dry_run else ["db", "info", *_database(named)]])


def after_checking(named: Mapping[str, Any]) -> Table:
    """What follows a database that is sound: whether its winners still hold."""
    return _listed([["db", "check", "--revalidate", "10", *_database(named)]])


def after_database_info(runs: int, named: Mapping[str, Any]) -> Table:
    """What follows what a database holds."""
    database = _database(named)
    return _listed([["report", *database], ["status", *database]] if runs else [["tune", MODEL, *database]])


def after_migrating(named: Mapping[str, Any]) -> Table:
    """What follows a database of today's schema."""
    return _listed([["db", "check", *_database(named)]])


def after_training(file: str) -> Table:
    """What follows a trained model."""
    compiled = ["compile", MODEL, "-o", "model.so", "--on-miss", "model", "--model", file]
    return _listed([["model", "show", file], compiled])


def after_new_key(file: str) -> Table:
    """What follows a pair of keys: both of its uses."""
    return _listed(
        [["compile", MODEL, "-o", "model.so", "--sign", file], ["run", "model.so", "--trust", f"{file}.pub"]]
    )


def after_library_check(library: str, trusted: Sequence[str]) -> Table:
    """What follows a library that is whole."""
    return _listed([["run", library, *(part for key in trusted for part in ("--trust", key))]])


def after_comparing(run: str, named: Mapping[str, Any]) -> Table:
    """What follows a comparison whose newer side is `run`."""
    return _listed([["report", "--run", run, *_database(named), "--html", f"{run}.html"]])


def after_status(run: str, state: str, named: Mapping[str, Any]) -> Table | None:
    """What follows how a run or a job stands."""
    if state == "running":
        return _listed([["stop", "--run", run, *_database(named)]])
    return None if state == "failed" else after_comparing(run, named)


def after_job(
    done: Sequence[tuple[Path, str, Sequence[str]]], run: str, named: Mapping[str, Any], unfinished: Sequence[Path] = ()
) -> Table:
    """What follows a job of this name; `done`: model, device and open sizes of each task that has a plan.
    `unfinished`: the models of a job that was interrupted, which the first command goes on with."""
    database = _database(named)
    commands = [["report", "--run", run, *database, "--html", f"{run}.html"]]
    if unfinished:
        commands.insert(0, _going_on(unfinished, run, named))
    for model, device, sizes in done[:MOST_MODELS]:
        own = [*_place(named, device), *_inputs(named), *database, *_sizes({"sizes": sizes})]
        commands.append(_compile(model, own))
    return _listed(commands, more=max(0, len(done) - MOST_MODELS))


def _going_on(models: Sequence[Path], run: str, named: Mapping[str, Any]) -> list[str]:
    """The command that goes on with a job, as far as it was typed."""
    limits = [
        part for name in ("budget", "until", "trials") if named.get(name) for part in (f"--{name}", str(named[name]))
    ]
    devices = [part for name in named.get("devices") or () if name != "local" for part in ("--device", str(name))]
    rpc = [part for address in named.get("rpc") or () for part in ("--rpc", str(address))]
    place = [*devices, *rpc, *_place(named, "local"), *_inputs(named), *_database(named)]
    return ["tune", *map(str, models), "--run", run, *limits, *place, *_open(named)]


def _there(named: Mapping[str, Any]) -> list[str]:
    """Where a plan is for, the sizes of the model, and where what is known of it stands."""
    return [*_place(named, _device(named)), *_inputs(named), *_database(named)]


def _sizes(named: Mapping[str, Any]) -> list[str]:
    """Sizes that stay open, and those that were fixed beside them, as they were typed."""
    return [part for text in named.get("sizes") or [] for part in ("--sizes", text)]


def _open(named: Mapping[str, Any]) -> list[str]:
    """Sizes that a search leaves open, and how often they happen."""
    return [*_sizes(named), *(["--trace", str(named["trace"])] if named.get("trace") else [])]


def _caches(named: Mapping[str, Any]) -> list[str]:
    """The caches that a library keeps, as they were typed."""
    return [part for text in named.get("caches") or [] for part in ("--cache", text)]


def _reached(named: Mapping[str, Any]) -> list[str]:
    """How a device elsewhere is reached; a key that was typed is a secret, and stays untold."""
    names = ("rpc", "rpc_tracker", "rpc_key_file")
    return [part for name in names if named.get(name) for part in (f"--{name.replace('_', '-')}", str(named[name]))]


def _elsewhere(named: Mapping[str, Any]) -> list[str]:
    """How a device is reached that is not this machine, with a place for its address where nobody named one."""
    if _reached(named) or _device(named) == "local":
        return _reached(named)
    from autofuse import api  # late: it loads NumPy

    found = api.device_show(_device(named))
    return [] if found.measurable_here or found.profile.connection.address else ["--rpc", ADDRESS]


def _measured(named: Mapping[str, Any]) -> list[str]:
    """Where a plan is for, and how that is reached to be measured."""
    return [*_there(named), *_elsewhere(named)]


def _device(named: Mapping[str, Any]) -> str:
    return str(named.get("device") or "local")


def _of_plan(plan: str) -> list[str]:
    """`compile` takes the best plan unless another one is named."""
    return [] if plan == "best" else ["--plan", plan]


def _compile(model: Path, options: Iterable[str], form: str = "so") -> list[str]:
    output = f"{model.stem}-tuned.onnx" if form == "ort" else f"{model.stem}.so"
    return ["compile", str(model), "-o", output, *options, *(["--format", form] if form != "so" else [])]


def _database(named: Mapping[str, Any]) -> list[str]:
    return ["--db", str(named["database"])] if named.get("database") else []


def _place(named: Mapping[str, Any], device: str) -> list[str]:
    """Where the plan is for: the device, unless it is this machine, and the threads that were asked for."""
    threads = ["--threads", str(named["threads"])] if named.get("threads") else []
    return [*(["--device", device] if device != "local" else []), *threads]


def _inputs(named: Mapping[str, Any]) -> list[str]:
    """What is given of the model's inputs: their sizes, and the values of constants."""
    shapes: Mapping[str, Sequence[int]] = named.get("shapes") or {}
    sizes = [part for name, own in shapes.items() for part in ("--shape", f"{name}={','.join(map(str, own))}")]
    constants: Mapping[str, Any] = named.get("constants") or {}
    return [*sizes, *(part for name, value in constants.items() for part in ("--constant", f"{name}={value}"))]


def _listed(commands: Sequence[Sequence[str]], more: int = 0) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold")
    for number, command in enumerate(commands):
        grid.add_row("" if number else "next", Text(f"autofuse {command_line(command)}"))
    if more:
        grid.add_row("", Text(f"and so on for {more} more"))
    return grid
