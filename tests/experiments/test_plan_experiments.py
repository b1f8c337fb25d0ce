"""Experiments on plans: their models are valid, their plans legal, and a few random graphs go all the way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from autofuse.fusion.legality import check_plan
from autofuse.fusion.planner.baselines import always_plan, none_plan
from autofuse.graph.loading.load import from_model
from autofuse.kernels.families.fused.band import Band, banded
from autofuse.kernels.families.registry import nests_of
from autofuse.kernels.workload.workload import bind_workload
from experiments.bands.cases import CASES as BANDS
from experiments.bands.run import inner_maps, recomputed
from experiments.kernel_counts.run import count, markdown, written_out
from experiments.over_fusion.cases import CASES
from experiments.plan_race import PlanRow, read, write
from experiments.random_graphs import run as random_run
from experiments.random_graphs.check import check
from experiments.random_graphs.generate import MOST_OPERATORS, model
from experiments.seeds.models import MODELS, conv_bn_relu
from experiments.seeds.run import every_plan


@pytest.mark.parametrize("name", [*CASES, *MODELS])
def test_every_small_model_is_valid_and_can_be_fused_whole(name: str) -> None:
    made = (CASES | MODELS)[name]()
    onnx.checker.check_model(made, full_check=True)
    graph = from_model(made, name)
    plan = always_plan(graph)
    check_plan(graph, plan)
    assert len(plan.groups) == 1 < len(none_plan(graph).groups)


@pytest.mark.parametrize("name", BANDS)
def test_neighbouring_convolutions_are_one_band(name: str) -> None:
    graph = from_model(BANDS[name](), name)
    workload = bind_workload(graph, [operator.name for operator in graph.operators], {}).workload
    (band,) = banded(workload, nests_of(workload))
    assert isinstance(band, Band) and len(inner_maps(workload)) == len(band.nests) - 1
    rows = workload.values[workload.of_kind("output")[0]].shape[2]
    assert recomputed(workload, rows) == recomputed(workload, 0) == 0.0
    overlap = name.startswith(("inverted", "basic"))  # a pointwise convolution and a pool of 2x2 need no halo
    assert (recomputed(workload, 2) > recomputed(workload, 7) > 0.0) == overlap


def test_a_chain_is_cut_and_folded_in_every_way() -> None:
    plans = dict(every_plan(from_model(conv_bn_relu("c", 8, 8, 6, 3), "c")))
    assert len(plans) == len({plan.key for plan in plans.values()}) == 6
    assert "Conv+Relu, folded" in plans and "Conv | BatchNormalization | Relu" in plans


def test_random_models_are_valid_varied_and_made_by_their_seed() -> None:
    kinds: set[str] = set()
    for seed in range(60):
        made = model(seed)
        onnx.checker.check_model(made, full_check=True)
        assert 1 <= len(made.graph.node) <= MOST_OPERATORS
        assert made.SerializeToString() == model(seed).SerializeToString()
        kinds |= {node.op_type for node in made.graph.node}
    wanted = {"Conv", "MatMul", "Softmax", "BatchNormalization", "Reshape", "Transpose", "Concat", "Split", "TopK"}
    assert wanted <= kinds


@pytest.mark.long
def test_random_graphs_come_out_right_and_a_slice_goes_on_where_the_last_ended(tmp_path: Path) -> None:
    for last in (2, 4):
        assert random_run.main(["--seeds", f"0:{last}", "--time", "300s", "--out", str(tmp_path)]) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["seed"] for row in rows] == [0, 1, 2, 3]
    assert "4 random models: 4 ok" in (tmp_path / "summary.txt").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [98, 201])
def test_what_cancels_out_may_leave_other_rounding_errors(seed: int, tmp_path: Path) -> None:
    assert check(seed, tmp_path).state == "ok"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "defect"),
    [
        (1195, "TVM's intervals fail on a named product with a chosen value"),
        (1555, "ONNX Runtime's optimiser joins a Pad of zeros with a MaxPool"),
        (3157, "TVM's vectorizer fails on a Let times a constant"),
        (9253, "LLVM's optimiser breaks a module"),
    ],
)
def test_graphs_that_showed_a_defect_of_others_come_out_right(seed: int, defect: str, tmp_path: Path) -> None:
    outcome = check(seed, tmp_path)
    assert outcome.state == "ok", f"{defect}: {outcome.message}"


def test_a_wrong_seed_is_a_row_and_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"seed": 0, "state": "wrong", "operators": 3, "kernels": 1, "folds": 0, "copies": 0, "error": 0.5}
    (tmp_path / "rows.jsonl").write_text(json.dumps({**bad, "message": "y: off by half"}) + "\n", encoding="utf-8")
    assert random_run.main(["--seeds", "0:1", "--out", str(tmp_path)]) == 1
    assert "seed 0: wrong: y: off by half" in capsys.readouterr().out


def test_kernels_are_counted_in_one_way_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "chain.onnx"
    onnx.save(conv_bn_relu("chain", 8, 8, 6, 3), path)
    row = count(path)
    assert (row.operators, row.none, row.default, row.always) == (3, 3, 1, 1)
    assert 1 <= row.ort_extended <= 3 and row.tvm >= 1 and row.openvino in (-1, 1)
    text = markdown([row])
    assert "| chain | 3 | 3 |" in text and "- ort_all: " in text and "of the paper" not in text


def test_later_operators_are_counted_as_exporters_wrote_them() -> None:
    text = "net (float[4,8] x) => (float[4,8] y) { n = LayerNormalization (x, w) y = Gelu (n) }"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> {text}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(8, np.float32), "w"))
    kinds = [operator.op_type for operator in written_out(from_model(model, "net")).operators]
    assert len(kinds) >= 12 and not {"LayerNormalization", "Gelu"} & set(kinds)


def test_a_table_of_plans_is_written_and_read_again(tmp_path: Path) -> None:
    rows = [
        PlanRow("m", "none", False, 3, 10.0, 1.0, 1.0, 1.0, True, 1e-7),
        PlanRow("m", "search", True, 1, 5.0, 2.0, 1.9, 2.1, False, 1e-7),
        PlanRow("m", "always", False, 1, problem="no kernel"),
    ]
    text = write(rows, tmp_path)
    assert "| m | **search** | 1 | 5.0 | 2.00 (1.90-2.10) ? |" in text
    assert "| m | always | 1 | no kernel |  |" in text
    assert read(tmp_path) == rows
