"""`serve`: this machine as a device for others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autofuse.cli.failures import say
from autofuse.cli.terminal import out
from autofuse.values.arguments import DEFAULT_PORT

if TYPE_CHECKING:
    from autofuse.api.results import Serving


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
    from autofuse import api

    api.serve(
        host=host,
        port=port,
        key=key,
        key_file=key_file,
        tracker=tracker,
        announce=announce,
        session=session,
        ready=_tell,
        log=say,
    )


def _tell(found: Serving) -> None:
    source = f" {found.key}" if found.key else f" of {found.source}"
    out(f"serving at {found.host}:{found.port}, key{source}\n")
    key, same = (f"AUTOFUSE_RPC_KEY={found.key} ", "") if found.key else ("", ", with the same key")
    out(f"from the other machine: {key}autofuse doctor --rpc HOST:{found.port}{same}\n")
    if found.tracker:
        out(f"offered at tracker {found.tracker} as {found.kind}\n")
