"""Axis "serving": garbage, half greetings, wrong keys and many connections; who has the key is still let in."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from autofuse.errors import InputError
from experiments.attack.stage import Broken, in_time

KEY = "the.key"
HELLO = struct.Struct("<ii")
PATIENCE_S = 30.0


@cache
def _port() -> int:
    """A server in a process of its own, which ends with this one."""
    from autofuse.backend.rpc.server import DeviceServer, ServerOptions
    from autofuse.measure.remote.device_server import serve

    reads, writes = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        try:
            _end_with(parent)

            def ready(server: DeviceServer) -> None:
                os.write(writes, struct.pack("<i", server.port))

            serve(ServerOptions("127.0.0.1", 0, KEY, None, None, 60.0), lambda _line: None, ready)
        finally:
            os._exit(1)
    os.close(writes)
    (port,) = struct.unpack("<i", os.read(reads, 4))
    return int(port)


def _end_with(parent: int) -> None:
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _magic() -> int:
    from tvm.rpc import base

    return int(base.RPC_MAGIC)


def greeting(key: str) -> bytes:
    """What a client says first."""
    said = f"client:{key}".encode()
    return HELLO.pack(_magic(), len(said)) + said


def message(dice: random.Random) -> bytes:
    """Something that no client says, or not so."""
    sound = greeting(KEY)
    said = greeting(
        dice.choice(("", "wrong", KEY + "x", KEY[:-1], "\udc00".encode("utf-8", "replace").decode(), "a" * 1010))
    )
    choices = (
        said, sound[: dice.randrange(len(sound))], dice.randbytes(dice.choice((1, 7, 8, 100, 100_000))), b"",
        HELLO.pack(_magic(), dice.choice((-1, 0, 2**31 - 1, -(2**31), 1024, 1025))) + dice.randbytes(64),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", sound[:8] + b"server:" + KEY.encode(),
        HELLO.pack(_magic(), 10) + b"\xff" * 10,
        HELLO.pack(_magic(), 10) + b" " * 10, sound + dice.randbytes(50), sound + struct.pack("<q", 2**62) + b"x" * 20,
        sound + struct.pack("<qi", 4, 0), sound + struct.pack("<qi", 4, dice.randrange(-5, 40)),
    )  # fmt: skip
    return dice.choice(choices)


def attempt(_folder: Path, seed: int) -> str:
    """Some hostile connections; then the right key is answered in seconds, with no more than one session before."""
    dice = random.Random(seed)
    port = _port()
    held = []
    with in_time(120):
        for _ in range(dice.choice((1, 1, 3, 10, 100))):
            with suppress(OSError):
                made = socket.create_connection(("127.0.0.1", port), 10)
                with suppress(OSError):
                    made.sendall(message(dice))
                if dice.random() < 0.6:
                    held.append(made)
                else:
                    made.close()
        start = time.monotonic()
        refused = sum(map(_turned_away, held[:3]))
        for made in held:
            if dice.random() < 0.8:
                made.close()
        _require_greeted(port, start)
        for made in held:
            made.close()
    if refused:
        raise InputError(f"{refused} connections turned away")
    return "greeted"


def _turned_away(made: socket.socket) -> bool:
    made.settimeout(0.1)
    try:
        said = made.recv(4)
    except TimeoutError:
        return False
    except OSError:
        return True
    return not said or struct.unpack("<i", said.ljust(4, b"\0"))[0] != _magic()


def _require_greeted(port: int, start: float) -> None:
    """The right key is answered: a session that others hold may have to end first."""
    while time.monotonic() - start < PATIENCE_S:
        with closing(socket.create_connection(("127.0.0.1", port), PATIENCE_S)) as made:
            made.settimeout(PATIENCE_S)
            made.sendall(greeting(KEY))
            with suppress(OSError):
                said = made.recv(4)
                if len(said) == 4 and struct.unpack("<i", said)[0] == _magic():
                    return
    raise Broken(f"the right key is not answered within {PATIENCE_S:g} s")
