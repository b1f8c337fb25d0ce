"""The room that every attempt gets anew: sound files of every kind, files of others, and what is no file at all."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import signal
import socket
import sqlite3
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from experiments.fuzz.forge import every_segment, in_parts
from experiments.fuzz.samples import models

EXIT_CODES = frozenset({0, 1, 2, 3, 4, 6, 75, 130})
"""What the README says that a verb ends with; everything else is a finding (70: a defect, told as one)."""
WALL_S = 240.0
"""Of one attempt, on a machine that is busy with others; processor time is bounded at 20 s."""
HIDDEN = frozenset(map(chr, (*range(9), *range(11, 32), 127)))


class Broken(AssertionError):  # noqa: N818  no error of the experiment, but what it looks for
    """The product broke its word; the text says how."""


@dataclass(frozen=True)
class Answer:
    """What a verb said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The last line for the person."""
        lines = self.err.strip().splitlines() or self.out.strip().splitlines()
        return lines[-1][:300] if lines else ""


def prepare(folder: Path, *, tuned: bool = True) -> Path:
    """The stage in `folder`, made once: models, libraries, databases, an export, keys, files of others.

    `tuned`: own.db also holds a real, short search; it takes a while.
    """
    stage = folder / "stage"
    if (stage / "ready").exists():
        return stage
    from autofuse import api
    from autofuse.database.database import open_database
    from autofuse.database.files.upkeep import export_database
    from autofuse.values.signatures import new_key
    from experiments.database.synthetic import write_database

    stage.mkdir(parents=True)
    for name, data in zip(("model", "other"), models().values(), strict=True):
        (stage / f"{name}.onnx").write_bytes(data)
    for name, seed in (("own", 1), ("source", 2)):
        write_database(stage / f"{name}.db", 50, seed=seed, blocks=2)
    if tuned:
        api.tune(stage / "model.onnx", database=str(stage / "own.db"), trials=4, budget="30s", threads=1)
    for name in ("key", "stranger"):
        new_key(stage / name)
    for name, key in (("model.so", None), ("signed.so", stage / "key")):
        api.compile(stage / "model.onnx", stage / name, database=str(stage / "own.db"), threads=1, sign=key)
    np.save(stage / "x.npy", api.load(stage / "model.so").example_inputs()["x"])
    (stage / "given").mkdir()
    dice = np.random.default_rng(0)
    for number in range(8):
        x = np.load(stage / "x.npy")
        np.save(stage / "given" / f"{number}.npy", dice.standard_normal(x.shape).astype(x.dtype))
    (stage / "open.onnx").write_bytes(rows_model().SerializeToString())
    api.compile(stage / "open.onnx", stage / "open.so", database=str(stage / "own.db"), threads=1, sizes={"n": (1, 64)})
    model_file(stage / "parts.onnx", in_parts())
    with every_segment():
        api.compile(stage / "parts.onnx", stage / "parts.so", database=str(stage / "own.db"), threads=1)
    for name, form in (("net.a", "c"), ("wrapped.onnx", "ort")):
        api.compile(stage / "model.onnx", stage / name, database=str(stage / "own.db"), threads=1, format=form)
    api.package(stage / "net.a", stage / "pack")
    with open_database(stage / "source.db", read_only=True) as database:
        export_database(database, stage / "export", sign=stage / "key")
        export_database(database, stage / "shared", share=True)
    _files_of_others(stage)
    (stage / "ready").write_text("")
    return stage


def rows_model() -> ModelProto:
    """A product over rows, of which there may be any number."""
    weight = numpy_helper.from_array(np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "product"), helper.make_node("Relu", ["a"], ["y"], "relu")]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xy")
    graph = helper.make_graph(nodes, "rows", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _files_of_others(stage: Path) -> None:
    (stage / "notes.txt").write_text("a year's work\n")
    (stage / "locked.txt").write_text("read-only\n")
    (stage / "locked.txt").chmod(0o444)
    for name in ("foreign", "out", "home", "full"):
        (stage / name).mkdir()
    (stage / "foreign" / "manifest.json").write_text('{"files": [{"table": "thesis"}], "format": 1}')
    (stage / "foreign" / "thesis.jsonl").write_text("{}\n")
    (stage / "out" / "report.md").write_text("my own report\n")
    (stage / "out" / "y.npy").write_text("no array\n")
    for name in ("notes.h", "own.h"):  # beside libraries that are not there
        (stage / name).write_text("/* a header of mine */\n")
    (stage / "page.html").write_text("<html>my own page</html>\n")
    (stage / "picture.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>\n")


def room_of(folder: Path) -> Path:
    """A fresh copy of the stage, with links and devices; it becomes the working directory and the user's home."""
    stage, room = folder / "stage", folder / "room"
    os.chdir(folder)
    shutil.rmtree(room, ignore_errors=True)
    shutil.copytree(stage, room)
    os.chdir(room)  # a socket's path must be short
    for name, target in (("link", "model.onnx"), ("loop", "loop"), ("dangling", "nowhere"), ("folder", "foreign")):
        (room / name).symlink_to(target)
    os.link(room / "model.onnx", room / "hard")
    os.link(room / "own.db", room / "harddb")
    os.mkfifo(room / "pipe")
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind("socket")
    for name, minor in (("null", 3), ("fulldevice", 7)):
        with suppress(OSError):  # only root may
            os.mknod(room / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    home = str(room / "home")
    os.environ.update(HOME=home, XDG_DATA_HOME=home, XDG_CACHE_HOME=home, XDG_CONFIG_HOME=home)
    return room


def command(*words: str) -> Answer:
    """A command line of the product in this process, as its console script runs it."""
    from autofuse.cli.main import run

    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    kept = sys.argv, sys.stdout, sys.stderr
    sys.argv, sys.stdout, sys.stderr = ["autofuse", *words], *streams
    code = 0
    try:
        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv, sys.stdout, sys.stderr = kept
    texts = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in streams]
    return judged(Answer(code, *texts), words)


def judged(answer: Answer, words: Sequence[str]) -> Answer:
    """The answer; Broken when no user should ever see it."""
    said = answer.out + answer.err
    where = f"{list(words)} -> {answer.code}: {answer.last}"
    if "Traceback (most recent call last)" in said or "defect of autofuse" in said:
        raise Broken(f"traceback: {where}: {answer.err[-600:]}")
    if answer.code not in EXIT_CODES:
        raise Broken(f"exit code: {where}")
    if answer.code and not said.strip():
        raise Broken(f"silent: {where}")
    if HIDDEN & set(said):
        raise Broken(f"control characters: {where}")
    if answer.code > 1 and sum(line.startswith("autofuse: ") for line in answer.err.splitlines()) > 2:
        raise Broken(f"several messages: {where}: {answer.err[-600:]}")
    return answer


@contextmanager
def in_time(seconds: float = WALL_S) -> Iterator[None]:
    """Broken when the block waits for too long, also without using the processor."""

    def late(_number: int, _frame: object) -> None:
        raise Broken(f"hang: more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def state(room: Path) -> dict[str, str]:
    """What stands in a folder: for each path its kind and a digest of its content."""
    found = {}
    for path in sorted(room.rglob("*")):
        mode = path.lstat().st_mode
        kind = stat.filemode(mode)
        if stat.S_ISREG(mode):
            kind += hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(mode):
            kind += str(path.readlink())
        found[str(path.relative_to(room))] = kind
    return found


def require_untouched(before: Mapping[str, str], after: Mapping[str, str], mine: frozenset[str], what: str) -> None:
    """Broken when anything but `mine` changed or is gone, or when a part of a file was left behind."""
    for name, kind in before.items():
        if name not in mine and after.get(name) != kind:
            raise Broken(f"destroyed: {name} by {what}")
    for name in after:
        if name.endswith(".part") and name not in before:
            raise Broken(f"left behind: {name} by {what}")


def measured(path: Path) -> set[tuple[object, ...]]:
    """Every measurement of a database with its samples, by what never changes."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT m.uid, m.state, m.median_us, s.block, s.us FROM af_measurement m "
            "LEFT JOIN af_sample s ON s.measurement_id = m.id"
        )
        return set(rows.fetchall())


def model_file(path: Path, model: ModelProto) -> Path:
    """The model as a file."""
    path.write_bytes(model.SerializeToString())
    return path
