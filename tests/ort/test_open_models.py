"""Models with an open size in ONNX Runtime: right at each size, which a node reads from its inputs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import autofuse
from autofuse.errors import InputError
from tests.compiler.open_sizes.decoders import Decoder, step_inputs
from tests.compiler.open_sizes.decoders import written as decoder
from tests.compiler.open_sizes.models import (
    MAPS,
    MAPS_WEIGHTS,
    PERCEPTRON,
    PERCEPTRON_WEIGHTS,
    TOLERANCE,
    inputs_at,
    inputs_of,
    write,
)
from tests.compiler.open_sizes.sequences import MERGED, MERGED_WEIGHTS
from tests.compiler.open_sizes.tokens import Form
from tests.compiler.open_sizes.tokens import written as tokens
from tests.ort.compiled import compiled, plain, session

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

MODELS: dict[str, tuple[Callable[[Path], Path], str, int]] = {
    "rows": (lambda path: write(path, PERCEPTRON, PERCEPTRON_WEIGHTS), "batch", 40),
    "maps": (lambda path: write(path, MAPS, MAPS_WEIGHTS), "batch", 9),
    "tokens": (lambda path: write(path, *tokens(Form(masks=("padding", "causal"), picked=0))), "tokens", 37),
}


class Opened:
    """A model, the one that was compiled from it, and sessions over both."""

    def __init__(self, model: Path, name: str, high: int, **more: Any) -> None:
        self.model, self.name, self.high, self.tuned = model, name, high, model.with_name("tuned.onnx")
        self.report = compiled(model, self.tuned, threads=2, sizes={name: (1, high)}, **more)
        self.ours, self.theirs = session(self.tuned, threads=2), plain(model)

    def check(self, size: int) -> None:
        feeds = inputs_at(self.model, self.name, size)
        for found, wanted in zip(self.ours.run(None, feeds), self.theirs.run(None, feeds), strict=True):
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"size {size}")


@pytest.fixture(scope="module", params=MODELS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    maker, name, high = MODELS[request.param]
    return Opened(maker(tmp_path_factory.mktemp("open") / f"{request.param}.onnx"), name, high)


def test_every_size_is_right_in_any_order(opened: Opened) -> None:
    assert opened.report.sizes == {opened.name: (1, opened.high)}
    assert [node.op_type for node in onnx.load(opened.tuned).graph.node] == ["EPContext"]
    for size in (1, opened.high, 2, 3, opened.high // 2, opened.high - 1, 1, 5):
        opened.check(size)


@pytest.mark.long
def test_each_part_of_a_range_has_its_plan(tmp_path: Path) -> None:
    opened = Opened(write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS), "batch", 40, plan="none@5,default")
    assert [node.op_type for node in onnx.load(opened.tuned).graph.node] == ["EPContext"]
    for size in (40, 5, 6, 1, 7, 4):
        opened.check(size)


def test_the_model_has_the_names_of_its_open_sizes(opened: Opened) -> None:
    for one, other in zip(opened.ours.get_inputs(), opened.theirs.get_inputs(), strict=True):
        assert (one.name, one.shape, one.type) == (other.name, other.shape, other.type)
    for one, other in zip(opened.ours.get_outputs(), opened.theirs.get_outputs(), strict=True):
        assert (one.name, one.type) == (other.name, other.type)
        assert [size for size in one.shape if isinstance(size, str)] in ([], [opened.name])


def test_a_size_outside_of_the_range_is_refused(opened: Opened) -> None:
    for size in (0, opened.high + 1):
        feeds = inputs_at(opened.model, opened.name, size)
        with pytest.raises(
            Exception, match=f"{opened.name} is {size}, compiled for 1 to {opened.high}: .* a wider range"
        ):
            opened.ours.run(None, feeds)
    opened.check(2)


def test_callers_with_different_sizes_share_a_session(opened: Opened) -> None:
    with ThreadPoolExecutor(3) as callers:
        list(callers.map(opened.check, [1, opened.high, 3, 7, 2, opened.high // 2] * 3))


def test_outputs_may_be_bound_or_left_out(tmp_path: Path) -> None:
    opened = Opened(write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS), "batch", 8)
    for size in (8, 3):
        feeds = inputs_at(opened.model, "batch", size)
        (found,), wanted = opened.ours.run(["most"], feeds), opened.theirs.run(["y", "most"], feeds)
        np.testing.assert_allclose(found, wanted[1], rtol=TOLERANCE)
        binding = opened.ours.io_binding()
        binding.bind_cpu_input("x", feeds["x"])
        binding.bind_output("y")
        opened.ours.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], wanted[0], rtol=TOLERANCE, atol=TOLERANCE)


TWO = """
two (float[batch, 24] x, float[batch, 24] z) => (float[batch, 24] y, float[batch, 24] same, float[batch, 24] again)
<float[24] k = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24}> {
  s = Add (x, z)
  y = Mul (s, k)
  again = Identity (y)
  same = Identity (x)
}
"""


def test_inputs_of_different_sizes_are_refused_and_outputs_may_be_inputs(tmp_path: Path) -> None:
    opened = Opened(write(tmp_path / "two.onnx", TWO, {}), "batch", 8)
    for size in (8, 1, 3):
        opened.check(size)
    feeds = inputs_at(opened.model, "batch", 3) | {"z": np.zeros((2, 24), np.float32)}
    with pytest.raises(Exception, match=r"input z has the shape \(2, 24\), compiled for \(batch, 24\)"):
        opened.ours.run(None, feeds)


def test_a_cache_that_is_handed_on_grows(tmp_path: Path) -> None:
    model = decoder(tmp_path / "decoder.onnx", Decoder(masks=("causal", "padding"), layers=1))
    compiled(model, tmp_path / "tuned.onnx", sizes={"past": (0, 12)})
    ours, theirs = session(tmp_path / "tuned.onnx"), plain(model)
    assert "past + 1" in [size for one in ours.get_outputs() for size in one.shape]
    for past in (0, 12, 1, 7):
        feeds: dict[str, Any] = step_inputs(model, past)
        for found, wanted in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"past {past}")
    with pytest.raises(Exception, match="past is 13, compiled for 0 to 12"):
        ours.run(None, step_inputs(model, 13))
    with pytest.raises(InputError, match="may serve several sequences"):
        autofuse.compile(
            model, tmp_path / "t.onnx", sizes={"past": (0, 12)}, caches={"present*": "past*"}, format="ort"
        )


def test_a_further_size_may_be_fixed(tmp_path: Path) -> None:
    text = "net (float[batch, width] x) => (float[batch, width] y) { y = Exp (x) }"
    model = write(tmp_path / "net.onnx", text, {})
    compiled(model, tmp_path / "tuned.onnx", sizes={"batch": (1, 5), "width": 7})
    ours = session(tmp_path / "tuned.onnx")
    assert [one.shape for one in (*ours.get_inputs(), *ours.get_outputs())] == [["batch", 7], ["batch", 7]]
    x = np.linspace(-1, 1, 28, dtype=np.float32).reshape(4, 7)
    np.testing.assert_allclose(ours.run(None, {"x": x})[0], np.exp(x), rtol=1e-5)
    with pytest.raises(Exception, match="Got: 8 Expected: 7"):
        ours.run(None, {"x": np.zeros((4, 8), np.float32)})


def test_a_node_reads_two_sizes_from_its_inputs(tmp_path: Path) -> None:
    """One output has both in one axis."""
    model, tuned = write(tmp_path / "merged.onnx", MERGED, MERGED_WEIGHTS), tmp_path / "tuned.onnx"
    compiled(model, tuned, threads=2, sizes={"batch": (1, 5), "tokens": (1, 40)})
    ours, theirs = session(tuned, threads=2), plain(model)
    assert [one.shape for one in ours.get_outputs()] == [["batch*tokens", 24], ["batch", 7]]
    for batch, tokens_now in ((1, 1), (5, 40), (2, 3), (3, 17), (1, 40), (5, 1)):
        feeds = inputs_of(model, {"batch": batch, "tokens": tokens_now})
        for found, wanted in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)
    with pytest.raises(Exception, match="tokens is 41, compiled for 1 to 40"):
        ours.run(None, inputs_of(model, {"batch": 2, "tokens": 41}))
    uneven = inputs_of(model, {"batch": 2, "tokens": 3})
    with pytest.raises(Exception, match="input mask has the shape"):
        ours.run(None, {**uneven, "mask": uneven["mask"][:1]})
