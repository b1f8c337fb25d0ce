"""Parts of a model whose If, Loop or Scan has segments inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto

from autofuse.segments.read import read_choice
from tests.segments.bodies import branches, loop, scan
from tests.segments.models import written


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    ("model", "said"),
    [
        (branches, "it has bodies of its own, in which 2 segments run; 'c' (bool[]) is an input that decides what is"),
        (loop, "it has bodies of its own, in which 1 segment runs"),
        (scan, "it has bodies of its own, in which 4 segments run"),
    ],
)
def test_the_reason_says_first_what_runs_inside(model: Callable[[], ModelProto], said: str, tmp_path: Path) -> None:
    (reason,) = read_choice(written(model(), tmp_path), {}, 0.0).reasons.values()
    assert reason.startswith(said)
