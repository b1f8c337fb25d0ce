"""A session on a device, without a network: what it makes of its files and of requests that come out of turn."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from autofuse.measure.children.messages import Message, Refused, Request, decode, encode, known
from autofuse.measure.children.requests import Time
from autofuse.measure.remote.device_session import FILES, ServedSession
from autofuse.measure.remote.requests import Keep, LoadKernel, Missing, RunProbe, Wanted
from autofuse.measure.timing.sampling import SamplingPolicy

ABSENT = f"{'0' * 64}.so"


def session(folder: Path, number: int = 1) -> ServedSession:
    (folder / f"session-{number}").mkdir()

    def described() -> None:
        raise AssertionError("nobody asked")

    return ServedSession(folder / f"session-{number}", described)  # type: ignore[arg-type]


def asked(session: ServedSession, request: Request[Message]) -> Message:
    text = session.answer(encode(request).decode()).encode()
    return decode(text, known((request.answer, Refused)))


def uploaded(session: ServedSession, folder: Path, number: int = 1) -> str:
    path = folder / "upload.npy"
    np.save(path, np.arange(3))
    name = f"{hashlib.sha256(path.read_bytes()).hexdigest()}.npy"
    path.rename(folder / f"session-{number}" / name)
    asked(session, Keep(name))
    return name


def test_a_file_of_an_earlier_session_that_became_another_is_wanted_again(tmp_path: Path) -> None:
    name = uploaded(session(tmp_path), tmp_path)
    assert asked(session(tmp_path, 2), Missing((name,))) == Wanted(())
    (tmp_path / FILES / name).write_bytes(b"something else")
    later = session(tmp_path, 3)
    assert asked(later, Missing((name,))) == Wanted((name,))
    uploaded(later, tmp_path, 3)
    assert asked(later, Missing((name,))) == Wanted(())


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (RunProbe(), "no clock probe was started"),
        (Keep(ABSENT), "000000000000 was not uploaded"),
        (LoadKernel(1, "{}", Path(ABSENT), ()), "000000000000 was not uploaded"),
        (LoadKernel(1, "{}", Path("/etc/passwd"), ()), "'/etc/passwd' is no name of an uploaded file"),
        (Time(1, SamplingPolicy()), "candidate 1 is not built in this process"),
    ],
)
def test_a_request_out_of_turn_is_refused_with_the_reason(request_: Request[Message], why: str, tmp_path: Path) -> None:
    assert asked(session(tmp_path), request_) == Refused("run_error", why)
