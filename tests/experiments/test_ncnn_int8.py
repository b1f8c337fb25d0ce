"""The int8 form of ncnn's files: each layer's line says that it is one, and its weights stand as ncnn reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.peers.runtimes import ncnn_int8
from experiments.peers.runtimes.job import UnsupportedError
from experiments.peers.runtimes.ncnn_int8 import IN_BYTES, PARAMETERS, WEIGHTS, Layer, quantise

NET = """7767517
6 6
Input in0 0 1 in0
Convolution first 1 1 in0 a 0=4 1=3 11=3 12=1 13=1 14=1 2=1 3=1 4=1 5=1 6=108 9=1
ConvolutionDepthWise second 1 1 a b 0=4 1=3 11=3 12=1 13=1 14=1 2=1 3=2 4=1 5=0 6=36 7=4
Pooling pool 1 1 b c 0=1 4=1
InnerProduct last 1 1 c d 0=5 1=1 2=20
Softmax end 1 1 d out0 0=0
"""
SCALES = {"in0": 30.0, "a": 20.0, "c": 10.0}


def numbers(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype("<f4")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A float32 net of ours; what its inputs' ranges would be is given."""
    typed = bytes(4)
    data = typed + numbers(1, 108).tobytes() + numbers(2, 4).tobytes() + typed + numbers(3, 36).tobytes()
    data += typed + numbers(4, 20).tobytes() + numbers(5, 5).tobytes()
    (tmp_path / PARAMETERS).write_text(NET, encoding="utf-8")
    (tmp_path / WEIGHTS).write_bytes(data)
    monkeypatch.setattr(ncnn_int8, "_scales", lambda _folder, blobs, _inputs: {blob: SCALES[blob] for blob in blobs})
    return tmp_path


def test_each_layer_says_how_its_scales_are_to_be_read(folder: Path) -> None:
    quantise(folder, [], folder / "int8")
    layers = [Layer.read(line) for line in (folder / "int8" / PARAMETERS).read_text("utf-8").splitlines()[2:]]
    terms = {layer.name: layer.numbers[8] for layer in layers if 8 in layer.numbers}
    assert terms == {"first": "102", "second": "1", "last": "2"}, "the first one's result is bytes for the second"
    for layer in layers:
        layer.numbers.pop(8, None)
    assert [str(layer) for layer in layers] == [line for line in NET.splitlines()[2:] if line]


def test_weights_are_within_half_a_level_and_scales_stand_behind_them(folder: Path) -> None:
    quantise(folder, [], folder / "int8")
    data, at = (folder / "int8" / WEIGHTS).read_bytes(), 0
    for seed, rows, columns, bias, levels, ends in (
        (1, 4, 27, 4, 31, [30.0, 20.0]),
        (3, 4, 9, 0, 127, [20.0]),
        (4, 5, 4, 5, 127, [10.0]),
    ):
        count = rows * columns
        assert int.from_bytes(data[at : at + 4], "little") == IN_BYTES
        whole = np.frombuffer(data, np.int8, count, at + 4).reshape(rows, columns)
        at += 4 + count + -count % 4
        assert np.array_equal(np.frombuffer(data, "<f4", bias, at), numbers(seed + 1, bias) if bias else [])
        scales = np.frombuffer(data, "<f4", rows, at + 4 * bias)
        at += 4 * (bias + rows)
        assert np.frombuffer(data, "<f4", len(ends), at).tolist() == ends
        at += 4 * len(ends)
        assert (
            np.abs(whole / scales[:, None] - numbers(seed, count).reshape(rows, columns)).max() <= 0.51 / scales.min()
        )
        assert np.abs(whole).max() == levels, "six bits for 3x3 of stride 1"
    assert at == len(data)


def test_weights_that_are_left_over_are_refused(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes() + bytes(8))
    with pytest.raises(UnsupportedError, match="weights of a kind that is not known"):
        quantise(folder, [], folder / "int8")


def test_a_net_without_products_is_refused(folder: Path) -> None:
    (folder / PARAMETERS).write_text("7767517\n1 1\nInput in0 0 1 in0\n", encoding="utf-8")
    with pytest.raises(UnsupportedError, match="no layer here that it computes in int8"):
        quantise(folder, [], folder / "int8")
