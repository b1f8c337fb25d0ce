"""Small files that ask for everything are refused with a message, or read, in seconds and little memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

import autofuse.kernels.lowering.coverage  # noqa: F401  in the parent, so that no child pays for it
from autofuse import api
from experiments.fuzz.bombs import BOMBS, beside_a_rest, by_data, padded_window
from experiments.fuzz.contain import Limits, Outcome, outcome_of, outcomes

LONG = ("20,000 foldings",)
LIMITS = Limits(cpu_s=20.0, memory_bytes=2 << 30)


@pytest.fixture(scope="module")
def inspected(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """What becomes of each bomb; all are tried in one process, unless one breaks it."""
    folder = tmp_path_factory.mktemp("bombs")
    names = [name for name in BOMBS if name not in LONG]

    def attempt(number: int) -> None:
        path = folder / f"{number}.onnx"
        path.write_bytes(BOMBS[names[number]]().SerializeToString())
        api.inspect(path)

    found = outcomes([partial(attempt, number) for number in range(len(names))], LIMITS)
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("name", [name for name in BOMBS if name not in LONG])
def test_inspecting_a_bomb_ends(inspected: Mapping[str, Outcome], name: str) -> None:
    assert not inspected[name].finding, inspected[name].text
    assert "bad_alloc" not in inspected[name].text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a Pad of 2^40", "result 'y' of operator 'Pad_0' (Pad) has 17,592.2 GB"),
        ("Tile by 8 again and again", "operator 'n5' (Tile) has 4.3 GB"),
        ("functions, 2^40 operators", "more than 100,000 operators, most of them from its function 'f40'"),
        ("a function that calls itself", "function 'f' calls itself"),
        ("results at once", "16 GiB are allowed; use smaller inputs"),
        ("an input of 2^60", "input 'x' has 4,611,686,018.4 GB"),
        (
            "taps beyond 32 bits",
            "result 'y' of operator 'MaxPool_0' (MaxPool) has a negative size (1,4,-1099511627759)",
        ),
        ("20,000 constants returned", "the model has 20,001 outputs, at most 1,000 are allowed"),
    ],
)
def test_the_message_names_what_is_too_large(inspected: Mapping[str, Outcome], name: str, told: str) -> None:
    assert (inspected[name].kind, told in inspected[name].text) == ("refused", True), inspected[name].text


OFTEN = (
    "a Pad of 2^40", "Tile by 2^40", "Range to infinity", "branches in branches", "Einsum of 26 letters", "texts",
    "a long signal",
)  # fmt: skip
"""Those that also stand beside a part that ONNX Runtime runs, at each change."""


@pytest.mark.parametrize(
    "name", [*OFTEN, *(pytest.param(name, marks=pytest.mark.long) for name in BOMBS if name not in (*OFTEN, *LONG))]
)
def test_inspecting_a_bomb_beside_a_part_of_onnx_runtimes_ends(name: str, tmp_path: Path) -> None:
    made = beside_a_rest(BOMBS[name]())
    found = outcome_of(lambda: _inspected(made, tmp_path / "bomb.onnx"), LIMITS)
    assert not found.finding, found.text


@pytest.mark.parametrize("op_type", ["ConstantOfShape", "Tile"])
def test_sizes_that_depend_on_data_cost_nothing_until_they_are_run(op_type: str, tmp_path: Path) -> None:
    made, path = by_data(op_type), tmp_path / "bomb.onnx"
    assert outcome_of(lambda: _inspected(made, path), LIMITS).kind == "accepted"
    named = {"database": str(tmp_path / "a.db"), "threads": 1}
    found = outcome_of(lambda: api.compile(path, tmp_path / "m.so", **named) and None, LIMITS)
    assert found.kind == "accepted", found.text
    library = outcome_of(lambda: api.load(tmp_path / "m.so")({"x": np.ones(4, np.float32)}) and None, LIMITS)
    assert library.kind == "refused", library.text


def _inspected(made: ModelProto, path: Path) -> None:
    path.write_bytes(made.SerializeToString())
    api.inspect(path)


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.long
def test_compiling_a_bomb_ends(name: str, tmp_path: Path) -> None:
    """On the command line, as a user would, with limits that the system keeps."""
    path = tmp_path / "bomb.onnx"
    path.write_bytes(BOMBS[name]().SerializeToString())
    output = tmp_path / "m.so"
    options = ["-o", str(output), "--threads", "1", "--db", str(tmp_path / "a.db")]
    command = [sys.executable, "-m", "autofuse", "compile", str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=_limited, check=False)
    assert done.returncode in (0, 2), done.stderr[-2000:]
    last = (done.stderr.strip().splitlines() or [""])[-1]
    assert (done.returncode == 0) == output.exists()
    if done.returncode:
        assert last.startswith("autofuse: "), last
    elif "ONNX Runtime runs all of this model" not in done.stdout:
        assert last.startswith("compile: writing the library"), last


def _limited() -> None:
    """The limits of a process that is about to begin; private memory is what counts."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(LIMITS.cpu_s), int(LIMITS.cpu_s)))
    resource.setrlimit(resource.RLIMIT_DATA, (LIMITS.memory_bytes, LIMITS.memory_bytes))


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose", "MaxPool"])
def test_many_taps_and_much_padding_compile(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "window.onnx"
    pads = 0 if kind == "ConvTranspose" else 900
    path.write_bytes(padded_window(kind, 1_000, pads, size=2_000).SerializeToString())
    found = outcome_of(
        lambda: api.compile(path, tmp_path / "m.so", database=str(tmp_path / "a.db"), threads=1) and None
    )
    assert found.kind == "accepted", found.text


def test_what_breaks_its_process_is_told_and_the_next_attempt_goes_on() -> None:
    assert outcome_of(lambda: os._exit(3)).kind == "crash"
    assert outcome_of(lambda: [0] * (1 << 40) and None, Limits(memory_bytes=1 << 28)).kind == "traceback"
    assert outcome_of(lambda: sum(1 for _ in iter(int, 1)) and None, Limits(cpu_s=0.1)).kind == "hang"
