"""The experiment on the provider: what it builds is what it says, and its rows show what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import autofuse
from autofuse.device.target import Target
from autofuse.segments.read import read_choice
from experiments.provider.contender import open_network
from experiments.provider.run import Entry, Row, any_size, chain, entry_table, table

TARGET = Target("x86-64-v2", lanes=4, registers=16, cores=2, l1_bytes=32768, l2_bytes=262144)


@pytest.mark.parametrize("segments", [1, 3])
def test_a_chain_has_so_many_segments_of_one_operator(segments: int, tmp_path: Path) -> None:
    onnx.save(chain(segments), tmp_path / "chain.onnx")
    with any_size():
        choice = read_choice(tmp_path / "chain.onnx", {})
    assert [len(piece.nodes) for piece in choice.segments] == [1] * segments


def test_the_provider_is_a_contender_that_computes_what_onnx_runtime_does(tmp_path: Path) -> None:
    onnx.save(chain(2), tmp_path / "chain.onnx")
    (tmp_path / "made").mkdir()
    with any_size():
        autofuse.compile(
            tmp_path / "chain.onnx", tmp_path / "made" / "chain.onnx", format="ort", database=str(tmp_path / "p.db")
        )
    matrix = np.eye(4, dtype=np.float32)[None] + 0.1
    network = open_network("provider", tmp_path / "made" / "chain.onnx", TARGET, 1, {"a0": matrix})
    network.run()
    (factor,) = (onnx.numpy_helper.to_array(one) for one in chain(2).graph.initializer)
    once = np.linalg.inv(matrix) * factor
    np.testing.assert_allclose(network.outputs()[0], np.linalg.inv(once) * factor, rtol=1e-4, atol=1e-5)


def test_rows_show_intervals_problems_and_doubt() -> None:
    entries = [Entry(8, 1, 20.0, 24.0, 0.5, 0.4, 0.6, True), Entry(8, 2, problem="3 segments")]
    assert entry_table(entries).splitlines()[2:] == [
        "| 8 | 1 | 20.0 | 24.0 | 0.50 (0.40-0.60) |",
        "| 8 | 2 |  |  | 3 segments |",
    ]
    rows = [Row("net", 1, 100.0, 1.01, 1.0, 1.03, 1.2, 1.1, 1.3, True), Row("net", 2, 100.0)]
    assert table(rows).splitlines()[2:] == [
        "| net | 1 | 100.0 | 1.010 (1.000-1.030) | 1.20 (1.10-1.30) |",
        "| net | 2 | 100.0 | no ratio: too few rounds count, the machine is busy |  |",
    ]


@pytest.mark.parametrize(("low", "slower"), [(None, False), (1.01, False), (1.03, True)])
def test_slower_is_said_beyond_doubt_alone(low: float | None, slower: bool) -> None:
    assert Row("net", 1, 100.0, 1.04, low, 1.05).slower is slower
