"""The door of `autofuse serve`: connections are greeted side by side, and who has the key waits for the next session.

One thread and no callbacks, so that a session may be forked at any time. Nobody is waited for: a greeting has one
deadline, however slowly its bytes come, and beyond `MAX_WAITING` connections the one that said nothing longest goes.
"""

from __future__ import annotations

import hmac
import selectors
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from autofuse.errors import DeviceError

GREETING_S = 5.0
"""From a connection until its key is said; it is dropped then."""
MAX_WAITING = 64
"""Connections that are held, greeted or not."""
MAX_KEY = 1024
_HEAD = struct.Struct("<ii")
"""TVM's greeting: magic and bytes of what follows, which begins with "client:KEY"."""


@dataclass
class _Visitor:
    """`said`: what has come. `word`: the client's key, once it is there; it is then answered at the session's start."""

    connection: socket.socket
    host: str
    deadline: float
    said: bytes = b""
    word: bytes | None = None


class Door:
    """Listens at `host`:`port` from its creation on. `key`: what clients have to say now. `log`: takes a line.

    DeviceError when it cannot listen there.
    """

    def __init__(self, host: str, port: int, key: Callable[[], str], log: Callable[[str], None]) -> None:
        from tvm.rpc import base

        self._magic, self._code_mismatch = base.RPC_MAGIC, base.RPC_CODE_MISMATCH
        self._code_success = base.RPC_CODE_SUCCESS
        self._key, self._log = key, log
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._visitors: list[_Visitor] = []

    @property
    def waiting(self) -> int:
        """Connections that are held."""
        return len(self._visitors)

    def tend(self, seconds: float) -> None:
        """Greet whoever comes and speaks, for at most `seconds`; returns after the first thing that happens."""
        ends = [visitor.deadline for visitor in self._visitors if visitor.word is None]
        left = max(0.0, min([seconds, *(end - time.monotonic() for end in ends)]))
        for event, _ in self._selector.select(left):
            if event.data is None:
                self._let_in()
            elif event.data in self._visitors:
                self._hear(event.data)
        now = time.monotonic()
        for visitor in [one for one in self._visitors if one.word is None and one.deadline <= now]:
            self._send_away(visitor, f"no key within {GREETING_S:g} s")

    def next_client(self, own_key: str) -> tuple[socket.socket, str] | None:
        """The connection and the host of who waits longest with the right key, answered with `own_key`; None: nobody.

        The connection is the caller's, and blocks.
        """
        for visitor in [one for one in self._visitors if one.word is not None]:
            if not self._is_right(visitor):  # the key has changed since
                self._refuse(visitor)
                continue
            own = f"server:{own_key}".encode()
            self._forget(visitor)
            visitor.connection.setblocking(True)
            try:
                visitor.connection.sendall(_HEAD.pack(self._code_success, len(own)) + own)
            except OSError as error:
                self._log(f"refused {visitor.host}: {error}")
                visitor.connection.close()
                continue
            return visitor.connection, visitor.host
        return None

    def close(self) -> None:
        """Give up every connection and stop listening; in a forked process only this process's hold on them."""
        self._selector.close()
        for visitor in self._visitors:
            visitor.connection.close()
        self._visitors.clear()
        self._socket.close()

    def _let_in(self) -> None:
        for _ in range(MAX_WAITING):
            try:
                connection, address = self._socket.accept()
            except OSError:
                return
            self._admit(connection, str(address[0]))

    def _admit(self, connection: socket.socket, host: str) -> None:
        connection.setblocking(False)
        visitor = _Visitor(connection, host, time.monotonic() + GREETING_S)
        if len(self._visitors) >= MAX_WAITING:
            silent = [one for one in self._visitors if one.word is None]
            self._send_away(silent[0] if silent else visitor, "too many connections are waiting")
            if not silent:
                return
        self._visitors.append(visitor)
        self._selector.register(connection, selectors.EVENT_READ, visitor)
        self._hear(visitor)

    def _hear(self, visitor: _Visitor) -> None:
        """Read what has come; who is gone, is no client or has another key is sent away."""
        missing = self._missing(visitor)
        try:
            part = visitor.connection.recv(max(1, missing))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._send_away(visitor, str(error))
            return
        if not part:
            self._send_away(visitor, "it went away")
        elif visitor.word is not None:
            self._send_away(visitor, "it spoke before it was answered")
        else:
            visitor.said += part
            self._judge(visitor)

    def _missing(self, visitor: _Visitor) -> int:
        """Bytes that the greeting still lacks."""
        have = len(visitor.said)
        return _HEAD.size - have if have < _HEAD.size else _HEAD.size + _HEAD.unpack_from(visitor.said)[1] - have

    def _judge(self, visitor: _Visitor) -> None:
        if len(visitor.said) >= 4 and struct.unpack_from("<i", visitor.said)[0] != self._magic:
            self._send_away(visitor, "not an RPC client")
            return
        if len(visitor.said) < _HEAD.size:
            return
        length = _HEAD.unpack_from(visitor.said)[1]
        if not 0 < length <= MAX_KEY:
            self._send_away(visitor, f"a key of {length} bytes")
        elif self._missing(visitor) == 0:
            words = visitor.said[_HEAD.size :].split()
            visitor.word = words[0] if words else b""
            if not self._is_right(visitor):
                self._refuse(visitor)
        else:
            self._hear(visitor)

    def _is_right(self, visitor: _Visitor) -> bool:
        return hmac.compare_digest(visitor.word or b"", f"client:{self._key()}".encode())

    def _refuse(self, visitor: _Visitor) -> None:
        with suppress(OSError):
            visitor.connection.send(struct.pack("<i", self._code_mismatch))
        self._send_away(visitor, "wrong key")

    def _send_away(self, visitor: _Visitor, why: str) -> None:
        self._log(f"refused {visitor.host}: {why}")
        self._forget(visitor)
        visitor.connection.close()

    def _forget(self, visitor: _Visitor) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(visitor.connection)
        if visitor in self._visitors:
            self._visitors.remove(visitor)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise DeviceError(
            f"cannot listen at {host}:{port}: {error.strerror}; choose another --port or --host"
        ) from error
    listener.setblocking(False)
    listener.listen(MAX_WAITING)
    return listener
