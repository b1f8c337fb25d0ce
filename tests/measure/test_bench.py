"""Rivals in real processes: ONNX Runtime and TVM's default pipeline on a small network."""

from contextlib import suppress

import numpy as np
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from autofuse.backend.compile.realise import build_library
from autofuse.errors import InputError
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import lower
from autofuse.measure.networks.bench import Contender, bench_contenders


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """y = relu(x @ w): file, inputs, expected outputs."""
    generator = np.random.default_rng(2)
    x, w = generator.standard_normal((64, 256)), generator.standard_normal((256, 256))
    x, w = x.astype("float32"), w.astype("float32")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (64, 256))],
        [numpy_helper.from_array(w, "w")],
    )
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    save(proto, path)
    return path, {"x": x}, [np.maximum(x @ w, 0)]


@pytest.fixture(scope="module")
def library(model, target, tmp_path_factory):
    """The same network as one fused kernel, compiled by autofuse."""
    graph = load(model[0])
    names = tuple(operator.name for operator in graph.operators)
    lowered = lower(graph, FusionPlan((Group(names),)), target, [names])
    path = tmp_path_factory.mktemp("library") / "small.so"
    build_library(lowered, {bound.workload.key: {} for bound in lowered.groups}, target, 1, path)
    return path


def test_rivals_are_checked_and_compared_and_a_broken_one_does_not_disturb(
    model, library, target, tmp_path, counted_rounds
):
    path, inputs, expected = model
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    rivals = [
        Contender("ours", "autofuse", library),
        Contender("onnxruntime", "onnxruntime", path),
        Contender("tvm", "tvm", path),
        Contender("broken", "onnxruntime", broken),
    ]
    found = bench_contenders(rivals, inputs, 1, 2.0, target=target, expected=expected, lock=tmp_path / "lock")
    assert list(found) == ["ours", "onnxruntime", "tvm", "broken"]
    assert found["ours"].ratio == 1.0
    for name in ("ours", "onnxruntime", "tvm"):
        assert 0 < found[name].ci_lo <= found[name].ratio <= found[name].ci_hi
        assert found[name].max_rel_error < 1e-5
        assert not found[name].wrong
        assert not found[name].error
    assert found["broken"].median_us is None
    assert "broken.onnx" in found["broken"].error


@pytest.mark.long
def test_wrong_results_are_told_but_still_timed(model, target, tmp_path, counted_rounds):
    path, inputs, expected = model
    rivals = [Contender("ours", "onnxruntime", path)]
    other = [expected[0] + 1]
    result = bench_contenders(rivals, inputs, 2, 0.5, target=target, expected=other, lock=tmp_path / "lock")["ours"]
    assert "relative error" in result.wrong
    assert result.max_rel_error > 1e-3
    assert result.median_us > 0


@pytest.mark.parametrize(
    ("rivals", "says"),
    [
        ([], "distinct names"),
        ([Contender("a", "tvm", "m"), Contender("a", "tvm", "m")], "distinct names"),
        ([Contender("a", "tflite", "m")], "'tflite' is not one of autofuse, onnxruntime, tvm"),
    ],
)
def test_contenders_that_make_no_sense_are_refused(rivals, says, target):
    with pytest.raises(InputError, match=says):
        bench_contenders(rivals, {}, 1, 1.0, target=target)


@pytest.mark.long
def test_a_contender_may_run_with_a_number_of_threads_of_its_own(model, target, tmp_path, counted_rounds):
    names = {threads: f"with {threads}" for threads in (None, 1)}
    rivals = [Contender(name, "onnxruntime", model[0], threads=threads) for threads, name in names.items()]
    seen = {}

    def look():
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                seen[child.pid] = child.environ().get("TVM_NUM_THREADS")
        return 1.0

    bench_contenders(rivals, model[1], 2, 0.2, target=target, lock=tmp_path / "lock", left=look)
    assert sorted(filter(None, seen.values())) == ["1", "2", "2"], "the clock probe has those of the race"
