"""`serve`: this machine as a device for others."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from autofuse.cli.failures import say
from autofuse.device.address import DEFAULT_PORT, KEY_VARIABLE, environment_key, parse_address, told_key
from autofuse.values.arguments import parse_duration


def serve(
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; anything but loopback is open to the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = DEFAULT_PORT,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="What clients must say; the list of processes shows it, unlike --key-file and AUTOFUSE_RPC_KEY in the "
            "environment. [default: a new one, printed]",
        ),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", "--rpc-key-file", metavar="FILE", help="A file of one line, the key.")
    ] = None,
    tracker: Annotated[
        str | None, typer.Option("--tracker", metavar="HOST:PORT", help="Offer the device there, under --key.")
    ] = None,
    announce: Annotated[
        str | None, typer.Option("--announce", metavar="HOST", help="How the tracker's clients reach this machine.")
    ] = None,
    session: Annotated[str, typer.Option("--session", metavar="DURATION", help="Longest life of a session.")] = "24h",
) -> None:
    """Let others measure on this machine.

    One client at a time, by TVM's RPC; a session that crashes or hangs is ended, and the next one is served.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # sessions are forks, which must find no threads
    from autofuse.backend.rpc.server import DeviceServer, ServerOptions
    from autofuse.measure.remote.device_server import serve as run

    where = None if tracker is None else parse_address(tracker, "--tracker")
    kept = told_key(key, key_file, "--key") or environment_key()
    options = ServerOptions(host, port, kept or _new_key(), where, announce, parse_duration(session, "--session"))
    shown = options.key if key or not kept else "..."
    source = f" of {key_file or KEY_VARIABLE}" if shown == "..." else f" {shown}"

    def ready(server: DeviceServer) -> None:
        typer.echo(f"serving at {host}:{server.port}, key{source}")
        typer.echo(f"from the other machine: autofuse doctor --rpc HOST:{server.port} --rpc-key {shown}")
        if where:
            typer.echo(f"offered at tracker {tracker} as {options.key}")

    run(options, say, ready)


def _new_key() -> str:
    return secrets.token_urlsafe(12).replace("-", ".")
