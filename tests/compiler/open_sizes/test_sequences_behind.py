"""Inputs and outputs that have their sequences behind other axes, beside an open length: the states of a recurrence,
steps in front of sequences. Right at each pair of sizes, in each format."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import autofuse
from autofuse.compiler.open_sizes import groups
from autofuse.errors import InputError
from tests.backend.freestanding.native import OpenNative, OpenSession
from tests.compiler.open_sizes.models import TOLERANCE, built_over, check_over, inputs_of, weight, write
from tests.compiler.open_sizes.recurrences import carried

SIZES = {"batch": (1, 5), "steps": (1, 24)}
POINTS = [{"batch": batch, "steps": steps} for batch, steps in ((1, 1), (5, 24), (3, 7), (1, 24), (5, 1), (2, 16))]
ROWS = "p = MatMul (x, w) h = Tanh (p) z = Mul (s, s) t = Transpose <perm = [1, 2, 0]> (z) y = Add (h, more)"
"""Steps in front of sequences in `x` and `y`, sequences between other axes in `s`, behind others in `t`."""


def test_states_of_each_sequence_beside_an_open_length(tmp_path: Path) -> None:
    """Both directions of an LSTM, as torch has them: [directions, batch, width]."""
    model = carried(tmp_path / "carried.onnx", steps="steps")
    check_over(model, built_over(model, SIZES), POINTS)


def test_steps_of_each_sequence_behind_channels(tmp_path: Path) -> None:
    """Channels in front of steps, in an input and in an output, as encoders of speech are given them."""
    given, made = "float[batch, 12, steps] x, float[steps] k", "float[batch, 20, steps] y, float[batch, steps, 12] t"
    body = "f = Mul (x, k) t = Transpose <perm = [0, 2, 1]> (f) p = MatMul (t, w) y = Transpose <perm = [0, 2, 1]> (p)"
    model = write(tmp_path / "channels.onnx", f"channels ({given}) => ({made}) {{ {body} }}", {"w": weight(12, 20)})
    check_over(model, built_over(model, SIZES), POINTS)


BETWEEN = {
    "factors": ("float[1, 8, batch, steps] x, float[batch, 1] k", "float[1, 8, batch, steps]", "y = Mul (x, k)"),
    "two sides": ("float[1, 4, batch, 1] x, float[1, 4, 1, steps] k", "float[1, 4, batch, steps]", "y = Add (x, k)"),
    "turned": (
        "float[1, 4, batch, steps] x", "float[1, steps, batch, 4]",
        "r = Relu (x) y = Transpose <perm = [0, 3, 2, 1]> (r)",
    ),
}  # fmt: skip
"""Sequences and steps that both stand behind channels."""


@pytest.mark.parametrize("form", BETWEEN)
def test_sequences_and_steps_behind_channels(tmp_path: Path, form: str) -> None:
    """The first two ended in errors without a message, the last one had wrong results."""
    given, made, body = BETWEEN[form]
    model = write(tmp_path / "between.onnx", f"between ({given}) => ({made} y) {{ {body} }}", {})
    check_over(model, built_over(model, SIZES), POINTS)


@pytest.mark.parametrize("after", ["[0, 1, 2, 3]", "[3, 2, 1, 0]"])
def test_nothing_but_steps_behind_other_axes(tmp_path: Path, after: str) -> None:
    """The plan put the Transposes of the input and of the output together, and the size was refused."""
    body = f"r = Tanh (x) y = Transpose <perm = {after}> (r)"
    model = write(tmp_path / "only.onnx", f"only (float[2, 3, steps, 4] x) => (float[a, b, c, d] y) {{ {body} }}", {})
    check_over(model, built_over(model, {"steps": (1, 24)}), [{"steps": size} for size in (1, 2, 7, 24)])


def test_a_tensor_that_tiles_cannot_be_cut_out_of_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "turns", lambda *_: False)
    given, made, body = BETWEEN["turned"]
    model = write(tmp_path / "between.onnx", f"between ({given}) => ({made} y) {{ {body} }}", {})
    with pytest.raises(InputError, match="not the leading axis"):
        built_over(model, SIZES)


def test_a_constant_is_no_cache_that_grows(tmp_path: Path) -> None:
    """It ended in a KeyError."""
    text = "longer (float[steps, 12] x) => (float[longer, 12] y) { y = Concat <axis = 0> (x, k) }"
    model = write(tmp_path / "longer.onnx", text, {"k": weight(1, 12)})
    with pytest.raises(InputError, match="Concat"):
        built_over(model, {"steps": (1, 24)})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given, made = "float[steps, batch, 12] x, float[3, batch, 5] s", "float[steps, batch, 20] y, float[batch, 5, 3] t"
    text = f"behind ({given}) => ({made}) {{ {ROWS} }}"
    return write(tmp_path_factory.mktemp("behind") / "behind.onnx", text, {"w": weight(12, 20), "more": weight(20)})


def test_steps_in_front_of_sequences(model: Path) -> None:
    check_over(model, built_over(model, SIZES), POINTS)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_free_standing_library_has_them_there_too(model: Path) -> None:
    path, theirs = model.with_name("libbehind.so"), onnxruntime.InferenceSession(model)
    autofuse.compile(model, path, database=str(model.with_suffix(".c.db")), threads=1, sizes=SIZES, format="c")
    with OpenSession(OpenNative(path)) as session:
        for point in POINTS:
            assert [session.set_size(name, size) for name, size in point.items()] == [0, 0]
            feeds = inputs_of(model, point)
            code, made = session.call(list(feeds.values()), 0)
            assert code == 0
            for found, wanted in zip(made, theirs.run(None, feeds), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=str(point))
