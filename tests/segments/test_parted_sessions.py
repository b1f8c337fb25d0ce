"""Models of which ONNX Runtime runs a part: compiled to one file, loaded, called, and right."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import autofuse
from autofuse.compiler.report import CompileReport
from autofuse.errors import InputError
from tests.segments.models import assert_same, detector, expected, model_of, normal, pooled, written

pytestmark = pytest.mark.usefixtures("any_size")


NUMBERS = {
    "bool": TensorProto.BOOL,
    "uint8": TensorProto.UINT8,
    "int64": TensorProto.INT64,
    "double": TensorProto.DOUBLE,
}


def built(model: ModelProto, folder: Path, **named: Any) -> tuple[autofuse.Session, CompileReport]:
    library = folder / "model.so"
    report = autofuse.compile(written(model, folder), library, database=str(folder / "no.db"), threads=1, **named)
    return autofuse.Session(library), report


def sides(report: CompileReport) -> list[str]:
    return [part.side for part in report.parts if not part.kinds.startswith("inside of")]


def test_a_pool_with_indices_between_two_products_runs_in_onnx_runtime_and_they_in_kernels(tmp_path: Path) -> None:
    session, report = built(pooled(), tmp_path)
    assert sides(report) == ["autofuse", "ONNX Runtime", "autofuse"]
    assert [row.op_type for row in report.rest] == ["MaxPool"] and report.kernels == 2
    for seed in range(3):
        feeds = {"x": normal(6, 1, 16, seed=seed)}
        assert_same(session.run(None, feeds), expected(pooled(), feeds))


@pytest.mark.parametrize(
    "kind", ["bool", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("uint8", "int64", "double"))]
)
def test_what_onnx_runtime_makes_of_any_type_reaches_a_segment(kind: str, tmp_path: Path) -> None:
    model = model_of(
        f"""net (float[4,6] x, bool c) => ({kind}[6,4] y) {{
            r = Relu (x)
            b = Cast <to={NUMBERS[kind]}> (r)
            d = If (c) <then_branch = f () => ({kind}[4,6] p) {{ p = Identity (b) }},
                        else_branch = g () => ({kind}[4,6] q) {{ q = Identity (b) }}>
            y = Transpose (d)
        }}"""
    )
    session, report = built(model, tmp_path)
    assert sides(report) == ["autofuse", "ONNX Runtime", "autofuse"]
    for seed in range(2):
        feeds = {"x": normal(4, 6, seed=seed) * 9, "c": np.array(True)}
        assert_same(session.run(None, feeds), expected(model, feeds))
        assert np.count_nonzero(session.run(None, feeds)[0])


WAYS = {
    "an array": lambda x: {"x": x},
    "a list": lambda x: [x],
    "strides": lambda x: {"x": np.asfortranarray(x)},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_onnx_runtime_runs_whole_takes_what_a_segment_takes(way: str, tmp_path: Path) -> None:
    model = model_of("net (float[2,3] x) => (int64[2,n] i) { i = NonZero (x) }")
    session, report = built(model, tmp_path)
    assert sides(report) == ["ONNX Runtime"]
    library = autofuse.load(tmp_path / "model.so")
    x = np.array([[0, 1, 2], [3, 0, 5]], np.float32)
    assert_same(library(WAYS[way](x)), expected(model, {"x": x}))
    for wrong, reason in ((x[:1], r"shape \(1, 3\)"), (x.astype(np.float64), "float64")):
        with pytest.raises(InputError, match=f"'x'.*{reason}"):
            session.run(None, {"x": wrong})
    with pytest.raises(InputError, match="missing input 'x'"):
        library({})


def test_results_belong_to_the_caller(tmp_path: Path) -> None:
    session, _ = built(pooled(), tmp_path)
    first = session.run(None, {"x": normal(6, 1, 16, seed=1)})
    kept = [array.copy() for array in first]
    session.run(None, {"x": normal(6, 1, 16, seed=2)})
    assert_same(first, kept)


def test_boxes_whose_number_depends_on_data_are_outputs(tmp_path: Path) -> None:
    session, report = built(detector(), tmp_path)
    assert sides(report) == ["autofuse", "ONNX Runtime"]
    shapes = set()
    for seed in range(4):
        corners = np.sort(np.random.default_rng(seed).random((1, 6, 2, 2), np.float32), axis=2).reshape(1, 6, 4)
        feeds = {"boxes": corners, "logits": normal(1, 2, 6, seed=seed) * 9}
        found = session.run(None, feeds)
        shapes.add(found[0].shape)
        assert_same(found, expected(detector(), feeds))
    assert len(shapes) > 1
    assert [argument.type for argument in session.get_outputs()] == ["tensor(int64)", "tensor(float)"]


def test_several_threads_call_one_session(tmp_path: Path) -> None:
    session, _ = built(pooled(), tmp_path)
    feeds = [{"x": normal(6, 1, 16, seed=seed)} for seed in range(4)]
    wanted = [expected(pooled(), feed) for feed in feeds]
    wrong: list[Exception] = []

    def call(number: int) -> None:
        try:
            for _ in range(50):
                assert_same(session.run(None, feeds[number]), wanted[number])
        except Exception as error:  # noqa: BLE001  # a thread's failure must reach the test
            wrong.append(error)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_an_output_may_be_an_input_a_weight_or_listed_twice(tmp_path: Path) -> None:
    model = model_of("net (float[2,8] x) => (float[2,8] y) { y = Relu (x) }", w=normal(2, 3))
    for name, shape in (("x", [2, 8]), ("w", [2, 3])):
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    session, _ = built(model, tmp_path)
    x = normal(2, 8)
    found = session.run(["y", "x", "w"], {"x": x})
    assert_same(found, [np.maximum(x, 0), x, normal(2, 3)])
    assert not np.shares_memory(found[1], x)


def test_an_input_may_be_an_output_of_what_onnx_runtime_runs_alone(tmp_path: Path) -> None:
    model = model_of("net (float[2,4] x) => (int64[2,n] y, float[2,4] x) { y = NonZero (x) }")
    session, report = built(model, tmp_path)
    assert sides(report) == ["ONNX Runtime"]
    assert_same(session.run(None, {"x": normal(2, 4)}), expected(model, {"x": normal(2, 4)}))


@pytest.mark.parametrize("text", ["y = NonZero (x)", "a = Relu (x) y = NonZero (a)"])
def test_an_output_that_is_listed_twice_comes_twice(text: str, tmp_path: Path) -> None:
    model = model_of(f"net (float[2,4] x) => (int64[2,n] y) {{ {text} }}")
    model.graph.output.append(model.graph.output[0])
    session, _ = built(model, tmp_path)
    found = session.run(None, {"x": normal(2, 4)})
    assert_same(found, expected(model, {"x": normal(2, 4)}))
    assert len(found) == 2


@pytest.mark.usefixtures("counted_rounds")
@pytest.mark.long
def test_bench_compares_an_output_that_is_listed_twice(tmp_path: Path) -> None:
    model = model_of("net (float[2,4] x) => (int64[2,n] y) { a = Relu (x) y = NonZero (a) }")
    model.graph.output.append(model.graph.output[0])
    database = str(tmp_path / "no.db")
    report = autofuse.bench(written(model, tmp_path), database=database, threads=1, budget=3, against="onnxruntime")
    assert report.rivals["onnxruntime"].median_us is not None, report.rivals


def test_a_value_whose_rank_onnx_runtime_does_not_know_is_no_scalar(tmp_path: Path) -> None:
    model = model_of(
        """net (float[3,6] x) => (float[3,6] y) {
            a = Relu (x)
            s = SequenceConstruct (a, x)
            i = SequenceAt (s, one)
            t = com.microsoft.Trilu (a)
            m = MatMul (t, w)
            r = SequenceConstruct (m, i)
            y = SequenceAt (r, one)
        }""",
        w=normal(6, 6),
        one=np.array(1, np.int64),
    )
    session, report = built(model, tmp_path)
    assert sides(report) == ["autofuse", "ONNX Runtime", "autofuse", "ONNX Runtime"]
    for seed in range(2):
        feeds = {"x": normal(3, 6, seed=seed)}
        assert_same(session.run(None, feeds), expected(model, feeds))


def test_texts_and_sequences_stay_with_onnx_runtime(tmp_path: Path) -> None:
    model = model_of(
        """net (float[2,4] x, string[2] words) => (string[4] twice, seq(float[2,4]) both, float[2,4] z) {
            twice = Concat <axis=0> (words, words)
            a = Relu (x)
            b = MatMul (a, w)
            both = SequenceConstruct (a, b)
            c = SequenceAt (both, one)
            z = Tanh (c)
        }""",
        w=normal(4, 4),
        one=np.array(1, np.int64),
    )
    session, report = built(model, tmp_path)
    assert sides(report) == ["autofuse", "ONNX Runtime"]
    feeds = {"x": normal(2, 4), "words": np.array(["One", "TWO"], object)}
    assert_same(session.run(None, feeds), expected(model, feeds))


def test_tensors_without_elements_pass_through_onnx_runtime(tmp_path: Path) -> None:
    model = model_of(
        """net (float[2,4] x) => (float[2,4] y, float[0,4] none) {
            a = Relu (x)
            none = Slice (a, zero, zero, zero)
            j = Concat <axis=0> (none, a)
            y = Tanh (j)
        }""",
        zero=np.array([0], np.int64),
    )
    session, _ = built(model, tmp_path)
    feeds = {"x": normal(2, 4)}
    assert_same(session.run(None, feeds), expected(model, feeds))


def test_a_body_captures_what_a_segment_makes(tmp_path: Path) -> None:
    model = model_of(
        """net (float[2,4] x, bool c) => (float[2,4] y) {
            a = Relu (x)
            b = If (c) <then_branch = t () => (float[2,4] p) { p = Neg (a) },
                        else_branch = e () => (float[2,4] q) { q = Exp (a) }>
            y = Tanh (b)
        }"""
    )
    session, report = built(model, tmp_path)
    assert sides(report) == ["autofuse", "ONNX Runtime", "autofuse"]
    for choice in (True, False):
        feeds = {"x": normal(2, 4), "c": np.array(choice)}
        assert_same(session.run(None, feeds), expected(model, feeds))


def test_an_operator_of_another_domain_leaves_the_others_to_kernels(tmp_path: Path) -> None:
    model = model_of(
        """net (float[2,8] x) => (float[2,8] y) {
            a = Relu (x)
            b = com.microsoft.Trilu (a)
            k = Shape (b)
            r = Reshape (b, k)
            y = Tanh (r)
        }"""
    )
    session, report = built(model, tmp_path)
    assert [row.reason for row in report.rest] == ["an operator of com.microsoft"]
    feeds = {"x": normal(2, 8)}
    assert_same(session.run(None, feeds), expected(model, feeds))


def test_a_file_of_onnx_runtime_alone_says_so(tmp_path: Path) -> None:
    model = model_of("net (float[2,8] x) => (int64[2,n] y) { y = NonZero (x) }")
    session, report = built(model, tmp_path)
    assert sides(report) == ["ONNX Runtime"] and report.plan == "ONNX Runtime alone" and report.kernels == 0
    feeds = {"x": np.maximum(normal(2, 8), 0)}
    assert_same(session.run(None, feeds), expected(model, feeds))


def test_a_model_that_is_wholly_ours_has_no_parts(tmp_path: Path) -> None:
    session, report = built(model_of("net (float[2,8] x) => (float[2,8] y) { y = Relu (x) }"), tmp_path)
    assert report.parts == () and report.rest == () and session.metadata.parts is None


def test_what_onnx_runtime_refuses_is_refused_with_both_reasons(tmp_path: Path) -> None:
    model = model_of("net (float[2,8] x) => (float[2,8] y) { y = com.microsoft.Nowhere (x) }")
    with pytest.raises(InputError, match=r"unknown operator 'Nowhere'.*ONNX Runtime cannot load the model"):
        built(model, tmp_path)


def test_a_complete_compile_names_what_onnx_runtime_would_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"1 MaxPool such as 'MaxPool_2' \(MaxPool: .*--require-complete") as caught:
        built(pooled(), tmp_path, require_complete=True)
    assert caught.value.exit_code == 2


def test_several_shapes_of_such_a_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="several shapes"):
        built(pooled(), tmp_path, shapes=[{}, {}])


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "missing input 'x'"),
        ({"x": normal(6, 1, 16), "z": normal(1)}, "unknown input 'z'"),
        ({"x": normal(5, 1, 16)}, r"shape \(5, 1, 16\), the model takes \(6, 1, 16\)"),
        ({"x": normal(6, 1, 16).astype(np.float64)}, "dtype float64, the model takes float32"),
    ],
)
def test_wrong_inputs_are_refused(feeds: dict[str, Any], message: str, tmp_path: Path) -> None:
    session, _ = built(pooled(), tmp_path)
    with pytest.raises(InputError, match=message):
        session.run(None, feeds)


def test_an_index_that_onnx_runtime_makes_is_checked_before_a_kernel_reads_by_it(tmp_path: Path) -> None:
    model = model_of(
        """net (float[4,8] x, seq(int64[2]) s) => (float[2,8] y) {
            i = SequenceAt (s, zero)
            k = Reshape (i, two)
            t = Relu (x)
            y = Gather (t, k)
        }""",
        zero=np.array(0, np.int64),
        two=np.array([2], np.int64),
    )
    session, report = built(model, tmp_path)
    assert sides(report)[-1] == "autofuse"
    x = normal(4, 8)
    assert_same(session.run(None, {"x": x, "s": [np.array([3, 1])]}), [np.maximum(x, 0)[[3, 1]]])
    with pytest.raises(InputError, match="indexes a table of 4"):
        session.run(None, {"x": x, "s": [np.array([4, 1])]})


def test_operators_of_onnx_runtime_s_optimiser_run_in_kernels(tmp_path: Path) -> None:
    model = model_of(
        """net (float[2,3,16] x, int32[2] lengths) => (float[2,3,16] y, float[2,3,16] s) {
            a = com.microsoft.Attention <num_heads=4> (x, w, b, lengths)
            s0, m, d, s = com.microsoft.SkipLayerNormalization (a, x, g, e)
            f = com.microsoft.FusedMatMul <transB=1, alpha=0.5> (s0, v)
            y = com.microsoft.BiasGelu (f, e)
        }""",
        w=normal(16, 48), b=normal(48, seed=1), g=normal(16, seed=2), e=normal(16, seed=3), v=normal(16, 16, seed=4),
    )  # fmt: skip
    session, report = built(model, tmp_path)
    assert sides(report) in ([], ["autofuse"])
    feeds = {"x": normal(2, 3, 16, seed=5), "lengths": np.array([2, 3], np.int32)}
    assert_same(session.run(None, feeds), expected(model, feeds))


def test_segments_have_results_of_their_own_types(tmp_path: Path) -> None:
    """One makes bfloat16 in a place where another makes float32, or nothing."""
    text = """net (float[6,1,16] x) => (bfloat16[6,1,16] h, float[6,1,8] y, int64[6,1,8] i) {
      a = Relu (x)
      h = Cast <to = 16> (a)
      r, i = MaxPool <kernel_shape = [9]> (a)
      y = Tanh (r)
    }"""
    model = written(model_of(text), tmp_path)
    autofuse.compile(model, tmp_path / "model.so", threads=1, database=str(tmp_path / "a.db"))
    x = normal(6, 1, 16)
    h, y, _ = autofuse.load(tmp_path / "model.so")({"x": x})
    assert h.dtype.name == "bfloat16"
    windows = np.lib.stride_tricks.sliding_window_view(np.maximum(x, 0), 9, -1)
    np.testing.assert_allclose(y, np.tanh(windows.max(-1)), rtol=1e-5)
