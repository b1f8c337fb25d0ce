"""One library for every length of a cache of keys and values: right at each, from the empty one on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from autofuse.api import Session
from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.library.compiled import Library
from autofuse.compiler.open_sizes import reading
from autofuse.errors import InputError
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.kernels.open_sizes import open_cache
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator
from autofuse.values.arguments import Given
from tests.compiler.open_sizes.decoders import MOST, Decoder, step_inputs, written
from tests.compiler.open_sizes.models import TOLERANCE, built, check, write

HIGH = MOST - 4
SIZES = (0, 1, 2, 3, 15, 16, 17, 100, HIGH)
FORMS = {
    "as GPT-2": Decoder(masks=("causal", "padding")),
    "as Llama": Decoder(heads=4, width=20, shared=2, masks=("padding",)),
    "with turned keys": Decoder(heads=3, width=5, turned=True, scale="both", masks=()),
    "of one head": Decoder(heads=1, width=64, layers=1),
    "of one head of keys": Decoder(heads=4, width=16, shared=4, masks=("causal",)),
    "of two tokens": Decoder(tokens=2, scale="both", layers=1),
    "that counts positions": Decoder(
        heads=4, shared=2, tokens=2, layers=1, masks=("causal", "padding"), places="counted"
    ),
    "that cuts its table": Decoder(layers=1, places="cut", masks=()),
}


def check_steps(model: Path, library: Library) -> None:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for size in SIZES:
        feeds = step_inputs(model, size)
        for found, wanted in zip(library(feeds), session.run(None, feeds), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"past is {size}")


QUICK = ("as GPT-2", "as Llama", "with turned keys", "that counts positions")
"""Forms that have, together, nearly all that there is."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in FORMS]
)
def test_a_step_is_right_behind_any_number_of_tokens(tmp_path: Path, name: str) -> None:
    model = written(tmp_path / "decoder.onnx", FORMS[name])
    check_steps(model, built(model, "past", 0, HIGH))


@pytest.mark.long
def test_threads_share_long_caches_and_results_have_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the smallest sizes one thread does all, at the largest ones both have enough to do."""
    model = written(tmp_path / "decoder.onnx", FORMS["as Llama"])
    alone = built(model, "past", 0, HIGH)
    monkeypatch.setattr(open_cache, "LEAST_ELEMENTS", 20 * 40)
    shared = built(model, "past", 0, HIGH)
    for size in SIZES:
        feeds = step_inputs(model, size)
        for one, two in zip(alone(feeds), shared(feeds), strict=True):
            np.testing.assert_array_equal(one, two, err_msg=f"past is {size}")


@pytest.mark.parametrize(("threads", "loops"), [(1, 0), (2, 1)])
def test_one_thread_alone_copies_a_short_cache(threads: int, loops: int) -> None:
    """Beside the loop that threads share stands one that they do not."""
    values = (
        Value("input", (1, 4, 16, 8), "float32"), Value("input", (1, 4, 1, 8), "float32"),
        Value("output", (1, 4, 17, 8), "float32"),
    )  # fmt: skip
    workload = Workload(values, (WorkloadOperator("Concat", (0, 1), (2,), {"axis": 2}),), 17)
    rows = {0: OpenAxis(2, 1), 2: OpenAxis(2, 1, 1)}
    text = open_cache.append_kernel(workload, rows, local_device().target(), threads).function.script()
    assert text.count("T.parallel(4)") == loops and text.count("in range(4)") == 1


def _drawn(random: np.random.Generator) -> Decoder:
    heads = int(random.choice([1, 2, 3, 4, 6]))
    masks = tuple(mask for mask in ("padding", "causal") if random.random() < 0.5)
    shared = 2 if heads % 2 == 0 and random.random() < 0.4 else 1
    return Decoder(
        heads=heads,
        width=int(random.integers(1, 80)),
        layers=int(random.integers(1, 3)),
        shared=shared,
        masks=masks,
        scale=str(random.choice(["scores", "both", ""])),
        turned=shared == 1 and bool(random.random() < 0.3),
        tokens=1 if "causal" in masks else int(random.choice([1, 1, 2, 3])),
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_a_step_of_a_random_form_is_right(tmp_path: Path, seed: int) -> None:
    model = written(tmp_path / "decoder.onnx", _drawn(np.random.default_rng(seed)))
    check_steps(model, built(model, "past", 0, HIGH))


def test_a_model_that_counts_no_positions_is_read_for_them_at_one_size_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[Path] = []

    def counting(model: Path, given: Given | None = None, **more: bool) -> Graph:
        counted.extend([model] * more.get("counted", False))
        return load(model, given, **more)

    monkeypatch.setattr(reading, "load", counting)
    text = "sorted (float[past, 8] x) => (float[past, 8] y) { y, _ = TopK <axis = 0> (x, k) }"
    model = write(tmp_path / "sorted.onnx", text, {"k": np.array([4])})
    with pytest.raises(InputError):
        built(model, "past", 4, 20)
    assert len(counted) == 1


def test_sizes_are_named_as_the_model_has_them(tmp_path: Path) -> None:
    model = written(tmp_path / "decoder.onnx", Decoder(layers=1))
    built(model, "past", 0, 20)
    session = Session(model.with_suffix(".so"))
    assert [one.shape for one in session.get_inputs()][2:] == [(1, "past + 1"), *[(1, 2, "past", 8)] * 2]
    assert [one.shape for one in session.get_outputs()][1:] == [(1, 2, "past + 1", 8)] * 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mask": 3}, "'mask': shape .*takes .1, past . 1., and an input before has past 3|past0k.*before has past 2"),
        ({"mask": 99, "past0k": 98, "past0v": 98}, "past is 98, the library takes 0 to 20"),
        ({"past0v": 4}, "'past0v': shape .*, the model takes .1, 2, past, 8., and an input before has past 3"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, int], reason: str) -> None:
    model = written(tmp_path / "decoder.onnx", Decoder(layers=1))
    library = built(model, "past", 0, 20)
    feeds = step_inputs(model, 3)
    for name, size in change.items():
        feeds[name] = feeds[name].take([0] * size, 1 if name == "mask" else 2)
    with pytest.raises(InputError, match=reason):
        library(feeds)


REFUSED = {
    "a result that is no cache": (
        "d (float[1, 2, past, 4] past) => (float[1, 2, past, 4] y)"
        " { a = Constant <value_int = 2> () y = CumSum (past, a) }",
        "it is not the leading axis of 'past'",
    ),
    "new rows before the old ones": (
        "d (float[1, 2, past, 4] past, float[1, 2, 1, 4] new) => (float[1, 2, later, 4] y) {"
        " y = Concat <axis = 2> (new, past) }",
        "Concat '.*': it is not the leading axis of 'past'",
    ),
    "keys beside scores that are a result": (
        "d (float[1, 2, past, 4] past, float[1, 2, 1, 4] q) => (float[1, 2, 1, 4] y, float[1, 2, 1, past] s) {"
        " k = Transpose <perm = [0, 1, 3, 2]> (past) r = MatMul (q, k) s = Softmax (r) y = MatMul (s, past) }",
        "'s' is an output",
    ),
    "a sum of nothing": (
        "d (float[past, 4] x) => (float[1, 4] y) { a = Constant <value_ints = [0]> () y = ReduceSum (x, a) }",
        "only a cache may be empty, so let past start at 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_cache_can_be_is_refused_by_name(tmp_path: Path, name: str) -> None:
    text, reason = REFUSED[name]
    model = write(tmp_path / "refused.onnx", text, {})
    with pytest.raises(InputError, match=f"--sizes: past cannot stay open at .*{reason}"):
        built(model, "past", 0, 40)


def test_keys_of_another_sequence_are_read_where_they_lie(tmp_path: Path) -> None:
    text = (
        "d (float[1, 2, past, 4] keys, float[1, 2, past, 4] values, float[1, 2, 1, 4] q) => (float[1, 2, 1, 4] y) {"
        " k = Transpose <perm = [0, 1, 3, 2]> (keys) r = MatMul (q, k) s = Softmax (r) y = MatMul (s, values) }"
    )
    model = write(tmp_path / "crossed.onnx", text, {})
    check(model, built(model, "past", 1, 40), "past", (1, 2, 17, 40))


STEPS = 400
HANDED_ON = """
import os, sys
from pathlib import Path
import numpy as np
from autofuse.api import load

library = load(sys.argv[1])
past = {f"past0{name}": np.zeros((1, 4, 0, 64), np.float32) for name in "kv"}
for step in range(int(sys.argv[2])):
    one = np.zeros((1, 1), np.int64)
    found = library({"token": one, "position": one, "mask": np.ones((1, step + 1), np.int64), **past})
    past = dict(zip(("past0k", "past0v"), found[1:]))
    if step == 10:
        before = int(Path("/proc/self/statm").read_text().split()[1])
print((int(Path("/proc/self/statm").read_text().split()[1]) - before) * os.sysconf("SC_PAGESIZE") >> 20)
"""


def test_memory_of_caches_that_were_handed_on_is_freed(tmp_path: Path) -> None:
    model = written(tmp_path / "decoder.onnx", Decoder(heads=4, width=64, layers=1, most=STEPS + 1))
    built(model, "past", 0, STEPS)
    words = [sys.executable, "-c", HANDED_ON, str(model.with_suffix(".so")), str(STEPS)]
    grown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert int(grown) < 40  # MiB; the caches of all steps together have 156
