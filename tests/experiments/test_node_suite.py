"""ONNX's node cases: what was wrong is right or refused, and a case that kills its process is a row."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace

import numpy as np
import pytest

from experiments.children import each_result
from experiments.node_suite.cases import NodeCase, difference, node_cases
from experiments.node_suite.engines import CONSTANTS, PROVIDER, Row, deciding_inputs, run_case
from experiments.node_suite.run import _cases, _parser
from experiments.node_suite.table import bound_rows, bound_table, category, driven_rows, driven_table, table, verdicts

ONCE_WRONG = {
    "test_attention_24_qk_matmul_output_mode3_softmax_precision_expanded": "right",
    "test_bitshift_right_int32_shift_ge_width": "right",
    "test_bitshift_right_int8_shift_ge_width": "right",
    "test_mod_float_edge_cases_fmod_0_float16": "right",
    "test_mod_float_edge_cases_fmod_0_float32": "right",
    "test_mod_float_edge_cases_fmod_0_float64": "right",
}
ALWAYS_RIGHT = {"test_mvn", "test_roialign_aligned_true", "test_hardmax_example", "test_mod_float64_mixed_sign_fmod_0"}


@pytest.fixture(scope="module")
def cases() -> dict[str, NodeCase]:
    return {case.name: case for case in node_cases()}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", [*ONCE_WRONG, *sorted(ALWAYS_RIGHT)])
def test_a_case_that_was_wrong_or_nearly_lost_is_right(cases: dict[str, NodeCase], name: str) -> None:
    row = run_case("autofuse", cases[name])
    assert row.state == ONCE_WRONG.get(name, "right"), row


def test_a_random_operator_is_refused(cases: dict[str, NodeCase]) -> None:
    row = run_case("autofuse", cases["test_bernoulli"])
    assert row.state == "refused" and "Bernoulli" in row.reason


def test_a_dropout_in_training_runs_in_onnx_runtime_and_is_drawn(cases: dict[str, NodeCase]) -> None:
    row = run_case("autofuse", cases["test_training_dropout"])
    assert row.state == "right" and not row.alone and "Dropout" in row.reason, row


def test_what_has_no_kernel_is_right_in_parts(cases: dict[str, NodeCase]) -> None:
    for name in ("test_nonmaxsuppression_single_box", "test_unsqueeze_axis_0"):
        row = run_case("autofuse", cases[name])
        assert row.state == "right" and not row.alone, row
    assert run_case("autofuse", cases["test_relu"]).alone


def test_inputs_that_decide_a_shape_may_be_constants(cases: dict[str, NodeCase]) -> None:
    assert deciding_inputs(cases["test_unsqueeze_axis_0"]) == ("axes",)
    assert deciding_inputs(cases["test_relu"]) == ()
    row = run_case(CONSTANTS, cases["test_unsqueeze_axis_0"])
    assert row.state == "right" and row.alone, row
    (bound,) = bound_rows([row, run_case("autofuse", cases["test_relu"])])
    assert bound_table([bound]).startswith("| with constants | autofuse |")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_cases_are_right_through_the_provider_by_our_kernels_and_beside_them(cases: dict[str, NodeCase]) -> None:
    rows = [run_case(PROVIDER, cases[name]) for name in ("test_relu", "test_nonmaxsuppression_single_box")]
    assert [(row.state, row.alone) for row in rows] == [("right", True), ("right", False)], rows
    found = driven_rows([*rows, *(replace(row, engine="onnxruntime") for row in rows)])
    assert "| right | 2 | 2 | 1 |" in driven_table(found)


def test_a_sample_of_cases_is_the_same_for_the_same_seed() -> None:
    def names(seed: str) -> list[str]:
        return [case.name for case in _cases(_parser().parse_args(["--sample", "20", "--seed", seed]))]

    assert len(names("1")) == 20 and names("1") == names("1") != names("2")


def case(wanted: np.ndarray) -> NodeCase:
    from onnx import helper

    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [])
    return NodeCase("test_x", helper.make_model(graph).SerializeToString(), (), (wanted,), 1e-3, 1e-7)


def test_a_result_differs_by_value_type_shape_and_number() -> None:
    wanted = np.array([1.0, 2.0], "float32")
    assert difference(case(wanted), [wanted.copy()]) == ""
    assert "relative error" in difference(case(wanted), [wanted + 1])
    assert "float64" in difference(case(wanted), [wanted.astype("float64")])
    assert "[1, 2]" in difference(case(wanted), [wanted[None]])
    assert "2 results" in difference(case(wanted), [wanted, wanted])


def test_numbers_that_numpy_does_not_know_are_compared_by_value_and_texts_as_texts() -> None:
    import ml_dtypes

    wanted = np.array([1.5, np.nan], ml_dtypes.bfloat16)
    assert difference(case(wanted), [wanted.copy()]) == ""
    assert "exceeds" in difference(case(wanted), [np.array([1.25, np.nan], ml_dtypes.bfloat16)])
    wide = np.array([0.0, 1.0], ml_dtypes.bfloat16)
    assert difference(case(wide), [np.array([0.0, 1.0 + 2.0**-7], ml_dtypes.bfloat16)]) == "", "one step"
    assert "exceeds" in difference(case(wide), [np.array([0.0, 1.0 + 3 * 2.0**-7], ml_dtypes.bfloat16)])
    assert "other elements" in difference(case(np.array([1, 2], ml_dtypes.int4)), [np.array([1, 3], ml_dtypes.int4)])
    texts = np.array(["a", "b"], object)
    assert difference(case(texts), [np.array(["a", "b"])]) == ""
    assert "other elements" in difference(case(texts), [np.array(["a", "c"])])


def work(item: str) -> str:
    if item == "crash":
        os._exit(9)
    if item == "hang":
        time.sleep(600)
    return item


@pytest.mark.long
def test_a_child_that_dies_or_hangs_costs_its_item_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.children.START_SECONDS", 30.0)
    found: list[str] = []
    each_result(work, ["a", "crash", "b", "c"], 60.0, lambda item, why: f"{item}: {why}", found.append)
    assert found == ["a", "crash: crash: the process ended with 9", "b", "c"]
    monkeypatch.setattr("experiments.children.START_SECONDS", 0.0)
    found.clear()
    each_result(work, ["hang"], 3.0, lambda item, why: f"{item}: {why}", found.append)
    assert found == ["hang: time-out: killed after 3 s"]


def test_the_table_counts_states_and_kinds_of_refusals() -> None:
    rows = [
        Row("test_a", "autofuse", "right"),
        Row("test_b", "autofuse", "refused", "result 'y' has no static shape"),
        Row("test_c", "autofuse", "wrong", "everything"),
        Row("test_d", "autofuse", "right"),
        Row("test_e", "autofuse", "right", "LSTM: no kernel", alone=False),
        Row("test_e", "onnxruntime", "right"),
        *(Row(name, "onnxruntime", "right") for name in ("test_a", "test_b", "test_c")),
    ]
    text = table(verdicts(rows))
    assert "| right | 2 | 1 | 4 |" in text and "| shapes that depend on data | 1 | 1 |" in text
    assert text.endswith("- `test_c`: wrong: everything\n")
    assert category("what nobody thought of") == "others"
