"""Attention as one operator with a past of open length is compiled as attention that was written out is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from autofuse import Session, api
from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import open_sizes, parse_sizes, values_of
from tests.compiler.open_sizes.attention_operators import Step, feeds_of, model_of

MOST = 40
PASTS = (0, 1, 2, 7, 19, MOST)
STEPS = {
    "grouped heads": Step(),
    "a mask of numbers": Step(mask="float"),
    "a padding mask": Step(mask="padding", opset=24),
    "causal, several tokens, heads in one axis": Step(mask="bool", new=3, flat=True, options={"is_causal": 1}),
    "MultiHeadAttention": Step("MultiHeadAttention", mask="padding", keys=4),
    "MultiHeadAttention, causal": Step("MultiHeadAttention", "float", keys=4, new=3, options={"unidirectional": 1}),
    "GroupQueryAttention": Step("GroupQueryAttention", options={"do_rotary": 1}),
    "GroupQueryAttention, several tokens": Step("GroupQueryAttention", new=3, options={"do_rotary": 1}),
    "GroupQueryAttention, a window": Step("GroupQueryAttention", options={"local_window_size": 5}),
}


def compiled(step: Step, folder: Path, sizes: Any, **more: Any) -> Any:
    onnx.save(model_of(step), folder / "step.onnx")
    base = str(folder / "a.db")
    return api.compile(folder / "step.onnx", folder / "step.so", database=base, threads=1, sizes=sizes, **more)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_what_onnx_runtime_computes_at_every_length(tmp_path: Path, name: str) -> None:
    step = STEPS[name]
    report = compiled(step, tmp_path, {"past": (0, MOST)})
    assert all("Softmax" not in group.group or "MatMul" in group.group for group in report.groups)
    session, library = onnxruntime.InferenceSession(tmp_path / "step.onnx"), api.load(tmp_path / "step.so")
    for past in PASTS:
        feeds = feeds_of(step, past)
        for found, wanted in zip(library(feeds), session.run(None, feeds), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=f"past {past}")


@pytest.mark.parametrize(
    "step",
    [
        Step(mask="float", new=2, options={"is_causal": 1}, total="total"),
        Step("GroupQueryAttention", options={"do_rotary": 1}, total="total"),
    ],
)
def test_the_library_keeps_the_caches_of_such_operators(tmp_path: Path, step: Step) -> None:
    """The length that the model gives a name of its own follows the past."""
    compiled(step, tmp_path, [f"past=0:{MOST},total=past+{step.new}"], caches={"present_*": "past_*"})
    kept, session = Session(tmp_path / "step.so"), onnxruntime.InferenceSession(tmp_path / "step.onnx")
    past = {name: feeds_of(step, 0)[name] for name in ("past_k", "past_v")}
    for count in range(0, 9 * step.new, step.new):
        feeds = {name: array for name, array in feeds_of(step, count).items() if name not in past}
        (found,) = kept.run(None, feeds)
        wanted, *present = session.run(None, {**feeds, **past})
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        past = dict(zip(past, present, strict=True))
    assert kept.caches.size == 9 * step.new
    np.testing.assert_allclose(kept.caches["past_k"], past["past_k"], rtol=1e-5, atol=1e-6)


def test_a_row_of_which_a_mask_leaves_nothing_is_zero(tmp_path: Path) -> None:
    step = Step(mask="bool", new=2)
    compiled(step, tmp_path, {"past": (0, MOST)})
    feeds = feeds_of(step, 7)
    feeds["mask"][:, :, 1] = False
    found, wanted = (
        run[0]
        for run in (
            api.load(tmp_path / "step.so")(feeds),
            onnxruntime.InferenceSession(tmp_path / "step.onnx").run(None, feeds),
        )
    )
    assert np.all(found[:, 1] == 0)
    np.testing.assert_allclose(found[:, 0], wanted[:, 0], rtol=1e-4, atol=1e-5)


def test_a_size_may_follow_another() -> None:
    sizes = open_sizes(parse_sizes(["past=0:40,total = past + 1", "batch=2,rows=batch+3"]))
    assert values_of(sizes, {"past": 7}) == {"past": 7, "total": 8, "batch": 2, "rows": 5}
    assert [size.name for size in sizes if not size.is_fixed] == ["past"]


@pytest.mark.parametrize("text", ["total=past+1", "past=0:40,a=past+1,b=a+1", "past=0:40,total=past+", "past=+1"])
def test_what_follows_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="allowed"):
        open_sizes(parse_sizes([text]))
