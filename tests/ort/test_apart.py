"""ONNX Runtime runs models in a process of its own: what one does to it ends as a message, and the next one runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autofuse.cli.main import app
from autofuse.errors import InputError
from autofuse.ort import apart
from autofuse.ort.apart import Run, run_apart
from autofuse.ort.process import UNLIMITED, HungError, OrtProcess
from tests.ort.broken import broken
from tests.segments.models import model_of, written

NET = "net (float[2,4] x) => (float[2,4] y) { y = Neg (x) }"
SEGFAULT = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process of the test's own."""
    servant = apart._Servant()
    monkeypatch.setattr(apart, "_SERVANT", servant)
    yield
    servant.end()


def ask(folder: Path, text: str = NET, name: str = "y", memory_bytes: int = 2 << 30) -> np.ndarray:
    model = written(model_of(text), folder)
    np.save(folder / "x.npy", np.ones((2, 4), "float32"))
    runs = [Run({"x": folder / "x.npy"}, {name: folder / "y.npy"})]
    run_apart("net", model, runs, optimise=False, memory_bytes=memory_bytes)
    return np.asarray(np.load(folder / "y.npy"))


def test_a_run_writes_what_is_wanted_and_the_next_one_is_in_the_same_process(tmp_path: Path) -> None:
    assert (ask(tmp_path) == -1).all()
    first = apart._SERVANT._process
    assert (ask(tmp_path) == -1).all()
    assert apart._SERVANT._process is first


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (NET.replace("Neg", "NoSuchThing"), "^net: ONNX Runtime cannot load the model: "),
        (NET.replace("{ y = Neg (x)", "{ s = Constant <value_ints = [3, 3]> () y = Reshape (x, s)"), "^net: ONNX"),
        ("net (float[2,4] x) => (seq(float[2,4]) y) { y = SequenceConstruct (x) }", "no tensor of numbers"),
    ],
)
def test_what_it_refuses_is_told_and_breaks_nothing(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        ask(tmp_path, text)
    assert (ask(tmp_path) == -1).all()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (SEGFAULT, "ONNX Runtime ended with SIGSEGV while it ran the model"),
        ("import time; time.sleep(60)", "ONNX Runtime does not answer within 0.5 s"),
        ("bytearray(3 << 30)", "ONNX Runtime takes more memory than it may"),
    ],
)
def test_a_model_that_breaks_it_ends_with_a_message_and_the_next_one_runs(
    body: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        broken(patch, tmp_path, body)
        patch.setattr(apart, "WALL_S", 0.5 if "sleep" in body else 60.0)
        with pytest.raises(InputError, match=told):
            ask(tmp_path)
        apart._SERVANT.end()
    assert (ask(tmp_path) == -1).all()


def test_a_process_that_reads_nothing_does_not_hold_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe holds 64 KiB; a model is sent whole."""
    (tmp_path / "deaf.py").write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = OrtProcess("deaf", UNLIMITED, 1 << 30)
    with pytest.raises(HungError, match="does not answer within 0.5 s"):
        process.ask(bytes(1 << 20), 0.5)
    assert not process.alive


def test_a_process_that_something_else_ended_is_replaced(tmp_path: Path) -> None:
    ask(tmp_path)
    assert apart._SERVANT._process is not None
    apart._SERVANT._process._process.kill()
    assert (ask(tmp_path) == -1).all()


def test_a_forked_process_has_one_of_its_own(tmp_path: Path) -> None:
    ask(tmp_path)
    first = apart._SERVANT._process
    if (child := os.fork()) == 0:
        code = 1
        try:
            assert (ask(tmp_path) == -1).all() and apart._SERVANT._process is not first
            apart._SERVANT.end()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert first is not None and first.alive and (ask(tmp_path) == -1).all()


def test_a_file_that_cannot_be_written_is_told_as_what_it_is(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 4), "float32"))
    runs = [Run({"x": tmp_path / "x.npy"}, {"y": tmp_path / "missing" / "y.npy"})]
    with pytest.raises(FileNotFoundError):
        run_apart("net", written(model_of(NET), tmp_path), runs, optimise=False, memory_bytes=2 << 30)


ELSEWHERE = """
import sys
import autofuse
from autofuse.segments import worth
worth.LEAST_US = 0.0
model, database = sys.argv[1], sys.argv[2]
autofuse.inspect(model)
autofuse.compile(model, database + ".so", database=database, threads=1)
autofuse.bench(model, database=database, threads=1, budget=1, against="onnxruntime")
print("here" if "onnxruntime" in sys.modules else "elsewhere")
"""


@pytest.mark.long
def test_no_verb_loads_it_into_its_own_process_for_a_model_in_parts(tmp_path: Path) -> None:
    """A library in parts does, where it is loaded: it is ONNX Runtime's session."""
    model = written(
        model_of("net (float[2,4] x) => (int64[2,m] y) { s = Exp (x) t = Neg (s) y = NonZero (t) }"), tmp_path
    )
    command = [sys.executable, "-c", ELSEWHERE, str(model), str(tmp_path / "p.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.split()[-1:] == ["elsewhere"], done.stdout + done.stderr


@pytest.mark.parametrize(
    "text", [NET, "net (float[2,4] x) => (int64[2,m] y) { s = Neg (x) y = NonZero (s) }"], ids=["whole", "in parts"]
)
@pytest.mark.parametrize("verb", ["bench", "tune"])
def test_a_crash_of_onnx_runtime_ends_a_verb_with_a_message(
    verb: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: the process of the verb itself ended by the signal, without a word."""
    if verb == "tune" and text != NET:
        monkeypatch.setattr("autofuse.parted.tune._segments", lambda *_: [])
        monkeypatch.setattr("autofuse.parted.tune.require_segments", lambda *_: None)
    model = written(model_of(text), tmp_path)
    broken(monkeypatch, tmp_path, SEGFAULT, "autofuse.ort.apart")
    done = CliRunner().invoke(app, [verb, str(model), "--budget", "10m", "--db", str(tmp_path / "p.db")])
    assert done.exit_code == 2, (done.stdout, done.stderr)
    assert "ONNX Runtime ended with SIGSEGV" in done.stderr and "Traceback" not in done.stderr
