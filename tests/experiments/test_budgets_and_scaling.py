"""How long a tuning needs, and what a second thread gives: rows from races, marked where noise spoiled them."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType, SimpleNamespace

import onnx
import pytest

import autofuse
from autofuse.errors import InputError
from autofuse.measure.networks.bench import ContenderResult
from experiments.budgets import run as budgets
from experiments.races import NO_RATIO
from experiments.scaling import run as scaling
from experiments.seeds.models import conv_bn_relu
from experiments.tables import read_rows


def raced(ratio: float | None, *, trusted: bool = True, error: str = "") -> ContenderResult:
    low, high = (ratio * 0.9, ratio * 1.1) if ratio else (None, None)
    return ContenderResult(10.0 if ratio else None, ratio, low, high, trusted, error=error)


def test_a_shorter_tuning_is_held_against_the_longest() -> None:
    row = budgets.judged(budgets.Row("a", 1, "1m", 55.0, 40), raced(1.25))
    assert (row.ratio, row.elapsed_s, row.measured) == (pytest.approx(0.8), 55.0, 40)
    assert row.lo == pytest.approx(1 / 1.375) and row.hi == pytest.approx(1 / 1.125)
    assert "| a | 1 | 1m | 55 | 40 | 0.800 (0.727-0.889) |" in budgets.markdown([row])


def test_two_threads_are_held_against_one() -> None:
    row = scaling.row_of("a", "autofuse", {"2": raced(1.0), "1": raced(1.9, trusted=False)})
    assert "| a | autofuse | 1.90 (1.71-2.09) ? |" in scaling.markdown([row])


def test_a_library_that_fails_is_a_row_with_its_reason() -> None:
    assert budgets.judged(budgets.Row("a", 1, "1m"), raced(None, error="lost")).problem == "lost"
    lost = scaling.row_of("a", "ONNX Runtime", {"2": raced(1.0), "1": raced(None, error="lost")})
    assert lost.problem == "lost" and "lost" in scaling.markdown([lost])


@pytest.mark.parametrize("experiment", [budgets, scaling])
def test_a_model_that_cannot_be_read_is_a_row_with_its_reason(experiment: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    further = ["--budgets", "1s"] if experiment is budgets else ["--databases", str(tmp_path)]
    assert experiment.main([str(tmp_path / "broken.onnx"), "--out", str(tmp_path / "out"), *further]) == 1
    (row,) = read_rows(tmp_path / "out", experiment.Row)
    assert row.network == "broken" and row.problem


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two threads need two cores")
@pytest.mark.long
def test_each_library_runs_with_its_own_number_of_threads(tmp_path: Path, counted_rounds: None) -> None:
    onnx.save(conv_bn_relu("c", 8, 8, 12, 3), tmp_path / "c.onnx")
    rows = scaling.measure(tmp_path / "c.onnx", tmp_path / "c.db", None, 0.5)
    assert [(row.rival, row.problem) for row in rows] == [("autofuse", ""), ("ONNX Runtime", "")]
    assert all(row.ratio and row.lo and row.hi and row.lo <= row.ratio <= row.hi for row in rows)


@pytest.mark.long
def test_the_library_of_each_budget_is_raced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted_rounds: None
) -> None:
    """Around a tuning that finds nothing; that of three seconds fails."""

    def tune(_model: Path, *, budget: str, **_: object) -> SimpleNamespace:
        if budget == "3s":
            raise InputError("too short")
        return SimpleNamespace(elapsed_s=float(budget[:-1]), measured=7)

    monkeypatch.setattr(autofuse, "tune", tune)
    onnx.save(conv_bn_relu("c", 8, 8, 12, 3), tmp_path / "c.onnx")
    longest, shorter, failed = budgets.measure(tmp_path / "c.onnx", 1, ["12s", "8s", "3s"], 0.5, tmp_path)
    assert (longest.budget, longest.elapsed_s, longest.measured, longest.problem) == ("12s", 12.0, 7, "")
    assert longest.ratio == longest.lo == longest.hi == 1.0
    assert (shorter.budget, shorter.elapsed_s, shorter.problem) == ("8s", 8.0, "")
    assert shorter.ratio and shorter.lo and shorter.hi and shorter.lo <= shorter.ratio <= shorter.hi
    assert (failed.budget, failed.ratio, failed.problem) == ("3s", None, "too short")


@pytest.mark.parametrize("experiment", [budgets, scaling])
def test_a_machine_too_busy_for_a_ratio_is_a_row_that_says_so(experiment: ModuleType) -> None:
    bare = ContenderResult(10.0, None, None, None, False)
    if experiment is budgets:
        row = budgets.judged(budgets.Row("a", 1, "1m", 55.0, 40), bare)
    else:
        row = scaling.row_of("a", "autofuse", {"2": bare, "1": bare})
    assert (row.ratio, row.problem) == (None, NO_RATIO)
    assert NO_RATIO in experiment.markdown([row])
