"""What the command line says of a model of which ONNX Runtime runs a part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autofuse.cli.main import app
from tests.segments.models import model_of, pooled, written


def asked(*arguments: object, exit_code: int = 0) -> str:
    found = CliRunner().invoke(app, [str(one) for one in arguments])
    assert found.exit_code == exit_code, found.output
    return found.stdout if exit_code == 0 else found.output


@pytest.mark.usefixtures("any_size")
def test_inspect_shows_both_sides_and_why(tmp_path: Path) -> None:
    path = written(pooled(), tmp_path)
    text = asked("inspect", path)
    assert "MaxPool" in text and "why ONNX Runtime runs them" in text
    body = json.loads(asked("inspect", path, "--format", "json"))
    assert [part["side"] for part in body["parts"]] == ["autofuse", "ONNX Runtime", "autofuse"]
    assert [part["operators"] for part in body["parts"]] == [2, 1, 4]
    assert body["parts"][0]["flops"] == 2 * 6 * 16 * 20 + 6 * 20
    assert len(body["segments"]) == 2 and body["rest"][0]["op_type"] == "MaxPool"
    assert "share of the estimate" in text
    assert sum(part["share"] for part in body["parts"]) == pytest.approx(1)
    assert all(part["share"] > 0 for part in body["parts"])


def test_a_segment_that_does_not_pay_is_told_with_its_reason(tmp_path: Path) -> None:
    text = asked("inspect", written(pooled(), tmp_path))
    assert "does not pay for entering it" in text
    assert "ONNX Runtime runs all of this model" in text


@pytest.mark.usefixtures("any_size")
def test_compile_says_which_part_runs_where(tmp_path: Path) -> None:
    named = ("compile", written(pooled(), tmp_path), "--db", tmp_path / "no.db")
    text = asked(*named, "-o", tmp_path / "model.so")
    assert "why ONNX Runtime runs them" in text and "MaxPool" in text
    dry = json.loads(asked(*named, "--dry-run", "--format", "json"))
    assert len(dry["parts"]) == 3 and dry["library"] == ""


def test_compile_of_what_onnx_runtime_runs_alone_says_so(tmp_path: Path) -> None:
    model = model_of("net (float[2,8] x) => (int64[2,n] y) { y = NonZero (x) }")
    path = written(model, tmp_path)
    text = asked("compile", path, "-o", tmp_path / "model.so", "--db", tmp_path / "no.db")
    assert "ONNX Runtime runs all of this model" in text
    (part,) = json.loads(asked("inspect", path, "--format", "json"))["parts"]
    assert (part["operators"], part["unknown"], part["share"]) == (1, 1, 0)
    assert "%" not in asked("inspect", path)


@pytest.mark.usefixtures("any_size")
def test_a_complete_compile_exits_with_2_and_the_reasons(tmp_path: Path) -> None:
    path = written(pooled(), tmp_path)
    text = asked("compile", path, "-o", tmp_path / "model.so", "--require-complete", exit_code=2)
    assert "MaxPool" in text and not (tmp_path / "model.so").exists()


@pytest.mark.usefixtures("any_size")
def test_explain_says_which_part_runs_where_and_the_edges_of_each_segment(tmp_path: Path) -> None:
    named = (written(pooled(), tmp_path), "--db", tmp_path / "no.db", "-n", 1)
    text = asked("explain", *named)
    assert "why ONNX Runtime runs them" in text and "MaxPool" in text
    assert "part 0, in kernels of autofuse" in text and "part 2, in kernels of autofuse" in text
    body = json.loads(asked("explain", *named, "--format", "json"))
    assert [part["side"] for part in body["parts"]] == ["autofuse", "ONNX Runtime", "autofuse"]
    assert body["rest"][0]["op_type"] == "MaxPool"
    first, second = body["segments"]
    assert [(row["producer"], row["consumer"], row["fused"]) for row in first["edges"]] == [
        ("MatMul_0", "Relu_1", True)
    ]
    assert second["edges"][-1]["consumer"].startswith("Tanh")
    (only,) = json.loads(asked("explain", *named, "--edge", "Relu_1", "--format", "json"))["segments"]
    assert only["edges"] == first["edges"]
    assert "no segment of the model has MaxPool_2" in asked("explain", *named, "--edge", "MaxPool_2", exit_code=2)


@pytest.mark.usefixtures("any_size")
def test_plan_show_has_a_plan_for_each_segment(tmp_path: Path) -> None:
    named = ("plan", "show", written(pooled(), tmp_path), "--db", tmp_path / "no.db", "-n", 1, "--plan", "none")
    assert asked(*named).count("plan none (") == 2
    body = json.loads(asked(*named, "--format", "json"))
    assert len(body["parts"]) == 3 and [len(one["groups"]) for one in body["segments"]] == [2, 3]
