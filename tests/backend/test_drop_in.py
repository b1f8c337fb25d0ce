"""A program of ONNX Runtime's goes on after one changed line: `import autofuse as onnxruntime`."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import autofuse
from autofuse.errors import InputError
from tests.backend.test_session import network, rows
from tests.conftest import OnnxBuilder

CPU = "CPUExecutionProvider"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = network()
    made.producer_name, made.domain, made.model_version, made.doc_string = "a tool", "org.example", 7, "two outputs"
    made.graph.doc_string = "a product"
    onnx.helper.set_model_props(made, {"classes": "4", "größe": "x"})
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 4
    path = tmp_path_factory.mktemp("drop_in") / "net.onnx"
    onnx.save(made, path)
    return path


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("empty") / "p.db")


@pytest.fixture(scope="module")
def session(model: Path, database: str) -> autofuse.Session:
    return autofuse.Session(model, threads=1, database=database)


@pytest.fixture(scope="module")
def expected(model: Path) -> list[NDArray[Any]]:
    return onnxruntime.InferenceSession(model, providers=[CPU]).run(None, {"x": rows(4)})


def program(runtime: ModuleType, model: Path) -> list[Any]:
    """What a program does with ONNX Runtime."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = runtime.InferenceSession(str(model), options, providers=[("CUDAExecutionProvider", {}), CPU])
    first = session.get_inputs()[0]
    found: list[Any] = [first.name, list(first.shape), first.type, [one.name for one in session.get_outputs()]]
    found += session.run(["z"], {first.name: rows(4)}, runtime.RunOptions())
    value = runtime.OrtValue.ortvalue_from_numpy(rows(4, 1))
    found += [one.numpy() for one in session.run_with_ort_values(None, {first.name: value})]
    binding = session.io_binding()
    binding.bind_cpu_input(first.name, rows(4, 2))
    for name in ("z", "y"):
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    found += binding.copy_outputs_to_cpu()
    meta = session.get_modelmeta()
    found += [getattr(meta, name) for name in ("producer_name", "graph_name", "domain", "description", "version")]
    return [*found, meta.graph_description, meta.custom_metadata_map, session.get_overridable_initializers()]


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_the_same_program_finds_the_same_values(model: Path, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(Path(database).parent))
    for theirs, ours in zip(program(onnxruntime, model), program(autofuse, model), strict=True):
        if isinstance(theirs, np.ndarray):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        else:
            assert ours == theirs


def test_every_name_that_a_program_may_go_on_using_is_onnx_runtimes() -> None:
    from autofuse.ort.session import NAMES

    assert all(getattr(autofuse, name) is getattr(onnxruntime, name) for name in NAMES)
    assert autofuse.InferenceSession is autofuse.Session
    with pytest.raises(AttributeError, match="no attribute 'TrainingSession'"):
        _ = autofuse.TrainingSession  # type: ignore[attr-defined]


def test_a_model_in_memory_is_compiled_as_the_file_is(model: Path, database: str, expected: list[NDArray[Any]]) -> None:
    session = autofuse.Session(model.read_bytes(), threads=1, database=database)
    for got, wanted in zip(session.run(None, {"x": rows(4)}), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert session.threads == 1 and session.get_providers() == ["AutofuseExecutionProvider"]


def test_the_sizes_of_a_model_may_be_given(database: str, onnx_builder: Any, tmp_path: Path) -> None:
    builder: OnnxBuilder = onnx_builder()
    path = builder.save(tmp_path / "open.onnx", {"x": ["n", 4]}, [builder.op("Relu", "y", "x")])
    with pytest.raises(InputError, match="x"):
        autofuse.Session(path, threads=1, database=database)
    session = autofuse.Session(path, threads=1, database=database, shapes=[{"x": (1, 4)}, {"x": (2, 4)}])
    assert [one.shape for one in session.run(None, {"x": np.ones((2, 4), "float32")})] == [(2, 4)]


def test_outputs_are_written_where_they_are_bound(session: autofuse.Session, expected: list[NDArray[Any]]) -> None:
    inputs, y = rows(4), np.empty((4, 4), "float32")
    z = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((4, 4), "float32"))
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, (4, 8), inputs.ctypes.data)
    binding.bind_output("y", "cpu", 0, "float32", [4, 4], y.ctypes.data)
    binding.bind_ortvalue_output("z", z)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(y, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(z.numpy(), expected[1], rtol=1e-5, atol=1e-6)
    inputs[...] = rows(4, 5)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y, session.run(["y"], {"x": rows(4, 5)})[0])
    assert [one.shape() for one in binding.get_outputs()] == [[4, 4], [4, 4]]
    binding.clear_binding_outputs()
    assert binding.copy_outputs_to_cpu() == []


@pytest.mark.parametrize("place", [0, 16], ids=["aligned", "copied"])
def test_bound_inputs_may_change_between_runs_of_any_session_in_any_thread(
    place: int, session: autofuse.Session, model: Path, database: str
) -> None:
    block = session.empty_inputs()["x"].ravel()
    memory = np.zeros(block.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + place
    inputs = memory[start : start + block.nbytes].view("float32").reshape(4, 8)
    binding = session.io_binding()
    binding.bind_cpu_input("x", inputs)
    binding.bind_output("y")
    kept = []

    def run(used: autofuse.Session, seed: int) -> None:
        inputs[...] = rows(4, seed)
        used.run_with_iobinding(binding)
        kept.append((binding.get_outputs()[0], session.run(["y"], {"x": rows(4, seed)})[0]))

    run(session, 1)
    run(session, 2)
    thread = threading.Thread(target=run, args=(session, 3))
    thread.start()
    thread.join()
    run(autofuse.Session(model, threads=1, database=database), 4)
    for found, wanted in kept:  # no run writes into what an earlier one gave
        np.testing.assert_array_equal(found.numpy(), wanted)
    assert len(kept) == 4
    other = rows(4, 5)
    binding.bind_cpu_input("x", other)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], session.run(["y"], {"x": other})[0])


def test_a_callback_hears_of_results_and_of_errors(session: autofuse.Session, expected: list[NDArray[Any]]) -> None:
    heard: queue.Queue[tuple[list[Any], Any, str]] = queue.Queue()
    session.run_async(["y"], {"x": rows(4)}, lambda *said: heard.put(said), "mine")
    results, user_data, error = heard.get(timeout=600)
    np.testing.assert_allclose(results[0], expected[0], rtol=1e-5, atol=1e-6)
    assert (user_data, error) == ("mine", "")
    session.run_async(None, {"x": rows(3)}, lambda *said: heard.put(said), None)
    results, _, error = heard.get(timeout=600)
    assert results == [] and "x" in error


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"providers": ["CUDAExecutionProvider"]}, "a library runs on the CPU: add 'CPUExecutionProvider'"),
        ({"providers": [CPU], "provider_options": [{}, {}]}, "2 given for 1 providers"),
        ({"sess_options": {"threads": 2}}, "sess_options: got dict, allowed: onnxruntime.SessionOptions"),
        ({"trust": ["me.pub"]}, "trust: a signature is of a library"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_change(given: dict[str, Any], words: str, model: Path) -> None:
    with pytest.raises(InputError, match=words):
        autofuse.Session(model, **given)


@pytest.mark.parametrize(("option", "value"), [("enable_profiling", True), ("optimized_model_filepath", "o.onnx")])
def test_options_that_ask_for_a_file_are_refused(option: str, value: object, model: Path) -> None:
    options = onnxruntime.SessionOptions()
    setattr(options, option, value)
    with pytest.raises(InputError, match=option):
        autofuse.Session(model, options)


@pytest.mark.parametrize(
    ("bind", "words"),
    [
        (lambda b: b.bind_cpu_input("w", rows(4)), "input 'w' is unknown; the model's inputs: x"),
        (lambda b: b.bind_output("w"), "output 'w' is unknown; the model's outputs: y, z"),
        (lambda b: b.bind_output("y", "cuda", 0), "device 'cuda' 0: a library computes on the CPU"),
        (lambda b: b.bind_output("y", buffer_ptr=4096), "a buffer needs an element_type and a shape"),
        (lambda b: b.bind_input("x", "cpu", 0, "bfloat17", (4, 8), 4096), "element_type: got 'bfloat17'"),
        (lambda b: b.bind_input("x", "cpu", 0, "U4", (4, 8), 4096), "no memory can hold"),
    ],
)
def test_what_cannot_be_bound_is_refused(bind: Any, words: str, session: autofuse.Session) -> None:
    with pytest.raises(InputError, match=words):
        bind(session.io_binding())


def test_memory_of_another_size_is_not_written_to(session: autofuse.Session) -> None:
    memory = np.full((4, 5), 3, "float32")
    binding = session.io_binding()
    binding.bind_cpu_input("x", rows(4))
    binding.bind_output("y", "cpu", 0, "float32", (4, 5), memory.ctypes.data)
    with pytest.raises(InputError, match=r"float32 of shape \(4, 4\) does not fit what is bound"):
        session.run_with_iobinding(binding)
    assert (memory == 3).all()


def test_a_library_takes_no_sizes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shapes, constants and database are of an ONNX file"):
        autofuse.Session(tmp_path / "net.so", shapes={"x": (1, 4)})
