"""`experiments/real_models`: its cases can be made, disagreement is found, and its rows say what was measured."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import autofuse
from autofuse.errors import AutofuseError
from experiments.index import ROOT
from experiments.peers.environments import ENVIRONMENTS
from experiments.real_models.cases import CASES, Case
from experiments.real_models.run import OURS, SEGMENTS, Row, agreement, described, difference, published


@pytest.mark.parametrize("name", CASES)
def test_the_maker_of_a_case_is_a_function_of_this_folder(name: str) -> None:
    case = CASES[name]
    module, _, function = case.maker.partition(":")
    text = (ROOT / "experiments" / "real_models" / f"{module}.py").read_text(encoding="utf-8")
    assert f"\ndef {function}(path: Path" in text
    assert case.environment in ENVIRONMENTS
    assert set(case.texts) <= set(case.shapes)


def test_an_output_of_other_sizes_is_no_agreement() -> None:
    with pytest.raises(AutofuseError, match=r"boxes: result is float32\[2, 4\], the reference float32\[3, 4\]"):
        difference(np.zeros((2, 4), np.float32), np.zeros((3, 4), np.float32), "boxes")


def test_an_error_is_a_part_of_the_range_and_a_large_one_is_refused() -> None:
    wanted = np.array([0.0, 200.0], np.float32)
    assert difference(wanted + np.float32(0.01), wanted, "y") == pytest.approx(5e-5, rel=1e-2)
    with pytest.raises(AutofuseError, match="y: relative error 1.00e-02"):
        difference(wanted + np.float32(2), wanted, "y")
    with pytest.raises(AutofuseError, match="labels: 1 of 2 elements differ"):
        difference(np.array([1, 2]), np.array([1, 3]), "labels")
    with pytest.raises(AutofuseError, match="y: 1 of 2 elements not finite"):
        difference(np.array([np.nan, 200.0], np.float32), wanted, "y")


def test_maps_are_compared_by_their_keys() -> None:
    wanted = [{0: 0.25, 1: 0.75}]
    assert difference([{0: 0.25, 1: 0.75}], wanted, "probability") == 0.0
    with pytest.raises(AutofuseError, match="probability"):
        difference([{0: 0.75, 1: 0.25}], wanted, "probability")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model whose number of results depends on data, behind a product that our kernels run; its library."""
    folder = tmp_path_factory.mktemp("real_models")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 256])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [2, "found"])
    weights = np.random.default_rng(1).standard_normal((256, 256)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("NonZero", ["b"], ["y"]),
    ]
    given = [helper.make_tensor("w", TensorProto.FLOAT, weights.shape, weights.tobytes(), raw=True)]
    path, library = folder / "found.onnx", folder / "found.so"
    model = helper.make_model(helper.make_graph(nodes, "found", [x], [y], given), ir_version=9)
    model.opset_import[0].version = 18
    path.write_bytes(model.SerializeToString())
    report = autofuse.compile(path, library, database=str(folder / "empty.db"), threads=1, shapes={"x": (64, 256)})
    row = described(Row("found", "", 1, 0.0), report)
    assert (row.runs, row.segments, row.operators) == (SEGMENTS, 1, 3)
    assert 0.5 < row.share <= 1.0
    return path, library


def test_results_whose_number_depends_on_data_agree(found: tuple[Path, Path]) -> None:
    error, sizes = agreement(*found, Case("", ""))
    assert error == 0.0
    assert len(set(sizes.split(", "))) == 2, "the two inputs give other numbers of results"


def test_rows_say_who_runs_a_model_and_which_are_slower() -> None:
    row = Row("vad", "torch, traced", 1, 0.0, OURS, 20, 1, 13, 1.0, 2e-7, "1x1", 50.0, 100.0, 2.0, 1.9, 2.1, True)
    cut = Row("fcos", "torch, traced", 2, 0.0, SEGMENTS, 90, 2, 60, 0.9, 1e-6, "7x4", 9.0, 8.1, 0.9, 0.88, 0.92, True)
    lost = Row("fcn", "torch, dynamo", 1, 0.0, problem="the exporter failed")
    text = published([row, cut, lost])
    assert "| our kernels | 100% | 13 | 1x1 | 2e-07 | 50.0 | 100.0 | 2.00 (1.90-2.10) |" in text
    assert "| 2 segments | 90% |" in text
    assert "2 of 3 models run and agree" in text
    assert "of 2 races ONNX Runtime alone won 1 by more than 2%" in text
    assert "those that need ONNX Runtime for a part are 0.90 times as fast as it alone" in text


def test_suppression_keeps_the_best_of_what_overlaps() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch: run `make test-torch`")
    import torch

    from experiments.real_models.detectors import suppressed

    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]])
    assert suppressed(boxes, torch.tensor([0.1, 0.9, 0.5]), 0.5).tolist() == [1, 2]


def test_a_model_that_makes_the_same_of_all_inputs_shows_nothing(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [8])
    nodes = [helper.make_node("Sub", ["x", "x"], ["a"]), helper.make_node("Exp", ["a"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "same", [x], [y]), ir_version=9)
    path, library = tmp_path / "same.onnx", tmp_path / "same.so"
    path.write_bytes(model.SerializeToString())
    autofuse.compile(path, library, database=str(tmp_path / "empty.db"), threads=1)
    with pytest.raises(AutofuseError, match="y is the same for all inputs"):
        agreement(path, library, Case("", ""))
