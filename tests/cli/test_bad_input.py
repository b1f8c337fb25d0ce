"""Bad input through the real command line: one message that says what to do, an exit code, nothing damaged."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from autofuse.backend.container.container import ORT_MODEL
from autofuse.backend.library import library
from autofuse.cli.main import app
from autofuse.database.database import open_database

VERBS = ("tune", "compile", "bench")
FLOAT = TensorProto.FLOAT


def write(
    path: Path, nodes: Sequence[onnx.NodeProto], shape: Sequence[int | str], constants: Sequence[TensorProto] = ()
) -> Path:
    """A model from "x" to the last node's result, both of `shape`."""
    ends = [helper.make_tensor_value_info(name, FLOAT, shape) for name in ("x", nodes[-1].output[0])]
    graph = helper.make_graph(list(nodes), "g", ends[:1], ends[1:], list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def node(kind: str, inputs: str, output: str) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), [output], name=f"{output}_{kind}")


def truncated(path: Path) -> Path:
    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    whole = write(path, [node("MatMul", "x w", "y")], [4, 64], [weights]).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return path


def text(path: Path) -> Path:
    path.write_text("# notes, and no model\n" * 10, encoding="utf-8")
    return path


def outside(path: Path) -> Path:
    (path.parent.parent / "weights.bin").write_bytes(bytes(16))
    weights = TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="../weights.bin")
    return write(path, [node("Add", "x w", "y")], [4], [weights])


def cycle(path: Path) -> Path:
    return write(path, [node("Add", "x b", "a"), node("Relu", "a", "b")], [4])


def unknown(path: Path) -> Path:
    return write(path, [node("Frobnicate", "x", "y")], [4])


def symbolic(path: Path) -> Path:
    return write(path, [node("Relu", "x", "y")], ["batch", 4])


def good(path: Path) -> Path:
    return write(path, [node("Relu", "x", "y"), node("Exp", "y", "z")], [4, 16])


def not_a_number(path: Path) -> Path:
    one = numpy_helper.from_array(np.ones(4, np.float32), "one")
    nodes = [node("Abs", "x", "a"), node("Neg", "a", "n"), node("Sub", "n one", "s"), node("Sqrt", "s", "r")]
    return write(path, [*nodes, node("Exp", "r", "y")], [4], [one])


class Outcome:
    """What a command came to."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def message(self) -> str:
        """The one line that says what is wrong; anything more is a failure of its own."""
        assert "Traceback" not in self.err, self.err
        assert self.code not in (0, 1), (self.code, self.err)
        lines = [line for line in self.err.splitlines() if line.startswith("autofuse: ")]
        assert len(lines) == 1, self.err
        assert self.out == ""
        return lines[0]


def call(*arguments: object) -> Outcome:
    """The verb, in this process."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def spawn(prepare: Callable[[], None], *arguments: object) -> Outcome:
    """The verb, in a process of its own that `prepare` limits first."""
    command = [sys.executable, "-m", "autofuse", *map(str, arguments)]
    done = subprocess.run(command, preexec_fn=prepare, capture_output=True, text=True, timeout=600)
    return Outcome(done.returncode, done.stdout, done.stderr)


def obey_permissions() -> None:
    """Take from root the right to ignore permissions (Linux: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH)."""
    drop = ctypes.CDLL(None).prctl
    for capability in (1, 2):
        drop(24, capability, 0, 0, 0)


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes: what a full disk looks like to the one who writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def arguments_of(verb: str, model: Path, database: Path) -> list[object]:
    more: dict[str, list[object]] = {
        "tune": ["--trials", 1],
        "compile": ["-o", model.with_suffix(".so")],
        "bench": ["--budget", "1s", "--against", "none"],
    }
    return [verb, model, "--db", database, "--threads", 1, *more[verb]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "models"
    made.mkdir()
    return made


@pytest.fixture
def database(folder: Path) -> Path:
    """A sound database, with something in it."""
    path = folder / "profile.db"
    with open_database(path) as opened:
        opened.record_workload("0" * 64, "{}", "precious")
    return path


def is_intact(database: Path) -> bool:
    with open_database(database, read_only=True) as opened:
        assert opened.problems() == []
        with opened._engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT label FROM af_workload ORDER BY id").all()
    return [row[0] for row in rows[:1]] == ["precious"]


@pytest.mark.parametrize("verb", [*VERBS, "inspect"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (truncated, ["truncated", "export or download it again"]),
        (text, ["not a readable ONNX file", "export or download it again"]),
        (outside, ["'../weights.bin'", "leaves the model's folder", "keep the file in the model's folder"]),
        (cycle, ["a cycle through", "'b_Relu'", "export the model again"]),
        (unknown, ["unknown operator 'Frobnicate'", "standard ONNX operators"]),
        (symbolic, ["'x' (batch, 4)", "--shape x=1,4"]),
        (lambda path: path, ["No such file"]),
        (lambda path: path.parent, ["not a file; give the path of an .onnx file"]),
    ],
    ids=["truncated", "text", "outside", "cycle", "unknown", "symbolic", "missing", "folder"],
)
def test_a_bad_model(verb: str, make: Callable[[Path], Path], words: list[str], folder: Path, database: Path) -> None:
    model = make(folder / "model.onnx")
    before = database.read_bytes()
    outcome = call(*(arguments_of(verb, model, database) if verb in VERBS else ["inspect", model]))
    message = outcome.message
    assert outcome.code == 2
    assert model.name in message
    assert all(word in message for word in words), message
    assert database.read_bytes() == before
    assert not (folder / "model.so").exists()


@pytest.mark.parametrize("verb", ["tune", "bench"])
def test_a_model_that_yields_nan(verb: str, folder: Path, database: Path) -> None:
    outcome = call(*arguments_of(verb, not_a_number(folder / "model.onnx"), database))
    assert "yields NaN in output 'y'" in outcome.message
    assert ("NaN first appears in 'r'" in outcome.message) == (verb == "tune")
    assert "mend the model" in outcome.message
    assert is_intact(database)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--threads", 99], ["--threads: got 99", "allowed: 1 to "]),
        (["--device", "toaster"], ["--device: 'toaster' is unknown", "allowed: local"]),
        (["--shape", "y=1,2"], ["--shape y: the model has no such input; its inputs: x"]),
    ],
    ids=["threads", "device", "shape"],
)
def test_a_bad_argument(verb: str, flags: list[object], words: list[str], folder: Path, database: Path) -> None:
    outcome = call(*arguments_of(verb, good(folder / "model.onnx"), database), *flags)
    assert all(word in outcome.message for word in words), outcome.message
    assert is_intact(database)


def test_a_value_that_an_option_does_not_have(folder: Path) -> None:
    answer = CliRunner().invoke(app, ["compile", "net.onnx", "-o", str(folder / "m.so"), "--on-miss", "rules"])
    assert answer.exit_code == 2
    assert "Invalid value for '--on-miss': 'rules' is not one of 'rule', 'model', 'none', 'fail'" in answer.stderr


def test_a_search_space_with_a_knob_that_no_kernel_has(folder: Path, database: Path) -> None:
    space = folder / "mine.toml"
    space.write_text("schema = 1\n[schedule.contraction]\nvektors = [1, 2]\n", encoding="utf-8")
    outcome = call(*arguments_of("tune", good(folder / "model.onnx"), database), "--space", space)
    assert "mine.toml: key 'schedule.contraction.vektors' is unknown, allowed: " in outcome.message
    assert is_intact(database)


@pytest.mark.parametrize("verb", ["tune", "bench"])
def test_a_device_of_another_kind_can_be_compiled_for_but_not_measured(verb: str, folder: Path, database: Path) -> None:
    foreign = "zen4" if os.uname().machine == "aarch64" else "raspberry-pi-4"
    outcome = call(*arguments_of(verb, good(folder / "model.onnx"), database), "--device", foreign)
    assert outcome.code == 75
    assert "--device local" in outcome.message
    assert is_intact(database)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("damage", ["head", "pages", "cut", "text", "folder"])
def test_a_database_that_is_none_or_is_damaged(verb: str, damage: str, folder: Path, database: Path) -> None:
    data = bytearray(database.read_bytes())
    place, advice = database, "move it away"
    if damage == "head":
        data[100:4096] = bytes(255 for _ in range(3996))
    elif damage == "pages":
        data[4096:60000] = np.random.default_rng(1).bytes(60000 - 4096)
    elif damage == "cut":
        del data[len(data) // 3 :]
    elif damage == "text":
        data[:] = b"hello\n"
    else:
        place, advice = folder, "name a file in it"
    database.write_bytes(data)
    outcome = call(*arguments_of(verb, good(folder / "model.onnx"), place))
    assert outcome.code == 2
    assert advice in outcome.message
    assert "profiling database" in outcome.message
    assert database.read_bytes() == bytes(data), "what may still be saved is not touched"


def test_a_database_url_of_an_unknown_kind(folder: Path) -> None:
    outcome = call("tune", good(folder / "model.onnx"), "--db", "mystery://host/name", "--trials", 1)
    assert outcome.code == 2
    assert "allowed are a file path, sqlite:///FILE or postgresql" in outcome.message


@pytest.mark.long
def test_a_read_only_database_is_refused_for_tuning_and_good_enough_to_compile(folder: Path, database: Path) -> None:
    model = good(folder / "model.onnx")
    shelf = folder / "shelf"
    shelf.mkdir()
    shutil.copy(database, shelf / "profile.db")
    (shelf / "profile.db").chmod(0o444)
    shelf.chmod(0o555)
    try:
        outcome = spawn(obey_permissions, *arguments_of("tune", model, shelf / "profile.db"))
        assert (outcome.code, "is read-only; make it writable, or choose another --db" in outcome.message) == (2, True)
        compiled = spawn(obey_permissions, *arguments_of("compile", model, shelf / "profile.db"), "--format", "json")
        assert compiled.code == 0, compiled.err
        assert json.loads(compiled.out)["hits"] == 0
        unwritable = spawn(obey_permissions, "compile", model, "-o", shelf / "m.so", "--db", database, "--threads", 1)
        assert "m.so' cannot be written: Permission denied; name another file" in unwritable.message
        assert unwritable.code == 2
        assert [path.name for path in shelf.iterdir()] == ["profile.db"]
    finally:
        shelf.chmod(0o755)
    assert (shelf / "profile.db").read_bytes() == database.read_bytes()


@pytest.mark.parametrize("output", ["models", "profile.db/model.so"])
def test_an_output_that_cannot_be_written(output: str, folder: Path, database: Path) -> None:
    model = good(folder / "model.onnx")
    place = folder if output == "models" else folder / output
    outcome = call("compile", model, "-o", place, "--db", database, "--threads", 1)
    assert str(place) in outcome.message
    assert is_intact(database)


def test_a_full_disk_under_the_database(folder: Path, database: Path) -> None:
    model = good(folder / "model.onnx")
    with file_limit(database.stat().st_size // 2):
        outcome = call(*arguments_of("tune", model, database))
    assert outcome.code == 2
    assert "check the disk, its quota and its free space (everything recorded before is kept)" in outcome.message
    assert is_intact(database)


def test_a_full_disk_under_the_temporary_folder(folder: Path, database: Path) -> None:
    model = write(folder / "model.onnx", [node("Relu", "x", "y")], [1, 3, 400, 400])
    with file_limit(1_000_000):
        outcome = call(*arguments_of("tune", model, database))
    assert outcome.code == 2
    assert "the disk is full" in outcome.message
    assert "free some space and run the same command again" in outcome.message
    assert is_intact(database)


def test_a_full_disk_under_the_library(folder: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = numpy_helper.from_array(np.ones((256, 256), np.float32), "w")
    model = write(folder / "model.onnx", [node("MatMul", "x w", "y")], [8, 256], [weights])
    with file_limit(200_000):
        outcome = call("compile", model, "-o", folder / "model.so", "--db", folder / "none.db", "--threads", 1)
    assert "model.so' cannot be written" in outcome.message
    assert outcome.code == 2
    assert "free some space" in outcome.message
    assert not list(folder.glob("*model.so*"))

    usage = shutil.disk_usage(folder)._replace(free=1 << 20)
    monkeypatch.setattr(library.shutil, "disk_usage", lambda _path: usage)
    outcome = call("compile", model, "-o", folder / "model.so", "--db", folder / "none.db", "--threads", 1)
    assert "is full (1 MiB free, 32 needed); free some space, or name another folder in TMPDIR" in outcome.message
    assert outcome.code == 2


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound library."""
    folder = tmp_path_factory.mktemp("library")
    model = good(folder / "model.onnx")
    done = call("compile", model, "-o", folder / "model.so", "--db", folder / "none.db", "--threads", 1)
    assert done.code == 0, done.err
    return (folder / "model.so").read_bytes()


def ort_model() -> bytes:
    """A model that says of itself what those of `--format ort` say."""
    model = onnx.helper.make_model(onnx.helper.make_graph([], "net", [], []))
    onnx.helper.set_model_props(model, {ORT_MODEL: "0.1.0"})
    data: bytes = model.SerializeToString()
    return data


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-100], "cut off; make it with `autofuse compile`"),
        (lambda data: data[: len(data) // 2], "cut off; make it with `autofuse compile`"),
        (lambda data: data[:3000] + bytes([data[3000] ^ 255]) + data[3001:], "the library is damaged"),
        (lambda data: data[:-200] + bytes([data[-200] ^ 255]) + data[-199:], "the library is damaged"),
        (lambda data: Path(sys.modules["_ctypes"].__file__ or "").read_bytes(), "not a library that autofuse wrote"),
        (lambda data: b"", "not a library that autofuse wrote"),
        (lambda data: ort_model(), "a model that ONNX Runtime runs with the provider beside it"),
        (None, "No such file"),
    ],
    ids=["cut", "half", "code", "description", "foreign", "empty", "ort", "missing"],
)
def test_a_library_that_is_damaged_or_foreign(
    change: Callable[[bytes], bytes] | None, words: str, compiled: bytes, folder: Path, database: Path
) -> None:
    path = folder / "broken.so"
    if change is not None:
        path.write_bytes(change(compiled))
    for command in (
        ["run", path],
        [*arguments_of("bench", good(folder / "model.onnx"), database), "--library", path],
    ):
        outcome = call(*command)
        assert outcome.code == 2
        assert "broken.so: " in outcome.message
        assert words in outcome.message


def test_a_library_of_another_processor(compiled: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "model.so"
    path.write_bytes(compiled)
    monkeypatch.setattr(library, "host_features", lambda: frozenset({"sse2"}))
    outcome = call("run", path)
    assert outcome.code == 75
    assert "this machine lacks" in outcome.message
    assert "compile the model on this machine" in outcome.message


def test_the_whole_command_line_says_one_line_too(folder: Path) -> None:
    """One case through the installed entry, to show that nothing else prints."""
    outcome = spawn(lambda: None, "compile", truncated(folder / "model.onnx"), "-o", folder / "model.so")
    assert outcome.code == 2
    said = outcome.err.splitlines()
    assert said[-1] == outcome.message
    assert set(said[:-1]) <= {"compile: reading the model"}, "what a slow machine is told meanwhile"


@pytest.mark.parametrize("words", [("run",), ("library", "check"), ("package", "-o", "made")], ids=" ".join)
def test_a_pipe_in_place_of_a_library_is_not_waited_for(words: tuple[str, ...], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "autofuse", *words, "pipe"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (
        2, "autofuse: pipe: cannot read the library: it is a pipe, no regular file\n"
    )  # fmt: skip


MISSING = """
import sys
from typer.testing import CliRunner
from autofuse.cli.main import app
verbs = ("tune", "tune --dry-run", "tune --sizes n=1:4", "tune other.onnx", "inspect", "compile -o a.so",
         "compile --sizes n=1:4 -o a.so", "bench", "bench --sizes n=1:4", "explain", "plan show",
         "quantize -o b --calibration c")
for verb in verbs:
    done = CliRunner().invoke(app, [*verb.split(), "missing.onnx"])
    assert done.exit_code == 2 and "onnx: cannot read the model: No such file" in done.stderr, (verb, done.stderr)
for words in ("inspect model.onnx --device missing.toml", "tune model.onnx --device missing.toml"):
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2 and "missing.toml: cannot read the device profile: No such file" in done.stderr, words
for verb in ("report", "status", "stop", "compare 1 2"):
    done = CliRunner().invoke(app, [*verb.split(), "--db", "missing.db"])
    assert done.exit_code == 2 and "missing.db: no such file" in done.stderr, (verb, done.exit_code, done.stderr)
slow = {"tvm", "onnx", "onnxruntime", "optuna", "pandas", "scipy"} & set(sys.modules)
assert not slow, slow
"""


def test_paths_that_lead_nowhere_are_refused_before_anything_slow_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    done = subprocess.run([sys.executable, "-c", MISSING], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
