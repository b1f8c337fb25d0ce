"""How long a tuning needs, and what a second thread gives: rows from races, marked where noise spoiled them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import onnx
import pytest

from autofuse.measure.networks.bench import ContenderResult
from experiments.budgets import run as budgets
from experiments.races import NO_RATIO, race
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


def _watched(experiment: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[ContenderResult]:
    """What the races of an experiment find: every contender is timed, also where a busy machine leaves no ratio."""
    seen: list[ContenderResult] = []

    def watched(*arguments: Any) -> dict[str, ContenderResult]:
        results = race(*arguments)
        seen.extend(results.values())
        return results

    monkeypatch.setattr(experiment, "race", watched)
    return seen


def test_each_library_runs_with_its_own_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _watched(scaling, monkeypatch)
    onnx.save(conv_bn_relu("c", 8, 8, 12, 3), tmp_path / "c.onnx")
    rows = scaling.measure(tmp_path / "c.onnx", tmp_path / "c.db", None, 0.5)
    assert [row.rival for row in rows] == ["autofuse", "ONNX Runtime"]
    assert len(seen) == 4 and all(result.median_us and not result.error and not result.wrong for result in seen)
    assert all(row.ratio or row.problem == NO_RATIO for row in rows)


def test_a_short_tuning_ends_with_a_library_that_was_raced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _watched(budgets, monkeypatch)
    onnx.save(conv_bn_relu("c", 8, 8, 12, 3), tmp_path / "c.onnx")
    rows = budgets.measure(tmp_path / "c.onnx", 1, ["12s", "8s"], 0.5, tmp_path)
    assert [row.budget for row in rows] == ["12s", "8s"]
    assert len(seen) == 2 and all(result.median_us and not result.error and not result.wrong for result in seen)
    assert all(row.ratio or row.problem == NO_RATIO for row in rows)
