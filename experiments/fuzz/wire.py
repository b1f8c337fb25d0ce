"""Messages between processes and devices: a sound one of every kind, damaged; and who answers them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofuse.errors import InputError
from experiments.fuzz.mutate import damaged, damaged_json

if TYPE_CHECKING:
    from autofuse.measure.children.messages import Message
    from autofuse.measure.remote.device_session import ServedSession

DEFECTS = re.compile(
    "AssertionError|AttributeError|NameError|UnboundLocalError|KeyError|IndexError|TypeError|RecursionError"
)
"""What a refusal never says: these are mistakes of ours that nobody foresaw."""
_FILE = f"{'0' * 64}."
_TARGET = {"mcpu": "znver3", "lanes": 8, "registers": 16, "cores": 2, "l1_bytes": 32768, "l2_bytes": 262144}
_CASES = [{"inputs": [f"{_FILE}npy"], "outputs": [f"{_FILE}npy"]}]
_POLICY = {"block_s": 0.001, "good_slices": 7, "cap_s": 0.1}
REQUESTS: Mapping[str, Any] = {
    "Describe": {},
    "Missing": {"names": [f"{_FILE}so", f"{_FILE}npy"]},
    "Keep": {"name": f"{_FILE}npy"},
    "StartSession": {"target": _TARGET, "threads": 1, "probe": f"{_FILE}so", "steps": 1000, "cpus": []},
    "RunProbe": {},
    "LoadKernel": {"id": 1, "workload": "{}", "kernel": f"{_FILE}so", "constants": [f"{_FILE}npy"]},
    "Check": {"id": 1, "cases": _CASES, "limit": None},
    "Time": {"id": 1, "policy": _POLICY, "best_us": 1.5, "clock_full_s": 1e-3},
    "Drop": {"id": 1},
    "MeasureRates": {"target": _TARGET, "threads": 1, "cpus": [], "kernels": {"compute-1": f"{_FILE}so"}},
    "LoadNetwork": {
        "kind": "autofuse", "path": f"{_FILE}so", "target": _TARGET, "threads": 1, "inputs": {"x": f"{_FILE}npy"},
        "name": "n",
    },
    "CompareOutputs": {"expected": [f"{_FILE}npy"], "name": "n"},
    "SaveOutputs": {"folder": ".", "name": "n"},
    "TimeCalls": {"calls": 2, "name": "n"},
    "CloseNetwork": {"name": "n"},
}  # fmt: skip
"""A sound body of every request that a session on a device understands."""

_SLICES = [{"us": 1.5, "calls": 3, "clock": 1.0, "waited": 0.0, "good": True}]
_US = {"median": 1.5, "lo": 1.4, "hi": 1.6, "confidence": 0.95, "count": 1}
_TIMING = {"us": _US, "slices": _SLICES, "trusted": True, "reason": "", "stopped": "enough", "probe_us": 1.0}
ANSWERS: Mapping[str, Any] = {
    "Timed": {"timing": _TIMING, "clock_full_s": 1.0},
    "Wanted": {"names": [f"{_FILE}so"]},
    "ProbeRun": {"seconds": 0.01},
    "Loaded": {"load_s": 1.0, "first_s": 0.5},
    "Compared": {"max_rel_error": 1e-6, "reason": ""},
    "Saved": {"paths": ["result-1.npy"]},
    "CallsTimed": {"seconds": 0.1, "waited": 0.0},
    "Checked": {"max_rel_error": 1e-6},
    "Refused": {"kind": "run_error", "message": "no"},
}
"""A sound body of the answers that a coordinator reads."""


def damaged_message(dice: random.Random, sound: Mapping[str, Any]) -> bytes:
    """The text of one of these messages, with a value of it changed, or its bytes."""
    name, body = dice.choice(sorted(sound.items()))
    if dice.random() < 0.05:
        name = dice.choice((*sound, "", "Build", "x" * 100))
    text = f"{name} {json.dumps(damaged_json(dice, body))}".encode()
    return damaged(dice, text) if dice.random() < 0.3 else text


def damaged_request(dice: random.Random) -> bytes:
    """The text of a request to a device that is not quite sound."""
    return damaged_message(dice, REQUESTS)


def judged_answer(_asked: bytes, said: bytes) -> str:
    """Why a request was refused ("": it was not); AssertionError when the answer is none that a user should see."""
    from autofuse.measure.children.messages import Refused, decode, known

    if not said.startswith(b"Refused "):
        decode(said, _answers())
        return ""
    refused = decode(said, known((Refused,)))
    if DEFECTS.search(refused.message):
        raise AssertionError(f"{_asked[:200]!r}: {refused.message}")
    return " ".join(refused.message.split()) or "refused"


@cache
def _answers() -> Mapping[str, type[Message]]:
    from autofuse.measure.children import requests as candidates
    from autofuse.measure.children.messages import Message
    from autofuse.measure.machine import Rates
    from autofuse.measure.networks import requests as networks
    from autofuse.measure.remote import requests as devices

    found: dict[str, type[Message]] = {"Rates": Rates}
    for room in (candidates, networks, devices):
        found |= {
            name: kind for name, kind in vars(room).items() if isinstance(kind, type) and issubclass(kind, Message)
        }
    return found


def try_message(folder: Path, seed: int) -> None:
    """A frame of the pipes between processes (`AFm2`), read and answered; or an answer, read."""
    from autofuse.measure.children.messages import ProtocolError, decode, framed, unframed

    dice = random.Random(seed)
    answers = dice.random() < 0.3
    text = damaged_message(dice, ANSWERS if answers else REQUESTS)
    buffer = bytearray(damaged(dice, framed(text)) if dice.random() < 0.3 else framed(text))
    try:
        while (found := unframed(buffer)) is not None:
            if answers:
                decode(found, _answers())
            elif refused := _answered(folder, found):
                raise InputError(refused)
    except ProtocolError as error:
        raise InputError(" ".join(str(error).split())) from error


def _answered(folder: Path, text: bytes) -> str:
    from autofuse.measure.children.child import answer
    from autofuse.measure.children.messages import encode

    return judged_answer(text, encode(answer(_session(folder).handlers(), text)))


@cache
def _session(folder: Path) -> ServedSession:
    """The session of a device, with nothing uploaded yet."""
    from autofuse.backend.compile.host_cpu import serving_cpu
    from autofuse.device.description import DeviceDescription
    from autofuse.device.host import probe_host
    from autofuse.device.provenance import collect
    from autofuse.measure.remote.device_session import ServedSession

    uploads = folder / "session"
    uploads.mkdir(exist_ok=True)
    described = cache(lambda: DeviceDescription(probe_host(serving_cpu()), collect(), "instance"))
    return ServedSession(uploads, described)
