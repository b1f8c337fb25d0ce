"""No traceback reaches a user: a mistake of ours is named as one, and its details are in a file."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from autofuse import api
from autofuse.cli.failures import EXIT_DEFECT
from autofuse.cli.main import app
from autofuse.database.database import open_database


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """`inspect` has a mistake; the temporary folder, where its details go."""

    def inspect(*_: object, **__: object) -> None:
        raise KeyError("a name that nobody thought of\nand more")

    monkeypatch.setattr(api, "inspect", inspect)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_mistake_of_ours_is_named_and_its_details_are_kept(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["autofuse", "inspect", "m.onnx", "--rpc-key", "secret"])
    result = call("inspect", "m.onnx")
    assert result.exit_code == EXIT_DEFECT
    assert len(result.stderr.splitlines()) == 1
    found = re.fullmatch(
        r"autofuse: this is a defect of autofuse, not of your input: KeyError: .*; "
        r"its details are in (\S+); please report them\n",
        result.stderr,
    )
    assert found, result.stderr
    details = Path(found[1])
    assert details.parent == broken
    assert stat.S_IMODE(details.stat().st_mode) == 0o600
    text = details.read_text()
    assert "Traceback" in text
    assert "a name that nobody thought of" in text
    assert "inspect m.onnx --rpc-key ..." in text
    assert "secret" not in text


def test_details_that_cannot_be_written_cost_only_the_details(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(broken / "absent"))
    result = call("inspect", "m.onnx")
    assert result.exit_code == EXIT_DEFECT
    assert "its details cannot be written (No such file or directory)" in result.stderr


def test_a_lack_of_memory_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def inspect(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(api, "inspect", inspect)
    result = call("inspect", "m.onnx")
    assert (result.exit_code, "the memory does not suffice" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("redirected", "code", "words"),
    [
        ("> /dev/full", 2, "the disk is full"),
        ("--help > /dev/full", 2, "the disk is full"),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        (">&- 2>&- <&-", 0, ""),
    ],
)
def test_an_output_that_takes_nothing_has_one_message(redirected: str, code: int, words: str) -> None:
    command = f"{sys.executable} -m autofuse device list {redirected}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert len(done.stderr.splitlines()) <= 1


def test_a_closed_stream_does_not_become_a_file_that_is_written(onnx_builder: Any, tmp_path: Path) -> None:
    """Otherwise the database gets the number of the closed output, and text is written into it."""
    b = onnx_builder()
    model = b.save(tmp_path / "net.onnx", {"x": [4, 16]}, [b.op("Relu", "y", "x")])
    command = f"{sys.executable} -m autofuse compile {model} --db {tmp_path}/p.db -o {tmp_path}/net.so --threads 1 >&-"
    subprocess.run(["bash", "-c", command], check=True)
    assert subprocess.run([sys.executable, "-m", "autofuse", "run", str(tmp_path / "net.so")]).returncode == 0


def test_a_name_that_is_no_text_is_shown_and_not_choked_on(onnx_builder: Any, tmp_path: Path) -> None:
    b = onnx_builder()
    model = b.save(tmp_path / "net.onnx", {"x": [4, 16]}, [b.op("Relu", "y", "x")])
    odd = os.fsencode(tmp_path) + b"/\xff\xfe.onnx"
    Path(model).rename(os.fsdecode(odd))
    command = [os.fsencode(sys.executable), b"-m", b"autofuse", b"inspect", odd]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_model_whose_name_is_no_text_is_tuned_and_compiled(onnx_builder: Any, tmp_path: Path) -> None:
    b = onnx_builder()
    model = b.save(tmp_path / "net.onnx", {"x": [4, 16]}, [b.op("Relu", "y", "x")])
    odd = os.fsencode(tmp_path) + b"/net\xff.onnx"
    Path(model).rename(os.fsdecode(odd))
    autofuse, database = [os.fsencode(sys.executable), b"-m", b"autofuse"], os.fsencode(tmp_path / "net.db")
    common = [b"--db", database, b"--threads", b"1"]
    for words in (
        [b"tune", odd, b"--trials", b"1", *common],
        [b"compile", odd, b"-o", os.fsencode(tmp_path / "net.so"), *common],
    ):
        done = subprocess.run([*autofuse, *words], capture_output=True)
        assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(tmp_path / "net.db")) as connection:
        assert connection.execute("SELECT model_name FROM af_run").fetchall() == [("net\ufffd",)]
    done = subprocess.run([*autofuse, b"tune", odd, b"--run", b"night", *common], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "its path is not UTF-8" in done.stderr


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "²"])
def test_numbers_that_nothing_can_hold_have_a_message(number: str, tmp_path: Path) -> None:
    database = tmp_path / "profile.db"
    open_database(database).close()
    command_lines: list[list[object]] = [
        ["db", "prune", "--keep", number, "--max-size", "1G"],
        ["db", "prune", "--older-than", f"{number}d"],
        ["report", "--run", number],
        ["status", "--run", number],
        ["stop", "--run", number],
        ["compare", number, number],
    ]
    for words in command_lines:
        result = call(*words, "--db", database)
        assert result.exit_code == 2, (words, result.stderr)
        assert "Traceback" not in result.stderr
    for words in (["inspect", "m.onnx", "--shape", f"x={number}"], ["compile", "m.onnx", "--buckets", f"n={number}"]):
        assert call(*words).exit_code == 2
