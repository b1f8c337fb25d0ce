"""LSTM, GRU and RNN over an open batch, an open length, both, and places of a signal: right at each size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse import api
from autofuse.backend.library.compiled import Library
from tests.compiler.open_sizes.images import built_images, check_images
from tests.compiler.open_sizes.models import built, built_over, check, check_over, weight, write
from tests.compiler.open_sizes.recurrences import DEPTH, FRONT, HIDDEN, TAGS, carried, layer, stacked, weights_of

STEPS = 7
BATCHES = (1, 2, 3, 4, 5, 7, 16, 17, 23, 31)
LAST = "turned = Transpose <perm = [1, 0, 2]> (s2) flat = Flatten <axis = 1> (turned) y = MatMul (flat, v)"


@pytest.mark.long
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("directions", [1, 2])
def test_layers_over_an_open_batch(tmp_path: Path, cell: str, directions: int) -> None:
    after, shape = (TAGS, f"batch, {STEPS}, 5") if directions == 2 or cell == "RNN" else (LAST, "batch, 5")
    signature = f"(float[batch, {STEPS}, {DEPTH}] given) => (float[{shape}] y)"
    model = stacked(tmp_path, cell, directions, signature, FRONT, after)
    check(model, built(model, "batch", 1, 31), "batch", BATCHES)


def test_states_and_lengths_of_each_sequence_of_an_open_batch(tmp_path: Path) -> None:
    shapes = f"int64[batch] many, float[batch, 2, {HIDDEN}] h, float[batch, 2, {HIDDEN}] c"
    results = f"float[batch, {STEPS}, {2 * HIDDEN}] y, float[batch, 2, {HIDDEN}] hn, float[batch, 2, {HIDDEN}] cn"
    body = f"""
    {FRONT} seven = Constant <value = int64 {{{STEPS}}}> () less = Mod (many, seven)
    lengths = Cast <to = 6> (less)
    ht = Transpose <perm = [1, 0, 2]> (h) ct = Transpose <perm = [1, 0, 2]> (c)
    zero = Constant <value = int64[1] {{0}}> () one = Constant <value = int64[1] {{1}}> ()
    two = Constant <value = int64[1] {{2}}> () sizes = Shape (x)
    length = Slice (sizes, zero, one) batch_size = Slice (sizes, one, two)
    all = Constant <value = int64[1] {{-1}}> () joined = Concat <axis = 0> (length, batch_size, all)
    {layer("LSTM", 1, "x", 2, "lengths", "ht", "ct", "p", results="y1, s, t")}
    y = Transpose <perm = [1, 0, 2]> (y1j)
    hn = Transpose <perm = [1, 0, 2]> (s) cn = Transpose <perm = [1, 0, 2]> (t)"""
    text = f"states (float[batch, {STEPS}, {DEPTH}] given, {shapes}) => ({results}) {{ {body} }}"
    weights = weights_of("LSTM", 1, DEPTH, 2) | {"p": weight(2, 3 * HIDDEN, seed=9)}
    model = write(tmp_path / "states.onnx", text, {**weights, "p": np.asarray(weights["p"], np.float32)})
    check(model, built(model, "batch", 1, 31), "batch", BATCHES)


LENGTHS = (1, 2, 3, 7, 8, 16, 31, 40)


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("batches", ["1", "3"])
def test_layers_over_an_open_length(tmp_path: Path, cell: str, directions: int, batches: str) -> None:
    after, shape = (
        ("y = MatMul (y2j, v)", f"n, {batches}, 5") if directions == 2 or cell == "RNN" else (LAST, f"{batches}, 5")
    )
    signature = f"(float[n, {batches}, {DEPTH}] given) => (float[{shape}] y)"
    model = stacked(tmp_path, cell, directions, signature, "x = Identity (given)", after)
    check(model, built(model, "n", 1, 40), "n", LENGTHS)


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("directions", [1, 2])
def test_layers_over_an_open_batch_and_length(tmp_path: Path, cell: str, directions: int) -> None:
    after, shape = (TAGS, "batch, n, 5") if directions == 2 or cell == "RNN" else (LAST, "batch, 5")
    signature = f"(float[batch, n, {DEPTH}] given) => (float[{shape}] y)"
    model = stacked(tmp_path, cell, directions, signature, FRONT, after)
    library = built_over(model, {"batch": (1, 16), "n": (1, 40)})
    check_over(model, library, [{"batch": b, "n": n} for b in (1, 2, 3, 5, 13, 16) for n in (1, 2, 7, 40)])


@pytest.mark.long
def test_both_ways_over_the_places_of_a_signal(tmp_path: Path) -> None:
    front = (
        "a = Conv <kernel_shape = [3], strides = [2], pads = [1, 1]> (given, k) x = Transpose <perm = [2, 0, 1]> (a)"
    )
    signature = "(float[1, 4, frames] given) => (float[m, 1, 5] y)"
    model = stacked(tmp_path, "LSTM", 2, signature, front, "y = MatMul (y2j, v)", k=weight(DEPTH, 4, 3))
    report = api.compile(model, database=str(tmp_path / "base"), threads=1, sizes={"frames": (2, 60)}, dry_run=True)
    products = [group.source for group in report.groups if group.group.startswith(("Gemm", "MatMul"))]
    assert sum(source.startswith("tile of 30 places") for source in products) == 3
    library = built_images(model, {"frames": (2, 60)})
    check_images(model, library, [{"frames": size} for size in (2, 3, 5, 8, 33, 59, 60)])


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
@pytest.mark.long
def test_signals_of_any_number_whose_places_are_steps(tmp_path: Path, cell: str) -> None:
    """Text recognition: the number of images stands behind their places."""
    front = (
        "a = Conv <kernel_shape = [3], strides = [2], pads = [1, 1]> (given, k) x = Transpose <perm = [2, 0, 1]> (a)"
    )
    signature = "(float[batch, 4, frames] given) => (float[m, batch, 5] y)"
    model = stacked(tmp_path, cell, 2, signature, front, "y = MatMul (y2j, v)", k=weight(DEPTH, 4, 3))
    library = built_images(model, {"batch": (1, 9), "frames": (1, 60)}, 2)
    points = [(1, 1), (9, 1), (1, 60), (9, 60), (2, 7), (5, 33), (7, 59)]
    check_images(model, library, [{"batch": batch, "frames": size} for batch, size in points])


@pytest.mark.parametrize("sizes", [{"n": (1, 40)}, {"n": (1, 40), "batch": (1, 8)}], ids=["length", "both"])
def test_threads_share_the_units_of_many_weights(tmp_path: Path, sizes: dict[str, tuple[int, int]]) -> None:
    hidden, batch = 384, "batch" if len(sizes) > 1 else "1"
    text = f"shared (float[{batch}, n, {DEPTH}] given) => (float[{batch}, n, {hidden}] y) {{"
    body = f"{FRONT} one = Constant <value = int64[1] {{1}}> () z, s, t = LSTM <hidden_size = {hidden}> (x, w, r)"
    body += " q = Squeeze (z, one) y = Transpose <perm = [1, 0, 2]> (q) }"
    weights = {"w": weight(1, 4 * hidden, DEPTH), "r": weight(1, 4 * hidden, hidden)}
    model = write(tmp_path / "shared.onnx", text + body, weights)
    api.compile(model, library := tmp_path / "shared.so", database=str(tmp_path / "base"), threads=2, sizes=sizes)
    loaded = api.load(library)
    assert isinstance(loaded, Library)
    check_over(
        model, loaded, [{"n": n, "batch": b} for n in (1, 2, 40) for b in ((1, 2, 7) if len(sizes) > 1 else (1,))]
    )


@pytest.mark.long
def test_states_that_a_call_hands_to_the_next_one(tmp_path: Path) -> None:
    """As torch has them, with the batch behind directions."""
    model = carried(tmp_path / "carried.onnx")
    check(model, built(model, "batch", 1, 31), "batch", BATCHES)
