"""A library from the command line without any tuning: compiled by the fixed rule, run, right."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner, Result

import autofuse
import autofuse.cli.options
from autofuse.cli.main import app
from autofuse.cli.screens.next_steps import after_bench


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions with what follows them, on eight by eight pixels."""
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((8, 4, 3, 3)), "v": random.standard_normal((4, 8, 1, 1))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "v"], ["c"], name="second"),
        helper.make_node("Add", ["c", "x"], ["y"], name="add"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "small",
        [value("x", TensorProto.FLOAT, [1, 4, 8, 8])],
        [value("y", TensorProto.FLOAT, [1, 4, 8, 8])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def compiled(model: Path) -> tuple[Path, dict[str, object]]:
    library = model.with_suffix(".so")
    result = call("compile", model, "-o", library, "--db", model.parent / "p.db", "-n", 1, "--format", "json")
    assert result.exit_code == 0, result.stderr
    body = json.loads(result.stdout)
    assert isinstance(body, dict)
    return library, body


def test_compile_says_that_every_group_took_the_fixed_rule(compiled: tuple[Path, dict[str, object]]) -> None:
    library, body = compiled
    groups = body["groups"]
    assert isinstance(groups, list)
    assert (body["library"], body["hits"], body["kernels"]) == (str(library), 0, len(groups))
    assert {group["tier"] for group in groups} == {"rule"}


def test_the_library_computes_what_the_model_does(
    model: Path, compiled: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    image = np.random.default_rng(1).standard_normal((1, 4, 8, 8), np.float32)
    np.save(tmp_path / "x.npy", image)
    result = call("run", compiled[0], "--input", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "out", "--format", "json")
    assert result.exit_code == 0, result.stderr
    (row,) = json.loads(result.stdout)["outputs"]
    assert (row["output"], row["shape"], row["dtype"]) == ("y", [1, 4, 8, 8], "float32")
    expected = onnxruntime.InferenceSession(model).run(None, {"x": image})[0]
    np.testing.assert_allclose(np.load(row["file"]), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(autofuse.load(compiled[0])({"x": image})[0], expected, rtol=1e-4, atol=1e-4)


def test_inputs_are_generated_where_none_are_given(compiled: tuple[Path, dict[str, object]]) -> None:
    result = call("run", compiled[0])
    assert result.exit_code == 0
    assert "1, 4, 8, 8" in result.stdout


@pytest.mark.parametrize("text", ["y=x.npy", "x.npy", "x=absent.npy"])
def test_a_bad_input_is_named(text: str, compiled: tuple[Path, dict[str, object]]) -> None:
    result = call("run", compiled[0], "--input", text)
    assert (result.exit_code, "--input: " in result.stderr) == (2, True)


def test_strict_stops_on_the_first_miss_with_code_three(model: Path, tmp_path: Path) -> None:
    for flag in (["--strict"], ["--on-miss", "fail"], ["--require-complete"], ["--strict", "--dry-run"]):
        result = call("compile", model, "-o", tmp_path / "m.so", "--db", tmp_path / "p.db", "-n", 1, *flag)
        assert (result.exit_code, result.stdout) == (3, "")
        assert "autofuse tune" in result.stderr
    assert not (tmp_path / "m.so").exists()


def test_a_dry_run_says_where_everything_would_come_from_and_builds_nothing(model: Path, tmp_path: Path) -> None:
    arguments = ("compile", model, "-o", tmp_path / "m.so", "--db", tmp_path / "p.db", "-n", 1, "--dry-run")
    result = call(*arguments)
    assert result.exit_code == 0 and list(tmp_path.iterdir()) == []
    assert "dry run" in result.stdout and "rule" in result.stdout
    body = json.loads(call(*arguments, "--format", "json").stdout)
    assert (body["library"], body["size_bytes"], body["plan_tier"]) == ("", 0, "rule")
    assert {group["tier"] for group in body["groups"]} == {"rule"}


def test_what_is_no_library_is_refused(model: Path) -> None:
    result = call("run", model)
    assert (result.exit_code, str(model) in result.stderr) == (2, True)


@pytest.mark.parametrize("verb", [("compile", "--dry-run"), ("inspect",), ("explain",), ("plan", "show")])
def test_a_database_that_is_only_asked_and_is_not_there_is_told_at_a_terminal(
    verb: tuple[str, ...], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be mistyped: the answer is the rules', and the reader must know. What a program reads is as always."""
    name, options = (verb, ()) if verb[0] == "plan" else (verb[:1], verb[1:])
    told: list[str] = []
    monkeypatch.setattr(autofuse.cli.options, "say", told.append)
    for is_terminal in (False, True):
        stream = SimpleNamespace(isatty=partial(bool, is_terminal))
        monkeypatch.setattr(autofuse.cli.options, "sys", SimpleNamespace(stderr=stream))
        done = call(*name, model, *options, "--db", tmp_path / "mistyped.db")
        assert (done.exit_code, list(tmp_path.iterdir())) == (0, [])
        assert len(told) == is_terminal
    assert told == [f"note: --db {tmp_path / 'mistyped.db'}: no such file; nothing that was measured is used"]
    call(*name, model, *options)
    assert len(told) == 1, "the place by default is empty at first"


def test_the_next_command_reads_a_report_only_where_times_were_recorded() -> None:
    """Without a database bench writes nothing, and `report` would be refused."""
    commands = {
        recorded: [str(cell).split()[1] for cell in after_bench(Path("net.onnx"), recorded, {}).columns[1].cells]
        for recorded in (True, False)
    }
    assert commands == {True: ["report", "explain"], False: ["explain"]}
