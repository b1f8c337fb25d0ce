"""Axis "libraries": cut, flipped, swapped, with an edited description and true checksums, for others, by others."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError, InputError
from experiments.attack.stage import Broken, command, in_time, room_of
from experiments.fuzz.forge import built, retold, sections
from experiments.fuzz.mutate import damaged, damaged_json


@cache
def _expected(path: Path) -> list[Any]:
    from autofuse import api

    library = api.load(path)
    return library(library.example_inputs())


def attempt(folder: Path, seed: int) -> str:
    """A library that is not what was written is refused before it runs, by Python's door and by the command line."""
    from autofuse import api

    dice = random.Random(seed)
    room = room_of(folder)
    expected = _expected(folder / "stage" / "model.so")
    kind = dice.choice(list(KINDS))
    data = (room / "signed.so").read_bytes() if kind in SIGNED else (room / "model.so").read_bytes()
    path = room / "odd.so"
    made = KINDS[kind](dice, data)
    path.write_bytes(made)
    trust = [room / "key.pub"] if kind in SIGNED else []
    by_verb = dice.random() < 0.3
    try:
        with in_time():
            if by_verb:
                answer = command("run", "odd.so", *(word for key in trust for word in ("--trust", str(key))))
                if answer.code:
                    raise InputError(f"exit {answer.code}: {answer.last}")
                if made != data and kind not in EDITED:
                    raise Broken(f"{kind}: run, though it is not what was written")
                return kind
            library = api.load(path, trust=trust)
            results = library(library.example_inputs())
    except AutofuseError as error:
        if made == data:
            raise Broken(f"{kind}: a sound library is refused: {error}") from error
        raise InputError(f"{kind}: {error}".replace("\n", " ")) from error
    if made != data and kind not in EDITED:
        raise Broken(f"{kind}: loaded, though it is not what was written")
    if kind not in EDITED and not all(map(np.array_equal, results, expected)):
        raise Broken(f"wrong result: {kind}")
    return kind


def _cut(dice: random.Random, data: bytes) -> bytes:
    return data[: dice.randrange(len(data))] if dice.random() < 0.7 else data[dice.randrange(1, len(data)) :]


def _flipped(dice: random.Random, data: bytes) -> bytes:
    content = bytearray(data)
    for _ in range(dice.choice((1, 1, 3, 50))):
        place = dice.randrange(len(content)) if dice.random() < 0.6 else -dice.randrange(1, 300)
        content[place] ^= 1 << dice.randrange(8)
    return bytes(content)


def _swapped(dice: random.Random, data: bytes) -> bytes:
    _, parts = sections(data)
    one, other = dice.sample(range(4), 2)
    parts[one], parts[other] = parts[other], parts[one]
    return built(parts)


def _described(dice: random.Random, data: bytes) -> bytes:
    """The description edited, the table as it belongs to it, and the checksums true."""
    _, parts = sections(data)
    body = json.loads(parts[2])
    for _ in range(dice.choice((1, 1, 2))):
        body = damaged_json(dice, body)
    return retold(data, body)


def _elsewhere(dice: random.Random, data: bytes) -> bytes:
    """For another CPU, or by another version."""
    body = json.loads(sections(data)[1][2])
    way = dice.randrange(4)
    if way == 0:
        body["architecture"] = dice.choice(("aarch64", "riscv64", "", "x86_64x", "\x1b[31m"))
    elif way == 1:
        body["cpu_features"] = [*body["cpu_features"], dice.choice(("sve2", "amx-fp99", "avx10.9", "", "\n"))]
    elif way == 2:
        body["versions"]["tvm"] = dice.choice(("0.1", "", "99.0.0", "x" * 1000))
    else:
        body["threads"] = dice.choice((0, -1, 10**9, 2**63))
    return retold(data, body)


def _image_damaged(dice: random.Random, data: bytes) -> bytes:
    """Damage of the code's headers with true checksums: the loader must never see what it cannot bear."""
    _, parts = sections(data)
    edge = dice.choice((64, 512, 4096))
    parts[0] = damaged(dice, parts[0][:edge]) + parts[0][edge:]
    return built(parts)


def _unsigned(_dice: random.Random, data: bytes) -> bytes:
    return data[: -(32 + 64 + 8)]


def _other_signer(dice: random.Random, data: bytes) -> bytes:
    end = bytearray(data[-104:])
    end[dice.randrange(96)] ^= 0xFF
    return data[:-104] + bytes(end)


def _appended(dice: random.Random, data: bytes) -> bytes:
    return data + dice.randbytes(dice.choice((1, 104, 4096)))


def _same(_dice: random.Random, data: bytes) -> bytes:
    return data


KINDS = {
    "cut": _cut, "flipped": _flipped, "swapped": _swapped, "described": _described, "elsewhere": _elsewhere,
    "image": _image_damaged, "unsigned": _unsigned, "other signer": _other_signer, "signed and flipped": _flipped,
    "appended": _appended, "sound": _same, "signed and sound": _same,
}  # fmt: skip
SIGNED = frozenset({"unsigned", "other signer", "signed and flipped", "signed and sound"})
EDITED = frozenset({"described", "elsewhere", "swapped", "image"})
"""Forged with care: such code runs, as the README says; it only must not crash before it is refused."""
