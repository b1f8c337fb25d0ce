"""Locks of one user: out of everybody else's reach, and a wait says for whom."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autofuse.errors import InputError
from autofuse.values import locks
from autofuse.values.arguments import without_secrets
from autofuse.values.locks import held, lock_folder

HOLD = """
import sys
from pathlib import Path
from autofuse.values.locks import held
with held(Path(sys.argv[1]), "is timing"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder and a home of this test's own."""
    for name in ("tmp", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


def test_the_folder_is_closed_to_others_also_when_it_was_open(tmp_path: Path) -> None:
    folder = lock_folder()
    assert folder == tmp_path / "tmp" / f"autofuse-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    assert stat.S_IMODE(lock_folder().stat().st_mode) == 0o700


def test_a_runtime_folder_is_taken_only_when_it_is_this_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert lock_folder() == runtime / "autofuse"
    runtime.chmod(0o777)
    assert lock_folder() == tmp_path / "tmp" / f"autofuse-{os.getuid()}"
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o777, "a folder that we did not make is not changed"


@pytest.mark.parametrize("taken", ["file", "link", "open to all"])
def test_a_name_that_somebody_else_took_is_avoided(taken: str, tmp_path: Path) -> None:
    squatted, elsewhere = tmp_path / "tmp" / f"autofuse-{os.getuid()}", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if taken == "file":
        squatted.write_text("")
    elif taken == "link":
        squatted.symlink_to(elsewhere)
    else:
        squatted.mkdir()
        squatted.chmod(0o777)
    assert lock_folder() == tmp_path / "home" / "autofuse" / "locks"
    assert list(elsewhere.iterdir()) == []


def test_a_folder_of_another_user_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getuid()
    monkeypatch.setattr(locks.os, "getuid", lambda: own + 1)
    with pytest.raises(InputError, match="set XDG_RUNTIME_DIR or TMPDIR"):
        lock_folder()


def test_a_wait_names_the_process_that_holds_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "PATIENCE_S", 0.05)
    monkeypatch.setattr(locks, "AGAIN_S", 0.1)
    path = tmp_path / "measure.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "held\n"
    told: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())
            if len(told) == 2:  # the word is said again, until the holder goes
                holder.stdin.close()  # type: ignore[union-attr]

    logger, listener = logging.getLogger("autofuse.values.locks"), Listener()
    logger.addHandler(listener)
    try:
        with held(path, "is timing on this machine"):
            pass
    finally:
        logger.removeHandler(listener)
        holder.stdin.close()
        holder.wait(timeout=60)
    expected = f"autofuse: waiting for process {holder.pid} (-c {path}), which is timing on this machine"
    assert told[:2] == [expected] * 2


def test_a_lock_that_is_free_is_taken_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with held(tmp_path / "free.lock", "is timing"):
        pass
    assert caplog.records == []


def test_a_holder_that_did_not_sign_is_still_told_of(tmp_path: Path) -> None:
    for text in (None, "", "{}", '{"pid": "x"}', '{"pid": 1, "started": 0, "command": "init"}'):
        holder = tmp_path / "holder"
        if text is not None:
            holder.write_text(text)
        assert locks._told(holder) == "another process of yours"


def test_keys_never_stand_in_a_command_line_that_is_told() -> None:
    words = ["autofuse", "tune", "m.onnx", "--rpc-key", "secret", "--key=secret", "--rpc", "board:1"]
    assert without_secrets(words) == ["autofuse", "tune", "m.onnx", "--rpc-key", "...", "--key=...", "--rpc", "board:1"]
