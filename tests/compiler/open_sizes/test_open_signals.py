"""Signals of an open length that windows slide over and attention mixes: encoders of speech, causal convolutions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import InputError
from tests.compiler.open_sizes.images import Point, built_images, check_images
from tests.compiler.open_sizes.models import Array, attends, weight, write

WIDTH = 16
CONSTANTS: dict[str, Array] = {
    "w": weight(WIDTH, 8, 3), "c": weight(WIDTH),
    "wq": weight(WIDTH, WIDTH, seed=1), "wk": weight(WIDTH, WIDTH, seed=2),
    "wv": weight(WIDTH, WIDTH, seed=3), "wd": weight(WIDTH, 1, 3), "positions": weight(40, WIDTH),
    "heads": np.array([0, -1, 2, 8]), "joined": np.array([0, -1, WIDTH]), "scale": np.float32(0.3),
    "zero": np.array([0]), "one": np.array([1]), "less": np.array([-2]), "last": np.array([2]),
}  # fmt: skip
FRONT = """
  t = Transpose <perm = [0, 2, 1]> (x)
  a = Conv <kernel_shape = [3], strides = [2], pads = [1, 1]> (t, w, c)
  r = Relu (a)
  u = Transpose <perm = [0, 2, 1]> (r)
  sizes = Shape (u)
  count = Gather (sizes, one)
  p = Slice (positions, zero, count, zero)
  e = Add (u, p)"""
ATTENTION = "\n" + attends("e")
CAUSAL = """
  b = Transpose <perm = [0, 2, 1]> (h)
  d = Conv <kernel_shape = [3], pads = [2, 2], group = 16> (b, wd)
  i = Slice (d, zero, less, last)
  y = Add (i, b)"""
RANGE: dict[str, tuple[int, ...]] = {"frames": (2, 80, 2)}
POINTS: list[Point] = [{"frames": size} for size in (2, 4, 10, 16, 18, 34, 62, 78, 80)]


def written(folder: Path, body: str, **constants: Array) -> Path:
    """A model of one signal."""
    text = f"signal (float[1, frames, 8] x) => (float[1, 16, n] y) {{{body}\n}}"
    return write(folder / "signal.onnx", text, {**CONSTANTS, **constants})


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.long)])
def test_an_encoder_of_speech_is_right_at_any_length(tmp_path: Path, threads: int) -> None:
    """A strided window, positions of as many places, attention over all of them, and a causal window behind it."""
    model = written(tmp_path, FRONT + ATTENTION + CAUSAL)
    check_images(model, built_images(model, RANGE, threads), POINTS)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.long
def test_signals_of_any_number_and_length(tmp_path: Path, threads: int) -> None:
    """Attention beside an open batch: each signal sees its own places."""
    text = f"signals (float[batch, frames, 8] x) => (float[batch, 16, n] y) {{{FRONT + ATTENTION + CAUSAL}\n}}"
    model = write(tmp_path / "signals.onnx", text, CONSTANTS)
    library = built_images(model, {"batch": (1, 5), **RANGE}, threads)
    check_images(
        model, library, [{"batch": b, **point} for b, point in zip((5, 1, 2, 3, 1, 5, 3), POINTS, strict=False)]
    )


def test_a_signal_may_be_of_one_place_behind_strides(tmp_path: Path) -> None:
    """A plan's rewrites find other axes to leave out there."""
    heads = "  z = Unsqueeze (x, zero) v1 = Squeeze (z, zero)"
    model = written(tmp_path, FRONT.replace("(x)", "(v1)").replace("\n", heads + "\n", 1) + ATTENTION + CAUSAL)
    check_images(model, built_images(model, {"frames": (1, 80)}), [{"frames": n} for n in (1, 2, 3, 7, 16, 33, 79, 80)])


def test_a_softmax_over_places_that_is_no_attention_is_refused(tmp_path: Path) -> None:
    body = FRONT + ATTENTION.replace("MatMul (f, vt)", "MatMul (g, vt)").replace("o =", "g = CumSum (f, three)\n  o =")
    model = written(tmp_path, body + CAUSAL, three=np.array(3))
    with pytest.raises(InputError, match="CumSum .*only its product with values may"):
        built_images(model, RANGE)
