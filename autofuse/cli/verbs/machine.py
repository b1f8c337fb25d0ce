"""Verbs about the machine: `doctor` and `device list|show|probe`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from autofuse.cli.failures import EXIT_FAILED_CHECK
from autofuse.cli.options import Database, Device, OutputFormat, Rpc, RpcKey, RpcKeyFile, RpcTracker
from autofuse.cli.screens.next_steps import after_doctor
from autofuse.cli.screens.render import console, describe, records, show
from autofuse.cli.terminal import out

if TYPE_CHECKING:
    from autofuse.api.results import Check

device_verbs = typer.Typer(help="Device profiles: this machine and the others that are known.", no_args_is_help=True)

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    database: Database = None,
    device: Device = "local",
    rpc: Rpc = None,
    rpc_tracker: RpcTracker = None,
    rpc_key: RpcKey = None,
    rpc_key_file: RpcKeyFile = None,
    form: OutputFormat = "text",
) -> None:
    """Check that this machine is ready, and each hop to a device elsewhere.

    Packages, linker, CPU, a kernel from source to result, database, disk; exit code 1 when a check fails.
    """
    from autofuse import api

    screen = console()

    def tell(check: Check) -> None:
        advice = f" -> {check.advice}" if check.advice else ""
        line = Text.assemble((f"{check.status:<5}", _COLOURS[check.status]), f"{check.name:<12} {check.found}{advice}")
        screen.print(line, soft_wrap=True)

    found = api.doctor(
        database,
        device=device,
        rpc=rpc,
        rpc_tracker=rpc_tracker,
        rpc_key=rpc_key,
        rpc_key_file=rpc_key_file,
        progress=tell if form == "text" else None,
    )
    failed = any(check.status == "fail" for check in found)
    if form == "json":
        show({"ok": not failed, "checks": found}, form)
    if failed:
        raise typer.Exit(EXIT_FAILED_CHECK)
    if form == "text":
        named = {"database": database, "device": device, "rpc": rpc, "rpc_tracker": rpc_tracker}
        screen.print("", after_doctor({**named, "rpc_key_file": rpc_key_file}), sep="\n")


def cflags() -> None:
    """Print what a C compiler needs to build a program that runs a library.

    gcc program.c $(autofuse cflags) -o program; see autofuse.h and example.c in the folder that it names.
    """
    from autofuse import api

    out(shlex.join(api.cflags()) + "\n")


@device_verbs.command("list")
def device_list(form: OutputFormat = "text") -> None:
    """List the profiles that --device accepts by name."""
    from autofuse import api

    rows = []
    for profile in api.device_list():
        row = {"name": profile.name, "isa": profile.target().isa, "mcpu": profile.mcpu, "cores": profile.cores}
        rows.append({**row, "description": profile.description})
    show(rows, form, records(rows))


@device_verbs.command("show")
def device_show(
    device: Annotated[str, typer.Argument(metavar="NAME", help="local, a profile or a .toml file.")] = "local",
    form: OutputFormat = "text",
) -> None:
    """Show one profile, and whether this machine can measure for it."""
    from autofuse import api

    found = api.device_show(device)
    facts = {name: value for name, value in vars(found).items() if name != "profile"}
    body = {**found.profile.model_dump(), **facts}
    probed = {key: value for key, value in (body["rates"] or {}).items() if value}  # a rate of 0 was not probed
    show(body, form, describe({key: value for key, value in {**body, "rates": probed}.items() if value is not None}))


@device_verbs.command("probe")
def device_probe(
    rates: Annotated[bool, typer.Option("--rates", help="Also measure arithmetic, memory and dispatch.")] = False,
    form: OutputFormat = "text",
) -> None:
    """Print this machine's profile as a .toml file that --device reads."""
    from autofuse import api

    profile = api.device_probe(rates)
    show(profile.model_dump(), form, Text(profile.to_toml().rstrip()))
