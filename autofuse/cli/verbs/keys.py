"""`key`: pairs of keys for signatures of libraries and exports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autofuse.cli.options import OutputFormat
from autofuse.cli.screens.render import describe, show

key_verbs = typer.Typer(
    help="Keys that sign libraries and exports (--sign), and whom to --trust.", no_args_is_help=True
)

KeyFile = Annotated[Path, typer.Argument(metavar="FILE", help="The private key; the public one is FILE.pub.")]


@key_verbs.command("new")
def new(file: KeyFile, form: OutputFormat = "text") -> None:
    """Make a pair of keys: keep FILE to yourself, give FILE.pub to who is to trust you."""
    from autofuse import api

    made = api.key_new(file)
    show(made, form, describe(made))


@key_verbs.command("show")
def show_key(
    file: Annotated[Path, typer.Argument(metavar="FILE.pub", help="A public key.")], form: OutputFormat = "text"
) -> None:
    """Show the fingerprint of a public key, as messages name it."""
    from autofuse import api

    found = api.key_show(file)
    show(found, form, describe(found))
