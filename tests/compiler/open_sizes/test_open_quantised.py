"""Quantised models keep their sizes open: one library of bytes, of four bits or of halves is right at each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat

from autofuse import api
from autofuse.compiler.open_sizes.reading import read_open
from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from tests.compiler.open_sizes.models import MAPS, MAPS_WEIGHTS, built_over, check_over, write
from tests.compiler.open_sizes.quantised import check_levels, dynamic, halves, nibbles, static
from tests.compiler.open_sizes.tokens import Form, written

TOKENS = {"batch": (1, 4), "tokens": (1, 40)}
POINTS = [{"batch": batch, "tokens": tokens} for batch, tokens in ((1, 1), (1, 2), (3, 3), (2, 7), (1, 16), (4, 33))]
SEQUENCES = Form(width=16, batched=True, masks=("padding",), picked=0)
BYTES = {
    "dynamic": dynamic,
    "QDQ": lambda model: static(model, {"batch": 2, "tokens": 17}),
    "QLinear": lambda model: static(model, {"batch": 2, "tokens": 17}, QuantFormat.QOperator),
}


@pytest.fixture
def sequences(tmp_path: Path) -> Path:
    """Attention over sequences, with a mask, of which the first token is picked."""
    return write(tmp_path / "sequences.onnx", *written(SEQUENCES))


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    """Convolutions, a sum, a pool and a classifier over a batch."""
    return write(tmp_path / "maps.onnx", MAPS, MAPS_WEIGHTS)


@pytest.mark.parametrize("form", BYTES)
def test_sequences_in_bytes_are_right_at_any_number_and_length(sequences: Path, form: str) -> None:
    """Attention in levels, too; levels by the range of a call are those of all sequences together."""
    model = BYTES[form](sequences)
    check_levels(model, built_over(model, TOKENS), POINTS)


@pytest.mark.parametrize("form", [nibbles, halves])
def test_sequences_with_narrow_weights_are_right_at_any_number_and_length(sequences: Path, form: object) -> None:
    assert callable(form)
    model = form(sequences)
    library = built_over(model, TOKENS)
    if form is nibbles:
        check_over(model, library, POINTS)
    else:
        check_levels(model, library, POINTS)


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_maps_in_bytes_are_right_at_any_number(maps: Path, form: QuantFormat) -> None:
    model = static(maps, {"batch": 3}, form)
    check_levels(model, built_over(model, {"batch": (1, 9)}), [{"batch": size} for size in (1, 2, 3, 5, 8, 9)])


@pytest.mark.long
def test_maps_quantised_as_they_come_are_right_at_any_number(maps: Path) -> None:
    model = dynamic(maps, op_types_to_quantize=["Conv", "Gemm", "MatMul"])
    check_levels(model, built_over(model, {"batch": (1, 9)}), [{"batch": size} for size in (1, 2, 3, 5, 8, 9)])


def test_a_scale_is_made_of_all_sequences(tmp_path: Path) -> None:
    """The largest number of one sequence moves the levels of the other one."""
    text = "levels (float[batch, tokens, 8] x) => (uint8[batch, tokens, 8] q) { q, s, z = DynamicQuantizeLinear (x) }"
    model = write(tmp_path / "levels.onnx", text, {})
    library = built_over(model, {"batch": (1, 4), "tokens": (1, 600)})
    for batch, tokens in ((1, 1), (2, 3), (4, 600)):
        x = np.random.default_rng(batch).standard_normal((batch, tokens, 8)).astype(np.float32)
        x[-1, -1, -1] = 40
        (found,) = library({"x": x})
        scale = (np.float32(40) - x.min()) / np.float32(255)
        wanted = np.clip(np.rint(x / scale) + np.rint(-x.min() / scale), 0, 255)
        np.testing.assert_array_equal(found, wanted)


def test_the_least_of_each_sequence_is_no_number_of_all(tmp_path: Path) -> None:
    """A reduction that leaves the sequences is one of each of them."""
    text = "least (float[batch, tokens, 8] x) => (float[batch, 1, 1] y) { y = ReduceMin <keepdims = 1> (x, axes) }"
    model = write(tmp_path / "least.onnx", text, {"axes": np.array([1, 2])})
    with pytest.raises(InputError, match="cannot stay open together"):
        built_over(model, {"batch": (1, 4), "tokens": (1, 40)})


def test_products_of_bytes_in_attention_are_multiplied_as_exact_numbers(sequences: Path) -> None:
    model = BYTES["QDQ"](sequences)
    sizes = [OpenSize("batch", 1, 1), OpenSize("tokens", 1, 40)]
    kinds = [operator.op_type for operator in read_open(model, {}, sizes).opened.graph.operators]
    assert kinds.count("MatMul") == 2
    assert kinds.count("MatMulInteger") == 3


@pytest.mark.long
def test_a_library_for_c_takes_a_quantised_model_of_any_size(sequences: Path) -> None:
    model = BYTES["dynamic"](sequences)
    made = model.with_suffix(".so")
    report = api.compile(model, made, database=str(model.with_suffix(".db")), sizes=TOKENS, format="c")
    assert made.exists() and report.kernels


def test_a_float16_model_keeps_its_sizes_open(sequences: Path) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = sequences.with_name("half.onnx")
    onnx.save(convert_float_to_float16(onnx.load(sequences), keep_io_types=True), model)
    check_levels(model, built_over(model, TOKENS), POINTS)
