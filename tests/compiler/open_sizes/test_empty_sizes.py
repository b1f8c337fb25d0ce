"""A range that begins at 0: no rows, no tokens, no sequences give outputs without elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autofuse.cli.main import app
from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.loading.given.trace import read_trace
from autofuse.opened.bench import raced_over
from autofuse.opened.search.opening import read_sized
from autofuse.search.progress import SearchRequest
from tests.compiler.open_sizes.models import (
    PERCEPTRON,
    PERCEPTRON_WEIGHTS,
    built,
    built_over,
    check,
    inputs_of,
    weight,
    write,
)

TOKENS = """
tokens (float[batch, tokens, 16] x) => (float[batch, tokens, 16] y) {
  p = MatMul (x, w)
  turned = Transpose <perm = [0, 2, 1]> (p)
  s = MatMul (p, turned)
  f = Softmax <axis = -1> (s)
  a = MatMul (f, p)
  y = Add (a, x)
}"""
"""Attention shares its work among the rows that there are, and divides by their number."""


def test_no_rows_give_none_between_calls_that_have_some(tmp_path: Path) -> None:
    model = write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    check(model, built(model, "batch", 0, 20), "batch", (3, 0, 1, 17, 0, 20))


@pytest.mark.parametrize("empty", [{"batch": 2, "tokens": 0}, {"batch": 0, "tokens": 5}, {"batch": 0, "tokens": 0}])
def test_neither_do_no_tokens_and_no_sequences(tmp_path: Path, empty: dict[str, int]) -> None:
    model = write(tmp_path / "tokens.onnx", TOKENS, {"w": weight(16, 16)})
    library = built_over(model, {"batch": (0, 3), "tokens": (0, 20)})
    (some,) = library(inputs_of(model, {"batch": 2, "tokens": 7}))
    (made,) = library(inputs_of(model, empty))
    assert made.shape == (empty["batch"], empty["tokens"], 16)
    (again,) = library(inputs_of(model, {"batch": 2, "tokens": 7}))
    np.testing.assert_array_equal(some, again)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("m = ReduceMean <keepdims = 1> (x, first)\n  y = Relu (m)", "n is 0, the model is another"),
        ("m = Gather <axis = 0> (x, number)\n  y = Relu (m)", "n is 0, the model is another: let n start at 1"),
    ],
    ids=["a mean of no rows", "a row of none"],
)
def test_what_is_made_of_no_rows_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    given = {"first": np.array([0]), "number": np.array([0])}
    text = f"none (float[n, 8] x) => (float[1, 8] y) {{\n  {text}\n}}"
    model = write(tmp_path / "none.onnx", text, {name: array for name, array in given.items() if name in text})
    with pytest.raises(InputError, match=reason):
        built(model, "n", 0, 20)


@pytest.mark.parametrize("low", [{"batch": (0, 3)}, {"height": (0, 9)}], ids=["no image", "no row of one"])
def test_images_begin_at_one(tmp_path: Path, low: dict[str, tuple[int, int]]) -> None:
    text = """none (float[batch, 3, height, 8] x) => (float[batch, 4, height, 8] y) {
      y = Conv <pads = [1, 1, 1, 1]> (x, w)
    }"""
    model = write(tmp_path / "image.onnx", text, {"w": weight(4, 3, 3, 3)})
    with pytest.raises(InputError, match=f"{next(iter(low))} is of images or signals and cannot be 0: let it start at"):
        built_over(model, {"batch": (1, 3), "height": (8, 16), **low})


def test_a_library_is_run_at_no_rows_on_the_command_line(tmp_path: Path) -> None:
    model = write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    built(model, "batch", 0, 4)
    done = CliRunner().invoke(app, ["run", str(model.with_suffix(".so")), "--sizes", "batch=0"])
    assert (done.exit_code, "0, " in done.stdout) == (0, True), done.output


def test_calls_of_no_rows_are_not_timed(tmp_path: Path) -> None:
    model, sizes = write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS), (OpenSize("batch", 0, 4),)
    assert sorted(raced_over(model, sizes, {}).forms) == [1, 2, 4]
    (tmp_path / "some.csv").write_text("batch,calls\n0,7\n3,1\n4,3\n")
    trace = read_trace(tmp_path / "some.csv", *sizes)
    happening = read_sized(model, SearchRequest(sizes=sizes, trace=trace)).happening
    assert happening == {(3,): pytest.approx(0.25), (4,): pytest.approx(0.75)}
    (tmp_path / "none.csv").write_text("batch\n0\n")
    with pytest.raises(InputError, match="none of its calls of rows.onnx computes anything"):
        read_sized(model, SearchRequest(sizes=sizes, trace=read_trace(tmp_path / "none.csv", *sizes)))
