"""Libraries of images whose height and width are open, compared with ONNX Runtime."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

from autofuse import Session, api
from autofuse.backend.library.compiled import Library
from autofuse.cli.main import app
from autofuse.errors import InputError
from autofuse.kernels.open_sizes.images.grid_tiles import Split, all_tiles, stands_in
from tests.compiler.open_sizes.images import (
    CLASSIFIER,
    CLASSIFIER_WEIGHTS,
    DECODER,
    DECODER_WEIGHTS,
    DEEP,
    DEEP_WEIGHTS,
    ODD,
    ODD_POINTS,
    ODD_RANGES,
    ODD_WEIGHTS,
    POINTS,
    RANGES,
    SMALL,
    SMALL_WEIGHTS,
    WIDE,
    WIDE_WEIGHTS,
    Net,
    built_images,
    check_images,
    images_at,
)
from tests.compiler.open_sizes.models import TOLERANCE, weight, write


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, a pooling, and the mean of all."""
    return write(tmp_path_factory.mktemp("images") / "small.onnx", SMALL, SMALL_WEIGHTS)


@pytest.fixture(scope="module")
def library(model: Path) -> Library:
    return built_images(model, RANGES)


def test_images_of_any_size_are_right(model: Path, library: Library) -> None:
    """The smallest and the largest, fewer places than a tile, whole tiles, and tiles that are moved back."""
    check_images(model, library, POINTS)


@pytest.mark.long
def test_strides_need_not_divide_a_size(tmp_path: Path) -> None:
    """Seven rows are four, two and one behind three strides."""
    model = write(tmp_path / "odd.onnx", ODD, ODD_WEIGHTS)
    check_images(model, built_images(model, ODD_RANGES), ODD_POINTS)
    session = Session(model.with_suffix(".so"))
    assert session.get_outputs()[0].shape == (1, 8, "(height + 3)/4", "(width + 3)/4")


def test_a_session_names_the_sizes_and_refuses_others(library: Library, model: Path) -> None:
    session = Session(model.with_suffix(".so"))
    assert [one.shape for one in session.get_inputs()] == [(1, 3, "height", "width")]
    assert [one.shape for one in session.get_outputs()] == [(1, 8, "height/2", "width/2"), (1, 8, 1, 1)]
    for shape, reason in (
        ((1, 3, 42, 8), "height is 42, the library takes 2 to 40 in steps of 2: .*--sizes height=LOW:HIGH"),
        ((1, 3, 8, 2), "width is 2, the library takes 4 to 72"),
        ((1, 3, 9, 8), "height is 9, the library takes multiples of 2"),
        ((1, 4, 8, 8), r"input 'x': shape \(1, 4, 8, 8\), the model takes \(1, 3, height, width\)"),
        ((3, 8, 8), "the model takes"),
    ):
        with pytest.raises(InputError, match=reason):
            session.run(None, {"x": np.zeros(shape, np.float32)})
    counting = Session(model.with_suffix(".so"), record_sizes=True)
    counting.run(None, {"x": np.zeros((1, 3, 8, 12), np.float32)})
    assert counting.recorded_sizes == {(8, 12): 1}


def test_a_check_of_the_library_says_ranges_and_steps(library: Library, model: Path) -> None:
    checked = api.library_check(model.with_suffix(".so"))
    assert checked.sizes == {"height": (2, 40), "width": (4, 72)}
    assert checked.steps == {"height": 2, "width": 2}
    shown = CliRunner().invoke(app, ["library", "check", str(model.with_suffix(".so"))])
    assert "height 2 to 40 in steps of 2, width 4 to 72 in steps of 2" in " ".join(shown.output.split())


def test_callers_with_different_sizes_run_side_by_side(model: Path, library: Library) -> None:
    points = [{"height": 2 * n, "width": 74 - 2 * n} for n in range(1, 17)]
    feeds = [images_at(model, point) for point in points]
    session = onnxruntime.InferenceSession(model)
    wanted = [session.run(None, feed) for feed in feeds]
    with ThreadPoolExecutor(4) as pool:
        for found, own in zip(pool.map(library, feeds * 3), wanted * 3, strict=True):
            for one, other in zip(found, own, strict=True):
                np.testing.assert_allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def test_caches_are_refused(model: Path) -> None:
    with pytest.raises(InputError, match="--cache"):
        api.compile(model, model.with_suffix(".no"), sizes=RANGES, caches={"y": "x"})


COVERED = [(1, 16), (1, 48), (40, 16), (40, 48), (5, 32), (13, 16), (16, 16), (17, 48), (9, 32), (20, 16)]
"""Fewer rows than any tile has, and rests of every length."""


@pytest.fixture
def all_weights_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of them are, too: what is many takes minutes to compile."""
    monkeypatch.setattr("autofuse.kernels.open_sizes.images.grid_tiles.FEW_WEIGHTS", 0)


@pytest.mark.long
@pytest.mark.usefixtures("all_weights_are_many")
def test_tiles_of_many_weights_reach_beyond_small_images(tmp_path: Path) -> None:
    model = write(tmp_path / "wide.onnx", WIDE, WIDE_WEIGHTS)
    library = built_images(model, {"height": (1, 40), "width": (16, 48, 16)}, threads=1)
    check_images(model, library, [{"height": high, "width": 16 + high % 3 * 16} for high in (1, 5, 11, 16, 17, 24, 40)])


@pytest.mark.long
@pytest.mark.usefixtures("all_weights_are_many")
def test_windows_of_many_weights_reach_beyond_small_images(tmp_path: Path) -> None:
    model = write(tmp_path / "deep.onnx", DEEP, DEEP_WEIGHTS)
    library = built_images(model, {"height": (1, 40), "width": (16, 48, 16)}, threads=1)
    check_images(model, library, [{"height": high, "width": wide} for high, wide in COVERED])


@pytest.mark.parametrize("split", [Split((16, 12, 8), 10, True), Split((32, 8), 4), Split((7, 3), 2), Split((128, 1))])
def test_the_tiles_of_a_size_compute_all_of_it(split: Split) -> None:
    for extent in range(split.lengths[-1], 200):
        counts = split.counts(extent)
        assert extent <= sum(count * length for count, length in zip(counts, split.lengths, strict=True))
        assert split.cut or max(length for count, length in zip(counts, split.lengths, strict=True) if count) <= extent
    assert Split((16, 12, 8), 10, True).counts(11) == (0, 1, 0)
    assert Split((16, 12, 8), 10, True).counts(36) == (2, 0, 1)
    assert Split((32, 8), 4).counts(48) == (1, 2)


def test_few_places_have_tiles_of_four_and_none_much_longer_one_way() -> None:
    few = Split((16, 12, 8, 4), 10, True)
    assert [few.counts(extent) for extent in (3, 4, 5, 11)] == [(0, 0, 0, 1), (0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0)]
    tiles = all_tiles((Split((1,)), few, few))
    assert len(tiles) == 12
    assert {stands_in((1, 4, 16), (Split((1,)), few, few)), stands_in((1, 8, 16), (Split((1,)), few, few))} == {
        (1, 8, 16)
    }
    assert all(max(one[1:]) <= 2 * min(one[1:]) for one in tiles)
    assert stands_in((1, 64), (Split((1,)), Split((64, 8), 4))) == (1, 64)


@pytest.mark.long
@pytest.mark.usefixtures("all_weights_are_many")
def test_tiles_that_stand_in_for_others_compute_the_same(tmp_path: Path) -> None:
    model = write(tmp_path / "wide.onnx", WIDE, WIDE_WEIGHTS)
    library = built_images(model, {"height": (3, 36), "width": (4, 36)}, threads=2)
    shapes = [(3, 4), (4, 16), (36, 4), (3, 36), (20, 36), (36, 20), (5, 12), (13, 7), (8, 8), (36, 36)]
    check_images(model, library, [{"height": high, "width": wide} for high, wide in shapes])


@pytest.mark.long
def test_a_classifier_is_right_at_any_size(tmp_path: Path) -> None:
    model = write(tmp_path / "classifier.onnx", CLASSIFIER, CLASSIFIER_WEIGHTS)
    library = built_images(model, {"height": (4, 72, 4), "width": (4, 92, 4)}, threads=1)
    shapes = [(4, 4), (4, 92), (72, 4), (8, 36), (40, 20), (72, 92), (64, 60), (36, 16), (32, 32)]
    check_images(model, library, [{"height": high, "width": wide} for high, wide in shapes])


@pytest.mark.long
def test_images_that_grow_are_right_at_any_size(tmp_path: Path) -> None:
    model = write(tmp_path / "decoder.onnx", DECODER, DECODER_WEIGHTS)
    library = built_images(model, {"height": (3, 40), "width": (3, 40)})
    shapes = [(3, 3), (3, 40), (40, 3), (7, 17), (23, 11), (40, 40), (16, 16), (33, 5), (4, 8), (9, 39)]
    check_images(model, library, [{"height": high, "width": wide} for high, wide in shapes])


@pytest.mark.long
def test_height_alone_may_be_open_and_so_may_the_length_of_a_signal(tmp_path: Path) -> None:
    fixed = SMALL.replace("height, width", "height, 20")
    model = write(tmp_path / "tall.onnx", fixed, {"w1": weight(8, 3, 3, 3)})
    library = built_images(model, {"height": (2, 300, 2)})
    check_images(model, library, [{"height": n} for n in (2, 4, 126, 128, 250, 300)])
    signal = """
      signal (float[2, 4, length] x) => (float[2, 8, l] y) {
        a = Conv <kernel_shape = [5], strides = [2], pads = [2, 2]> (x, w1)
        y = ConvTranspose <kernel_shape = [4], strides = [2], pads = [1, 1]> (a, w2)
      }"""
    model = write(tmp_path / "signal.onnx", signal, {"w1": weight(8, 4, 5), "w2": weight(8, 8, 4)})
    library = built_images(model, {"length": (2, 600, 2)})
    check_images(model, library, [{"length": n} for n in (2, 4, 126, 250, 252, 254, 600)])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_random_networks_are_right_at_any_size(tmp_path: Path, seed: int) -> None:
    """Windows, resizes, joins and sums in any order, at sizes drawn from the whole range."""
    generator = np.random.default_rng(seed)
    model = write(tmp_path / "random.onnx", *Net(generator).written())
    library = built_images(model, {"height": (4, 60, 4), "width": (4, 60, 4)}, threads=1 + seed % 2)
    drawn = [{"height": int(4 * h), "width": int(4 * w)} for h, w in generator.integers(1, 16, (8, 2))]
    check_images(model, library, [{"height": 4, "width": 4}, {"height": 60, "width": 60}, *drawn])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_random_networks_are_right_at_odd_sizes(tmp_path: Path, seed: int) -> None:
    """The same where strides divide no size, images are resized to others, and rows of places are joined."""
    generator = np.random.default_rng([seed, 1])
    model = write(tmp_path / "random.onnx", *Net(generator, odd=True, rows=True).written())
    try:
        library = built_images(model, {"height": (5, 61), "width": (6, 47)}, threads=1 + seed % 2)
    except InputError as error:
        assert "no whole number of" in str(error) or "no multiple of" in str(error), error
        return
    drawn = [{"height": int(h), "width": int(w)} for h, w in generator.integers((5, 6), (62, 48), (8, 2))]
    check_images(model, library, [{"height": 5, "width": 6}, {"height": 61, "width": 47}, *drawn])
