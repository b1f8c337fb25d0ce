"""Greetings of `autofuse serve`: side by side, each with one deadline, and only so many at once."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tvm.rpc import base

from autofuse.backend.rpc import door as doors
from autofuse.backend.rpc.door import MAX_KEY, MAX_WAITING, Door


class Lobby:
    """A door, its log, and clients of this process."""

    def __init__(self) -> None:
        self.key, self.log = "secret", list[str]()
        self.stack = ExitStack()
        self.door = Door("127.0.0.1", 0, lambda: self.key, self.log.append)
        self.stack.callback(self.door.close)

    def client(self, said: bytes = b"") -> socket.socket:
        made = self.stack.enter_context(socket.create_connection(("127.0.0.1", self.door.port)))
        made.settimeout(30.0)
        made.sendall(said)
        return made

    def settle(self) -> None:
        """Until nothing more is to be read."""
        before = None
        while before != (before := (self.door.waiting, len(self.log), self._heard())):
            self.door.tend(0.2)

    def _heard(self) -> int:
        return sum(len(visitor.said) for visitor in self.door._visitors)


def greeting(key: str = "secret") -> bytes:
    said = f"client:{key} -timeout=5".encode()
    return struct.pack("<ii", base.RPC_MAGIC, len(said)) + said


@pytest.fixture
def lobby() -> Iterator[Lobby]:
    made = Lobby()
    with made.stack:
        yield made


def test_a_client_with_the_key_is_answered_while_fifty_are_silent(lobby: Lobby) -> None:
    for _ in range(50):
        lobby.client()
    wanted = lobby.client(greeting())
    lobby.settle()
    found = lobby.door.next_client("board")
    assert found is not None
    found[0].close()
    length = len(b"server:board")
    assert base.recvall(wanted, 8 + length) == struct.pack("<ii", base.RPC_CODE_SUCCESS, length) + b"server:board"
    assert lobby.door.waiting == 50, "nobody had to be waited for or sent away"


def test_clients_are_served_in_the_order_of_their_connections(lobby: Lobby) -> None:
    clients = [lobby.client(greeting()) for _ in range(3)]
    lobby.settle()
    ports = []
    while (found := lobby.door.next_client("k")) is not None:
        ports.append(found[0].getpeername()[1])
        found[0].close()
    assert ports == [client.getsockname()[1] for client in clients]


def test_a_greeting_in_single_bytes_is_heard_and_has_one_deadline(
    lobby: Lobby, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = lobby.client()
    for byte in greeting():
        slow.sendall(bytes([byte]))
        lobby.door.tend(0.2)
    lobby.settle()
    found = lobby.door.next_client("k")
    assert found is not None
    found[0].close()
    monkeypatch.setattr(doors, "GREETING_S", 0.3)
    dripping, started = lobby.client(), time.monotonic()
    while not lobby.log and time.monotonic() < started + 30:
        dripping.sendall(b"" if lobby.door._visitors and lobby.door._visitors[0].said else greeting()[:1])
        lobby.door.tend(0.05)
    assert "no key within 0.3 s" in lobby.log[0]
    assert lobby.door.waiting == 0


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", "not an RPC client"),
        (struct.pack("<ii", base.RPC_MAGIC, MAX_KEY + 1), f"a key of {MAX_KEY + 1} bytes"),
        (struct.pack("<ii", base.RPC_MAGIC, -1), "a key of -1 bytes"),
        (struct.pack("<ii", base.RPC_MAGIC, 3) + b"   ", "wrong key"),
        (greeting("guess"), "wrong key"),
        (greeting() + b"more", "it spoke before it was answered"),
    ],
)
def test_strangers_are_sent_away_with_the_reason(lobby: Lobby, said: bytes, why: str) -> None:
    client = lobby.client(said)
    lobby.settle()
    assert lobby.log == [f"refused 127.0.0.1: {why}"]
    assert (lobby.door.waiting, lobby.door.next_client("k")) == (0, None)
    if why == "wrong key":
        assert base.recvall(client, 4) == struct.pack("<i", base.RPC_CODE_MISMATCH)


def test_who_is_gone_is_forgotten_before_and_after_the_key(lobby: Lobby) -> None:
    for said in (b"", greeting()):
        client = lobby.client(said)
        lobby.settle()
        assert lobby.door.waiting == 1
        client.close()
        lobby.settle()
        assert lobby.door.waiting == 0


def test_beyond_the_bound_the_longest_silent_goes_and_never_a_client_with_the_key(lobby: Lobby) -> None:
    first = lobby.client(greeting())
    lobby.settle()
    for _ in range(MAX_WAITING + 5):
        lobby.client()
        lobby.door.tend(1.0)
    lobby.settle()
    assert lobby.door.waiting == MAX_WAITING
    assert lobby.log == ["refused 127.0.0.1: too many connections are waiting"] * 6
    found = lobby.door.next_client("k")
    assert found is not None
    assert found[0].getpeername() == first.getsockname()
    found[0].close()


def test_a_key_that_was_used_up_meanwhile_is_refused(lobby: Lobby) -> None:
    client = lobby.client(greeting())
    lobby.settle()
    lobby.key = "another"
    assert lobby.door.next_client("k") is None
    assert lobby.log == ["refused 127.0.0.1: wrong key"]
    assert base.recvall(client, 4) == struct.pack("<i", base.RPC_CODE_MISMATCH)
