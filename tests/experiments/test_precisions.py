"""The experiment on lower precisions: the files that engines are given, and what its rows say of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.measure.networks.bench import ContenderResult
from experiments.peers.contender import MODULES
from experiments.peers.rivals import RIVALS
from experiments.peers.runtimes.openvino_runtime import OWN_CHOICE
from experiments.precisions.files import DYNAMIC, FLOAT32, NIBBLES, QDQ, ROUGH_NIBBLES, has_convolutions, packed, write
from experiments.precisions.run import BASE, ENGINES, Row, _row, apart, table
from tests.experiments.seven_rounds import samples


def save(path: Path, body: str, **weights: tuple[int, ...]) -> Path:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> net {body}')
    draw = np.random.default_rng(0)
    for name, shape in weights.items():
        array = draw.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


def perceptron(folder: Path) -> Path:
    body = "(float[4,32] x) => (float[4,8] y) { h = MatMul (x, w)  r = Relu (h)  y = MatMul (r, v) }"
    return save(folder / "net.onnx", body, w=(32, 32), v=(32, 8))


@pytest.mark.parametrize(
    ("form", "operator"),
    [
        (QDQ, "QuantizeLinear"),
        (DYNAMIC, "DynamicQuantizeLinear"),
        (NIBBLES, "MatMulNBits"),
        (ROUGH_NIBBLES, "MatMulNBits"),
    ],
)
def test_a_quantised_form_is_a_file_that_computes_nearly_the_same(form: str, operator: str, tmp_path: Path) -> None:
    model = perceptron(tmp_path)
    path = write(form, model, tmp_path, 1, tmp_path / "p.db")
    assert operator in {node.op_type for node in onnx.load(path).graph.node}
    assert {one.name for one in tmp_path.iterdir()} == {model.name, path.name}, "nothing else is left behind"
    inputs = generate_inputs(load(model), 0)
    exact, near = (
        onnxruntime.InferenceSession(str(one), providers=["CPUExecutionProvider"]).run(None, inputs)[0]
        for one in (model, path)
    )
    assert 0 < np.abs(exact - near).max() / np.ptp(exact) < 0.1
    made = path.stat().st_mtime_ns
    assert write(form, model, tmp_path, 1, tmp_path / "p.db").stat().st_mtime_ns == made


def test_four_bits_hold_each_weight_within_half_a_level() -> None:
    weights = np.random.default_rng(1).standard_normal((64, 5)).astype(np.float32)
    weights[:32, 2] = 0
    codes, scales = packed(weights)
    levels = np.stack([codes & 15, codes >> 4], axis=-1).reshape(5, 2, 32).astype(np.float32) - 8
    found = (levels * scales[:, :, None]).reshape(5, 64).T
    assert (np.abs(found - weights).max(axis=0) <= 0.51 * scales.max(axis=1)).all()
    assert (found[:32, 2] == 0).all()


def test_the_last_block_of_four_bits_is_filled_up_with_zeros() -> None:
    weights = np.random.default_rng(1).standard_normal((40, 5)).astype(np.float32)
    codes, scales = packed(weights)
    assert codes.shape == (5, 2, 16) and scales.shape == (5, 2)
    assert (codes[:, 1, 4:] == 0x88).all()


def test_the_float_form_is_the_model_itself(tmp_path: Path) -> None:
    model = perceptron(tmp_path)
    assert write(FLOAT32, model, tmp_path, 1, tmp_path / "p.db") == model


def test_dynamic_int8_is_for_networks_without_convolutions(tmp_path: Path) -> None:
    body = "(float[1,4,8,8] x) => (float[1,4,6,6] y) { y = Conv (x, w) }"
    assert has_convolutions(save(tmp_path / "conv.onnx", body, w=(4, 4, 3, 3)))
    assert not has_convolutions(perceptron(tmp_path))


def result(us: float, *, wrong: str = "", off: float = 1e-7) -> ContenderResult:
    return ContenderResult(us, None, None, None, True, "", "", off, wrong, 1.0, samples(us))


def test_what_is_off_in_a_lower_precision_is_timed_and_what_is_wrong_in_float32_is_not() -> None:
    found = apart(
        {
            BASE: result(20_000.0),
            "OpenVINO f32": result(10_000.0, wrong="relative error 0.02", off=0.02),
            "OpenVINO QDQ": result(8_000.0, wrong="relative error 0.02", off=0.02),
            "ONNX Runtime QDQ": result(9_000.0, wrong="another number of outputs", off=float("inf")),
            "autofuse QDQ": result(5_000.0, wrong="relative error 0.02", off=0.02),
        }
    )
    rows = {engine.name: _row("net", 1, engine, found, {}) for engine in ENGINES}
    assert rows["OpenVINO f32"].problem == "relative error 0.02"
    assert rows["ONNX Runtime QDQ"].problem == "another number of outputs"
    own = rows["autofuse QDQ"]
    assert (round(own.speed or 0, 2), own.off, own.peer, round(own.over or 0, 2)) == (4.0, 0.02, "OpenVINO QDQ", 1.6)
    assert rows["autofuse"].speed is None
    assert table([own, rows["OpenVINO f32"]]).splitlines()[2:] == [
        "| net | 1 | autofuse QDQ | 4.00 (4.00-4.00) | 2e-02 | 1.60 (1.60-1.60) OpenVINO QDQ |",
        "| net | 1 | OpenVINO f32 | relative error 0.02 |  |  |",
    ]


def test_each_engine_has_a_name_and_a_program_of_its_own() -> None:
    assert len({engine.name for engine in ENGINES}) == len(ENGINES)
    foreign = {engine.kind for engine in ENGINES} - {"autofuse", "onnxruntime"}
    assert {RIVALS["openvino"].kind, OWN_CHOICE} <= foreign <= set(MODULES)
    converted = {engine.kind: engine.rival for engine in ENGINES if engine.rival}
    assert all(kind.startswith(rival) and RIVALS[rival].environment for kind, rival in converted.items())
    assert foreign - set(converted) == {RIVALS["openvino"].kind, OWN_CHOICE}
    assert all(engine.file == FLOAT32 for engine in ENGINES if engine.rival), "their own tools make the rest"


def test_a_refused_file_is_a_row_that_says_why() -> None:
    bf16 = next(engine for engine in ENGINES if engine.name == "autofuse bf16")
    row = _row("net", 2, bf16, {BASE: result(1.0)}, {bf16.name: "this CPU has no instructions for it"})
    assert row == Row("net", 2, bf16.name, problem="this CPU has no instructions for it")
