"""`autofuse`, and `python -m autofuse`: guarded from the first moment on, while its libraries load, too."""

from __future__ import annotations

import os
import signal
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
    try:
        from autofuse.cli.main import run as run_verbs

        if signal.SIGINT in before:
            signal.signal(signal.SIGINT, before[signal.SIGINT])  # from here on every room closes what it opened
        run_verbs()
    except KeyboardInterrupt:
        _end()


def _end(_number: int = 0, _frame: FrameType | None = None) -> None:
    """Ends the process at once: nothing is open yet, and a library that is half loaded would hide an exception."""
    with suppress(OSError):
        os.write(2, b"autofuse: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    run()
