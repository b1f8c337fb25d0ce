"""Models of images whose height and width are open, in ONNX Runtime."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.compiler.open_sizes.detectors import SCORE_RANGES, SCORE_SHAPES, SCORES, WEIGHTS
from tests.compiler.open_sizes.images import (
    FEW_POINTS,
    FEW_RANGES,
    ODD,
    ODD_POINTS,
    ODD_RANGES,
    ODD_WEIGHTS,
    SMALL,
    SMALL_WEIGHTS,
    Point,
    images_at,
)
from tests.compiler.open_sizes.models import TOLERANCE, write
from tests.ort.compiled import compiled, plain, session

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write(tmp_path_factory.mktemp("images") / "small.onnx", SMALL, SMALL_WEIGHTS)
    compiled(path, path.with_name("tuned.onnx"), threads=2, sizes=FEW_RANGES)
    return path


@pytest.mark.long
def test_images_of_any_size_are_right_from_several_callers(model: Path) -> None:
    ours, theirs = session(model.with_name("tuned.onnx"), threads=2), plain(model)

    def check(point: Point) -> None:
        feeds = images_at(model, point)
        for found, wanted in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=str(point))

    with ThreadPoolExecutor(3) as callers:
        list(callers.map(check, FEW_POINTS * 2))


@pytest.mark.long
def test_strides_need_not_divide_a_size(tmp_path: Path) -> None:
    path = write(tmp_path / "odd.onnx", ODD, ODD_WEIGHTS)
    compiled(path, tmp_path / "tuned.onnx", sizes=ODD_RANGES)
    ours, theirs = session(tmp_path / "tuned.onnx"), plain(path)
    for point in ODD_POINTS:
        feeds = images_at(path, point)
        for found, wanted in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=str(point))


@pytest.mark.long
def test_an_extent_may_be_a_sum_of_products(tmp_path: Path) -> None:
    path = write(tmp_path / "scores.onnx", SCORES, WEIGHTS)
    compiled(path, tmp_path / "tuned.onnx", threads=2, sizes=SCORE_RANGES)
    ours, theirs = session(tmp_path / "tuned.onnx", threads=2), plain(path)
    for high, wide in SCORE_SHAPES:
        feeds = images_at(path, {"height": high, "width": wide})
        for found, wanted in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{high} x {wide}")


def test_the_model_says_its_sizes_and_refuses_others(model: Path) -> None:
    assert [node.op_type for node in onnx.load(model.with_name("tuned.onnx")).graph.node] == ["EPContext"]
    ours = session(model.with_name("tuned.onnx"))
    assert [one.shape for one in ours.get_inputs()] == [[1, 3, "height", "width"]]
    assert [one.shape for one in ours.get_outputs()] == [[1, 8, "height/2", "width/2"], [1, 8, 1, 1]]
    for shape, reason in (
        ((1, 3, 48, 8), "height is 48, compiled for 8 to 40"),
        ((1, 3, 8, 74), "width is 74, compiled for 4 to 72"),
        ((1, 3, 9, 8), "height is 9, the library takes multiples of 8"),
    ):
        with pytest.raises(Exception, match=reason):
            ours.run(None, {"x": np.zeros(shape, np.float32)})
