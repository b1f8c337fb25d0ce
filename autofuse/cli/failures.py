"""What happens when a verb fails: one message on stderr that says what to do, and an exit code."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from autofuse.errors import AutofuseError

EXIT_FAILED_CHECK = 1
EXIT_SYSTEM = 2
EXIT_INTERRUPTED = 130


class Verbs(TyperGroup):
    """The group of all verbs; turns exceptions into a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb. Only errors of our own making are reported so; a bug keeps its traceback."""
        try:
            return super().invoke(ctx)
        except AutofuseError as error:
            say(f"autofuse: {error}")
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            say("autofuse: interrupted; what was measured is recorded, and the same command goes on from there")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            say(f"autofuse: {_system_message(error)}")
            raise typer.Exit(EXIT_SYSTEM) from None


def say(message: str) -> None:
    """A line for the person, never mixed into the output."""
    sys.stdout.flush()
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def _system_message(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    unfinished = error.errno is None and "requested and" in str(error)  # numpy, when a write ends early
    if unfinished or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full{where}: free some space and run the same command again; what was recorded is kept"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"no permission{where}: {error.strerror}; choose another path, or change its permissions"
    return f"the system refused{where}: {error.strerror or error}"


@contextmanager
def graceful_stop() -> Iterator[Callable[[], None]]:
    """Ctrl-C once (or SIGTERM) stops after the candidate in flight, twice at once.

    Yields a function to be called between candidates: it raises KeyboardInterrupt when a stop was asked for.
    """
    asked = False

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say("autofuse: stopping after the candidate in flight; Ctrl-C again stops at once")

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
