"""What fusion alone gives: ratios from the finalists' race, beside what the bytes saved could give at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.environment.named_plans import named_plan
from autofuse.graph.loading.load import from_model
from autofuse.search.progress import PlanTime, TuneResult
from autofuse.views.inspect import bytes_moved
from experiments.fusion_alone.run import Row, main, markdown, row_of
from experiments.seeds.models import conv_bn_relu
from experiments.tables import read_rows, write_rows

PLANS = {
    "none": PlanTime(3, 12.0, 12.0, 1.0, 1.0, 1.0, True),
    "tvm-partition": PlanTime(1, 10.0, 10.0, 1.2, 1.1, 1.3, True),
    "default": PlanTime(1, 8.0, 8.0, 1.5, 1.4, 1.6, True),
}


def result(plans: dict[str, PlanTime]) -> TuneResult:
    return TuneResult("c", "c-1t", 1, "db", "local", 1, "finished", 1.0, 1, 0, 0, 0, "default", "key", 1, plans)


def test_a_row_holds_the_ratios_and_what_the_bytes_saved_could_give() -> None:
    graph = from_model(conv_bn_relu("c", 8, 8, 6, 3), "c")
    chosen = named_plan(graph, "default")
    row = row_of(graph, chosen, result(PLANS), 10.0)
    saved_bytes = bytes_moved(graph, named_plan(graph, "none")) - bytes_moved(graph, chosen)
    assert saved_bytes >= 4 * 8 * 6 * 6 * 4, "two maps are neither written nor read"
    assert (row.kernels_none, row.kernels_tvm, row.kernels, row.none, row.lo, row.hi) == (3, 1, 1, 1.5, 1.4, 1.6)
    assert row.tvm == pytest.approx(1.25)
    assert row.most == pytest.approx(1 + (saved_bytes / 10e3 + 2 * 0.3) / 8.0)


def test_a_tuning_without_a_time_of_no_fusion_is_a_problem_and_not_a_ratio() -> None:
    graph = from_model(conv_bn_relu("c", 8, 8, 6, 3), "c")
    plans = PLANS | {"none": PlanTime(3, None, problem="build_error")}
    row = row_of(graph, named_plan(graph, "default"), result(plans), 10.0)
    assert row.problem == "build_error" and row.none is None


def test_the_table_has_means_by_threads_and_marks_noise(tmp_path: Path) -> None:
    rows = [
        Row("a", 1, 4, 2, 2, 10.0, 2.0, 1.9, 2.1, 1.0, True, 1.0, 2.5),
        Row("b", 1, 4, 2, 2, 10.0, 0.5, 0.4, 0.6, None, False, 1.0, 1.6),
        Row("c", 2, problem="no kernel"),
    ]
    text = markdown(rows)
    assert "| a | 1 | 4, 2, 2 | 2.00 (1.90-2.10) | 1.00 | 1.0 | 2.50 |" in text
    assert "0.50 (0.40-0.60) ?" in text and "no kernel" in text
    assert "| geometric mean | 1 |  | 1.000 (of 2) | 1.000 (of 1) |  | 2.000 (of 2) |" in text
    assert write_rows(tmp_path, rows, text) == (tmp_path / "results.md").read_text(encoding="utf-8")
    assert read_rows(tmp_path, Row) == rows


def test_a_model_that_cannot_be_read_is_a_row_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    assert main([str(tmp_path / "broken.onnx"), "--threads", "1", "--out", str(tmp_path / "out")]) == 1
    (row,) = read_rows(tmp_path / "out", Row)
    assert row.network == "broken" and row.problem
