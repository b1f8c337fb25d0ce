"""Building a library says how far it is, and gets by where a schedule's code is too long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse import api
from autofuse.cli.screens.compile_view import compile_progress
from autofuse.kernels.tir import emit
from experiments.fuzz.bombs import padded_window


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """One convolution of one dimension."""
    path = tmp_path / "window.onnx"
    path.write_bytes(padded_window("Conv", 9, 4, size=64).SerializeToString())
    return path


def test_a_compile_tells_how_many_kernels_are_done(model: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    report = api.compile(
        model, tmp_path / "m.so", database=str(tmp_path / "a.db"), threads=1, progress=lambda *step: told.append(step)
    )
    kernels = report.kernels
    assert told == [
        ("reading the model", 0, 1),
        ("looking up its plan and schedules", 0, 1),
        *(("generating kernels", done, kernels) for done in range(kernels)),
        *(("translating kernels to machine code", done, kernels) for done in range(kernels + 1)),
        ("writing the library", 0, 1),
        ("writing the library", 1, 1),
    ]


def test_progress_goes_to_stderr_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    progress = compile_progress()
    progress("generating kernels", 0, 3)
    progress("translating kernels to machine code", 3, 3)
    progress("writing the library", 0, 1)
    progress("writing the library", 1, 1)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "compile: translating kernels to machine code (3)\ncompile: writing the library\n"


def test_a_rule_whose_code_is_too_long_gives_way_to_the_simplest_schedule(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).standard_normal((1, 4, 64)).astype(np.float32)
    before = api.compile(model, tmp_path / "long.so", database=str(tmp_path / "a.db"), threads=1)
    expected = api.load(tmp_path / "long.so")({"x": x})
    monkeypatch.setattr(emit, "MOST_STORES", 40)
    after = api.compile(model, tmp_path / "short.so", database=str(tmp_path / "a.db"), threads=1)
    assert before.groups[0].schedule != after.groups[0].schedule
    np.testing.assert_allclose(api.load(tmp_path / "short.so")({"x": x})[0], expected[0], rtol=1e-5)
