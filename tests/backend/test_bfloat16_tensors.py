"""A library whose inputs and outputs are bfloat16: arrays of ml_dtypes, their bits, files; the same from every door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser

from autofuse import api
from autofuse.backend.compile.realise import Part, build_programs
from autofuse.backend.container.metadata import TensorSpec
from autofuse.backend.freestanding.source import _tensor
from autofuse.backend.library.files import run_once
from autofuse.backend.library.library import load
from autofuse.backend.library.session import Session
from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.fusion.planner.baselines import none_plan
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import lower
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.networks.judgement import WHOLE_LIMIT, whole_limit
from autofuse.measure.networks.libraries import Model
from autofuse.measure.networks.network import LibraryNetwork
from autofuse.ort.bound import array_of, value_over
from autofuse.values.names import BFLOAT16, numpy_dtype

HALF = numpy_dtype(BFLOAT16)
TARGET = Target("x86-64-v3", lanes=8, registers=16, cores=2, l1_bytes=32768, l2_bytes=262144)
TEXT = """f (bfloat16[4,8] x, bfloat16[8,8] w)
    => (bfloat16[4,8] y, bfloat16[4,8] z, bfloat16[8,4] t, bfloat16[2] c, float[8,4] f)
    { k = Constant<value=int64 {1}>() a = MatMul(x, w) b = Add(a, x) y = Sigmoid(b) z = CumSum(x, k)
      s = Constant<value=int64[2] {8, 4}>() t = Reshape<allowzero=0>(x, s) f = Cast<to=1>(t)
      c = Constant<value=bfloat16[2] {1, 3}>() }"""
"""A product, an operator that only TVM's importer has, a view of an input, a constant, and the view as float32."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return from_model(parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {TEXT}'), "f")


@pytest.fixture(scope="module")
def built(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bfloat16") / "f.so"
    plan = none_plan(graph)
    lowered = lower(graph, plan, TARGET, [group.operators for group in plan.groups])
    build_programs([Part(lowered, {bound.workload.key: {} for bound in lowered.kernels}, plan.key)], TARGET, 1, path)
    return path


@pytest.fixture(scope="module")
def feeds(graph: Graph) -> dict[str, NDArray[Any]]:
    return {name: array.astype(HALF) for name, array in generate_inputs(graph, 0).items()}


def test_a_session_takes_and_gives_bfloat16(graph: Graph, built: Path, feeds: dict[str, NDArray[Any]]) -> None:
    session = Session(built)
    types = [one.type for one in (*session.get_inputs(), *session.get_outputs())]
    assert types == [*["tensor(bfloat16)"] * 6, "tensor(float)"]
    made = session.run(None, feeds)
    wanted = run_reference(graph, {name: array.astype(np.float32) for name, array in feeds.items()})
    assert [array.dtype for array in made] == [*[HALF] * 4, np.float32]
    for array, expected in zip(made, wanted.values(), strict=True):
        np.testing.assert_allclose(array.astype(np.float32), expected, rtol=2**-7)


@pytest.mark.parametrize("kind", ["uint16", "V2", "float32", "value", "turned"])
def test_the_numbers_may_come_in_other_forms(built: Path, feeds: dict[str, NDArray[Any]], kind: str) -> None:
    forms = {
        "float32": lambda array: array.astype(np.float32),
        "value": value_over,
        "turned": lambda array: np.asarray(array, order="F"),
    }
    given = {name: forms.get(kind, lambda array: array.view(kind))(array) for name, array in feeds.items()}
    for one, other in zip(load(built)(feeds), load(built)(given), strict=True):
        np.testing.assert_array_equal(one, other)


def test_others_are_refused_with_what_is_taken(built: Path, feeds: dict[str, NDArray[Any]]) -> None:
    with pytest.raises(InputError, match="dtype float64, the model takes bfloat16; float32 is rounded, uint16"):
        load(built)({**feeds, "x": feeds["x"].astype(np.float64)})


def test_memory_of_onnx_runtime_is_read_and_written(built: Path, feeds: dict[str, NDArray[Any]]) -> None:
    session = Session(built)
    binding, memory = session.io_binding(), value_over(np.zeros((4, 8), HALF))
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, value_over(array))
    binding.bind_ortvalue_output("y", memory)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(array_of(memory), session.run(["y"], feeds)[0])
    assert binding.get_outputs()[0].data_type() == "tensor(bfloat16)"
    assert isinstance(memory, onnxruntime.OrtValue)


def test_files_hold_float32(built: Path, tmp_path: Path) -> None:
    library = load(built)
    report = run_once(library, built, {}, tmp_path, {})
    assert [output.dtype for output in report.outputs] == [*["bfloat16"] * 4, "float32"]
    saved = np.load(tmp_path / "y.npy")
    assert saved.dtype == np.float32 and saved.shape == (4, 8)
    assert report.outputs[0].max == saved.max()
    np.testing.assert_array_equal(saved.astype(HALF), library(library.example_inputs())[0])


def test_a_race_is_held_to_what_all_roundings_move(graph: Graph, built: Path, tmp_path: Path) -> None:
    inputs = generate_inputs(graph, 0)
    assert LibraryNetwork(built, 1, inputs)._prepared is not None
    rival = Model(tmp_path / "own.onnx", {}).plain_file(graph, tmp_path / "float32.onnx")
    session = onnxruntime.InferenceSession(rival, providers=["CPUExecutionProvider"])
    exact = session.run(["y"], inputs)[0]
    error = float(np.abs(exact - run_reference(graph, inputs)["y"]).max() / np.ptp(exact))
    assert WHOLE_LIMIT < error <= whole_limit(graph, inputs)


def test_programs_in_c_see_its_name_and_size() -> None:
    assert '"bfloat16", 2, shape_4_8, 64' in _tensor(TensorSpec("x", (4, 8), BFLOAT16))


def test_what_onnx_runtime_runs_whole_has_such_tensors_too(tmp_path: Path) -> None:
    text = """f (bool c, bfloat16[3] x, bfloat16[3] z) => (bfloat16[3] y) { y = If(c)
        <then_branch = t () => (bfloat16[3] a) { a = Identity(x) },
        else_branch = e () => (bfloat16[3] b) { b = Identity(z) }> }"""
    onnx.save(parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'), tmp_path / "if.onnx")
    api.compile(tmp_path / "if.onnx", tmp_path / "if.so")
    feeds = {"c": np.array(True), "x": np.array([1, 2, 3], HALF), "z": np.zeros(3, HALF)}
    (made,) = api.Session(tmp_path / "if.so").run(None, feeds)
    assert made.dtype == HALF and made.tolist() == [1, 2, 3]
