"""Models that ONNX Runtime runs with our execution provider: right, from many threads, refused where they must be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import autofuse.ort
from autofuse.errors import DeviceError, InputError
from autofuse.ort.provider import build
from tests.ort.compiled import agree, attribute, changed, compiled, image, network, options, plain, session
from tests.segments.models import detector, model_of, normal, pooled, written

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`net.onnx` and what is compiled of it for one thread and two."""
    made = tmp_path_factory.mktemp("ort")
    network(made / "net.onnx")
    compiled(made / "net.onnx", made / "tuned.onnx")
    compiled(made / "net.onnx", made / "tuned2.onnx", threads=2)
    return made


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in parts, compiled."""
    made = tmp_path_factory.mktemp("parted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autofuse.segments.worth.LEAST_US", 0.0)
        compiled(written(pooled(), made), made / "tuned.onnx")
    return made


def test_a_model_of_one_segment_gives_what_onnx_runtime_gives(folder: Path) -> None:
    onnx.checker.check_model(onnx.load(folder / "tuned.onnx"))
    assert [node.op_type for node in onnx.load(folder / "tuned.onnx").graph.node] == ["EPContext"]
    for threads in (1, 2):
        agree(folder / "net.onnx", folder / "tuned.onnx", image(), threads)
    assert session(folder / "tuned.onnx").get_providers()[0] == build.PROVIDER


def test_kernels_of_two_threads_run_on_as_many_as_onnx_runtime_lends(folder: Path) -> None:
    for threads in (1, 2, 3):
        agree(folder / "net.onnx", folder / "tuned2.onnx", image(), threads)


def test_the_name_of_the_provider_is_enough_once_it_is_registered(folder: Path) -> None:
    autofuse.ort.register()
    named = onnxruntime.InferenceSession(str(folder / "tuned.onnx"), providers=[build.PROVIDER, "CPUExecutionProvider"])
    np.testing.assert_allclose(named.run(None, image())[0], plain(folder / "net.onnx").run(None, image())[0], rtol=1e-5)


def test_without_the_provider_onnx_runtime_says_whose_node_it_is(folder: Path) -> None:
    with pytest.raises(Exception, match="EPContext"):
        plain(folder / "tuned.onnx")


def test_parts_that_have_no_kernel_stay_as_they_are(parted: Path) -> None:
    kinds = [node.op_type for node in onnx.load(parted / "tuned.onnx").graph.node]
    assert kinds.count("EPContext") == 2 and "MaxPool" in kinds and "MatMul" not in kinds
    agree(parted / "model.onnx", parted / "tuned.onnx", {"x": normal(6, 1, 16)})


@pytest.mark.usefixtures("every_size")
def test_a_detector_keeps_its_suppression(tmp_path: Path) -> None:
    model = written(detector(), tmp_path)
    compiled(model, tmp_path / "tuned.onnx")
    boxes = np.sort(np.random.default_rng(1).random((1, 6, 4)).astype(np.float32))
    agree(model, tmp_path / "tuned.onnx", {"boxes": boxes, "logits": normal(1, 2, 6, seed=2) * 10})


@pytest.mark.usefixtures("every_size")
def test_a_loop_keeps_its_body(tmp_path: Path) -> None:
    model = written(
        model_of(
            """net (float[4,16] x, int64 count) => (float[4,8] y) {
                a = MatMul (x, w)
                yes = Constant <value = bool {1}> ()
                b = Loop (count, yes, a) <body = step (int64 i, bool go, float[4,8] now) => (bool on, float[4,8] next) {
                    on = Identity (go)
                    next = Mul (now, now)
                }>
                y = Tanh (b)
            }""",
            w=normal(16, 8),
        ),
        tmp_path,
    )
    compiled(model, tmp_path / "tuned.onnx")
    assert "Loop" in {node.op_type for node in onnx.load(tmp_path / "tuned.onnx").graph.node}
    agree(model, tmp_path / "tuned.onnx", {"x": normal(4, 16), "count": np.array(2)})


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every segment pays, however small it is."""
    monkeypatch.setattr("autofuse.segments.worth.LEAST_US", 0.0)


def test_a_model_without_any_segment_is_the_model(tmp_path: Path) -> None:
    model = written(detector(), tmp_path)
    report = compiled(model, tmp_path / "tuned.onnx")
    assert (report.kernels, report.provider, report.sha256) == (0, "", "")
    boxes = np.sort(np.random.default_rng(1).random((1, 6, 4)).astype(np.float32))
    agree(model, tmp_path / "tuned.onnx", {"boxes": boxes, "logits": normal(1, 2, 6, seed=2) * 10})


def test_sizes_that_were_given_are_those_of_the_model(tmp_path: Path) -> None:
    model = written(model_of("net (float[n,16] x) => (float[n,8] y) { y = MatMul (x, w) }", w=normal(16, 8)), tmp_path)
    compiled(model, tmp_path / "tuned.onnx", shapes={"x": (3, 16)})
    agree(model, tmp_path / "tuned.onnx", {"x": normal(3, 16)})
    with pytest.raises(Exception, match=r"(?s)x.*Got: 4 Expected: 3"):
        session(tmp_path / "tuned.onnx").run(None, {"x": normal(4, 16)})


def test_an_output_may_be_an_input(tmp_path: Path) -> None:
    text = "net (float[3,16] x) => (float[3,8] y, float[3,16] x) { y = MatMul (x, w) }"
    model = written(model_of(text, w=normal(16, 8)), tmp_path)
    compiled(model, tmp_path / "tuned.onnx")
    agree(model, tmp_path / "tuned.onnx", {"x": normal(3, 16)})


def test_an_output_that_nobody_reads_is_made_all_the_same(tmp_path: Path) -> None:
    text = "net (float[3,16] x) => (float[3,8] y, float[3,8] z) { y = MatMul (x, w) z = Tanh (y) }"
    model = written(model_of(text, w=normal(16, 8)), tmp_path)
    compiled(model, tmp_path / "tuned.onnx")
    wanted = plain(model).run(None, {"x": normal(3, 16)})

    def unread(changing: onnx.ModelProto) -> None:
        changing.graph.value_info.append(changing.graph.output[0])
        del changing.graph.output[0]

    fewer = changed(tmp_path / "tuned.onnx", tmp_path / "fewer.onnx", unread)
    np.testing.assert_allclose(session(fewer).run(None, {"x": normal(3, 16)})[0], wanted[1], rtol=1e-5)

    def one_more(changing: onnx.ModelProto) -> None:
        changing.graph.node[0].output.append("more")
        changing.graph.output.append(onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, (3, 8)))

    more = changed(tmp_path / "tuned.onnx", tmp_path / "more.onnx", one_more)
    with pytest.raises(Exception, match=r"it has 1 inputs and 3 outputs, its code 1 and 2"):
        session(more)


def test_many_threads_use_many_sessions_at_once(folder: Path) -> None:
    """Each call has memory of its own, each set of kernels runs on whatever threads its session has."""
    wanted = [plain(folder / "net.onnx").run(None, image(seed))[0] for seed in range(8)]
    sessions = [session(folder / name, threads) for name, threads in (("tuned.onnx", 1), ("tuned2.onnx", 2))] * 2

    def run(number: int) -> bool:
        made = sessions[number % len(sessions)].run(None, image(number % 8))[0]
        return bool(np.allclose(made, wanted[number % 8], rtol=1e-4, atol=1e-5))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(run, range(240)))


def test_memory_that_is_not_aligned_is_read_and_written_all_the_same(folder: Path) -> None:
    block = np.zeros(3 * 24 * 24 + 16, np.float32)
    array = block[1 : 1 + 3 * 24 * 24].reshape(1, 3, 24, 24)
    array[...] = image()["x"]
    np.testing.assert_array_equal(
        session(folder / "tuned.onnx").run(None, {"x": array})[0],
        session(folder / "tuned.onnx").run(None, image())[0],
    )


def test_a_value_outside_of_its_table_is_an_error_of_the_call(tmp_path: Path) -> None:
    model = written(
        model_of("net (int64[3] i) => (float[3,8] y) { r = Gather (w, i) y = Tanh (r) }", w=normal(16, 8)), tmp_path
    )
    compiled(model, tmp_path / "tuned.onnx")
    made = session(tmp_path / "tuned.onnx")
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*input i: value 16, but it indexes a table of 16"):
        made.run(None, {"i": np.array([0, 16, 2])})
    agree(model, tmp_path / "tuned.onnx", {"i": np.array([0, -16, 2])})


def test_values_of_another_shape_or_type_are_errors_of_the_call(folder: Path, tmp_path: Path) -> None:
    def open_sizes(model: onnx.ModelProto) -> None:
        for size in model.graph.input[0].type.tensor_type.shape.dim:
            size.dim_param = "any"

    def of_doubles(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE

    made = session(changed(folder / "tuned.onnx", tmp_path / "open.onnx", open_sizes))
    made.run(None, {"x": np.zeros((1, 3, 24, 24), np.float32)})
    for shape in ((1, 3, 24, 23), (2, 3, 24, 24)):
        with pytest.raises(
            Exception, match=r"INVALID_ARGUMENT.*input x has the shape \(.*compiled for \(1, 3, 24, 24\)"
        ):
            made.run(None, {"x": np.zeros(shape, np.float32)})
    made = session(changed(folder / "tuned.onnx", tmp_path / "double.onnx", of_doubles))
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*input x is float64, compiled for float32"):
        made.run(None, {"x": np.zeros((1, 3, 24, 24))})


def _flip(place: int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        content = bytearray(attribute(model, "ep_cache_context").s)
        content[place] ^= 1
        attribute(model, "ep_cache_context").s = bytes(content)

    return change


def _set(name: str, value: bytes) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        attribute(model, name).s = value

    return change


def _beside(name: bytes) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        attribute(model, "embed_mode").i = 0
        attribute(model, "ep_cache_context").s = name
        attribute(model, "notes").s = b"sha256 " + b"0" * 64

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_flip(5000), "its code is damaged, or of another model"),
        (_flip(-1), "its code is damaged, or of another model"),
        (_set("ep_cache_context", b""), "its code is not there, or cut off"),
        (_set("ep_cache_context", b"x" * 9000), "its code is damaged, or of another model"),
        (_set("notes", b""), "it does not name the SHA-256 of its code"),
        (_set("notes", b"sha256 " + b"z" * 64), "it does not name the SHA-256 of its code"),
        (_set("partition_name", b"segment7"), "its code has no partition segment7"),
        (_set("partition_name", b""), "its code has no partition without a name"),
        (_beside(b"../tuned.segments"), "which is no file beside the model"),
        (_beside(b"/etc/passwd"), "which is no file beside the model"),
        (_beside(b"gone.segments"), "gone.segments of its code cannot be read: it belongs beside the model"),
    ],
)
def test_what_is_damaged_or_forged_is_refused_before_it_is_loaded(
    folder: Path, tmp_path: Path, change: Callable[[onnx.ModelProto], None], says: str
) -> None:
    with pytest.raises(Exception, match=says):
        session(changed(folder / "tuned.onnx", tmp_path / "damaged.onnx", change))
    agree(folder / "net.onnx", folder / "tuned.onnx", image())


def test_code_of_another_format_or_of_no_library_is_refused(folder: Path, tmp_path: Path) -> None:
    """Also where its SHA-256 is right."""
    import hashlib

    content = attribute(onnx.load(folder / "tuned.onnx"), "ep_cache_context").s
    for place, value, says in (
        (0, b"A", None),
        (0, b"B", "what it holds is no code of autofuse"),
        (8, b"\7", r"another autofuse compiled it \(format 7, this provider reads 1, 4 and 5\)"),
        (20, b"\xff", "its parts lie beyond its end"),
        (4096, b"X", "its code is damaged .it is no shared object"),
    ):
        forged = content[:place] + value + content[place + 1 :]

        def change(model: onnx.ModelProto, forged: bytes = forged) -> None:
            attribute(model, "ep_cache_context").s = forged
            attribute(model, "notes").s = b"sha256 " + hashlib.sha256(forged).hexdigest().encode()

        path = changed(folder / "tuned.onnx", tmp_path / "forged.onnx", change)
        if says is None:
            session(path)
            continue
        with pytest.raises(Exception, match=says):
            session(path)


def test_only_code_that_is_named_runs_where_any_is_named(folder: Path) -> None:
    digest = attribute(onnx.load(folder / "tuned.onnx"), "notes").s.decode().split()[1]
    session(folder / "tuned.onnx", sha256=["0" * 64, digest]).run(None, image())
    with pytest.raises(Exception, match=f"its code has the SHA-256 {digest}, which the option sha256 does not name"):
        session(folder / "tuned.onnx", sha256=["0" * 64])
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        session(folder / "tuned.onnx", sha256=["*"])


def test_large_code_lies_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autofuse.compiler.parts.ort_model.MOST_EMBEDDED_BYTES", 0)
    compiled(network(tmp_path / "net.onnx"), tmp_path / "tuned.onnx")
    assert attribute(onnx.load(tmp_path / "tuned.onnx"), "ep_cache_context").s == b"tuned.segments"
    agree(tmp_path / "net.onnx", tmp_path / "tuned.onnx", image())
    with pytest.raises(Exception, match="load the model by its path, not as bytes"):
        session((tmp_path / "tuned.onnx").read_bytes())
    (tmp_path / "tuned.segments").write_bytes(b"AUTOFUSP" * 20)
    with pytest.raises(Exception, match="its code is damaged, or of another model"):
        session(tmp_path / "tuned.onnx")


def test_a_model_may_be_given_as_bytes(folder: Path) -> None:
    made = session((folder / "tuned.onnx").read_bytes()).run(None, image())[0]
    np.testing.assert_array_equal(made, session(folder / "tuned.onnx").run(None, image())[0])


AGAIN = """
import gc, sys
import numpy as np, onnxruntime
import autofuse.ort
from tests.ort.compiled import image, session
from pathlib import Path
tuned = Path(sys.argv[1])
mapped = lambda: Path("/proc/self/maps").read_text().count("autofuse")
for _ in range(3):
    two = [session(tuned, library=tuned.with_name("libautofuse_ort.so")) for _ in range(2)]
    results = [one.run(None, image())[0] for one in two]
    assert (results[0] == results[1]).all() and mapped()
    del two, results
    gc.collect()
    autofuse.ort.unregister()
    assert not [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:autofuse" in line]
print("again")
"""


@pytest.mark.long
def test_it_is_unloaded_and_loaded_again(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AGAIN, folder / "tuned2.onnx"], capture_output=True, text=True, check=False, timeout=600
    )
    assert (done.stdout, done.returncode) == ("again\n", 0), done.stderr


def test_what_could_not_be_written_is_refused_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = folder / "net.onnx"
    with pytest.raises(InputError, match=r"--format ort writes a model: name it such as tuned\.onnx"):
        compiled(net, folder / "tuned.so")
    with pytest.raises(InputError, match=r"is the model, which is read"):
        compiled(net, net)
    shutil.copy(net, folder / "other.onnx")
    with pytest.raises(InputError, match=r"exists and is not a model that autofuse compiled"):
        compiled(net, folder / "other.onnx")
    with pytest.raises(InputError, match=r"--sign: ONNX Runtime verifies no signatures"):
        compiled(net, folder / "signed.onnx", sign="key")
    with pytest.raises(InputError, match=r"is compiled for one set of shapes"):
        compiled(net, folder / "two.onnx", shapes=[{"x": (1, 3, 24, 24)}, {"x": (2, 3, 24, 24)}])
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(DeviceError, match=r"no C compiler for \w+ on this machine: install"):
        compiled(net, folder / "none.onnx")


def test_an_onnx_runtime_without_providers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(onnxruntime, "register_execution_provider_library")
    with pytest.raises(DeviceError, match=r"takes no execution providers: install 1\.23 or later"):
        autofuse.ort.register(options())


def sorted_model() -> onnx.ModelProto:
    """Products around a TopK, whose kernel calls TVM's own runtime."""
    return model_of(
        """net (float[8,32] x) => (float[8,4] y, int64[8,16] i) {
            a = MatMul (x, w) b = Relu (a)
            t, i = TopK <axis=1> (b, k)
            c = MatMul (t, v) y = Tanh (c)
        }""",
        w=normal(32, 64), v=normal(16, 4, seed=1), k=np.array([16]),
    )  # fmt: skip


def test_an_operator_whose_kernel_calls_tvm_stays_in_onnx_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autofuse.segments.worth.LEAST_US", 0.0)
    model = written(sorted_model(), tmp_path)
    report = compiled(model, tmp_path / "tuned.onnx")
    assert [(row.op_type, "TVM's own runtime" in row.reason) for row in report.rest] == [("TopK", True)]
    feeds = {"x": normal(8, 32, seed=4)}
    found = session(tmp_path / "tuned.onnx").run(None, feeds)
    wanted = plain(model).run(None, feeds)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found[1], wanted[1])


def test_a_free_standing_library_refuses_it_before_anything_is_built(tmp_path: Path) -> None:
    model = written(sorted_model(), tmp_path)
    with pytest.raises(InputError, match="TopK .*TVM's own runtime.*without --format c"):
        autofuse.compile(model, tmp_path / "libnet.so", format="c", database=str(tmp_path / "p.db"), threads=1)
    assert not (tmp_path / "libnet.so").exists()
