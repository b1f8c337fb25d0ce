"""The experiment on the cost of a call measures both ways of calling, from Python and from C."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from experiments.session import cases
from experiments.session.run import IN_PYTHON, calls_that_differ, compiled, markdown, measured_in_c, measured_in_python


@pytest.mark.parametrize("name", cases.CASES)
def test_its_networks_are_models(name: str) -> None:
    onnx.checker.check_model(cases.CASES[name](), full_check=True)


def test_it_measures_from_python_and_from_c_and_counts_what_differs(tmp_path: Path) -> None:
    path = compiled(cases.small(), tmp_path / "small.so")
    rows = [
        *measured_in_python("small", path, blocks=6, calls=20),
        measured_in_c("small", path, tmp_path / "overhead", blocks=6, calls=20),
    ]
    assert [row.way for row in rows] == [*IN_PYTHON, "C, aligned inputs"]
    assert all(row.machine_us > 0 and row.above_us.count == 6 for row in rows)
    assert markdown(rows).count("\n") == 5
    assert calls_that_differ(path, 20) == 0
