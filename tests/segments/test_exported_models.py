"""Models as exporters and optimisers write them, with operators that are none of ONNX's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper, parser

import autofuse
from autofuse.segments.read import read_choice
from tests.segments.models import assert_same, expected, normal, written

HEAD = '<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3, "com.microsoft": 1]>'


def classical(text: str, **weights: np.ndarray) -> ModelProto:
    model = parser.parse_model(HEAD + text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def perceptron(kind: str = "float", cast: str = "") -> ModelProto:
    """A pipeline as scikit-learn's converter writes it: scaled, two products, a label that is looked up."""
    first = (
        f"s = Cast <to=1> (x) z = ai.onnx.ml.Scaler <offset=[{_row(1)}], scale=[{_row(2)}]> (s)"
        if cast
        else (f"z = ai.onnx.ml.Scaler <offset=[{_row(1)}], scale=[{_row(2)}]> (x)")
    )
    return classical(
        f"""net ({kind}[4,32] x) => (int64[n] label, float[4,3] p) {{
            {first}
            a = MatMul (z, w)  b = Relu (a)  c = MatMul (b, v)  p = Softmax (c)
            i = ArgMax <axis=1> (c)
            j = ai.onnx.ml.ArrayFeatureExtractor (labels, i)
            label = Reshape (j, flat)
        }}""",
        w=normal(32, 64), v=normal(64, 3, seed=1), labels=np.array([3, 5, 7]), flat=np.array([-1]),
    )  # fmt: skip


def _row(seed: int) -> str:
    return ", ".join(f"{value:.4f}" for value in np.random.default_rng(seed).uniform(0.5, 2.0, 32))


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(("kind", "cast", "ours"), [("float", "", True), ("int64", "yes", True), ("int64", "", False)])
def test_a_pipeline_of_scikit_learn_is_ours_up_to_its_labels(kind: str, cast: str, ours: bool, tmp_path: Path) -> None:
    model = perceptron(kind, cast)
    path = written(model, tmp_path)
    report = autofuse.compile(path, tmp_path / "net.so", database=str(tmp_path / "p.db"), threads=1)
    assert (sum(part.operators for part in report.parts if part.side == "autofuse") > 5) == ours
    x = np.random.default_rng(3).integers(-3, 3, (4, 32)).astype("float32" if kind == "float" else "int64")
    assert_same(autofuse.Session(tmp_path / "net.so").run(None, {"x": x}), expected(model, {"x": x}))


def test_a_scaler_alone_needs_no_onnx_runtime(tmp_path: Path) -> None:
    model = classical(
        """net (float[2,3] x) => (float[2,3] y) {
            y = ai.onnx.ml.Scaler <offset=[1.0], scale=[0.25]> (x)
        }"""
    )
    report = autofuse.compile(written(model, tmp_path), tmp_path / "net.so", database=str(tmp_path / "p.db"), threads=1)
    assert not report.parts and report.kernels == 1
    x = normal(2, 3)
    assert_same(autofuse.Session(tmp_path / "net.so").run(None, {"x": x}), expected(model, {"x": x}))


def test_classes_with_texts_and_maps_stay_as_onnx_runtime_has_them(tmp_path: Path) -> None:
    model = classical(
        """net (float[2,3] x) => (string[n] label, seq(map(string, float)) p) {
            z = ai.onnx.ml.Scaler <offset=[0.1, 0.2, 0.3], scale=[1.0, 2.0, 3.0]> (x)
            label, q = ai.onnx.ml.LinearClassifier <
                classlabels_strings=["no", "yes"], coefficients=[1.0, -2.0, 3.0, -1.0, 2.0, -3.0],
                intercepts=[0.1, -0.1], multi_class=1, post_transform="SOFTMAX"> (z)
            p = ai.onnx.ml.ZipMap <classlabels_strings=["no", "yes"]> (q)
        }"""
    )
    autofuse.compile(written(model, tmp_path), tmp_path / "net.so", database=str(tmp_path / "p.db"), threads=1)
    x = normal(2, 3)
    made, wanted = autofuse.Session(tmp_path / "net.so").run(None, {"x": x}), expected(model, {"x": x})
    assert list(made[0]) == list(wanted[0])
    assert [list(one) for one in made[1]] == [list(one) for one in wanted[1]]
    assert b"Scaler" in read_choice(tmp_path / "model.onnx", {}).source.whole()
    numbers = [[list(one.values()) for one in side[1]] for side in (made, wanted)]
    np.testing.assert_allclose(*numbers, rtol=1e-5)


def test_a_file_in_onnx_runtimes_own_layout_is_ours(onnx_builder: type, tmp_path: Path) -> None:
    builder = onnx_builder()
    output = builder.op("Relu", "y", builder.conv_bn("conv", "x", (3, 32)))
    source = builder.save(tmp_path / "net.onnx", {"x": (1, 3, 16, 16)}, [output])
    path = _optimised(source, tmp_path)
    report = autofuse.compile(path, tmp_path / "net.so", database=str(tmp_path / "p.db"), threads=1)
    assert not report.parts
    x = normal(1, 3, 16, 16)
    assert_same(autofuse.Session(tmp_path / "net.so").run(None, {"x": x}), expected(onnx.load(source), {"x": x}))


def test_a_file_in_onnx_runtimes_own_layout_is_cut_into_parts(any_size: None, tmp_path: Path) -> None:
    model = parser.parse_model(
        HEAD
        + """net (float[1,3,16,16] x) => (float[1,32,16,16] y, int64[n] at) {
            a = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (x, w) b = Relu (a) y = Conv <kernel_shape=[1,1]> (b, v)
            f = Flatten <axis=0> (y) u, at, c, d = Unique (f)
        }"""
    )
    weights = {"w": normal(32, 3, 3, 3), "v": normal(32, 32, 1, 1, seed=1)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    path = _optimised(written(model, tmp_path), tmp_path)
    report = autofuse.compile(path, tmp_path / "net.so", database=str(tmp_path / "p.db"), threads=1)
    assert sum(part.operators for part in report.parts if part.side == "autofuse") >= 2
    x = normal(1, 3, 16, 16)
    made = autofuse.Session(tmp_path / "net.so").run(["y"], {"x": x})
    assert_same(made, expected(model, {"x": x})[:1])


def test_a_layout_that_is_not_understood_runs_in_onnx_runtime_and_says_why(tmp_path: Path) -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "com.microsoft.nchwc": 1]>
        net (float[1,16,6,6] x) => (float[1,16,6,6] y) {
            a = com.microsoft.nchwc.ReorderInput (x)  b = Sin (a)
            y = com.microsoft.nchwc.ReorderOutput <channels=16> (b)
        }"""
    )
    (reason, *_) = read_choice(written(model, tmp_path), {}).reasons.values()
    assert reason.startswith("an operator of com.microsoft.nchwc, which ONNX Runtime's optimiser wrote for the CPU")


def _optimised(source: Path, folder: Path) -> Path:
    path = folder / "optimised.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.optimized_model_filepath = 4, str(path)
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    if not any(node.domain == "com.microsoft.nchwc" for node in onnx.load(path).graph.node):
        pytest.skip("ONNX Runtime has no layout of its own on this CPU")
    return path
