"""Timing beside a build: ratios of pairs of blocks, and what cannot be measured is a row with its reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import onnx
import pytest

from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.measure.timing.cores import Cores
from experiments.overlap import run as overlap
from experiments.seeds.models import conv_bn_relu


def test_a_network_shows_the_median_over_all_pairs_and_its_worst_kernel() -> None:
    row = overlap.row_of("a", {"conv": [1.0, 1.01, 0.99, 1.0, 1.0], "pool": [1.2, 1.1, 1.15, 1.0, 1.3]})
    assert (row.kernels, row.worst, row.worst_kernel) == (2, 1.15, "pool")
    assert row.lo is not None and row.hi is not None and row.lo <= row.ratio <= row.hi  # type: ignore[operator]
    assert "| a | 2 | 1.005 (0.990-1.300) | 1.150: pool |" in overlap.markdown([row])


def test_a_model_that_cannot_be_read_is_a_row_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    assert overlap.measure(tmp_path / "broken.onnx", 1).problem


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a build needs a core of its own")
@pytest.mark.long
def test_kernels_are_timed_beside_a_process_that_builds(tmp_path: Path) -> None:
    onnx.save(conv_bn_relu("c", 8, 8, 12, 3), tmp_path / "c.onnx")
    row = overlap.measure(tmp_path / "c.onnx", 5)
    assert row.problem == "" and row.kernels >= 1
    assert row.ratio is not None and row.lo is not None and row.hi is not None
    assert 0.0 < row.lo <= row.ratio <= row.hi


def test_the_kernels_that_are_timed_run_on_their_caller_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(conv_bn_relu("c", 8, 8, 12, 3), tmp_path / "c.onnx")
    asked: list[int] = []

    def candidates_of(model: Path, target: Target) -> NoReturn:
        asked.append(target.cores)
        raise InputError("seen enough")

    monkeypatch.setattr(overlap, "candidates_of", candidates_of)
    monkeypatch.setattr(Cores, "of", lambda: Cores((0, 1)))
    assert (overlap.measure(tmp_path / "c.onnx", 1).problem, asked) == ("seen enough", [1])
