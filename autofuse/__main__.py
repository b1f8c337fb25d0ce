"""`autofuse`, and `python -m autofuse`: guarded from the first moment on, while its libraries load, too."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
EXIT_INTERRUPTED = 130


def run() -> None:
    """Entry point of the console script."""
    before = {}
    for name in ENDING:
        number = signal.Signals[name]
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` has it ignored
            before[number] = signal.signal(number, _end)
    code = [1]  # unless it ends as it should
    atexit.register(_skip_native_ends, code)  # the first one that is registered is the last one that is called
    try:
        from autofuse.cli.main import run as run_verbs

        if signal.SIGINT in before:
            signal.signal(signal.SIGINT, before[signal.SIGINT])  # from here on every room closes what it opened
        run_verbs()
    except KeyboardInterrupt:
        _end()
    except SystemExit as end:
        for name in ENDING:
            signal.signal(signal.Signals[name], signal.SIG_IGN)  # the verb is over, and its exit code says how it went
        code[0] = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise


def _end(_number: int = 0, _frame: FrameType | None = None) -> None:
    """Ends the process at once: nothing is open yet, and a library that is half loaded would hide an exception."""
    with suppress(OSError):
        os.write(2, b"autofuse: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def _skip_native_ends(code: list[int]) -> None:
    """Ends the process after all of Python's own clean-up: what compilers and runtimes do when a process ends may crash
    where one of their calls was interrupted, and would turn a verb that is done into a failure."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code[0])


if __name__ == "__main__":
    run()
