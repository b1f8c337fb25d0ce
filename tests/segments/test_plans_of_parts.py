"""Plans of a model in parts: what differs, their files and pictures, time against memory, what a budget will reach."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import autofuse
from tests.segments.models import model_of, pooled, written
from tests.segments.test_parts_on_the_command_line import asked

pytestmark = pytest.mark.usefixtures("any_size")


def notes(node: onnx.NodeProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in node.metadata_props}


def test_a_difference_is_told_segment_by_segment(tmp_path: Path) -> None:
    named = ("plan", "diff", written(pooled(), tmp_path), "default", "none", "--db", tmp_path / "no.db", "-n", 1)
    text = asked(*named)
    assert "why ONNX Runtime runs them" in text and "part 0, in kernels of autofuse" in text
    body = json.loads(asked(*named, "--format", "json"))
    assert [one["same"] for one in body["segments"]] == [False, False]
    assert body["segments"][0]["groups_only_a"] == [["MatMul_0", "Relu_1"]]
    named = (*named[:4], "default", *named[5:])
    assert asked(*named).count("the plans are the same") == 2


def test_an_exported_model_says_of_each_node_where_it_runs(tmp_path: Path) -> None:
    path, output = written(pooled(), tmp_path), tmp_path / "plan.onnx"
    text = asked("plan", "export", path, "-o", output, "--db", tmp_path / "no.db", "-n", 1)
    assert "why ONNX Runtime runs them" in text and "plan.onnx" in text
    model = onnx.load(output)
    onnx.checker.check_model(model)
    told = {node.op_type: notes(node) for node in model.graph.node}
    assert told["MaxPool"]["autofuse.runs_in"] == "ONNX Runtime" and told["MaxPool"]["autofuse.why"]
    assert told["Relu"]["autofuse.runs_in"] == "autofuse" and told["Relu"]["autofuse.kernel"] == "1"
    assert [notes(node)["autofuse.part"] for node in model.graph.node] == ["0", "0", "1", "2", "2", "2", "2"]
    assert {tensor.name for tensor in model.graph.initializer} >= {"w", "v"}


def test_without_weights_they_are_inputs(tmp_path: Path) -> None:
    path, output = written(pooled(), tmp_path), tmp_path / "plan.onnx"
    autofuse.plan_export(path, output, weights=False, database=str(tmp_path / "no.db"), threads=1)
    model = onnx.load(output)
    onnx.checker.check_model(model)
    assert [tensor.name for tensor in model.graph.initializer] == ["axes", "sizes"]
    assert {value.name for value in model.graph.input} == {"x", "w", "v"}


def test_each_segment_has_a_picture(tmp_path: Path) -> None:
    path = written(pooled(), tmp_path)
    found = autofuse.plan_export(path, tmp_path / "plan.svg", database=str(tmp_path / "no.db"), threads=1)
    assert [Path(one.file).name for one in found.files] == ["plan-part0.svg", "plan-part2.svg"]
    assert all(Path(one.file).read_text().startswith("<svg") for one in found.files)


def test_a_model_without_segments_has_no_plan_to_export(tmp_path: Path) -> None:
    path = written(model_of("net (float[2,8] x) => (int64[2,n] y) { y = NonZero (x) }"), tmp_path)
    text = asked("plan", "export", path, "-o", tmp_path / "plan.onnx", "--db", tmp_path / "no.db", exit_code=2)
    assert "ONNX Runtime runs all of this model" in text.replace("\n", " ")


def test_time_against_memory_of_segments_nobody_measured_says_what_to_do(tmp_path: Path) -> None:
    text = asked("plan", "pareto", written(pooled(), tmp_path), "--db", tmp_path / "no.db", "-n", 1, exit_code=2)
    assert "run `autofuse tune` first" in text.replace("\n", " ")


def test_a_dry_run_says_what_each_segment_gets_of_the_budget(tmp_path: Path) -> None:
    named = ("tune", written(pooled(), tmp_path), "--db", tmp_path / "no.db", "-n", 1, "--dry-run", "--budget", "60s")
    text = asked(*named)
    assert "why ONNX Runtime runs them" in text and text.count("nothing was measured or written") == 2
    assert "the whole model against ONNX Runtime alone" in text
    body = json.loads(asked(*named, "--format", "json"))
    assert sum(one["budget_s"] for one in body["segments"]) + body["race_s"] == pytest.approx(60)
    assert not (tmp_path / "no.db").exists()


@pytest.mark.long
def test_the_front_of_each_segment_is_known_after_a_search(tmp_path: Path) -> None:
    path, database = written(pooled(), tmp_path), tmp_path / "times.db"
    autofuse.tune(path, database=str(database), trials=4, threads=1)
    named = ("plan", "pareto", path, "--db", database, "-n", 1, "--save", tmp_path / "plans")
    assert "part 2, in kernels of autofuse" in asked(*named)
    body = json.loads(asked(*named, "--format", "json"))
    for number, points in zip((0, 2), body["segments"], strict=True):
        assert points and Path(points[0]["file"]).parent.name == f"part{number}"
        assert Path(points[0]["file"]).is_file()
