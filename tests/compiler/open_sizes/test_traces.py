"""Sizes that happen: counted by a session, written, read, and what a search weighs its tiles by."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from autofuse import api
from autofuse.cli.main import app
from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.loading.given.trace import SizeCounter, Trace, read_trace, shares
from autofuse.opened.row_tiles import weighted
from tests.compiler.open_sizes.models import PERCEPTRON, PERCEPTRON_WEIGHTS, built, inputs_at, write

SIZE = OpenSize("batch", 1, 40)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write(tmp_path_factory.mktemp("traced") / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    built(path, SIZE.name, SIZE.low, SIZE.high)
    return path


def session(model: Path, **more: Any) -> api.Session:
    return api.Session(model.with_suffix(".so"), threads=1, **more)


def test_every_way_to_call_is_counted(model: Path) -> None:
    opened = session(model, record_sizes=True)
    opened.run(None, inputs_at(model, "batch", 7))
    opened.run(["y"], inputs_at(model, "batch", 7))
    opened.run_dlpack(None, inputs_at(model, "batch", 3))
    binding = opened.io_binding()
    binding.bind_cpu_input("x", inputs_at(model, "batch", 40)["x"])
    binding.bind_output("y")
    opened.run_with_iobinding(binding)
    assert opened.recorded_sizes == {3: 1, 7: 2, 40: 1}


def test_a_call_that_fails_is_not_counted(model: Path) -> None:
    opened = session(model, record_sizes=True)
    with pytest.raises(InputError):
        opened.run(None, {"x": np.zeros((41, 24), np.float32)})
    assert opened.recorded_sizes == {}


def test_callers_side_by_side_lose_no_call() -> None:
    counter = SizeCounter("batch")
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(counter.add, [1, 2, 3, 4] * 2_000))
    assert counter.counts == dict.fromkeys((1, 2, 3, 4), 2_000)


def test_what_was_written_is_read_and_replaced(model: Path, tmp_path: Path) -> None:
    opened, path = session(model, record_sizes=True), tmp_path / "sizes.csv"
    for size in (5, 5, 2):
        opened.run(None, inputs_at(model, "batch", size))
        opened.write_sizes(path)
    assert path.read_text() == "batch,calls\n2,1\n5,2\n"
    assert read_trace(path, SIZE).of([SIZE]) == {(2,): 1, (5,): 2}
    path.write_text("mine")
    with pytest.raises(InputError, match="not a trace of sizes"):
        opened.write_sizes(path)


def test_sessions_that_record_nothing_say_so(model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="record_sizes=True"):
        session(model).write_sizes(tmp_path / "sizes.csv")
    fixed = write(tmp_path / "fixed.onnx", "fixed (float[2, 4] x) => (float[2, 4] y) { y = Relu (x) }", {})
    with pytest.raises(InputError, match="the library has no open size"):
        api.Session(fixed, threads=1, database=str(tmp_path / "a.db"), record_sizes=True)


def test_a_trace_may_be_a_list_of_calls(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv"
    path.write_text("batch\n4\n 4\n\n9\n")
    assert read_trace(path, SIZE).of([SIZE]) == {(4,): 2, (9,): 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins with ''"),
        ("tokens,calls\n1,1\n", "begins with 'tokens,calls', allowed: batch,calls or batch"),
        ("batch,calls\n", "has no calls"),
        ("batch,calls\n4\n", "line 2: got '4', allowed: batch,calls"),
        ("batch,calls\n4,1\n5,x\n", "line 3: got '5,x'"),
        ("batch,calls\n4,0\n", "line 2: got '4,0'"),
        ("batch\n41\n", "line 2: batch is 41, --sizes has batch 1 to 40"),
    ],
)
def test_what_is_no_trace_of_the_size_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=reason):
        read_trace(path, SIZE)


def test_sizes_weigh_as_much_as_they_happen() -> None:
    assert shares([OpenSize("n", 1, 2)], None) == {(1,): 0.5, (2,): 0.5}
    assert shares([SIZE], Trace(("batch",), ((2, 1), (5, 3)))) == {(2,): 0.25, (5,): 0.75}


def test_a_model_with_some_of_the_sizes_takes_its_part_of_a_trace() -> None:
    trace = Trace(("batch", "tokens"), ((1, 7, 2), (1, 9, 3), (4, 7, 1)))
    assert trace.of([SIZE]) == {(1,): 5, (4,): 1}
    assert trace.of([OpenSize("tokens", 1, 9), SIZE]) == {(7, 1): 2, (7, 4): 1, (9, 1): 3}
    with pytest.raises(InputError, match="it has no 'heads', only batch, tokens"):
        trace.of([OpenSize("heads", 1, 9)])


def test_a_tile_weighs_as_often_as_calls_run_it() -> None:
    """21 rows are a tile of 16, one of 4 and a single row; 3 rows are single ones."""
    tiles = [(16, None), (4, None), (1, None)]
    groups = [(SimpleNamespace(in_tiles=True, picked=None, operators=("x",)), None, tiles)]
    plan: Any = SimpleNamespace(
        groups=groups,
        length=lambda _bound: 0,
        of_call=lambda _group, _bound, sizes, sequences: (sizes[0] * sequences, 1),
    )
    calls = [(((7,), 3), 0.75), (((3,), 1), 0.25)]
    assert [tile.runs for tile in weighted(plan, calls)] == [0.75, 0.75, 1.5]


@pytest.mark.long
def test_tune_takes_a_trace(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text("batch,calls\n4,1\n")
    named: dict[str, Any] = {"trials": 1, "threads": 1, "database": str(tmp_path / "a.db"), "trace": path}
    tuned: Any = api.tune(model, sizes={"batch": (1, 5)}, **named)
    assert {tile.rows: tile.runs for tile in tuned.tiles} == {4: 1.0, 1: 0.0}
    with pytest.raises(InputError, match="--trace: it weighs the sizes of a range; give --sizes as well"):
        api.tune(model, **named)


@pytest.mark.parametrize(
    ("text", "reason"), [(None, "sizes.csv"), ("batch,calls\n9,1\n", "batch is 9, --sizes has batch 1 to 5")]
)
def test_a_trace_is_looked_at_before_the_model(tmp_path: Path, text: str | None, reason: str) -> None:
    model, path = tmp_path / "model.onnx", tmp_path / "sizes.csv"
    model.write_text("no model")
    if text is not None:
        path.write_text(text)
    words = ["tune", str(model), "--sizes", "batch=1:5", "--trace", str(path), "--db", str(tmp_path / "a.db")]
    shown = CliRunner().invoke(app, [*words, "--trials", "1", "-n", "1"])
    assert shown.exit_code == 2
    assert "--trace: " in shown.output and reason in shown.output
