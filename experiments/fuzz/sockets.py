"""Attempts on the socket of `autofuse serve`: before the greeting, after it, and in messages of a sound session.

What follows a sound greeting is made of what a real client once said (its packets, with lengths in front): bytes of it
are damaged, or a packet whose length is then put right, so that the damage reaches what reads it.
"""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import threading
import time
from contextlib import ExitStack, closing, suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

from autofuse.errors import InputError
from experiments.fuzz.mutate import NUMBERS, damaged
from experiments.fuzz.served import HELLO, KEY, Place, greeting, is_answer, magic, require_greeted, served
from experiments.fuzz.wire import damaged_request, judged_answer

LENGTH = struct.Struct("<Q")
"""In front of every packet of TVM's."""
LISTEN_S = 0.3
FORBIDDEN = re.compile(r"Traceback \(most recent call last\)|[\x00-\x08\x0b-\x1f\x7f]")
MOST_FOLDERS = 3
"""Of sessions, at any time: one is served at a time, and another may just be ending."""


def attempt(folder: Path, seed: int) -> None:
    """One attempt; afterwards the right key is answered, nothing is left, and the server's log reads well."""
    dice = random.Random(seed)
    place = served(folder)
    told = place.log.stat().st_size
    way = dice.random()
    try:
        if way < 0.4:
            refused = _strangers(dice, place)
        elif way < 0.85:
            refused = _packets(dice, place, _recorded(place))
        else:
            refused = _typed(dice, place)
        require_greeted(place.port, time.monotonic())
    finally:
        said = place.log.read_bytes()[told:].decode(errors="backslashreplace")
    if FORBIDDEN.search(said):
        raise AssertionError(f"the server's log: {said[-600:]!r}")
    left = list(place.log.parent.glob("autofuse-scratch-*/session-*"))
    if len(left) > MOST_FOLDERS:
        raise AssertionError(f"folders of sessions are left: {left}")
    if refused:
        raise InputError(refused)


def said_before(dice: random.Random) -> bytes:
    """Something instead of a greeting."""
    sound = greeting(KEY)
    head = HELLO.pack(magic(), dice.choice((-1, 0, 2**31 - 1, -(2**31), 1024, 1025, 10)))
    choices = (
        damaged(dice, sound), damaged(dice, sound), sound[: dice.randrange(len(sound))], sound + dice.randbytes(50),
        greeting(dice.choice(("", "wrong", KEY + "x", KEY[:-1], KEY.upper(), "a" * 1010, KEY + "\0", "\u20ac"))),
        head + dice.randbytes(dice.choice((0, 10, 64, 2000))), dice.randbytes(dice.choice((1, 7, 8, 100, 100_000))),
        b"AFm2" + struct.pack(">I", dice.choice((0, 5, 2**32 - 1))) + b"Describe {}", b"",
    )  # fmt: skip
    return dice.choice(choices)


def _strangers(dice: random.Random, place: Place) -> str:
    """Connections that say something else, whole, in parts, or to the end of their side only."""
    with ExitStack() as stack:
        turned_away = 0
        for _ in range(dice.choice((1, 1, 1, 2, 8, 80))):
            with suppress(OSError):
                made = stack.enter_context(closing(socket.create_connection(("127.0.0.1", place.port), 10)))
                said = said_before(dice)
                cut = dice.randrange(len(said) + 1) if dice.random() < 0.3 else 0
                for part in filter(None, (said[:cut], said[cut:])):
                    made.sendall(part)
                way = dice.randrange(4)
                if way == 0:
                    made.shutdown(socket.SHUT_WR)
                elif way == 1:  # a reset instead of an end
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    made.close()
                turned_away += way == 2 and not is_answer(_heard(made))
    return f"{turned_away} connections turned away" if turned_away else ""


def _packets(dice: random.Random, place: Place, recorded: bytes) -> str:
    """A sound greeting, and then damaged packets."""
    with closing(socket.create_connection(("127.0.0.1", place.port), 30)) as made:
        made.settimeout(30)
        made.sendall(greeting(KEY))
        if not is_answer(_heard(made, 30.0)):
            raise AssertionError("the right key is not answered")
        with suppress(OSError):
            made.sendall(_damaged_packets(dice, recorded))
            if dice.random() < 0.5:
                made.shutdown(socket.SHUT_WR)
            if not _heard(made):
                return "the session ends without a word"
    return ""


def _damaged_packets(dice: random.Random, recorded: bytes) -> bytes:
    way = dice.randrange(4)
    if way == 0:
        return damaged(dice, recorded)
    packets = _split(recorded)
    place = dice.randrange(len(packets))
    if way == 1:  # another length than the packet has
        length = dice.choice((*(n for n in NUMBERS if n >= 0), 2**64 - 1, len(packets[place]) + 1))
        parts = [_packed(packet) for packet in packets[:place]]
        return b"".join([*parts, LENGTH.pack(length), *packets[place:]])
    packets[place] = damaged(dice, packets[place])
    if way == 2 and len(packets[place]) >= 4:  # another code in front
        packets[place] = struct.pack("<i", dice.choice((*range(16), -1, 2**31 - 1))) + packets[place][4:]
    return b"".join(map(_packed, packets))


def _typed(dice: random.Random, place: Place) -> str:
    """Damaged messages of a sound session, which goes on after each."""
    from autofuse.backend.rpc.client import DeviceSession
    from autofuse.device.address import Address

    session = DeviceSession(Address("127.0.0.1", place.port, KEY))
    refused = ""
    for _ in range(5):
        text = damaged_request(dice)
        with suppress(UnicodeDecodeError):  # the client sends text
            text.decode()
            refused = judged_answer(text, session.ask(text)) or refused
    return refused


def _packed(packet: bytes) -> bytes:
    return LENGTH.pack(len(packet)) + packet


def _split(recorded: bytes) -> list[bytes]:
    packets = []
    while recorded:
        (length,) = LENGTH.unpack_from(recorded)
        packets.append(recorded[LENGTH.size : LENGTH.size + length])
        recorded = recorded[LENGTH.size + length :]
    return packets


def _heard(made: socket.socket, seconds: float = LISTEN_S) -> bytes:
    """The first bytes that come; none when the other side ended."""
    made.settimeout(seconds)
    try:
        return made.recv(64)
    except TimeoutError:
        return b"silence"
    except OSError:
        return b""


@cache
def _recorded(place: Place) -> bytes:
    """What a real client says after its greeting, in a process of its own (TVM's client holds Python's lock)."""
    with socket.create_server(("127.0.0.1", 0)) as between:
        if (child := os.fork()) == 0:
            try:
                _be_client(between.getsockname()[1], place.log.with_name("uploaded.npy"))
            finally:
                os._exit(1)
        said = bytearray()
        _pass_on(between, place.port, said)
    os.waitpid(child, 0)
    return bytes(said[len(greeting(KEY)) :])


def _be_client(port: int, file: Path) -> NoReturn:
    """Asks something, uploads a file, and fetches it."""
    from autofuse.backend.rpc.client import DeviceSession
    from autofuse.device.address import Address
    from autofuse.measure.children.messages import encode
    from autofuse.measure.remote.requests import Missing

    session = DeviceSession(Address("127.0.0.1", port, KEY))
    session.ask(encode(Missing(("0" * 64 + ".npy",))))
    file.write_bytes(b"some bytes")
    session.upload(file, file.name)
    session.download(file.name)
    os._exit(0)


def _pass_on(between: socket.socket, port: int, said: bytearray) -> None:
    """One connection to `between`, passed on to the server at `port`; what its client says is kept."""
    client, _ = between.accept()
    server = socket.create_connection(("127.0.0.1", port))

    def back() -> None:
        with suppress(OSError):
            while part := server.recv(1 << 16):
                client.sendall(part)

    threading.Thread(target=back, daemon=True).start()
    with client, server, suppress(OSError):
        while part := client.recv(1 << 16):
            said += part
            server.sendall(part)
        server.shutdown(socket.SHUT_RDWR)  # wakes `back`, whose reading keeps the connection
