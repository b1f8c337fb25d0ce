"""One library for every number of sequences of every length: right at each, or refused by name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from autofuse import api
from autofuse.backend.library.compiled import Library
from autofuse.errors import InputError
from tests.compiler.open_sizes.models import built_over, check_over, inputs_of, weight, write
from tests.compiler.open_sizes.sequences import MERGED, MERGED_WEIGHTS
from tests.compiler.open_sizes.tokens import Form, written

POINTS = [{"batch": batch, "tokens": tokens} for batch in (1, 2, 5) for tokens in (1, 3, 9, 16, 33, 40)]
FORMS = {
    "as BERT": Form(masks=("padding",), picked=0, mean=True, batched=True),
    "as GPT-2": Form(heads=3, width=5, masks=("causal",), fused=True, picked=-1, batched=True),
    "as T5": Form(scale="", masks=("bias",), batched=True),
    "as Llama": Form(heads=4, masks=("causal", "expanded"), turned=True, shared=2, batched=True),
    "of one function": Form(scale="both", masks=("expanded",), safe=True, batched=True),
    "of matrices": Form(heads=4, width=20, flat=True, batched=True),
    "with one mask for two": Form(masks=("expanded", "causal"), layers=2, batched=True),
}
QUICK = ("as BERT", "as GPT-2")
"""Forms that have, together, nearly all that there is."""


def model_of(folder: Path, form: Form) -> Path:
    return write(folder / "sequences.onnx", *written(form))


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in FORMS]
)
def test_attention_is_right_at_every_number_of_sequences_and_tokens(tmp_path: Path, name: str) -> None:
    model = model_of(tmp_path, FORMS[name])
    check_over(model, built_over(model, {"batch": (1, 5), "tokens": (1, 40)}), POINTS)


RANGES = {"batch": (1, 5), "tokens": (1, 40)}


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = write(tmp_path_factory.mktemp("merged") / "merged.onnx", MERGED, MERGED_WEIGHTS)
    built_over(model, RANGES)
    return model


def test_sequences_may_be_merged_with_their_tokens(merged: Path) -> None:
    check_over(merged, loaded(merged), POINTS)


def test_a_session_names_both_sizes_and_counts_them(merged: Path) -> None:
    session = api.Session(merged.with_suffix(".so"), record_sizes=True)
    assert [one.shape for one in session.get_inputs()] == [("batch", "tokens"), ("batch", "tokens")]
    assert [one.shape for one in session.get_outputs()] == [("batch*tokens", 24), ("batch", 7)]
    for point in ({"batch": 2, "tokens": 3}, {"batch": 2, "tokens": 3}, {"batch": 1, "tokens": 40}):
        session.run(None, inputs_of(merged, point))
    assert session.recorded_sizes == {(1, 40): 1, (2, 3): 2}
    assert api.library_check(merged.with_suffix(".so")).sizes == RANGES


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        (((6, 8), (6, 8)), "batch is 6, the library takes 1 to 5"),
        (((2, 41), (2, 41)), "tokens is 41, the library takes 1 to 40"),
        (((2, 8), (3, 8)), r"'mask': shape \(3, 8\), the model takes \(batch, tokens\).* has batch 2 and tokens 8"),
        (((2, 8), (2, 9)), r"'mask': shape \(2, 9\)"),
    ],
)
def test_other_sizes_are_refused_by_name(merged: Path, shapes: tuple[tuple[int, int], ...], reason: str) -> None:
    kind, mask = (np.ones(shape, np.int64) for shape in shapes)
    with pytest.raises(InputError, match=reason):
        loaded(merged)({"kind": kind, "mask": mask})


def test_callers_with_different_sizes_run_side_by_side(merged: Path) -> None:
    library, session = loaded(merged), onnxruntime.InferenceSession(merged)
    feeds = [inputs_of(merged, {"batch": 1 + number % 5, "tokens": 1 + number * 7 % 40}) for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for found, feed in zip(pool.map(library, feeds), feeds, strict=True):
            for have, wanted in zip(found, session.run(None, feed), strict=True):
                np.testing.assert_allclose(have, wanted, rtol=1e-3, atol=1e-4)


def mixed(folder: Path, body: str) -> Path:
    text = f"g (float[batch, tokens, 6] x) => (float[batch, tokens, 6] y) {{ {body} }}"
    weights = {"zero": np.array([0]), "one": np.array([1]), "first": np.array(0), "w": weight(6)}
    return write(folder / "mixed.onnx", text, weights)


@pytest.mark.parametrize(
    "body",
    [
        "y = Softmax <axis = 0> (x)",
        "m = ReduceMean <keepdims = 1> (x, zero) y = Sub (x, m)",
        "p = Slice (x, zero, one, zero) y = Add (x, p)",
    ],
)
def test_the_first_axis_may_be_the_one_that_is_mixed(tmp_path: Path, body: str) -> None:
    """Tokens are then the number of sequences, which stand behind what is mixed."""
    model = mixed(tmp_path, body)
    points = [{"batch": batch, "tokens": tokens} for batch, tokens in ((1, 1), (5, 40), (1, 40), (5, 1), (3, 17))]
    check_over(model, built_over(model, RANGES), points)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = CumSum (x, first)", "batch cannot stay open at CumSum"),
        ("s = Shape (x) y = Expand (w, s)", "the output 'y' is the same for all"),
    ],
)
def test_sequences_that_are_mixed_are_refused_by_name(tmp_path: Path, body: str, reason: str) -> None:
    model = mixed(tmp_path, body)
    with pytest.raises(InputError, match=f"batch and tokens cannot stay open together.*{reason}|{reason}"):
        built_over(model, RANGES)


def test_what_is_no_input_with_new_rows_behind_it_is_kept_as_no_cache(merged: Path) -> None:
    with pytest.raises(InputError, match="'pooled' is not 'kind' with new rows behind it"):
        built_over(merged, RANGES, caches={"pooled": "kind"})


def loaded(model: Path) -> Library:
    library = api.load(model.with_suffix(".so"))
    assert isinstance(library, Library)
    return library


@pytest.mark.parametrize(
    ("size", "reason"),
    [("n", "; fix one, such as n=9"), ("n, m", ", three at most can .*; fix others, such as m=9")],
)
def test_more_sizes_are_refused_with_what_to_do(tmp_path: Path, size: str, reason: str) -> None:
    shape, others = f"float[batch, tokens, {size}]", size.split(", ")
    model = write(tmp_path / "many.onnx", f"g ({shape} x) => ({shape} y) {{ y = Relu (x) }}", {})
    with pytest.raises(
        InputError, match=f"batch and tokens and {' and '.join(others)} cannot stay open together{reason}"
    ):
        built_over(model, {**RANGES, **dict.fromkeys(others, (1, 9))})
