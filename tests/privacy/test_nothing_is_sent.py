"""What the verbs leave behind and whom they call: a library watches every process that they start, native code too."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import pytest

from autofuse.backend.library.library import read_metadata
from autofuse.measure.children.process import Child, ask
from autofuse.measure.measurement import Failure
from autofuse.measure.remote.requests import Describe
from autofuse.values.processes import SWITCHED_OFF
from tests.segments.models import model_of, normal

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = ("/dev/", "/proc/", "/sys/")
SESSION = """
import sys, autofuse
session = autofuse.Session("out/small.so", threads=1)
session.run(None, session.empty_inputs())
"""


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    assert compiler, "autofuse itself needs a C linker"
    library = tmp_path_factory.mktemp("watch") / "watch.so"
    source = Path(__file__).with_name("watch.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"], check=True)
    return library


@dataclass
class Home:
    """A user's fresh home: `out` for what is asked for, `tmp` for what is temporary, nothing else."""

    folder: Path
    watch: Path
    seen: list[str] = field(default_factory=list)

    def run(self, *arguments: str) -> None:
        """A Python process with these arguments, everything that it starts watched."""
        log = self.folder.parent / "watch.log"
        log.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder, env=self._environment(log), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self.seen = sorted(set(log.read_text().splitlines())) if log.exists() else []

    def _environment(self, log: Path) -> dict[str, str]:
        """No CI, under which ONNX Runtime is silent by itself; bytecode is Python's own affair."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_PRELOAD": str(self.watch),
            "WATCH_LOG": str(log),
        }

    @property
    def sockets(self) -> list[str]:
        return [line for line in self.seen if line.startswith("socket")]

    @property
    def written(self) -> set[str]:
        """Files and folders outside of the output and the temporary folder, the system's own aside."""
        own = tuple(str(self.folder / name) for name in ("out", "tmp"))
        paths = {line.partition(" ")[2] for line in self.seen if not line.startswith("socket")}
        return {path for path in paths if not path.startswith((*own, *SYSTEM))}

    @property
    def left(self) -> list[str]:
        """What stands in the home that is neither output nor temporary."""
        return sorted(path.name for path in self.folder.iterdir() if path.name not in ("out", "tmp", "small.onnx"))


@pytest.fixture(scope="module")
def home(watch: Path, tmp_path_factory: pytest.TempPathFactory, onnx_builder: type[Any]) -> Home:
    folder = tmp_path_factory.mktemp("user") / "home"
    for name in ("out", "tmp"):
        (folder / name).mkdir(parents=True)
    build = onnx_builder()
    build.op("Relu", "y", build.dense("dense", "x", (16, 16)))
    build.save(folder / "small.onnx", {"x": (4, 16)}, ["y"])
    return Home(folder, watch)


def test_the_watch_sees_files_and_sockets(home: Home) -> None:
    home.run("-c", "import pathlib, socket; socket.socket(); pathlib.Path('gone').write_text('')")
    assert home.sockets == ["socket of the internet"]
    assert home.written == {str(home.folder / "gone")}
    (home.folder / "gone").unlink()


@pytest.mark.long
@pytest.mark.slow
def test_tuning_compiling_benchmarking_and_a_session_write_and_call_nothing_else(home: Home) -> None:
    model, common = "small.onnx", ("--db", "out/profile.db", "--threads", "1")
    for arguments in (
        ("-m", "autofuse", "tune", model, "--trials", "1", *common),
        ("-m", "autofuse", "compile", model, "-o", "out/small.so", *common),
        ("-m", "autofuse", "run", "out/small.so", "-o", "out/arrays"),
        ("-m", "autofuse", "bench", model, "--against", "onnxruntime,tvm", "--budget", "1s", *common),
        ("-c", SESSION),
    ):
        home.run(*arguments)
        assert (home.sockets, home.written, home.left) == ([], set(), []), arguments


@pytest.mark.long
def test_a_model_of_which_onnx_runtime_runs_a_part_writes_and_calls_nothing_else(home: Home) -> None:
    """ONNX Runtime infers its types, then runs a part of it, by the command line and in a session."""
    onnx.save(
        model_of(
            """net (float[64,512] x) => (float[64,1024] y, int64[2,n] h) {
                a = MatMul (x, w)
                y = Relu (a)
                h = NonZero (y)
            }""",
            w=normal(512, 1024),
        ),
        home.folder / "out" / "parts.onnx",
    )
    model, library = "out/parts.onnx", "out/parts.so"
    for arguments in (
        ("-m", "autofuse", "inspect", model),
        ("-m", "autofuse", "compile", model, "-o", library, "--db", "out/profile.db", "--threads", "1"),
        ("-m", "autofuse", "run", library, "-o", "out/arrays"),
        ("-c", SESSION.replace("small", "parts")),
    ):
        home.run(*arguments)
        assert (home.sockets, home.written, home.left) == ([], set(), []), arguments
    parts = read_metadata(home.folder / library).parts
    assert parts is not None and [part.model is None for part in parts.order] == [True, False]
    assert (home.folder / "out" / "arrays" / "h.npy").exists()


def test_importing_autofuse_switches_telemetry_off_whatever_stood_there() -> None:
    shown = "import autofuse, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "0"}
    done = subprocess.run([sys.executable, "-c", shown], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_every_child_has_telemetry_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "telling.py").write_text(
        "import os\nfrom autofuse.measure.children.child import serve\n"
        "from autofuse.measure.children.messages import Refused\n"
        "from autofuse.measure.remote.requests import Describe\n"
        "serve({Describe: lambda request: Refused('wrong', os.environ.get('ORT_DISABLE_TELEMETRY', ''))})\n"
    )
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    child = Child("telling", 1 << 30, {"ORT_DISABLE_TELEMETRY": "0"}, [tmp_path])
    try:
        answer = ask(child, Describe(), 60.0)
        assert isinstance(answer, Failure)
        assert answer.message == SWITCHED_OFF["ORT_DISABLE_TELEMETRY"]
    finally:
        child.kill()


def test_the_tests_themselves_run_without_telemetry() -> None:
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"


def _at_the_top(path: Path) -> Callable[[str], bool]:
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names.__contains__


@pytest.mark.parametrize("folder", ["autofuse", "experiments"])
def test_no_module_imports_onnx_runtime_before_autofuse_can_switch_it_off(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*.py") if "runtimes" not in path.parts]
    assert len(files) > 20
    assert [str(path) for path in files if _at_the_top(path)("onnxruntime")] == []


def test_experiments_switch_off_the_telemetry_of_their_rivals_too() -> None:
    shown = "import experiments.tables, os; print(*map(os.environ.get, ('ORT_DISABLE_TELEMETRY', 'DO_NOT_TRACK')))"
    environment = {name: value for name, value in os.environ.items() if name not in SWITCHED_OFF}
    done = subprocess.run(
        [sys.executable, "-c", shown], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 1\n"
