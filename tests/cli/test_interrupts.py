"""Ctrl-C during a search: once finishes the candidate in flight, twice stops at once; SIGTERM is a first Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autofuse import api
from autofuse.cli.failures import graceful_stop
from autofuse.cli.main import app
from autofuse.errors import InputError
from autofuse.search.progress import Progress


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_waits_for_the_candidate(number: signal.Signals) -> None:
    with graceful_stop() as stop_asked:
        assert not stop_asked()
        os.kill(os.getpid(), number)  # interrupts nothing
        assert stop_asked()


def test_the_second_signal_stops_at_once() -> None:
    with graceful_stop():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_afterwards_signals_mean_what_they_meant_before() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with graceful_stop():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_an_interrupted_tune_records_its_candidate_and_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[int] = []

    def search(_model: Path, *, progress: Any, stop: Any, **_named: object) -> None:
        for candidate in range(5):
            if candidate == 2:
                os.kill(os.getpid(), signal.SIGINT)
            recorded.append(candidate)
            progress(Progress("search", "", 1.0, None, candidate))
            if stop():
                raise KeyboardInterrupt

    monkeypatch.setattr(api, "tune", search)
    result = CliRunner().invoke(app, ["tune", "m.onnx"])
    assert result.exit_code == 130
    assert recorded == [0, 1, 2]
    assert "stopping after the candidate in flight" in result.stderr
    assert "the same command goes on from there" in result.stderr


def test_an_error_of_a_clean_up_after_ctrl_c_is_told_as_the_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def export(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            try:
                Path("/nowhere/lock").unlink()
            except OSError as error:
                raise InputError("the lock cannot be released") from error

    monkeypatch.setattr(api, "db_export", export)
    result = CliRunner().invoke(app, ["db", "export", "folder"])
    assert (result.exit_code, result.stderr) == (130, "autofuse: interrupted\n")


DESTRUCTOR = """
import threading
from autofuse.cli.failures import guarded

class Interrupted:
    def __del__(self):
        raise KeyboardInterrupt

def verb():
    Interrupted()
    threading.Event().wait(60)

guarded(verb)
"""


def test_ctrl_c_that_arrives_in_a_destructor_ends_the_program_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", DESTRUCTOR], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (130, "autofuse: interrupted\n")


def test_memory_that_does_not_suffice_before_a_verb_begins_is_told() -> None:
    code = "from autofuse.cli.failures import guarded\ndef verb(): raise MemoryError\nguarded(verb)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("autofuse: the memory does not suffice")
