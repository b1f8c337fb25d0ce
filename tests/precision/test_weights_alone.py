"""Weights alone in four or eight bits, with a scale for each block of them: chosen, written, and run by others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import autofuse
from autofuse.api.results import Quantized
from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model, load
from autofuse.graph.submodel import to_model
from autofuse.graph.transform.quantize.levels import BLOCK, Range, block_levels
from autofuse.graph.transform.quantize.probes import SWITCHES, switched
from autofuse.graph.transform.quantize.sites import BF16, INT4_WEIGHTS, INT8, INT8_WEIGHTS, NARROW, find_sites
from autofuse.graph.transform.quantize.write import quantised_graph
from autofuse.measure.checking.reference import run_reference
from autofuse.precision.names import check_precisions
from tests.precision.test_choices import graph_of, normal
from tests.precision.test_no_gain import record

DEVICE = "icelake"
DEPTH, WIDE = 520, 384
"""What the first product sums over: no whole number of blocks."""


def two_products() -> Any:
    """A MatMul, and a Gemm with turned weights and a bias."""
    return graph_of(
        [("MatMul", ["x", "w"], "h", {}), ("Gemm", ["h", "v", "b"], "y", {"transB": 1})],
        {"w": normal(50, 70), "v": normal(33, 70), "b": normal(33)}, {"x": (3, 50)},
    )  # fmt: skip


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("axis", [0, 1])
def test_each_block_has_a_scale_of_its_own(bits: int, axis: int) -> None:
    weights = normal(70, 300) * np.linspace(0.01, 10, 70)[:, None].astype("f")
    weights[:, :40] = 0.0
    found = block_levels(weights, axis, bits)
    blocks = [70, 300]
    blocks[axis] = -(-blocks[axis] // BLOCK[bits])
    assert found.scale.shape == tuple(blocks) and found.integers.shape == weights.shape
    assert found.integers.min() >= -(1 << (bits - 1)) and found.integers.max() <= (1 << (bits - 1)) - 1
    assert not found.numbers[:, :40].any()
    lost = float(((found.numbers - weights) ** 2).sum() / (weights.astype("d") ** 2).sum())
    assert lost < (0.009 if bits == 4 else 6e-5)
    ends = np.array([[-1.0, 0.25, 0.5, 0.875], [1.0, -0.25, -0.5, -0.875]], "f")
    assert np.array_equal(block_levels(ends, 1, 4).numbers, ends), (
        "the greatest weight has the end that reaches further"
    )


def test_a_switch_to_narrow_weights_does_what_the_written_graph_does() -> None:
    graph, x = two_products(), {"x": normal(3, 50, seed=4)}
    sites = find_sites(graph, NARROW)
    ranges = {name: Range(-40, 40) for name in sites.tensors}
    asked, exact = switched(sites, ranges), run_reference(graph, x)["y"]
    for chosen in (
        {"h": INT8_WEIGHTS, "y": INT4_WEIGHTS},
        {"h": INT4_WEIGHTS, "y": INT8},
        {"h": BF16, "y": INT8_WEIGHTS},
    ):
        whole = quantised_graph(sites, chosen, ranges)
        again = from_model(to_model(whole), "again")
        kinds = [operator.op_type for operator in again.operators]
        assert kinds.count("WeightOnlyMatMul") == sum(kind.endswith("weights") for kind in chosen.values())
        bits = [operator.attributes["bits"] for operator in again.operators if operator.op_type == "WeightOnlyMatMul"]
        assert bits == [int(kind[3]) for kind in chosen.values() if kind.endswith("weights")]
        written = run_reference(whole, x)["y"]
        mask = np.array([chosen.get(name) == kind for name, kind in sites.options])
        apart, scale = float(np.abs(written - exact).max()), float(np.abs(exact).max())
        assert 1e-4 * scale < apart < 0.2 * scale
        found = run_reference(asked, {**x, SWITCHES: mask})["y"]
        assert float(np.abs(found - written).max()) <= 0.05 * apart, chosen
        assert float(np.abs(run_reference(again, x)["y"] - written).max()) <= 1e-5 * scale


def test_what_cannot_have_narrow_weights_says_why() -> None:
    graph = graph_of(
        [("Conv", ["x", "k"], "c", {"pads": [1, 1, 1, 1]}), ("Reshape", ["c", "rows"], "flat", {}),
         ("MatMul", ["flat", "few"], "y1", {}), ("Transpose", ["flat"], "t", {"perm": [1, 0]}),
         ("MatMul", ["flat", "t"], "y2", {}), ("MatMul", ["c", "maps"], "y3", {})],
        {"k": normal(2, 2, 3, 3), "rows": np.array([16, 8]), "few": normal(8, 5), "maps": normal(2, 8, 3)},
        {"x": (1, 2, 8, 8)},
    )  # fmt: skip
    sites = find_sites(graph, (INT4_WEIGHTS,))
    assert not sites.usable and sites.refused == {
        "c": "convolutions have no kernel for narrow weights alone",
        "y1": "it sums over 8 numbers, and weights alone are narrow from 16 on",
        "y2": "its weights are computed", "y3": "its weights are no matrix",
    }  # fmt: skip
    old = graph_of(
        [("GridSample", ["x", "where"], "s", {"mode": "bilinear"}), ("Reshape", ["s", "rows"], "flat", {}),
         ("MatMul", ["flat", "w"], "y", {})],
        {"rows": np.array([4, 32]), "w": normal(32, 8)}, {"x": (1, 2, 8, 8), "where": (1, 8, 8, 2)},
    )  # fmt: skip
    assert "opset 21, which has GridSample otherwise" in find_sites(old, (INT8_WEIGHTS,)).refused["y"]


def test_names_of_precisions() -> None:
    assert check_precisions("w4, int8,w8,bfloat16") == (INT4_WEIGHTS, INT8, INT8_WEIGHTS, BF16)
    with pytest.raises(InputError, match="say of how many bits: int8-weights or int4-weights"):
        check_precisions("weight-only")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two products of one row, between which a Relu stands."""
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal((DEPTH, WIDE)) / 20, "b": rng.standard_normal(WIDE),
              "v": rng.standard_normal((16, WIDE)) / 20, "c": rng.standard_normal(16)}  # fmt: skip
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"], "wide"), helper.make_node("Relu", ["h"], ["r"], "relu"),
             helper.make_node("Gemm", ["r", "v", "c"], ["y"], "last", transB=1)]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [1, DEPTH])],
        [helper.make_tensor_value_info("y", 1, [1, 16])],
        [numpy_helper.from_array(array.astype("f"), name) for name, array in arrays.items()],
    )  # fmt: skip
    path = tmp_path_factory.mktemp("weights") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def made_of(model: Path, output: Path, precision: str, max_drop: str, count: int = 16) -> Quantized:
    rng = np.random.default_rng(1)
    data = [{"x": rng.standard_normal((1, DEPTH)).astype("f")} for _ in range(count)]
    return autofuse.quantize(
        model, output, calibration=data, precision=precision, max_drop=max_drop, device=DEVICE, threads=1,
        database=str(output.parent / "p.db"),
    )  # fmt: skip


def test_weights_of_four_bits_are_the_fastest_where_one_row_reads_them(model: Path, tmp_path: Path) -> None:
    found = made_of(model, tmp_path / "q.onnx", "int8,int8-weights,int4-weights", "5%")
    assert {one.operator: one.precision for one in found.contractions} == dict.fromkeys(["wide", "last"], INT4_WEIGHTS)
    us = found.contractions[0].us
    assert us[INT4_WEIGHTS] < us[INT8_WEIGHTS] and us[INT4_WEIGHTS] < us[INT8] < us["float32"]
    file = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(file, full_check=True)
    codes = [tensor for tensor in file.graph.initializer if tensor.data_type == TensorProto.INT4]
    assert [len(tensor.raw_data) for tensor in codes] == [DEPTH * WIDE // 2, 16 * WIDE // 2]
    assert file.opset_import[0].version == 21
    certificate = json.loads({entry.key: entry.value for entry in file.metadata_props}["autofuse.quantization"])
    assert certificate[INT4_WEIGHTS] == found.counts[INT4_WEIGHTS] == 2 and certificate["float32"] == {}


def test_times_of_products_with_narrow_weights_come_from_the_database(model: Path, tmp_path: Path) -> None:
    """Where they are measured as slower than int8, bytes are taken."""
    made_of(model, tmp_path / "four.onnx", "int4-weights", "5%")
    made_of(model, tmp_path / "int8.onnx", "int8", "5%")
    record(tmp_path / "four.onnx", tmp_path / "p.db", 8.0)
    record(tmp_path / "int8.onnx", tmp_path / "p.db", 4.0)
    record(model, tmp_path / "p.db", 20.0)
    found = made_of(model, tmp_path / "q.onnx", "int8,int4-weights", "5%")
    assert {one.times for one in found.contractions} == {"measured"}
    us = found.contractions[0].us
    assert us[INT4_WEIGHTS] == pytest.approx(8.3) and us["float32"] == pytest.approx(20.3)
    assert {one.precision for one in found.contractions} == {INT8}


def test_others_run_the_written_file_and_so_do_kernels_here(model: Path, tmp_path: Path) -> None:
    made_of(model, tmp_path / "q.onnx", "int4-weights", "5%")
    graph, x = load(tmp_path / "q.onnx"), normal(1, DEPTH, seed=7)
    assert [operator.attributes["bits"] for operator in graph.operators if operator.domain] == [4, 4]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(tmp_path / "q.onnx"), options, providers=["CPUExecutionProvider"])
    (other,) = session.run(None, {"x": x})
    here = run_reference(graph, {"x": x})["y"]
    assert float(np.abs(other - here).max()) < 1e-4 * float(np.abs(other).max())


def test_more_bits_where_four_lose_too_much(model: Path, tmp_path: Path) -> None:
    found = made_of(model, tmp_path / "q.onnx", "int8-weights,int4-weights", "0.05%")
    kinds = {one.operator: one.precision for one in found.contractions}
    assert kinds["wide"] == INT8_WEIGHTS and found.drop.hi <= 0.0005
    assert found.counts[INT8_WEIGHTS] + found.counts[INT4_WEIGHTS] == 2


def test_many_rows_are_no_faster_with_narrow_weights(tmp_path: Path) -> None:
    """They are bound by arithmetic, which stays that of float32."""
    graph = graph_of([("MatMul", ["x", "w"], "y", {})], {"w": normal(512, 512)}, {"x": (256, 512)})
    onnx.save(to_model(graph), tmp_path / "m.onnx")
    data = [{"x": normal(256, 512, seed=seed)} for seed in range(16)]
    with pytest.raises(InputError, match="no contraction is faster in int4-weights: "):
        autofuse.quantize(
            tmp_path / "m.onnx", tmp_path / "q.onnx", calibration=data, precision="int4-weights", device=DEVICE,
            threads=1, database=str(tmp_path / "p.db"), max_drop="9%",
        )  # fmt: skip
