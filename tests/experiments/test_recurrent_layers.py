"""The layers and cells of `experiments/recurrent` are what their names say, and what its table says of a race."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.coverage import without_kernel
from autofuse.measure.networks.bench import ContenderResult
from experiments.index import ROOT
from experiments.peers.environments import MissingEnvironmentError, interpreter
from experiments.peers.rivals import RIVALS
from experiments.recurrent.cases import CELLS, GATES, KINDS, OPERATOR, STEPS, WRITTEN, Layer
from experiments.recurrent.run import ENGINES, OWN, Row, _row, published
from tests.experiments.seven_rounds import samples

ALL = {name: make for kind in KINDS.values() for name, make in kind.items()}


def run(path: Path) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Inputs, and ONNX Runtime's results."""
    inputs = generate_inputs(load(path), 0)
    return inputs, onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)


@pytest.mark.parametrize("name", [name for name in ALL if name.endswith("128")])
def test_each_is_a_valid_network_of_a_product_and_a_recurrence(name: str, tmp_path: Path) -> None:
    cell, *_, hidden = name.split()
    layer = ALL[name]()
    assert (layer.cell, layer.hidden, layer.steps) == (cell, int(hidden), 1 if "cell" in name else STEPS)
    assert layer.weight_bytes == 4 * GATES[cell] * int(hidden) ** 2 * (layer.steps + 1)
    onnx.save(layer.model(), tmp_path / "layer.onnx")
    graph = load(tmp_path / "layer.onnx", {})
    kinds = [operator.op_type for operator in graph.operators]
    assert kinds.count("Gemm") == 1 and kinds[-1] == f"{cell}Recurrence"
    assert without_kernel(graph) == {}
    states = {"LSTM": 2, "GRU": 1, "RNN": 1}[cell] if layer.is_cell else 0
    assert (len(graph.inputs), len(graph.outputs)) == (1 + states, states or 1)


@pytest.mark.parametrize("cell", GATES)
def test_a_cell_written_out_computes_the_same(cell: str, tmp_path: Path) -> None:
    results = {}
    for form in (OPERATOR, WRITTEN):
        onnx.save(Layer(cell, 24, 1).model(form), tmp_path / f"{form}.onnx")
        results[form] = run(tmp_path / f"{form}.onnx")[1]
    assert {node.op_type for node in onnx.load(tmp_path / "written.onnx").graph.node}.isdisjoint(GATES)
    for one, two in zip(results[OPERATOR], results[WRITTEN], strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
    with pytest.raises(ValueError, match="a layer is a loop"):
        Layer(cell, 24, 5).model(WRITTEN)


@pytest.mark.long
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("cell", GATES)
def test_torch_has_the_same_layer(cell: str, steps: int, tmp_path: Path) -> None:
    try:
        python = interpreter("torch")
    except MissingEnvironmentError as error:
        pytest.skip(str(error))
    path = tmp_path / "layer.onnx"
    onnx.save(Layer(cell, 24, steps).model(), path)
    inputs, expected = run(path)
    np.savez(tmp_path / "inputs.npz", **inputs)
    program = """if True:
        import sys, numpy
        from pathlib import Path
        from experiments.peers.runtimes.torch_runtime import open_network
        network = open_network("torch", Path(sys.argv[1]), 1, numpy.load(sys.argv[2]))
        network.run()
        numpy.savez(sys.argv[3], *network.outputs())
    """
    places = [str(path), str(tmp_path / "inputs.npz"), str(tmp_path / "found.npz")]
    subprocess.run([python, "-c", program, *places], cwd=ROOT, check=True, timeout=300)
    found = np.load(tmp_path / "found.npz")
    for one, two in zip(expected, found.values(), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_each_engine_is_a_rival_of_the_peers_and_ours_is_among_them() -> None:
    assert OWN in ENGINES and set(ENGINES) <= set(RIVALS)


def result(us: float, error: str = "") -> ContenderResult:
    held = None if error else samples(us)
    return ContenderResult(None if error else us, None, None, None, True, "", error, 0.0, "", 1.0, held)


def test_a_line_has_our_time_and_what_the_others_take_of_it_or_why_they_do_not() -> None:
    from autofuse.measure.networks.bench import compared

    results = compared(
        {OWN: result(100.0), "onnxruntime": result(150.0), "openvino": result(1.0, "does not load\nat all")}
    )
    blank = [Row("LSTM 128", 1, engine, problem="no such form" if engine == "tvm" else "") for engine in ENGINES]
    own, *others = [_row(row, results) for row in blank]
    text = published([replace(own, gbs=59.0), *others]).splitlines()[-1]
    assert text == (
        "| LSTM 128 | 1 | 100.3 | 59 | 1.50 (1.50-1.50) | does not load |"
        " no ratio: too few rounds count, the machine is busy | no such form |"
    )
    unsure = [replace(row, trusted=False) for row in others]
    assert "1.50 (1.50-1.50) ?" in published([own, *unsure])


def test_cells_and_layers_are_all_kinds() -> None:
    assert all(make().is_cell == (kind == CELLS) for kind, named in KINDS.items() for make in named.values())
