"""Code that does not grow with what a loop could do: rows that are copied, results of Winograd's algorithm."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from autofuse.backend.compile.function import ANY_SYMBOL, write_object
from autofuse.kernels.build import build_kernel
from tests.kernels.conftest import Bench, Small, real
from tests.kernels.kernel_sample import MAPS, TARGETS, made

COPIED = {
    "contraction.algorithm": "direct", "contraction.order": "copied", "contraction.panels_per_task": 0,
    "contraction.vectors": 2, "contraction.pixels": 4,
}  # fmt: skip
WINOGRAD = {"contraction.algorithm": "winograd4", "contraction.stage": "root", "contraction.pixels": 4}


def strided(channels: int) -> Small:
    return made("y = Conv <strides=[2, 2]> (x, w)", real(1, channels, 56, 56), w=real(32, channels, 1, 1))


def function(small: Small, schedule: Mapping[str, int | str], isa: str) -> object:
    layouts = dict.fromkeys(MAPS, f"c{TARGETS[isa].lanes}")
    return build_kernel(Bench().bind(small, layouts).workload, schedule, TARGETS[isa]).function


def code_bytes(one: object, isa: str, path: Path) -> int:
    write_object(one, ANY_SYMBOL, TARGETS[isa], path)
    told = subprocess.run(["size", "-A", "-d", path], check=True, capture_output=True, text=True).stdout
    return sum(int(line.split()[1]) for line in told.splitlines() if line.startswith(".text "))


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_a_copied_row_takes_no_more_code_of_many_channels_than_of_few(isa: str, tmp_path: Path) -> None:
    few, many = (code_bytes(function(strided(n), COPIED, isa), isa, tmp_path / f"{n}.o") for n in (64, 256))
    assert many < 1.25 * few


@pytest.mark.parametrize("isa", TARGETS)
def test_winograd_finishes_all_vectors_of_results_by_the_same_code(isa: str) -> None:
    small = made("c = Conv <pads=[1, 1, 1, 1]> (x, w); y = Relu (c)", real(1, 64, 16, 16), w=real(64, 64, 3, 3))
    for vectors in (1, 2, 4):
        one = function(small, WINOGRAD | {"contraction.vectors": vectors}, isa)
        assert one.script().count("T.max(") == 16  # type: ignore[attr-defined]  # a tile of 4 x 4 results
