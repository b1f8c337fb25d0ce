"""What TVM's native code writes to standard error: its warnings are for its developers, all else is passed on."""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_WARNING = re.compile(rb"^\[\d\d:\d\d:\d\d\] [^\n]*: Warning: [^\n]*(\n|\Z)", re.MULTILINE)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keeps TVM's warnings from the screen; whatever else is written to standard error meanwhile follows at the end.

    It redirects the descriptor of the whole process: use it from one thread. Where native code crashes inside, Python
    says where on the real standard error.
    """
    try:
        real = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    held = os.memfd_create("autofuse-stderr") if hasattr(os, "memfd_create") else _unnamed_file()
    told_here = not faulthandler.is_enabled()
    sys.stderr.flush()
    os.dup2(held, 2)
    try:
        if told_here:
            faulthandler.enable(file=real)
        yield
    finally:
        if told_here:
            faulthandler.disable()
        sys.stderr.flush()
        os.dup2(real, 2)
        _pass_on(held, real)
        os.close(held)
        os.close(real)


def _unnamed_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _pass_on(held: int, real: int) -> None:
    os.lseek(held, 0, os.SEEK_SET)
    with os.fdopen(os.dup(held), "rb") as written, suppress(OSError):
        rest = _WARNING.sub(b"", written.read())
        while rest:
            rest = rest[os.write(real, rest) :]
