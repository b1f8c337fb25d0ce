"""Verbs about the machine: `doctor` and `device list|show|probe`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer
from rich.text import Text

from autofuse.cli.failures import EXIT_FAILED_CHECK
from autofuse.cli.options import Database, Device, OutputFormat, Rpc, RpcKey, RpcKeyFile, RpcTracker
from autofuse.cli.screens.render import console, describe, records, show

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
    from autofuse.cli.checks.doctor import checks
    from autofuse.device.address import choose_address, told_key

    screen = console()
    found = []
    for check in checks(database, device, choose_address(rpc, rpc_tracker, told_key(rpc_key, rpc_key_file))):
        found.append(check)
        if form == "text":
            advice = f" -> {check.advice}" if check.advice else ""
            line = Text.assemble(
                (f"{check.status:<5}", _COLOURS[check.status]), f"{check.name:<12} {check.found}{advice}"
            )
            screen.print(line, soft_wrap=True)
    failed = sum(check.status == "fail" for check in found)
    if form == "json":
        show({"ok": not failed, "checks": found}, form)
    if failed:
        raise typer.Exit(EXIT_FAILED_CHECK)


def cflags() -> None:
    """Print what a C compiler needs to build a program that runs a library.

    gcc program.c $(autofuse cflags) -o program; see autofuse.h and example.c in the folder that it names.
    """
    from autofuse.backend.c_interface import compiler_arguments

    typer.echo(shlex.join(compiler_arguments()))


@device_verbs.command("list")
def device_list(form: OutputFormat = "text") -> None:
    """List the profiles that --device accepts by name."""
    from autofuse.device.profile import load_profile, shipped_profiles

    rows = []
    for path in shipped_profiles().values():
        profile = load_profile(path)
        target = profile.target()
        row = {"name": profile.name, "isa": target.isa, "mcpu": profile.mcpu, "cores": profile.cores}
        rows.append({**row, "description": profile.description})
    show(rows, form, records(rows))


@device_verbs.command("show")
def device_show(
    device: Annotated[str, typer.Argument(metavar="NAME", help="local, a profile or a .toml file.")] = "local",
    form: OutputFormat = "text",
) -> None:
    """Show one profile, and whether this machine can measure for it."""
    from autofuse.backend.compile.host_cpu import accepts, device_named, local_device
    from autofuse.device.fingerprint import fingerprint
    from autofuse.device.profile import require_measurable
    from autofuse.errors import DeviceError

    profile = device_named(device)
    refusal = None
    try:
        require_measurable(profile, local_device())
    except DeviceError as error:
        refusal = str(error)
    host = None if refusal else local_device()
    body = {
        **profile.model_dump(),
        "isa": profile.target().isa,
        "known_to_llvm": accepts(profile),
        "measurable_here": refusal is None,
        "why_not": refusal,
        "fingerprint": fingerprint(profile, host).key,
    }
    show(body, form, describe({key: value for key, value in body.items() if value is not None}))


@device_verbs.command("probe")
def device_probe(form: OutputFormat = "text") -> None:
    """Print this machine's profile as a .toml file that --device reads."""
    from autofuse.backend.compile.host_cpu import local_device

    profile = local_device()
    show(profile.model_dump(), form, Text(profile.to_toml().rstrip()))
