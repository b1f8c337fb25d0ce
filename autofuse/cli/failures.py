"""What happens when a verb fails: one message on stderr that says what to do, and an exit code."""

from __future__ import annotations

import errno
import os
import platform
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from autofuse import __version__
from autofuse.cli.terminal import printable
from autofuse.errors import AutofuseError
from autofuse.values.arguments import without_secrets

EXIT_FAILED_CHECK = 1
EXIT_SYSTEM = 2
EXIT_DEFECT = 70
EXIT_INTERRUPTED = 130
ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a verb as Ctrl-C does, unless whoever started it has them ignored (`nohup`)."""
NO_MEMORY = "autofuse: the memory does not suffice: free some, raise its limit (ulimit), or take a smaller model"
AGAIN_S = 0.05
"""After so long an interruption that Python dropped is raised anew."""
GOING_ON = {"tune": "; what was measured is recorded, and the same command goes on from there"}


class Verbs(TyperGroup):
    """The group of all verbs; turns exceptions into a message and an exit code."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line; Ctrl-C meanwhile is told as it is later."""
        try:
            return super().make_context(*arguments, **options)
        except KeyboardInterrupt:
            say("autofuse: interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except TyperException as error:
            raise _printable(error) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the verb. Whatever it raises is told in one line; no traceback reaches a user."""
        try:
            with _ended_by_signals(), _interruption_first():
                return super().invoke(ctx)
        except AutofuseError as error:
            say(f"autofuse: {error}")
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            say(f"autofuse: interrupted{GOING_ON.get(ctx.invoked_subcommand, '')}")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except MemoryError:
            say(NO_MEMORY)
            raise typer.Exit(EXIT_SYSTEM) from None
        except ImportError as error:
            if (error.name or "").startswith("autofuse"):
                raise
            say(f"autofuse: a library that it needs does not load: {error}; install it again, or allow more memory")
            raise typer.Exit(EXIT_SYSTEM) from None
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            say(f"autofuse: {_system_message(error)}")
            raise typer.Exit(EXIT_SYSTEM) from None
        except TyperException as error:
            raise _printable(error) from None
        except (typer.Exit, typer.Abort):
            raise  # how verbs end: typer tells it
        except Exception as error:  # noqa: BLE001 anything else is a mistake of ours, and told as one
            tell_defect(error)
            raise typer.Exit(EXIT_DEFECT) from None


def _printable(error: TyperException) -> TyperException:
    """An error of usage, which typer tells: its text may quote what was given, after words of typer's own."""
    error.message = printable(error.message.removeprefix("Value error, "))
    return error


def say(message: str) -> None:
    """A line for the person, never mixed into the output; nothing when the terminal is gone."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        sys.stderr.write(printable(message) + "\n")
        sys.stderr.flush()


def tell_defect(error: BaseException) -> None:
    """Say that autofuse itself is wrong; the details go to a file, for a report."""
    first = (str(error).strip().splitlines() or [""])[0][:200]
    details = "".join(traceback.format_exception(error))
    command = " ".join(without_secrets(sys.argv))
    text = f"autofuse {__version__}, Python {sys.version}, {platform.platform()}\n{command}\n\n{details}"
    try:
        descriptor, name = tempfile.mkstemp(prefix="autofuse-defect-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        where = f"its details are in {name}; please report them"
    except OSError as unwritten:
        where = f"its details cannot be written ({unwritten.strerror})"
    say(f"autofuse: this is a defect of autofuse, not of your input: {type(error).__name__}: {first}; {where}")


def guarded(verbs: Callable[[], None]) -> None:
    """Run the program: what is raised before or after its verb is told in one line, too."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # a standard stream that was closed must not become a file that we open
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        else:
            stream.reconfigure(errors="backslashreplace")  # names of files need not be text
    sys.unraisablehook = _interrupt_again
    try:
        with _interruption_first():
            verbs()
    except KeyboardInterrupt:
        say("autofuse: interrupted")
        _leave(EXIT_INTERRUPTED)
    except SystemExit as end:
        _leave(end.code if isinstance(end.code, int) else EXIT_FAILED_CHECK)
    except OSError as error:
        say(f"autofuse: {_system_message(error)}")
        _leave(EXIT_SYSTEM)
    except MemoryError:
        say(NO_MEMORY)
        _leave(EXIT_SYSTEM)
    except Exception as error:  # noqa: BLE001 see `Verbs.invoke`
        tell_defect(error)
        _leave(EXIT_DEFECT)


@contextmanager
def _interruption_first() -> Iterator[None]:
    """An error that arises while an interruption is handled, such as in a library's clean-up, is that interruption."""
    try:
        yield
    except Exception as error:
        before: BaseException | None = error
        while before is not None:
            before = before.__cause__ if before.__suppress_context__ else before.__context__
            if isinstance(before, KeyboardInterrupt):
                raise KeyboardInterrupt from error
        raise


def _interrupt_again(ignored: sys.UnraisableHookArgs) -> None:
    """Python drops an interruption that arrives in a destructor, and shows its traceback: it is raised anew instead."""
    if isinstance(ignored.exc_value, KeyboardInterrupt):
        number = signal.SIGTERM if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else signal.SIGINT
        threading.Timer(AGAIN_S, os.kill, (os.getpid(), number)).start()
    else:
        sys.__unraisablehook__(ignored)


def _leave(code: int) -> NoReturn:
    """End the process; output that cannot be written counts as a failure, and is told once."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while a pipe takes no more would show a traceback
    try:
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes once more when it ends
        if error.errno != errno.EPIPE and code == 0:
            say(f"autofuse: the output cannot be written: {error.strerror}")
            code = EXIT_SYSTEM
    if code == EXIT_INTERRUPTED:
        os._exit(code)  # Python ends by the signal when a library's own start was interrupted
    sys.exit(code)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt in the block, so that it closes what it opened."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(ENDING, end):
        yield


@contextmanager
def _handled(numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """`handler` for those signals that are not ignored; afterwards they mean what they meant before."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may have handlers
        return
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _system_message(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    unfinished = error.errno is None and "requested and" in str(error)  # numpy, when a write ends early
    if unfinished or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full{where}: free some space and run the same command again; what was recorded is kept"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"no permission{where}: {error.strerror}; choose another path, or change its permissions"
    return f"the system refused{where}: {error.strerror or error}"


@contextmanager
def graceful_stop() -> Iterator[Callable[[], bool]]:
    """Ctrl-C once (or SIGTERM, SIGHUP) stops after the candidate in flight, twice at once.

    Yields a function that says whether a stop was asked for.
    """
    asked = False

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say("autofuse: stopping after the candidate in flight; Ctrl-C again stops at once")

    with _handled((signal.SIGINT, *ENDING), ask):
        yield lambda: asked
