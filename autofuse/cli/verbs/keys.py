"""`key`, `library` and `cache`: who made a library or an export, whether it is whole, and those of torch.compile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autofuse.cli.options import OutputFormat, Trust
from autofuse.cli.screens.next_steps import after_library_check, after_new_key
from autofuse.cli.screens.render import describe, ranges_text, show
from autofuse.values.arguments import size
from autofuse.values.names import counted

if TYPE_CHECKING:
    from autofuse.api.results import CacheReport

key_verbs = typer.Typer(
    help="Keys that sign libraries and exports (--sign), and whom to --trust.", no_args_is_help=True
)

library_verbs = typer.Typer(help="Libraries, looked at without loading them.", no_args_is_help=True)

cache_verbs = typer.Typer(
    help='What is kept on the disk: libraries of torch.compile(model, backend="autofuse"), machine code of kernels.',
    no_args_is_help=True,
)

KeyFile = Annotated[Path, typer.Argument(metavar="FILE", help="The private key; the public one is FILE.pub.")]


@key_verbs.command("new")
def new(file: KeyFile, form: OutputFormat = "text") -> None:
    """Make a pair of keys: keep FILE to yourself, give FILE.pub to who is to trust you."""
    from autofuse import api

    made = api.key_new(file)
    show(made, form, describe(made), after_new_key(str(file)))


@key_verbs.command("show")
def show_key(
    file: Annotated[Path, typer.Argument(metavar="FILE.pub", help="A public key.")], form: OutputFormat = "text"
) -> None:
    """Show the fingerprint of a public key, as messages name it."""
    from autofuse import api

    found = api.key_show(file)
    show(found, form, describe(found))


@library_verbs.callback()
def _libraries() -> None:
    """Libraries, looked at without loading them."""


@library_verbs.command("check")
def check(
    library: Annotated[Path, typer.Argument(metavar="LIBRARY", help="What `autofuse compile` wrote.")],
    trust: Trust = None,
    form: OutputFormat = "text",
) -> None:
    """Check that a library is whole and, with --trust, that somebody you trust signed it; nothing of it is loaded.

    Run it before a program in C loads the library: that checks no signature.
    """
    from autofuse import api

    found = api.library_check(library, trust=trust or ())
    open_sizes = ranges_text(found.sizes, found.steps)
    plans = "; ".join(f"{part}: {counted(kernels, 'kernel')}" for part, kernels in found.plans.items())
    more: dict[str, object] = {"open sizes": open_sizes, "plans": plans, "caches": ", ".join(found.caches)}
    hidden = ("sizes", "steps", "plans", "caches", "certificate")
    facts = {name: value for name, value in vars(found).items() if name not in hidden}
    facts |= {"signer": found.signer or "nobody", "cpu_features": ", ".join(found.cpu_features)}
    facts = {"signed by whom you name" if name == "trusted" else name: value for name, value in facts.items()}
    more |= {} if found.certificate is None else {"certificate": found.certificate.facts()}
    shown = describe({**facts, **{name: text for name, text in more.items() if text}})
    show(found, form, shown, after_library_check(str(library), [str(key) for key in trust or ()]))


@cache_verbs.command("info")
def info(form: OutputFormat = "text") -> None:
    """Show where these libraries are, how many, and how large; and how much machine code of kernels is kept."""
    from autofuse import api

    found = api.cache_info()
    show(found, form, describe(_kept(found)))


@cache_verbs.command("clear")
def clear(form: OutputFormat = "text") -> None:
    """Remove them all, and the machine code of kernels; what is needed again is compiled again."""
    from autofuse import api

    found = api.cache_clear()
    show(found, form, describe({**_kept(found), "removed": found.removed}))


def _kept(found: CacheReport) -> dict[str, str]:
    """What the cache holds, for people."""
    return {
        "folder": found.folder,
        "libraries": f"{found.libraries}, {size(found.bytes)}",
        "kernels": f"{found.objects} as machine code, {size(found.object_bytes)}",
    }
