"""What ONNX Runtime computes otherwise than ONNX defines is refused, and nothing beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import InputError
from autofuse.segments.read import read_choice
from tests.segments.models import model_of, written

UNPOOLED = """net (float[1,1,2,2] x, int64[1,1,2,2] i) => (float y[1,1,N,M]) {{
    y = MaxUnpool <kernel_shape=[2, 2], strides=[2, 2]> (x, i{shape})
}}"""
ALIGNED = """net (float[1,1,{side},{side}] x) => (float[1,1,N,M] y) {{
    y = Resize <coordinate_transformation_mode="align_corners", mode="cubic"> (x, , scales)
}}"""


def parts(folder: Path, text: str, **weights: np.ndarray) -> int:
    return len(read_choice(written(model_of(text, **weights), folder), {}).rest)


def test_the_given_shape_of_an_unpooling_is_refused(tmp_path: Path) -> None:
    text = UNPOOLED.replace("float y[1,1,N,M]", "float[1,1,N,M] y")
    with pytest.raises(InputError, match=r"MaxUnpool .* has no kernel, and ONNX Runtime takes indices as places"):
        parts(tmp_path, text.format(shape=", s"), s=np.array([1, 1, 5, 5], np.int64))
    assert parts(tmp_path, text.format(shape="")) == 1


def test_corners_aligned_by_a_fractional_size_are_refused(tmp_path: Path) -> None:
    scales = np.array([1, 1, 0.8, 0.8], np.float32)
    with pytest.raises(InputError, match="Resize .* aligns corners"):
        parts(tmp_path, ALIGNED.format(side=4), scales=scales)
    assert parts(tmp_path, ALIGNED.format(side=5), scales=scales) <= 1, "0.8 of 5 is a whole number"


def test_numbers_of_eight_bits_that_would_come_out_as_integers_are_refused(tmp_path: Path) -> None:
    text = "net (float[3] x) => (float8e4m3fn[3] y) { y = Cast <to=17> (x) }"
    with pytest.raises(InputError, match="hands numbers of 8 bits out as integers"):
        parts(tmp_path, text.replace("float8e4m3fn[3]", "float8e4m3fn[3]"))
