"""Kernels of open sizes are emitted once, and the machine code of an earlier library is taken again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autofuse import api
from autofuse.backend.compile import function, objects
from autofuse.backend.compile.open_sizes import grid_program, open_program
from tests.compiler.open_sizes.models import PERCEPTRON, PERCEPTRON_WEIGHTS, weight, write

IMAGES = """
images (float[1, 3, height, width] x) => (float[1, 8, k, l] y) {
  a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
  y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
}"""
ROWS = {"batch": (1, 40)}
SIZES = {"height": (2, 40, 2), "width": (4, 72, 2)}


def refuse(*_arguments: object, **_named: object) -> None:
    raise AssertionError("translated again")


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[str]:
    """Grows by one whenever a kernel is emitted."""
    emit, calls = getattr(module, name), list[str]()

    def count(*arguments: Any, **named: Any) -> Any:
        calls.append(name)
        return emit(*arguments, **named)

    monkeypatch.setattr(module, name, count)
    return calls


@pytest.mark.parametrize(
    ("text", "weights", "sizes", "module", "emitter"),
    [
        (PERCEPTRON, PERCEPTRON_WEIGHTS, ROWS, open_program, "open_kernel"),
        (IMAGES, {"w1": weight(8, 3, 3, 3)}, SIZES, grid_program, "whole_kernel"),
    ],
    ids=["rows", "images"],
)
def test_the_second_compile_translates_nothing_and_each_emits_a_kernel_once(
    text: str, weights: Any, sizes: Any, module: Any, emitter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(objects, "user_folder", lambda: kept)
    model, base = write(tmp_path / "model.onnx", text, weights), str(tmp_path / "profile.db")
    calls = counted(monkeypatch, module, emitter)
    first = api.compile(model, tmp_path / "first.so", database=base, threads=1, sizes=sizes)
    assert 0 < len(calls) <= first.kernels
    monkeypatch.setattr(function, "write_object", refuse)
    api.compile(model, tmp_path / "second.so", database=base, threads=1, sizes=sizes)
    assert (tmp_path / "first.so").stat().st_size == (tmp_path / "second.so").stat().st_size
