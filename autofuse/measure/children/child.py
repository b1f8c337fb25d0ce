"""The child's side of the pipes: one request at a time, every error an answer, never an orphan."""

from __future__ import annotations

import errno
import os
import queue
import resource
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autofuse.measure.children.messages import (
    Message,
    ProtocolError,
    Refused,
    Request,
    decode,
    encode,
    framed,
    known,
    unframed,
)
from autofuse.measure.timing.clock import listening
from autofuse.values.outputs import FULL_DISK
from autofuse.values.processes import LOST_PARENT, follow_parent, lower_limit

PARENT_VARIABLE = "AUTOFUSE_PARENT"
MEMORY_VARIABLE = "AUTOFUSE_MEMORY_BYTES"

Handlers = Mapping[type[Request[Any]], Callable[[Any], Message]]
"""What a program does, by the kind of request that asks for it."""


class RefusedError(Exception):
    """A handler's own failure: `kind` is a failure kind, the text its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def serve(handlers: Handlers) -> None:
    """Answer requests from standard input until it ends.

    The protocol moves to a private copy of standard output, and whatever kernels or libraries print goes
    to standard error. A thread does the reading, so that the end of the parent is noticed at once.
    """
    replies = os.dup(1)
    os.dup2(2, 1)
    parent = os.environ.get(PARENT_VARIABLE)
    follow_parent(None if parent is None else int(parent))
    _limit()
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        _write(replies, answer(handlers, requests.get()))


def note(text: str) -> None:
    """Leave a line in the log that the parent keeps the end of."""
    sys.stderr.write(text + "\n")


def answer(handlers: Handlers, text: bytes) -> Message:
    """What a handler says to one request, or why it is refused; never raises for what a handler raises."""
    try:
        try:
            request = decode(text, known(handlers))
        except ProtocolError as error:
            raise RefusedError("run_error", str(error)) from error
        return handlers[type(request)](request)
    except RefusedError as refusal:
        return Refused(refusal.kind, str(refusal))
    except MemoryError as error:
        return Refused("out_of_memory", f"memory limit reached: {error}")
    except Exception as error:  # noqa: BLE001 a builder or a kernel may raise anything; the parent records it
        if _is_full_disk(error):
            return Refused("device_lost", f"the disk is full: {_short(error)}")
        return Refused("out_of_memory" if _is_allocation(str(error)) else "", _short(error))


def _is_allocation(text: str) -> bool:
    return any(sign in text for sign in ("bad_alloc", "Cannot allocate memory", "Unable to allocate"))


def _is_full_disk(error: Exception) -> bool:
    """Whether a file could not grow, of this process or of a linker that it called: no candidate's fault."""
    if isinstance(error, OSError):
        short = error.errno is None and "requested and" in str(error)  # NumPy, when a write ends early
        return short or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return any(sign in str(error) for sign in FULL_DISK)


def _short(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).strip()
    if len(text) > 2000:
        text = f"{text[:800]} ... {text[-1200:]}"
    return f"{type(error).__name__}: {text} ({Path(place.filename).name}:{place.lineno})"


def _read(requests: queue.SimpleQueue[bytes]) -> None:
    listening()
    buffer = bytearray()
    while True:
        try:
            data = os.read(0, 1 << 16)
            buffer += data
            while data and (text := unframed(buffer)) is not None:
                requests.put(text)
        except (OSError, ProtocolError) as error:
            note(f"child: {error}")
            data = b""
        if not data:
            os._exit(LOST_PARENT)


def _write(descriptor: int, message: Message) -> None:
    frame = memoryview(framed(encode(message)))
    while frame:
        frame = frame[os.write(descriptor, frame) :]


def _limit() -> None:
    """No core dumps; a ceiling on private memory.

    RLIMIT_DATA counts private writable pages only: RLIMIT_AS would count mapped libraries and files too,
    several times what TVM really uses.
    """
    lower_limit(resource.RLIMIT_CORE, 0)
    limit = os.environ.get(MEMORY_VARIABLE)
    if limit is not None:
        lower_limit(resource.RLIMIT_DATA, int(limit))
