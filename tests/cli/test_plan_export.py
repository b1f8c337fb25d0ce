"""`plan export` and `explain` from the command line, on a database with known times."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner, Result

from autofuse.cli.main import app
from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome, ChosenGroup, RunStart
from autofuse.environment.environment import environment_of
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import Lowering

TIMES = {("conv", "relu"): 9.0, ("conv",): 8.0, ("relu",): 4.0, ("exp",): 5.0, ("conv", "relu", "exp"): 16.0}
FUSED = FusionPlan((Group(("conv", "relu")), Group(("exp",))), ("bn",))
PLANS = (
    FUSED,
    FusionPlan((Group(("conv",)), Group(("relu",)), Group(("exp",))), ("bn",)),
    FusionPlan((Group(("conv", "relu", "exp")),), ("bn",)),
)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """conv -> bn -> relu -> exp."""
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((8, 8, 3, 3)), **{n: random.uniform(0.5, 1.5, 8) for n in "gbmv"}}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "g", "b", "m", "v"], ["c"], name="bn"),
        helper.make_node("Relu", ["c"], ["d"], name="relu"),
        helper.make_node("Exp", ["d"], ["y"], name="exp"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "small",
        [value("x", TensorProto.FLOAT, [1, 8, 8, 8])],
        [value("y", TensorProto.FLOAT, [1, 8, 8, 8])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def database(model: Path) -> Path:
    """Three plans with known times of their groups; the middle one was chosen."""
    path, graph = model.parent / "profile.db", load(model, {})
    with open_database(path) as base:
        environment = environment_of(base, "local", 1, measuring=False)
        lowering = Lowering(graph, environment.target)
        start = RunStart(name="r", model_name="small", model_sha256="0" * 64, graph_key=graph_key(graph), seed=0)
        run = base.start_run(environment.setting, start)
        chosen = []
        for plan in PLANS:
            base.record_plan(graph_key(graph), plan.key, plan.to_json(), "search")
            for group, bound in zip(plan.groups, lowering.lower(plan).groups, strict=True):
                us, workload = TIMES[group.operators], bound.workload
                candidate = Candidate(workload.key, workload.text, workload.label, "{}")
                base.record_candidate(
                    environment.setting,
                    CandidateOutcome(
                        candidate=candidate, state="ok", median_us=us, ci_lo_us=us - 0.1, ci_hi_us=us + 0.1,
                        trusted=True, max_rel_error=0.0,
                    ),
                    run,
                )  # fmt: skip
                if plan is FUSED:
                    chosen.append(ChosenGroup(group.operators, workload.key, None, us))
        base.record_choice(run, FUSED.key, chosen, median_us=14.6, trusted=True)
        base.finish_run(run)
    return path


def test_explain_gives_both_times_of_each_edge_and_their_intervals(model: Path, database: Path) -> None:
    result = call("explain", model, "--plan", "best", "--db", database, "-n", 1, "--format", "json")
    assert result.exit_code == 0, result.stderr
    edges = {(row["producer"], row["consumer"]): row for row in json.loads(result.stdout)["edges"]}
    assert edges["conv", "bn"]["code"] == "folded"
    assert edges["bn", "relu"]["code"] == "chosen_measured"
    assert edges["bn", "relu"]["fused_us"]["us"] == pytest.approx(9.3)
    assert edges["bn", "relu"]["apart_us"]["us"] == pytest.approx(12.6)
    assert edges["bn", "relu"]["apart_us"]["lo"] == pytest.approx(12.6 - 0.1 * 2**0.5)
    assert edges["relu", "exp"]["code"] == "measured_slower"
    assert edges["relu", "exp"]["fused_us"]["us"] == pytest.approx(16.3)
    assert edges["relu", "exp"]["apart_us"]["us"] == pytest.approx(14.6)
    text = call("explain", model, "--plan", "best", "--db", database, "-n", 1).stdout
    assert "measured_slower" in text and "16.3 µs" in text


def test_explain_needs_no_database(model: Path, tmp_path: Path) -> None:
    rows = json.loads(call("explain", model, "--db", tmp_path / "no.db", "-n", 1, "--format", "json").stdout)["edges"]
    assert {row["code"] for row in rows} == {"folded", "chosen_rule"}
    assert all(row["fused_us"] is None for row in rows)


def test_an_exported_model_names_the_kernel_of_each_node_and_still_computes_the_same(
    model: Path, database: Path, tmp_path: Path
) -> None:
    output = tmp_path / "plan.onnx"
    result = call(
        "plan", "export", model, "-o", output, "--plan", "best", "--db", database, "-n", 1, "--format", "json"
    )
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["timed"] == 2
    exported = onnx.load(output)
    onnx.checker.check_model(exported, full_check=True)
    notes = {node.name: {entry.key: entry.value for entry in node.metadata_props} for node in exported.graph.node}
    assert {name: note["autofuse.kernel"] for name, note in notes.items()} == {
        "conv": "1", "bn": "1", "relu": "1", "exp": "2",
    }  # fmt: skip
    assert notes["bn"]["autofuse.folded_into"] == "conv"
    assert notes["relu"]["autofuse.operators"] == "conv + relu"
    assert notes["exp"]["autofuse.time_us"].startswith("5.000 ")
    x = np.random.default_rng(1).standard_normal((1, 8, 8, 8)).astype(np.float32)
    got, wanted = (onnxruntime.InferenceSession(path).run(None, {"x": x})[0] for path in (output, model))
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_an_export_without_weights_is_small_and_valid(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "plan.onnx"
    assert call("plan", "export", model, "-o", output, "--no-weights", "-n", 1).exit_code == 0
    exported = onnx.load(output)
    onnx.checker.check_model(exported, full_check=True)
    assert [tensor for tensor in exported.graph.initializer if tensor.data_type == TensorProto.FLOAT] == []
    assert output.stat().st_size < 0.6 * model.stat().st_size


def test_an_svg_is_written_and_other_files_are_refused(model: Path, database: Path, tmp_path: Path) -> None:
    output = tmp_path / "plan.svg"
    assert call("plan", "export", model, "-o", output, "--plan", "best", "--db", database, "-n", 1).exit_code == 0
    assert "kernel 1: 9.0 us" in output.read_text(encoding="utf-8")
    assert ElementTree.parse(output).getroot().tag.endswith("svg")
    refused = call("plan", "export", model, "-o", tmp_path / "plan.png", "-n", 1)
    assert (refused.exit_code, "allowed: a file that ends in .onnx or .svg" in refused.stderr) == (2, True)
    lost = call("plan", "export", model, "-o", tmp_path / "no" / "plan.svg", "-n", 1)
    assert (lost.exit_code, "cannot be written" in lost.stderr) == (2, True)
