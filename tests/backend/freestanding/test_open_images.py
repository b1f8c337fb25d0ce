"""Free-standing libraries of images whose height and width are open."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import autofuse
from tests.backend.freestanding.native import OpenNative, OpenSession
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
    images_at,
)
from tests.compiler.open_sizes.models import TOLERANCE, write
from tests.compiler.open_sizes.places import IMAGES, POINTS, RANGES, written

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
BAD_ARGUMENT = 1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("images") / "small.onnx", SMALL, SMALL_WEIGHTS)


@pytest.fixture(scope="module")
def native(model: Path) -> OpenNative:
    path, database = model.with_name("libsmall.so"), str(model.with_suffix(".db"))
    report = autofuse.compile(model, path, database=database, threads=2, sizes=FEW_RANGES, format="c")
    assert report.header == str(model.with_name("small.h"))
    return OpenNative(path)


@pytest.mark.parametrize("threads", [1, 2])
def test_images_of_any_size_are_right_in_any_order(model: Path, native: OpenNative, threads: int) -> None:
    theirs = onnxruntime.InferenceSession(model)
    with OpenSession(native, threads) as session:
        assert [session.size(name) for name in FEW_RANGES] == [40, 72]
        for number, point in enumerate([*FEW_POINTS, *reversed(FEW_POINTS)]):
            assert [session.set_size(name, size) for name, size in point.items()] == [0, 0]
            feeds = images_at(model, point)
            code, made = session.call(list(feeds.values()), 4 * (number % 3 == 1))
            assert code == 0, native.why()
            for found, wanted in zip(made, theirs.run(None, feeds), strict=True):
                assert found.shape == wanted.shape, point
                np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=str(point))


@pytest.mark.long
@pytest.mark.parametrize("name", ["odd", "attention"])
def test_strides_need_not_divide_a_size_and_places_may_be_tokens(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "odd.onnx", ODD, ODD_WEIGHTS) if name == "odd" else written(tmp_path, IMAGES)
    sizes, points = (ODD_RANGES, ODD_POINTS) if name == "odd" else (RANGES, POINTS)
    database, library = str(tmp_path / "odd.db"), tmp_path / "libodd.so"
    autofuse.compile(path, library, database=database, threads=1, sizes=sizes, format="c")
    theirs = onnxruntime.InferenceSession(path)
    with OpenSession(OpenNative(library)) as session:
        for point in points:
            assert [session.set_size(name, size) for name, size in point.items()] == [0, 0]
            feeds = images_at(path, point)
            code, made = session.call(list(feeds.values()), 0)
            assert code == 0
            for found, wanted in zip(made, theirs.run(None, feeds), strict=True):
                assert found.shape == wanted.shape, point
                np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=str(point))


@pytest.mark.long
def test_an_extent_may_be_a_sum_of_products(tmp_path: Path) -> None:
    path = write(tmp_path / "scores.onnx", SCORES, WEIGHTS)
    database, library = str(tmp_path / "scores.db"), tmp_path / "libscores.so"
    autofuse.compile(path, library, database=database, threads=2, sizes=SCORE_RANGES, format="c")
    theirs = onnxruntime.InferenceSession(path)
    with OpenSession(OpenNative(library), 2) as session:
        for high, wide in SCORE_SHAPES:
            assert (session.set_size("height", high), session.set_size("width", wide)) == (0, 0)
            feeds = images_at(path, {"height": high, "width": wide})
            (wanted,) = theirs.run(None, feeds)
            assert session.now("output") == [("y", wanted.shape, wanted.nbytes)]
            code, (found,) = session.call(list(feeds.values()), 0)
            assert code == 0
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{high} x {wide}")


def test_shapes_follow_both_sizes(model: Path, native: OpenNative) -> None:
    assert native.ranges == [("height", 8, 40), ("width", 4, 72)]
    with OpenSession(native) as session:
        assert (session.set_size("width", 10), session.set_size("height", 16)) == (0, 0)
        assert session.now("input") == [("x", (1, 3, 16, 10), 1920)]
        assert session.now("output") == [("y", (1, 8, 8, 5), 1280), ("z", (1, 8, 1, 1), 32)]
    text = model.with_name("small.h").read_text()
    assert "x float32 1 x 3 x height x width" in text
    assert "Open size: height, 8 to 40 in steps of 8." in text


def test_a_size_between_steps_is_refused(native: OpenNative) -> None:
    with OpenSession(native) as session:
        assert session.set_size("height", 8) == 0
        for size, reason in ((9, "height is 9, the library takes multiples of 8, from 8 to 40"), (48, "height is 48")):
            assert session.set_size("height", size) == BAD_ARGUMENT
            assert reason in native.why()
        assert session.size("height") == 8
