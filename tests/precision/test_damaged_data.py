"""Data that are damaged, or not what a model takes, end with one message: whatever NumPy raises about them."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.precision.metrics import metric_of
from autofuse.precision.samples import read_samples

WEIGHTS = "<float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}>"


def graph_of(rows: int = 1) -> Graph:
    text = f'<ir_version: 9, opset_import: ["": 18]> g (float[{rows},4] x) => (float[{rows},2] y) '
    return from_model(parser.parse_model(text + WEIGHTS + " { y = MatMul (x, w) }"), "g")


def npy() -> bytes:
    made = io.BytesIO()
    np.save(made, np.ones((1, 4), "f"))
    return made.getvalue()


def npz() -> bytes:
    made = io.BytesIO()
    np.savez_compressed(made, x=np.random.default_rng(0).standard_normal((8, 1, 4)).astype("f"))
    return made.getvalue()


@pytest.mark.parametrize(("ending", "content"), [("npz", npz()), ("npy", npy())])
def test_damaged_files_are_refused_whatever_is_damaged(ending: str, content: bytes, tmp_path: Path) -> None:
    """zlib, the reader of archives, and the parser of headers have errors of their own."""
    chance, refused = random.Random(5), 0
    path = tmp_path / f"data.{ending}"
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(chance.choice((1, 1, 2, 8))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged[: chance.randrange(len(damaged))] if chance.random() < 0.1 else damaged)
        try:
            read_samples(tmp_path, graph_of(), "--calibration")
        except InputError as error:
            refused += 1
            assert str(error).startswith("--calibration: ")
    assert refused > 100


@pytest.mark.parametrize(("ending", "content"), [("npz", npy()), ("npy", npz()), ("npz", b""), ("npy", b"")])
def test_one_kind_of_file_is_not_taken_for_the_other(ending: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / f"data.{ending}").write_bytes(content)
    with pytest.raises(InputError, match=r"--calibration: .*data\."):
        read_samples(tmp_path, graph_of(), "--calibration")


@pytest.mark.parametrize("name", ["data.npz", "data.npy"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        read_samples(tmp_path, graph_of(), "--calibration")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([[1.0], [1.0, 2.0]], "sample 0: input 'x' is no array"),
        (np.full((1, 4), 1e300), "sample 0: input 'x' holds numbers beyond what float32 can"),
    ],
)
def test_what_is_no_array_of_the_inputs_type_is_told(value: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_samples([{"x": value}], graph_of(), "--calibration")


def test_other_arrays_of_a_sample_are_arrays(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sample 0: 'label' is no array"):
        read_samples([{"x": np.ones((1, 4), "f"), "label": [[1], [1, 2]]}], graph_of(), "--calibration")


def test_a_metric_gives_numbers() -> None:
    with pytest.raises(InputError, match=r"metric <lambda>: it gave \('good', 'good'\)"):
        metric_of(lambda _outputs, _sample: "good").drops({}, {}, {})  # type: ignore[arg-type,return-value]
