"""What our processes are given: this package first on the path, no telemetry, an end with their parent, limits."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autofuse.values.processes import LOST_PARENT, SWITCHED_OFF, child_environment, follow_parent, processor_limit

ROOT = Path(__file__).resolve().parents[2]


def test_a_child_finds_this_package_before_all_that_it_inherits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    made = child_environment({"ONE": "1"}, [Path("/own")])
    assert made["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "/own", "/elsewhere"]
    assert made["ONE"] == "1" and made.items() >= SWITCHED_OFF.items()
    monkeypatch.delenv("PYTHONPATH")
    assert child_environment()["PYTHONPATH"] == str(ROOT)


def test_nothing_that_is_handed_to_a_child_switches_telemetry_on() -> None:
    assert child_environment({"ORT_DISABLE_TELEMETRY": "0"}).items() >= SWITCHED_OFF.items()


def test_a_process_whose_parent_is_gone_ends_at_once() -> None:
    child = os.fork()
    if child == 0:
        follow_parent(1)  # as if its parent had died: the number is another's
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == LOST_PARENT


def test_a_process_dies_with_its_parent() -> None:
    """The middle process makes one that follows it, says its number and is killed."""
    child = (
        "import os, time; from autofuse.values.processes import follow_parent; "
        "follow_parent({}); print(os.getpid(), flush=True); time.sleep(60)"
    )
    middle = f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}.format(os.getpid())])"
    process = subprocess.Popen([sys.executable, "-c", middle], stdout=subprocess.PIPE, env=child_environment())
    assert process.stdout is not None
    followed = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.read()  # ends when the last holder of the pipe has ended
    process.stdout.close()
    assert not Path(f"/proc/{followed}/cmdline").exists() or not Path(f"/proc/{followed}/cmdline").read_bytes()


def test_a_limit_of_processor_time_ends_the_process_and_is_lifted_afterwards() -> None:
    before = resource.getrlimit(resource.RLIMIT_CPU)
    with processor_limit(100.0):
        assert resource.getrlimit(resource.RLIMIT_CPU)[0] >= 100
    assert resource.getrlimit(resource.RLIMIT_CPU) == before
    code = "from autofuse.values.processes import processor_limit\nwith processor_limit(0.1):\n    while True: pass"
    done = subprocess.run([sys.executable, "-c", code], env=child_environment(), timeout=600)
    assert done.returncode == -signal.SIGXCPU
