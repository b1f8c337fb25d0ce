"""The session: ONNX Runtime's interface, memory that is not copied, threads, several shapes, and the same from C."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from typer.testing import CliRunner

from autofuse.backend.c_interface import FOLDER
from autofuse.backend.compile.realise import Part, build_programs
from autofuse.backend.library import compiled
from autofuse.backend.library.library import count_kernels, load, read_metadata
from autofuse.backend.library.session import Session
from autofuse.cli.main import app
from autofuse.device.target import Target
from autofuse.errors import DeviceError, InputError
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import lower
from tests.backend.forging import forged

Array = NDArray[Any]
TARGET = Target("x86-64-v2", lanes=4, registers=16, cores=2, l1_bytes=32768, l2_bytes=262144)

NETWORK = """net (float[batch,8] x) => (float[batch,4] y, float[batch,4] z)
    { m = MatMul (x, w) y = Relu (m) s = Sigmoid (m) z = Mul (s, m) }"""
CALLS, CALLERS = 1_000, 8
"""`experiments/session` makes ten times as many."""


def network() -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {NETWORK}')
    weights = np.random.default_rng(0).standard_normal((8, 4)).astype("float32")
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def write(graphs: Sequence[Graph], path: Path, threads: int = 1) -> Path:
    parts = []
    for graph in graphs:
        plan = default_plan(graph)
        lowered = lower(graph, plan, TARGET, [group.operators for group in plan.groups])
        parts.append(Part(lowered, {bound.workload.key: {} for bound in lowered.kernels}, plan.key))
    build_programs(parts, TARGET, threads, path)
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graphs = [from_model(network(), "net", {"x": (batch, 8)}) for batch in (1, 4, 8)]
    return write(graphs, tmp_path_factory.mktemp("session") / "net.so")


@pytest.fixture(scope="module")
def expected() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(network().SerializeToString(), providers=["CPUExecutionProvider"])


def rows(batch: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((batch, 8)).astype("float32")


@pytest.mark.parametrize("batch", [1, 4, 8])
def test_each_shape_of_the_library_equals_onnx_runtime(
    built: Path, expected: onnxruntime.InferenceSession, batch: int
) -> None:
    made = Session(built).run(None, {"x": rows(batch)})
    for got, wanted in zip(made, expected.run(None, {"x": rows(batch)}), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_names_shapes_and_types_are_onnx_runtimes(built: Path, expected: onnxruntime.InferenceSession) -> None:
    session = Session(built)
    for mine, theirs in (
        (session.get_inputs(), expected.get_inputs()),
        (session.get_outputs(), expected.get_outputs()),
    ):
        assert [(arg.name, arg.type) for arg in mine] == [(arg.name, arg.type) for arg in theirs]
        assert [arg.shape[0] for arg in mine] == [None] * len(theirs)  # "batch" there
        assert [arg.shape[1] for arg in mine] == [arg.shape[1] for arg in theirs]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (None, "inputs: got NoneType, allowed: a mapping from names to arrays, or a list"),
        (3, "inputs: got int, allowed: a mapping"),
        (rows(4), "inputs: got ndarray, allowed: a mapping"),
        ({"x": rows(4).astype(">f4")}, r"stored in the other byte order \(>f4\): convert it with array.astype"),
        ({"x": [[1.0], [1.0, 2.0]]}, "an input of type list is no array"),
        ({"x": None}, "dtype object, the model takes float32|shape"),
        ([10**400], "dtype object, the model takes float32|shape"),
    ],
)
def test_inputs_that_are_none_have_a_message(inputs: Any, words: str, built: Path) -> None:
    with pytest.raises(InputError, match=words):
        Session(built).run(None, inputs)


def test_some_outputs_in_any_order(built: Path) -> None:
    session = Session(built)
    y, z = session.run(None, {"x": rows(4)})
    again = session.run(["z", "y"], {"x": rows(4)})
    np.testing.assert_array_equal(again[0], z)
    np.testing.assert_array_equal(again[1], y)
    with pytest.raises(InputError, match="output_names: got 'y', allowed: None, or a list such as"):
        session.run("y", {"x": rows(4)})
    with pytest.raises(InputError, match="output 'w' is unknown; the model's outputs: y, z"):
        session.run(["w"], {"x": rows(4)})


def test_another_shape_is_refused_and_padded_only_on_demand(
    built: Path, expected: onnxruntime.InferenceSession
) -> None:
    with pytest.raises(InputError, match=r"1x8; 4x8; 8x8.*pad=True"):
        Session(built).run(None, {"x": rows(3)})
    session = Session(built, pad=True)
    for batch in (2, 3, 5, 7, 8):
        made = session.run(None, {"x": rows(batch)})
        for got, wanted in zip(made, expected.run(None, {"x": rows(batch)}), strict=True):
            assert got.shape == (batch, 4)
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="fit none"):
        session.run(None, {"x": rows(9)})


def test_programs_share_equal_weights(built: Path) -> None:
    metadata = Session(built).metadata
    uses = [position for program in metadata.programs for position in program.weights]
    assert len(metadata.programs) == 3 and len(metadata.weights) < len(uses)
    library = load(built)
    for number in range(3):
        assert count_kernels(library, library.example_inputs(program=number), number) > 0


def test_aligned_inputs_are_read_and_outputs_returned_where_they_lie(built: Path) -> None:
    session = Session(built)
    inputs = session.empty_inputs(1)
    inputs["x"][...] = rows(4)
    assert inputs["x"].__array_interface__["data"][0] % 64 == 0
    (tensor, _) = session.run_dlpack(None, inputs)
    view = np.from_dlpack(tensor)
    np.testing.assert_array_equal(view, session.run(["y"], inputs)[0])
    assert np.shares_memory(view, np.from_dlpack(tensor))
    assert not session.run(["y"], inputs)[0].flags.owndata  # TVM's own memory, seen by numpy


class Foreign:
    """Some other library's tensor: known by DLPack alone."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_other_libraries_tensors_are_taken(built: Path) -> None:
    session = Session(built)
    for given in (Foreign(rows(4)), rows(4).tolist(), np.asfortranarray(rows(4))):
        if isinstance(given, list):
            with pytest.raises(InputError, match="dtype float64"):
                session.run(None, {"x": given})
            continue
        np.testing.assert_array_equal(session.run(None, {"x": given})[0], session.run(None, {"x": rows(4)})[0])
    frozen = rows(4)
    frozen.flags.writeable = False
    np.testing.assert_array_equal(session.run(None, {"x": frozen})[0], session.run(None, {"x": rows(4)})[0])


def test_eight_threads_get_identical_results(built: Path) -> None:
    session = Session(built)
    feeds = [{"x": rows(batch, seed)} for seed, batch in enumerate([1, 4, 8, 4, 1, 8, 4, 1])]
    wanted = [[array.copy() for array in session.run(None, feed)] for feed in feeds]
    differing: list[int] = []

    def work(number: int) -> None:
        feed, right = feeds[number], [array.tobytes() for array in wanted[number]]
        for call in range(CALLS):
            made = session.run(None, feed)
            if [array.tobytes() for array in made] != right:
                differing.append(call)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(CALLERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert differing == []


def test_a_call_makes_few_calls_of_python(built: Path) -> None:
    """What stands between a program and the virtual machine; some 10 us."""
    session = Session(built)
    inputs = session.empty_inputs()
    session.run(None, inputs)
    calls: list[str] = []
    sys.setprofile(lambda _frame, event, _argument: calls.append(event))
    try:
        session.run(None, inputs)
    finally:
        sys.setprofile(None)
    assert len([event for event in calls if event in ("call", "c_call")]) <= 80, len(calls)


def test_the_example_in_c_gives_the_same(built: Path, tmp_path: Path) -> None:
    program, source = tmp_path / "example", FOLDER / "example.c"
    assert len(source.read_text().splitlines()) <= 30
    flags = shlex.split(CliRunner().invoke(app, ["cflags"]).stdout)
    arguments = [str(source), *flags, "-o", str(program)]
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", *arguments], check=True, timeout=600)
    done = subprocess.run([str(program), str(built)], check=True, capture_output=True, text=True, timeout=600)
    y, z = Session(built).run(None, {"x": np.ones((1, 8), "float32")})
    for line, name, array in zip(done.stdout.splitlines(), "yz", (y, z), strict=True):
        assert line.startswith(f"{name}: rank 2, first value ")
        assert float(line.split()[-1]) == pytest.approx(float(array[0, 0]), rel=1e-6)
    future = forged(built, tmp_path / "f.so", table=lambda text: text.replace(b"\nfeature sse4.2", b"\nfeature sse9.9"))
    for content, message in (
        (b"", "cut off"),
        (built.read_bytes()[:-5], "cut off"),
        (future.read_bytes(), "lacks sse9"),
    ):
        (tmp_path / "damaged.so").write_bytes(content)
        command = [str(program), str(tmp_path / "damaged.so")]
        failed = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert failed.returncode == 1 and message in failed.stderr


def by_its_comment(folder: Path) -> subprocess.CompletedProcess[str]:
    """Compiles and runs example.c in `folder`, which holds model.so, by the command that its comment gives."""
    shutil.copy(FOLDER / "example.c", folder)
    found = re.search(r"`(gcc .* model\.so)`", (FOLDER / "example.c").read_text())
    assert found is not None
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        found[1], shell=True, cwd=folder, capture_output=True, text=True, timeout=600, env={**os.environ, "PATH": path}
    )


def test_the_example_in_c_runs_as_its_comment_says(built: Path, tmp_path: Path) -> None:
    shutil.copy(built, tmp_path / "model.so")
    done = by_its_comment(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["y", "z"]


def test_the_example_in_c_refuses_inputs_that_are_no_float32(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> net (int64[2] x) => (int64[2] y) { y = Add (x, x) }"""
    write([from_model(onnx.parser.parse_model(text), "net")], tmp_path / "model.so")
    done = by_its_comment(tmp_path)
    assert (done.returncode, done.stderr) == (1, "float32 inputs only\n")


def test_a_tampered_table_is_noticed(built: Path, tmp_path: Path) -> None:
    path = tmp_path / "tampered.so"
    path.write_bytes(built.read_bytes().replace(b"\nfeature sse4.2", b"\nfeature sse9.9"))
    with pytest.raises(InputError, match="does not match its checksum"):
        load(path)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_two_threads_give_what_one_gives(built: Path) -> None:
    one, two = Session(built, threads=1), Session(built, threads=2)
    assert (one.threads, two.threads) == (1, 2)
    for batch in (1, 4, 8):
        for mine, theirs in zip(one.run(None, {"x": rows(batch)}), two.run(None, {"x": rows(batch)}), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_too_many_threads_are_refused(built: Path) -> None:
    with pytest.raises((InputError, DeviceError), match="threads"):
        Session(built, threads=4096)


@pytest.mark.parametrize(("rows", "held"), [(1, []), (4096, [0, 0])], ids=["tiny", "with tasks for threads"])
def test_a_caller_is_held_on_a_core_only_where_kernels_share_their_work(
    rows: int, held: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = load(write([from_model(one_relu(rows), "net")], tmp_path / "net.so"))
    seen: list[int] = []

    @contextmanager
    def noted(core: int | None) -> Iterator[None]:
        seen.extend([] if core is None else [core])
        yield

    monkeypatch.setattr(compiled, "configure_threads", lambda _threads: 0)
    monkeypatch.setattr(compiled, "held_on", noted)
    inputs = library.example_inputs()
    library(inputs)
    library.prepared(inputs).run()
    assert seen == held


def test_a_library_that_does_not_say_whether_it_has_parallel_kernels_may_have_them(tmp_path: Path) -> None:
    path = write([from_model(one_relu(1), "net")], tmp_path / "net.so")
    assert not read_metadata(path).programs[0].parallel

    def older(body: dict[str, Any]) -> None:
        del body["programs"][0]["parallel"]

    assert read_metadata(forged(path, tmp_path / "older.so", body=older)).programs[0].parallel


def one_relu(rows: int) -> onnx.ModelProto:
    text = f"net (float[{rows},17] x) => (float[{rows},17] y) {{ y = Relu (x) }}"
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
