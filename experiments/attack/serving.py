"""Axis "serving": garbage, half greetings, wrong keys and many connections; who has the key is still let in."""

from __future__ import annotations

import random
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

from autofuse.errors import InputError
from experiments.attack.stage import in_time
from experiments.fuzz.served import HELLO, KEY, greeting, is_answer, magic, require_greeted, served


def message(dice: random.Random) -> bytes:
    """Something that no client says, or not so."""
    sound = greeting(KEY)
    said = greeting(
        dice.choice(("", "wrong", KEY + "x", KEY[:-1], "\udc00".encode("utf-8", "replace").decode(), "a" * 1010))
    )
    choices = (
        said, sound[: dice.randrange(len(sound))], dice.randbytes(dice.choice((1, 7, 8, 100, 100_000))), b"",
        HELLO.pack(magic(), dice.choice((-1, 0, 2**31 - 1, -(2**31), 1024, 1025))) + dice.randbytes(64),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", sound[:8] + b"server:" + KEY.encode(),
        HELLO.pack(magic(), 10) + b"\xff" * 10,
        HELLO.pack(magic(), 10) + b" " * 10, sound + dice.randbytes(50), sound + struct.pack("<q", 2**62) + b"x" * 20,
        sound + struct.pack("<qi", 4, 0), sound + struct.pack("<qi", 4, dice.randrange(-5, 40)),
    )  # fmt: skip
    return dice.choice(choices)


def attempt(folder: Path, seed: int) -> str:
    """Some hostile connections; then the right key is answered in seconds, with no more than one session before."""
    dice = random.Random(seed)
    port = served(folder).port
    held = []
    with in_time(120):
        for _ in range(dice.choice((1, 1, 3, 10, 100))):
            with suppress(OSError):
                made = socket.create_connection(("127.0.0.1", port), 10)
                said = message(dice)
                with suppress(OSError):
                    made.sendall(said)
                if dice.random() < 0.6 and not said.startswith(greeting(KEY)):  # who has the key may stay
                    held.append(made)
                else:
                    made.close()
        start = time.monotonic()
        refused = sum(map(_turned_away, held[:3]))
        for made in held:
            if dice.random() < 0.8:
                made.close()
        require_greeted(port, start)
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
    return not is_answer(said)
