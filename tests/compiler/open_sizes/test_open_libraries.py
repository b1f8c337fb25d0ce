"""One library for every size of a range: right at each, of exact shape, and one clear message outside of it."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from autofuse import api
from autofuse.backend.library.arrays import tensor_over
from autofuse.backend.library.compiled import Library
from autofuse.backend.library.runtime import Machine
from autofuse.cli.main import app
from autofuse.compiler.open_sizes import tiling
from autofuse.errors import InputError
from tests.compiler.open_sizes.models import (
    ATTENTION,
    ATTENTION_WEIGHTS,
    MAPS,
    MAPS_WEIGHTS,
    PERCEPTRON,
    PERCEPTRON_WEIGHTS,
    built,
    check,
    inputs_at,
    weight,
    write,
)

LOW, HIGH = 1, 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Products, an elementwise chain, a softmax and a reduction, each of small rows."""
    return write(tmp_path_factory.mktemp("open") / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)


@pytest.fixture(scope="module")
def library(model: Path) -> Library:
    return built(model, "batch", LOW, HIGH)


def test_every_size_of_the_range_is_right(model: Path, library: Library) -> None:
    check(model, library, "batch", range(LOW, HIGH + 1))


def test_a_call_launches_each_kernel_once_whatever_the_size(model: Path, library: Library) -> None:
    counts = {library.count_kernels(inputs_at(model, "batch", size)) for size in (1, 7, 40)}
    assert counts == {len(library.metadata.kernel_rows)}


def test_a_call_looks_at_no_weight_and_makes_no_shape_twice(model: Path, library: Library) -> None:
    counted = Counter[str]()

    def note(_function: object, symbol: str, before: bool, *_arguments: object) -> int:
        counted[symbol] += before
        return 0

    machine, program = Machine(library._module), library.metadata.programs[0]
    machine.instrument(note)
    given = [tensor_over(array) for array in inputs_at(model, "batch", 7).values()]
    machine[program.entry](*given, *library._weights[0])
    assert counted["vm.builtin.check_tensor_info"] == counted["vm.builtin.match_shape"] == len(given)
    assert counted["vm.builtin.alloc_tensor"] == 4
    assert counted["vm.builtin.make_shape"] == 4, "two shapes of four tensors, and how much memory two results take"


def test_weights_that_the_code_does_not_take_are_refused_when_it_is_loaded(
    model: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked at once, since no call does."""
    monkeypatch.setattr(library, "_weights", [[*library._weights[0][1:], library._weights[0][0]]])
    with pytest.raises(Exception, match="shape|ndim"):
        library._look()


@pytest.mark.parametrize("size", [0, HIGH + 1])
def test_a_size_outside_of_the_range_is_refused(library: Library, size: int) -> None:
    with pytest.raises(InputError, match=f"batch is {size}, the library takes 1 to 40"):
        library([np.zeros((size, 24), np.float32)])


def test_another_shape_than_the_open_one_is_refused(library: Library) -> None:
    with pytest.raises(InputError, match=r"input 'x': shape \(3, 25\), the model takes \(batch, 24\)"):
        library([np.zeros((3, 25), np.float32)])


def test_callers_with_different_sizes_run_side_by_side(model: Path, library: Library) -> None:
    def call(size: int) -> list[Any]:
        return library(inputs_at(model, "batch", size))

    sizes = [1, 40, 5, 17, 33, 2, 16, 40] * 4
    alone = {size: call(size) for size in set(sizes)}
    with ThreadPoolExecutor(3) as threads:
        for size, found in zip(sizes, threads.map(call, sizes), strict=True):
            for array, expected in zip(found, alone[size], strict=True):
                np.testing.assert_array_equal(array, expected)


def test_a_session_names_the_open_size(model: Path, library: Library) -> None:
    assert library.metadata.programs[0].opened is not None
    session = api.Session(model.with_suffix(".so"))
    assert [one.shape for one in session.get_inputs()] == [("batch", 24)]
    assert [one.shape for one in session.get_outputs()] == [("batch", 40), ("batch", 1)]


def shapes(*words: str) -> list[list[int]]:
    """Shapes of the outputs that `run` shows."""
    shown = CliRunner().invoke(app, ["run", *words, "--format", "json"])
    assert shown.exit_code == 0, shown.stderr
    return [one["shape"] for one in json.loads(shown.stdout)["outputs"]]


@pytest.mark.usefixtures("library")
def test_run_takes_a_size_or_that_of_its_files(model: Path, tmp_path: Path) -> None:
    path = str(model.with_suffix(".so"))
    np.save(tmp_path / "x.npy", np.zeros((7, 24), np.float32))
    assert shapes(path) == [[HIGH, 40], [HIGH, 1]]
    assert shapes(path, "--sizes", "batch=3") == [[3, 40], [3, 1]]
    assert shapes(path, "--input", f"x={tmp_path / 'x.npy'}") == [[7, 40], [7, 1]]
    for words, reason in (
        ("batch=41", "batch is 41, the library takes 1 to 40"),
        ("batch=2:5", "a call has one size: give batch=5"),
        ("length=2", "the library has no open size 'length'; its open sizes: 'batch'"),
    ):
        refused = CliRunner().invoke(app, ["run", path, "--sizes", words])
        assert refused.exit_code and reason in refused.stderr


@pytest.mark.usefixtures("library")
def test_a_library_that_is_checked_shows_its_sizes(model: Path) -> None:
    path = str(model.with_suffix(".so"))
    assert api.library_check(path).sizes == {"batch": (LOW, HIGH)}
    screen = CliRunner().invoke(app, ["library", "check", path]).stdout
    assert "open sizes batch 1 to 40" in [" ".join(line.split()) for line in screen.splitlines()]


def test_a_prepared_call_keeps_its_size(model: Path, library: Library) -> None:
    prepared = library.prepared(inputs_at(model, "batch", 9))
    prepared.run()
    assert [array.shape for array in prepared.outputs()] == [(9, 40), (9, 1)]


def test_the_report_names_the_sizes_and_the_tiles(model: Path, tmp_path: Path) -> None:
    report = api.compile(model, database=str(tmp_path / "a.db"), threads=1, dry_run=True, sizes=["batch=1:5"])
    assert report.sizes == {"batch": (1, 5)}
    assert {group.source.split(";")[0] for group in report.groups} == {"tile of 4 rows", "tile of 1 row"}


def test_the_screen_shows_the_range_and_goes_on_with_it(model: Path, tmp_path: Path) -> None:
    words = ["compile", str(model), "--sizes", "batch=1:5", "--dry-run", "--db", str(tmp_path / "a.db")]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0
    assert "open sizes    batch 1 to 5" in shown.output
    assert "--sizes batch=1:5" in shown.output.split("next", 1)[1]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"buckets": {"batch": (1, 2)}}, "one program"),
        ({"shapes": [{"x": (1, 24)}, {"x": (2, 24)}]}, "one program"),
        ({"sizes": {"length": (1, 4)}}, "has no open size 'length'; its open sizes: batch"),
        ({"sizes": {"batch": 4}}, "no size has a range"),
        ({"strict": True}, "no search of plans over these sizes ended here"),
    ],
)
def test_what_cannot_be_with_open_sizes_is_said(model: Path, tmp_path: Path, more: dict[str, Any], reason: str) -> None:
    given = {"sizes": {"batch": (1, 4)}, "database": str(tmp_path / "a.db"), "dry_run": True, **more}
    with pytest.raises(Exception, match=reason):
        api.compile(model, **given)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "weights"), [(MAPS, MAPS_WEIGHTS), (ATTENTION, ATTENTION_WEIGHTS)], ids=["maps", "attention"]
)
def test_networks_with_an_open_batch_are_right(tmp_path: Path, text: str, weights: dict[str, Any]) -> None:
    """Convolutions over blocked maps, a class token of equal rows, heads as an axis, computed target shapes."""
    model = write(tmp_path / "network.onnx", text, weights)
    library = built(model, "batch", 1, 12)
    check(model, library, "batch", (1, 2, 3, 4, 5, 7, 11, 12))


def dry(tmp_path: Path, body: str, sizes: dict[str, Any], signature: str = "float[n, m] x) => (float[n, m] y") -> Any:
    model = write(tmp_path / "one.onnx", f"one ({signature}) {{ {body} }}", {})
    return api.compile(model, database=str(tmp_path / "a.db"), threads=1, dry_run=True, sizes=sizes)


def test_a_further_size_may_be_fixed(tmp_path: Path) -> None:
    report = dry(tmp_path, "y = Relu (x)", {"n": (1, 4), "m": 6})
    assert report.sizes == {"n": (1, 4)}
    assert report.plans[0].shapes == {"x": (4, 6)}


@pytest.mark.parametrize(
    ("body", "sizes", "reason"),
    [
        (
            "y = Hardmax <axis = 0> (x)",
            {"n": (1, 4), "m": (1, 6)},
            "n and m cannot stay open together; fix one, such as m=6.* n as .* Hardmax .*; m as .* leading axis",
        ),
        (
            "y = Hardmax <axis = 1> (x)",
            {"n": 3, "m": (1, 6)},
            "m cannot stay open at Hardmax .* it is not the leading axis of 'x'",
        ),
        ("y = Relu (x)", {"n": (1, 4)}, "the shape of these inputs is not fixed"),
        ("y = Hardmax (x)", {"n": (1, 4), "m": 6}, "n cannot stay open at Hardmax .* only kernels of fixed sizes"),
    ],
)
def test_a_size_that_cannot_stay_open_is_named(tmp_path: Path, body: str, sizes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        dry(tmp_path, body, sizes)


def test_a_model_that_is_another_for_a_single_row_is_refused(tmp_path: Path) -> None:
    body = """
      s = Shape <start = 0, end = 1> (x)
      single = Equal (s, one)
      q = Squeeze (single)
      y = If (q) <
        then_branch = a () => (float[n, 6] c) { c = Tanh (x) },
        else_branch = b () => (float[n, 6] d) { d = Relu (x) }
      >
    """
    model = write(tmp_path / "one.onnx", f"one (float[n, 6] x) => (float[n, 6] y) {{ {body} }}", {"one": np.array([1])})
    with pytest.raises(InputError, match="where n is 1, the model is another: let n start at 2"):
        api.compile(model, database=str(tmp_path / "a.db"), dry_run=True, sizes={"n": (1, 4)})
    assert api.compile(model, database=str(tmp_path / "a.db"), dry_run=True, sizes={"n": (2, 4)}).sizes == {"n": (2, 4)}


def test_a_model_that_needs_onnx_runtime_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="ONNX Runtime would run that part, at fixed sizes only: compile without --sizes"
    ):
        dry(tmp_path, "y = NonZero (x)", {"n": (1, 4), "m": 6}, "float[n, m] x) => (int64[2, k] y")


SKIPPED = """
skipped (float[batch, 3, 10, 9] x) => (float[batch, 4, 10, 9] y) {
  a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
  d = Conv <kernel_shape = [1, 1]> (p, w2)
  inner = Shape <start = 2> (a)
  outer = Shape <end = 2> (d)
  t = Concat <axis = 0> (outer, inner)
  n = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (d, , , t)
  l = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (d, , , t)
  s = Sum (n, l, a)
  y = Relu (s)
}"""
SKIPPED_WEIGHTS = {"w1": weight(4, 3, 3, 3), "w2": weight(4, 4, 1, 1)}
"""Images that grow to the size of a tensor before them, as U-Nets are exported: 10 of 5, and 9 of 4 places."""


def test_any_number_of_images_grows_to_the_size_of_others(tmp_path: Path) -> None:
    model = write(tmp_path / "skipped.onnx", SKIPPED, SKIPPED_WEIGHTS)
    check(model, built(model, "batch", 1, 9), "batch", range(1, 10))


def test_results_of_sizes_that_are_alike_lie_in_the_same_memory(tmp_path: Path) -> None:
    text = "wide (float[batch, 8] x) => (float[batch, 1024] y) { y = MatMul (x, w) }"
    model = write(tmp_path / "wide.onnx", text, {"w": weight(8, 1024)})
    library = built(model, "batch", 1, 100)

    def address(size: int) -> int:
        (result,) = library(inputs_at(model, "batch", size))
        assert result.shape == (size, 1024)
        return int(result.__array_interface__["data"][0])

    addresses = {address(size) for size in (40, 33, 64, 50, 47, 58, 61)}
    assert len(addresses) <= 2, "a result that nobody holds leaves its memory, at the latest when the next is there"
    assert address(65) not in addresses


def test_a_shape_is_taken_where_there_is_no_reason_against_it(library: Library) -> None:
    (program,) = library.metadata.programs
    assert program.opened is not None
    for shape in ((), (1,), (0, 24), (1, 24), (40, 24), (41, 24), (7, 23), (7, 24, 1)):
        taken = program.opened.taken(program.inputs, (shape,)) is not None
        assert taken == (not program.opened.refusal(program.inputs, (shape,)))


def test_tiles_whose_kernel_cannot_be_emitted_have_the_simplest_schedules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, refused = write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS), set[tuple[str, ...]]()
    emit = tiling.group_kernel

    def failing(opened: Any, group: Any, **more: Any) -> Any:
        if group.bound.outputs not in refused:
            refused.add(group.bound.outputs)
            raise ValueError("no such loop")
        return emit(opened, group, **more)

    monkeypatch.setattr(tiling, "group_kernel", failing)
    check(model, built(model, "batch", LOW, HIGH), "batch", (1, 4, 7, 40))
    assert refused
