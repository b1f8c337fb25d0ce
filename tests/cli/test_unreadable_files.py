"""Files that a user names, of no kind or without end: one message each, nothing read without a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from autofuse.cli.main import app
from autofuse.database.database import open_database


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def model(onnx_builder: Any, tmp_path: Path) -> Path:
    b = onnx_builder()
    return Path(b.save(tmp_path / "net.onnx", {"x": [4, 16]}, [b.op("Relu", "y", "x")]))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "profile.db"
    open_database(path).close()
    return path


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"\x93NUMPY\x01\x00v\x00{'descr'", b"PK\x03\x04"])
def test_an_input_that_is_no_array_has_a_message_that_advises_nothing_unsafe(
    content: bytes, model: Path, database: Path, tmp_path: Path
) -> None:
    library, given = tmp_path / "net.so", tmp_path / "x.npy"
    given.write_bytes(content)
    assert call("compile", model, "-o", library, "--db", database, "--threads", 1).exit_code == 0
    result = call("run", library, "--input", f"x={given}")
    assert result.exit_code == 2
    assert "not a readable .npy file" in result.stderr
    assert "pickle" not in result.stderr
    assert "no such file" in call("run", library, "--input", "x=/dev/null").stderr


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "show", "MODEL", "--plan", "/dev/zero"],
        ["compile", "MODEL", "--dry-run", "--device", "/dev/zero"],
        ["compile", "MODEL", "--dry-run", "--on-miss", "model", "--model", "/dev/zero"],
        ["model", "show", "/dev/zero"],
        ["tune", "MODEL", "--space", "/dev/zero"],
        ["tune", "/dev/zero", "--run", "night"],
        ["inspect", "/dev/zero"],
        ["run", "/dev/zero"],
    ],
)
def test_a_file_without_end_is_refused_and_not_read(words: list[str], model: Path, database: Path) -> None:
    flags = [] if words[0] in ("model", "inspect", "run") else ["--db", database]
    result = call(*(model if word == "MODEL" else word for word in words), *flags)
    assert result.exit_code == 2
    assert "/dev/zero" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("content", [None, b"", b"text"])
def test_no_database_is_made_for_a_model_that_cannot_be_read(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "bad.onnx").write_bytes(content)
    before = list(tmp_path.iterdir())
    result = call("tune", tmp_path / "bad.onnx", "--budget", "5s", "--db", tmp_path / "folder" / "new.db")
    assert result.exit_code == 2 and "bad.onnx" in result.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == before


def test_no_database_is_made_for_a_device_that_cannot_be_measured_here(model: Path, tmp_path: Path) -> None:
    for options in ([], ["--sizes", "x=1:4"]):
        result = call("tune", model, "--budget", "5s", "--device", "graviton2", "--db", tmp_path / "new.db", *options)
        assert result.exit_code == 75 and "not measured here" in result.stderr
    assert list(tmp_path.iterdir()) == [model]


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 6000, "{" * 5000, "\xff", ""])
def test_plans_that_no_reader_takes_have_a_message(text: str, model: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(text, encoding="latin-1")
    result = call("plan", "show", model, "--plan", plan)
    assert result.exit_code in (2, 6)
    assert "plan" in result.stderr


@pytest.mark.parametrize("value", ["[" * 5000, "9" * 6000, "1e999", "\xff"])
def test_devices_and_spaces_that_no_reader_takes_have_a_message(value: str, model: Path, tmp_path: Path) -> None:
    place = tmp_path / "own.toml"
    place.write_text(f"schema = {value}\n", encoding="latin-1")
    for words in (["device", "show", place], ["tune", model, "--space", place]):
        result = call(*words)
        assert result.exit_code == 2, result.stderr
        assert "own.toml" in result.stderr
