"""A served device to attack: in a process of its own, which ends with its maker, and what clients say to it."""

from __future__ import annotations

import os
import resource
import socket
import struct
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autofuse.values.processes import follow_parent

KEY = "the.key"
HELLO = struct.Struct("<ii")
"""Magic and bytes of what follows; see `autofuse.backend.rpc.door`."""
PATIENCE_S = 30.0
SESSION_S = 60.0


class Unanswered(AssertionError):  # noqa: N818  no error of the experiment, but what it looks for
    """The right key is not answered in time."""


@dataclass(frozen=True)
class Place:
    """Where it listens; `log`: what it says, with its sessions' streams."""

    port: int
    log: Path


@cache
def served(folder: Path) -> Place:
    """A server of this process and its log in `folder`; it ends with this process."""
    from autofuse.backend.rpc.server import DeviceServer, ServerOptions
    from autofuse.measure.remote.device_server import serve

    reads, writes = os.pipe()
    parent, log = os.getpid(), folder / f"serve-{os.getpid()}.log"
    if os.fork() == 0:
        try:
            follow_parent(parent)
            _say_into(log)
            tempfile.tempdir = str(folder)

            def ready(server: DeviceServer) -> None:
                os.write(writes, struct.pack("<i", server.port))

            options = ServerOptions("127.0.0.1", 0, KEY, None, None, SESSION_S)
            serve(options, lambda line: print(line, flush=True), ready)
        finally:
            os._exit(1)
    os.close(writes)
    (port,) = struct.unpack("<i", os.read(reads, 4))
    os.close(reads)
    return Place(int(port), log)


def _say_into(log: Path) -> None:
    """Streams into the log, and no limit of processor time: an attempt's own must not end the server."""
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(descriptor, number)
    os.close(descriptor)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))


def magic() -> int:
    """What every client begins with."""
    from tvm.rpc import base

    return int(base.RPC_MAGIC)


def greeting(key: str) -> bytes:
    """What a client says first."""
    said = f"client:{key}".encode()
    return HELLO.pack(magic(), len(said)) + said


def is_answer(said: bytes) -> bool:
    """Whether a server began to answer the right key."""
    return len(said) >= 4 and struct.unpack_from("<i", said)[0] == magic()


def require_greeted(port: int, start: float) -> None:
    """The right key is answered, `PATIENCE_S` after `start` at the latest: sessions of others may have to end first."""
    while time.monotonic() - start < PATIENCE_S:
        with closing(socket.create_connection(("127.0.0.1", port), PATIENCE_S)) as made:
            made.settimeout(PATIENCE_S)
            made.sendall(greeting(KEY))
            with suppress(OSError):
                if is_answer(made.recv(4)):
                    return
    raise Unanswered(f"the right key is not answered within {PATIENCE_S:g} s")
