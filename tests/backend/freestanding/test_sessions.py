"""Sessions of free-standing libraries: the results of the library that TVM runs, bit for bit, and codes for misuse."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import autofuse
from autofuse.cli.main import app
from autofuse.errors import DeviceError, InputError
from tests.backend.freestanding.native import Array, Native, NativeSession
from tests.conftest import OnnxBuilder

BAD_ARGUMENT = 1
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def cnn(path: Path) -> Path:
    net = OnnxBuilder()
    net.op("Relu", "a", net.conv_bn("stem", "x", (3, 16), stride=2))
    net.op("Relu", "b", net.conv_bn("depth", "a", (16, 16), group=16))
    net.op("Add", "c", net.conv_bn("point", "b", (16, 16), 1), "a")
    net.op("Flatten", "flat", net.op("GlobalAveragePool", "pool", "c"))
    net.op("Softmax", "y", net.dense("fc", "flat", (16, 10)))
    return net.save(path, {"x": (1, 3, 33, 33)}, ["y", "c"])


def transformer(path: Path) -> Path:
    net = OnnxBuilder()
    heads = []
    for name in "qkv":
        net.op("Reshape", f"{name}r", net.dense(name, "x", (32, 32)), net.constant(np.array([1, 12, 4, 8])))
        heads.append(net.op("Transpose", f"{name}t", f"{name}r", perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]))
    net.op("Softmax", "p", net.op("MatMul", "s", heads[0], heads[1]), axis=-1)
    net.op("Transpose", "ot", net.op("MatMul", "o", "p", heads[2]), perm=[0, 2, 1, 3])
    net.op(
        "Add",
        "res",
        net.dense("proj", net.op("Reshape", "or", "ot", net.constant(np.array([1, 12, 32]))), (32, 32)),
        "x",
    )
    net.op("LayerNormalization", "n", "res", net.weights(32, positive=True), net.weights(32))
    net.op("Erf", "e", net.dense("up", "n", (32, 64)))
    net.op("Add", "y", net.dense("down", "e", (64, 32)), "n")
    return net.save(path, {"x": (1, 12, 32)}, ["y"])


def recurrent(path: Path) -> Path:
    net = OnnxBuilder()
    net.op("LSTM", "h", "x", net.weights(1, 64, 8), net.weights(1, 64, 16), net.weights(1, 128), hidden_size=16)
    net.op("Squeeze", "y", "h", net.constant(np.array([1])))
    return net.save(path, {"x": (7, 2, 8)}, ["y"])


BUILDERS: dict[str, Callable[[Path], Path]] = {"cnn": cnn, "transformer": transformer, "recurrent": recurrent}


class Both:
    """A model as both kinds of library."""

    def __init__(self, model: Path, **options: object) -> None:
        database = str(model.parent / "p.db")
        self.path = model.with_name(f"lib{model.stem}.so")
        autofuse.compile(model, self.path, database=database, threads=2, format="c", **options)  # type: ignore[arg-type]
        autofuse.compile(model, model.with_suffix(".so"), database=database, threads=2, **options)  # type: ignore[arg-type]
        self.native, self.session = Native(self.path), autofuse.Session(model.with_suffix(".so"))

    def inputs(self, shapes: int = 0) -> list[Array]:
        return list(self.session._library.example_inputs(program=shapes).values())

    def wanted(self, inputs: list[Array]) -> list[Array]:
        names = [given.name for given in self.session.get_inputs()]
        return self.session.run(None, dict(zip(names, inputs, strict=True)))


@pytest.fixture(scope="module", params=BUILDERS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(BUILDERS[request.param](tmp_path_factory.mktemp("free") / f"{request.param}.onnx"))


def parsed(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}'), path)
    return path


def assert_same(made: list[Array], wanted: list[Array]) -> None:
    for one, other in zip(made, wanted, strict=True):
        assert (one.shape, one.dtype, one.tobytes()) == (other.shape, other.dtype, other.tobytes())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_are_those_of_the_library_that_tvm_runs(both: Both, threads: int) -> None:
    with NativeSession(both.native, threads) as session:
        assert both.native.threads(session.handle) == threads
        for offset in (0, 4, 0):  # what is not aligned goes through a copy
            assert_same(session.run(both.inputs(), offset), both.wanted(both.inputs()))


def test_inputs_and_outputs_are_described(both: Both) -> None:
    for kind, specs in (("input", both.session.metadata.inputs), ("output", both.session.metadata.outputs)):
        assert both.native.described(kind) == [(spec.name, spec.dtype, spec.shape) for spec in specs]
    assert not both.native.input(0, -1) and not both.native.input(1, 0) and not both.native.output(-1, 0)


def test_callers_run_sessions_of_their_own_side_by_side(both: Both) -> None:
    inputs = both.inputs()
    wanted = [array.tobytes() for array in both.wanted(inputs)]
    differing: list[int] = []

    def work(threads: int) -> None:
        for _ in range(3):
            with NativeSession(both.native, threads) as session:
                for _ in range(20):
                    differing.extend([array.tobytes() for array in session.run(inputs)] != wanted for _ in range(1))

    callers = [threading.Thread(target=work, args=(1 + number % 2,)) for number in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(differing) == 6 * 3 * 20 and not any(differing)


def test_outputs_that_are_inputs_weights_views_or_twice_the_same(tmp_path: Path) -> None:
    text = """net (float[2,3] x) => (float[2,3] i, float[3,2] v, float[3,2] w, float[2,3] y, float[2,3] z, float[2,3] k)
        <float[2,3] c = {1,2,3,4,5,6}, int64[2] s = {3,2}>
        { i = Identity (x) y = Exp (x) v = Reshape (y, s) w = Reshape (x, s) z = Identity (y) k = Neg (c) }"""
    model = parsed(tmp_path / "odd.onnx", text)
    found = Both(model)
    inputs = found.inputs()
    with NativeSession(found.native) as session:
        for offset in (0, 8):
            assert_same(session.run(inputs, offset), found.wanted(inputs))


def test_booleans_and_integers_pass(tmp_path: Path) -> None:
    text = """net (int64[4] a, bool[4] b) => (bool[4] y, int64[4] z)
        { n = Not (b) z = Add (a, a) l = Less (a, z) y = And (l, n) }"""
    found = Both(parsed(tmp_path / "types.onnx", text))
    inputs = [np.array([1, -2, 3, 0]), np.array([True, False, False, True])]
    with NativeSession(found.native) as session:
        assert_same(session.run(inputs), found.wanted(inputs))


def test_each_set_of_shapes_has_sessions(tmp_path: Path) -> None:
    net = OnnxBuilder()
    net.op("Relu", "y", net.dense("fc", "x", (8, 4)))
    model = net.save(tmp_path / "net.onnx", {"x": ("batch", 8)}, ["y"])
    found = Both(model, shapes=[{"x": (1, 8)}, {"x": (4, 8)}])
    for number, batch in enumerate((1, 4)):
        assert found.native.described("input", number) == [("x", "float32", (batch, 8))]
        inputs = found.inputs(number)
        with NativeSession(found.native, 2, number) as session:
            assert_same(session.run(inputs), found.wanted(inputs))
    assert NativeSession(found.native, 1, 2).code == BAD_ARGUMENT
    assert found.native.why() == "create: got shapes 2, allowed: 0 to 1"


def test_an_index_beyond_its_table_is_refused(tmp_path: Path) -> None:
    table = helper.make_tensor("t", TensorProto.FLOAT, [5, 2], np.arange(10, dtype=float))
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> net (int64[3] i) => (float[3,2] y) { y = Gather (t, i) }'
    )
    model.graph.initializer.append(table)
    onnx.save(model, tmp_path / "gather.onnx")
    found = Both(tmp_path / "gather.onnx")
    with NativeSession(found.native) as session:
        assert_same(session.run([np.array([0, 4, -5])]), found.wanted([np.array([0, 4, -5])]))
        with pytest.raises(AssertionError, match="run: input i: value 5, but it indexes a table of 5"):
            session.run([np.array([0, 5, 1])])
        assert_same(session.run([np.array([1, 1, 1])]), found.wanted([np.array([1, 1, 1])]))


def test_misuse_has_a_code_and_a_reason(both: Both) -> None:
    native = both.native
    assert native.create(None, 0, 1) == BAD_ARGUMENT
    assert NativeSession(native, -1).code == NativeSession(native, 1025).code == BAD_ARGUMENT
    assert native.why() == "create: got 1025 threads, allowed: 0 to 1024"
    assert native.run(None, None, None) == BAD_ARGUMENT
    assert native.threads(None) == 0
    native.destroy(None)
    with NativeSession(native) as session:
        empty = (ctypes.c_void_p * 4)()
        for inputs, outputs in ((None, empty), (empty, None), (empty, empty)):
            assert native.run(session.handle, inputs, outputs) == BAD_ARGUMENT
        assert native.why().endswith("is NULL")
        session.run(both.inputs())
        assert native.why() == ""


def test_no_number_of_threads_means_those_that_it_was_tuned_for(both: Both) -> None:
    with NativeSession(both.native, 0) as session:
        assert both.native.threads(session.handle) == min(2, len(os.sched_getaffinity(0)))


def test_a_model_that_onnx_runtime_has_a_part_in_is_refused(tmp_path: Path) -> None:
    text = "net (float[4] x) => (float[k,1] y) { r = Relu (x) n = NonZero (r) t = Transpose (n) y = Cast <to=1> (t) }"
    model = parsed(tmp_path / "parts.onnx", text)
    with pytest.raises(InputError, match="ONNX Runtime would run that part.*compile without --format c"):
        autofuse.compile(model, tmp_path / "parts.so", database=str(tmp_path / "p.db"), threads=1, format="c")
    assert not (tmp_path / "parts.so").exists()


def test_another_architecture_needs_its_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    model = parsed(tmp_path / "net.onnx", "net (float[4] x) => (float[4] y) { y = Relu (x) }")
    with pytest.raises(DeviceError, match="no C compiler for aarch64 on this machine: install gcc-aarch64-linux-gnu"):
        autofuse.compile(
            model, tmp_path / "net.so", database=str(tmp_path / "p.db"), device="raspberry-pi-5", format="c"
        )


def test_files_of_others_are_not_replaced(tmp_path: Path) -> None:
    model = parsed(tmp_path / "net.onnx", "net (float[4] x) => (float[4] y) { y = Relu (x) }")
    header = tmp_path / "net.h"
    header.write_text("/* mine */\n")
    database = str(tmp_path / "p.db")
    with pytest.raises(InputError, match="exists and is not a header of autofuse"):
        autofuse.compile(model, tmp_path / "net.so", database=database, threads=1, format="c")
    header.unlink()
    autofuse.compile(model, tmp_path / "net.so", database=database, threads=1, format="c")
    autofuse.compile(model, tmp_path / "net.so", database=database, threads=1, format="c")
    with pytest.raises(InputError, match="exists and is not a library of autofuse"):
        autofuse.compile(model, tmp_path / "net.so", database=database, threads=1)
    with pytest.raises(InputError, match="--sign: nobody verifies a free-standing library"):
        autofuse.compile(model, tmp_path / "net.so", database=database, threads=1, format="c", sign="key")
    with pytest.raises(InputError, match="--format: got 'exe', allowed: so, c"):
        autofuse.compile(model, tmp_path / "net.so", database=database, threads=1, format="exe")


def test_one_option_names_the_format_of_the_library_and_that_of_the_screen(tmp_path: Path) -> None:
    model = parsed(tmp_path / "net.onnx", "net (float[4] x) => (float[4] y) { y = Relu (x) }")
    command = ["compile", str(model), "-o", str(tmp_path / "net.so"), "--db", str(tmp_path / "p.db"), "-n", "1"]
    done = CliRunner().invoke(app, [*command, "--format", "c", "--format", "json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["header"] == str(tmp_path / "net.h")
    shown = CliRunner().invoke(app, [*command, "--format", "c"])
    assert f"autofuse package {tmp_path / 'net.so'} -o net-package" in shown.stdout.replace("\n", "")
    refused = CliRunner().invoke(app, [*command, "--format", "c", "--format", "so"])
    assert (refused.exit_code, refused.stderr) == (2, "autofuse: --format: got so and c, allowed: one of them\n")
