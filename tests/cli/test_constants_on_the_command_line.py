"""`--constant`: an input with a value is none of the library, and every command that comes next says it again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from typer.testing import CliRunner, Result

import autofuse
from autofuse.cli.main import app
from autofuse.errors import InputError

SUM = "f (float[4,6,8] x, int64[1] axes) => (y) { a = Relu (x) y = ReduceSum <keepdims=0> (a, axes) }"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "sums.onnx"
    onnx.save(parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {SUM}'), path)
    return path


def test_the_library_has_the_input_no_longer(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "axes.npy", np.array([2]))
    library, database = tmp_path / "sums.so", tmp_path / "profile.db"
    options = ("--constant", f"axes=@{tmp_path}/axes.npy", "--db", database, "-n", 1)
    done = call("compile", model, "-o", library, *options)
    assert done.exit_code == 0, done.stderr
    assert f"bench {model} --library {library} --threads 1 --constant axes=@{tmp_path}/axes.npy" in _joined(done)
    x = np.random.default_rng(0).standard_normal((4, 6, 8)).astype(np.float32)
    for session in (
        autofuse.Session(library),
        autofuse.Session(model, threads=1, constants={"axes": 2}, database=str(database)),
    ):
        assert [value.name for value in session.get_inputs()] == ["x"]
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.maximum(x, 0).sum(2), rtol=1e-5)
    with pytest.raises(InputError, match="constants"):
        autofuse.Session(library, constants={"axes": 2})


def test_every_verb_takes_it(model: Path, tmp_path: Path) -> None:
    database = ("--db", tmp_path / "profile.db", "-n", 1)
    for verb in (("inspect",), ("explain", *database), ("plan", "show", *database), ("tune", "--dry-run", *database)):
        words, options = ([verb[0], "show"], verb[2:]) if verb[0] == "plan" else ([verb[0]], verb[1:])
        refused = call(*words, model, *options)
        assert "--constant 'axes=[0]'" in refused.stdout + refused.stderr, verb
        done = call(*words, model, *options, "--constant", "axes=[1]", "--format", "json")
        assert done.exit_code == 0, (verb, done.stderr)
        json.loads(done.stdout)
    wrong = call("inspect", model, "--constant", "axis=[1]")
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)
    assert "--constant axis: the model has no such input; its inputs: x, axes" in wrong.stderr


def test_a_library_without_onnx_runtime_says_what_is_missing(model: Path, tmp_path: Path) -> None:
    done = call(
        "compile", model, "-o", tmp_path / "sums.c.so", "--format", "c", "--db", tmp_path / "profile.db", "-n", 1
    )
    assert done.exit_code == 2
    assert "'axes' (int64[1]) is an input that decides what is computed" in done.stderr


def _joined(done: Result) -> str:
    return " ".join(done.stdout.split())
