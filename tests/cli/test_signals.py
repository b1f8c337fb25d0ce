"""SIGTERM, and a terminal that is closed, end a verb as Ctrl-C does: its row says so, and its processes are gone."""

from __future__ import annotations

import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.core import TyperGroup

from autofuse.cli.failures import Verbs

PATIENCE_S = 600.0


def waited(happened: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := happened()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)
    return found


class Verb:
    """A verb in a process of its own; all that it starts carry a mark in their environment."""

    def __init__(self, folder: Path, *words: object, terminal: bool = False, prefix: tuple[str, ...] = ()) -> None:
        self.mark, self.log = uuid.uuid4().hex, folder / "log"
        command = [*prefix, sys.executable, "-m", "autofuse", *map(str, words)]
        told = {"PYTHONFAULTHANDLER": "1"}  # a crash says where
        environment = {**os.environ, **told, "AUTOFUSE_TEST_MARK": self.mark, "TMPDIR": str(folder)}
        self.screen = -1
        if terminal:
            pid, self.screen = pty.fork()
            if pid == 0:
                os.execvpe(command[0], command, environment)
            self.pid = pid
        else:
            with self.log.open("w") as log:
                self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            self.pid = self.process.pid

    def descendants(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                marked = process.environ().get("AUTOFUSE_TEST_MARK") == self.mark
                if marked and process.pid != self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def end(self) -> int:
        """Its exit code, once it and all its processes are gone."""
        code = os.waitstatus_to_exitcode(waited(lambda: _status(self.pid), "the end")[0])
        waited(lambda: not self.descendants(), "the end of all children")
        return code


def _status(pid: int) -> tuple[int] | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    return (status,) if done else None


def rows(database: Path, query: str) -> list[Any]:
    if not database.exists():
        return []
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        try:
            return [row[0] for row in connection.execute(query)]
        except sqlite3.OperationalError:
            return []


def measured(database: Path) -> bool:
    return bool(rows(database, "SELECT count(*) FROM af_measurement") > [0])


@pytest.fixture
def model(onnx_builder: Any, tmp_path: Path) -> Path:
    b = onnx_builder()
    x = b.op("Relu", "relu", b.conv_bn("conv", "x", (3, 16)))
    x = b.op("Relu", "relu2", b.conv_bn("deep", x, (16, 16), group=16))
    return Path(b.save(tmp_path / "net.onnx", {"x": [1, 3, 24, 24]}, [x]))


@pytest.mark.long
def test_a_terminal_that_is_closed_interrupts_a_run(model: Path, tmp_path: Path) -> None:
    database = tmp_path / "net.db"
    verb = Verb(tmp_path, "tune", model, "--db", database, "--threads", 1, "--budget", "10m", terminal=True)
    waited(lambda: measured(database), "a measurement")
    os.close(verb.screen)
    assert verb.end() == 130
    assert rows(database, "SELECT state FROM af_run") == ["interrupted"]


STOPPED = """
import importlib.abc, os, signal, sys
class Stop(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == library:
            os.kill(os.getpid(), getattr(signal, number))
library, number, file = sys.argv[1:]
sys.argv[1:] = ["inspect", file]
sys.meta_path.insert(0, Stop())
from autofuse.__main__ import run
run()
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("library", ["autofuse.cli.main", "typer", "autofuse.api", "onnx"])
def test_ctrl_c_while_libraries_load_is_one_line(library: str, number: str) -> None:
    words = [sys.executable, "-c", STOPPED, library, number, __file__]  # any file: a missing one is refused before
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (130, "autofuse: interrupted\n")


ENDED = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.abort, None, None)  # as the clean-up of a compiler that was interrupted in the middle of a call
from autofuse.__main__ import run
run()
"""


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["inspect", "absent.onnx"], 2)])
def test_native_code_that_crashes_while_the_process_ends_changes_no_exit_code(words: list[str], code: int) -> None:
    done = subprocess.run([sys.executable, "-c", ENDED, *words], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == code, done.stderr
    assert bool(done.stdout) == (code == 0), "what was printed arrives"


LATE = """
import atexit, os, signal, sys
import autofuse.cli.main as verbs
def late():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(os.getpid(), number)
def begun(run=verbs.run):
    atexit.register(late)
    run()
verbs.run = begun
sys.argv[1:] = ["--version"]
from autofuse.__main__ import run
run()
"""


def test_a_signal_after_the_last_word_of_a_verb_changes_no_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_console_script_is_guarded_as_the_module_is() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="autofuse")
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    assert declared["autofuse"] == "autofuse.__main__:run"
    assert script.value in ("autofuse.__main__:run", "autofuse.cli.main:run"), "the second: installed before"


def test_ctrl_c_while_the_command_line_is_read_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    group = Verbs(name="autofuse")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(TyperGroup, "make_context", interrupted)
        group.main(args=["inspect"], prog_name="autofuse")
    assert end.value.code == 130
    assert capsys.readouterr().err == "autofuse: interrupted\n"


@pytest.mark.long
def test_nohup_keeps_a_run_alive(model: Path, tmp_path: Path) -> None:
    database = tmp_path / "net.db"
    verb = Verb(
        tmp_path, "tune", model, "--db", database, "--threads", 1, "--budget", "10m", prefix=("env", "nohup")
    )  # fmt: skip
    waited(lambda: measured(database), "a measurement")
    os.kill(verb.pid, signal.SIGHUP)
    time.sleep(1.0)
    assert rows(database, "SELECT state FROM af_run") == ["running"]
    assert "stopping" not in verb.log.read_text()
    os.kill(verb.pid, signal.SIGTERM)
    assert verb.end() == 130


@pytest.mark.long
def test_a_job_that_is_told_twice_to_end_closes_its_rows(model: Path, tmp_path: Path) -> None:
    database = tmp_path / "net.db"
    verb = Verb(tmp_path, "tune", model, "--db", database, "--threads", 1, "--budget", "10m", "--run", "night")
    waited(lambda: measured(database), "a measurement")
    os.kill(verb.pid, signal.SIGTERM)
    waited(lambda: "stopping after" in verb.log.read_text(), "a word")
    with suppress(ProcessLookupError):
        os.kill(verb.pid, signal.SIGTERM)
    code = verb.end()
    assert code == 130, verb.log.read_text()
    assert rows(database, "SELECT state FROM af_job") == ["interrupted"]
    assert set(rows(database, "SELECT state FROM af_run")) == {"interrupted"}
    assert "Traceback" not in verb.log.read_text()


def test_a_bench_ends_with_all_its_processes(model: Path, tmp_path: Path) -> None:
    verb = Verb(tmp_path, "bench", model, "--db", tmp_path / "none.db", "--threads", 1, "--budget", "5m")
    waited(verb.descendants, "a contender")
    os.kill(verb.pid, signal.SIGTERM)
    assert verb.end() == 130
    assert verb.log.read_text() == "autofuse: interrupted\n"
    left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert left <= {f"autofuse-{os.getuid()}"}, "no temporary folder is left"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_server_ends_with_its_temporary_folder(number: int, tmp_path: Path) -> None:
    verb = Verb(tmp_path, "serve", "--port", 0, "--key", "k")
    waited(lambda: "serving at" in verb.log.read_text(), "a server")
    os.kill(verb.pid, number)
    assert verb.end() == 130
    assert verb.log.read_text().endswith("autofuse: interrupted\n")
    left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert left <= {f"autofuse-{os.getuid()}"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_at_whatever_moment_a_compile_ends_nothing_half_written_stays_and_no_process(
    number: signal.Signals, model: Path, tmp_path: Path
) -> None:
    place, database = tmp_path / "out.so", tmp_path / "none.db"
    (tmp_path / "tmp").mkdir()
    ends = set()
    for moment_s in (0.0, 0.1, 0.3, 0.8, 1.3):
        before = place.read_bytes() if place.exists() else b""
        verb = Verb(tmp_path / "tmp", "compile", model, "-o", place, "--db", database, "--threads", 1)
        waited(partial(_heeds_signals, verb.pid), "the first moment")  # before it, Python itself starts
        time.sleep(moment_s)
        with suppress(ProcessLookupError):
            os.kill(verb.pid, number)
        code, said = verb.end(), verb.log.read_text()
        ends.add(code)
        assert code in (0, 130) and "Traceback" not in said, said
        assert code == 0 or (place.read_bytes() if place.exists() else b"") == before
        assert {path.name for path in tmp_path.iterdir()} <= {"net.onnx", "out.so", "tmp"}
        left = {path.name for path in (tmp_path / "tmp").iterdir() if path.is_dir()}
        assert left <= {f"autofuse-{os.getuid()}"}, "no temporary folder is left"
    assert 130 in ends


def _heeds_signals(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(caught & 1 << (signal.SIGTERM - 1))
