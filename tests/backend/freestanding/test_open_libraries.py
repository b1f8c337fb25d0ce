"""Free-standing libraries with an open size: right at each, in memory of the largest; caches that a session keeps."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import autofuse
from autofuse.errors import InputError
from tests.backend.freestanding.native import Array, OpenNative, OpenSession
from tests.compiler.open_sizes.decoders import Decoder, step_inputs, written
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
from tests.compiler.open_sizes.recurrences import carried
from tests.compiler.open_sizes.sequences import MERGED, MERGED_WEIGHTS
from tests.compiler.open_sizes.tokens import Form
from tests.compiler.open_sizes.tokens import written as tokens
from tests.compiler.open_sizes.two_lengths import Form as TwoLengths
from tests.compiler.open_sizes.two_lengths import model_of

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
BAD_ARGUMENT = 1


def encoder(path: Path) -> Path:
    return write(path, *tokens(Form(masks=("padding", "causal"), layers=1, picked=0)))


MODELS: dict[str, tuple[Callable[[Path], Path], str, int]] = {
    "rows": (lambda path: write(path, PERCEPTRON, PERCEPTRON_WEIGHTS), "batch", 40),
    "maps": (lambda path: write(path, MAPS, MAPS_WEIGHTS), "batch", 9),
    "tokens": (encoder, "tokens", 37),
    "states": (carried, "batch", 21),
    "steps": (lambda path: carried(path, "1", "steps"), "steps", 21),
}


class Opened:
    """A model, its free-standing library, and ONNX Runtime."""

    def __init__(self, model: Path, name: str, high: int, path: Path | None = None, low: int = 1, **more: Any) -> None:
        self.model, self.name, self.high = model, name, high
        self.path = path or model.with_name("libnet.so")
        database = str(model.with_suffix(".db"))
        autofuse.compile(model, self.path, database=database, threads=2, sizes={name: (low, high)}, format="c", **more)
        self.native = OpenNative(self.path)
        self._theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])

    def inputs(self, size: int) -> list[Array]:
        return list(inputs_at(self.model, self.name, size).values())

    def wanted(self, size: int) -> list[Array]:
        return self._theirs.run(None, inputs_at(self.model, self.name, size))

    def check(self, session: OpenSession, size: int, offset: int = 0) -> None:
        assert session.set_size(self.name, size) == 0, self.native.why()
        code, made = session.call(self.inputs(size), offset)
        assert code == 0, self.native.why()
        for found, wanted in zip(made, self.wanted(size), strict=True):
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"size {size}")


@pytest.fixture(scope="module", params=MODELS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    maker, name, high = MODELS[request.param]
    return Opened(maker(tmp_path_factory.mktemp("open") / f"{request.param}.onnx"), name, high)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_size_is_right_in_any_order(opened: Opened, threads: int) -> None:
    sizes = [1, opened.high, 2, 3, opened.high // 2, opened.high - 1, 1, 5]
    with OpenSession(opened.native, threads) as session:
        assert session.size(opened.name) == opened.high
        for number, size in enumerate(sizes):
            opened.check(session, size, 4 * (number % 3 == 1))  # what is not aligned goes through a copy


def test_no_rows_give_none(tmp_path: Path) -> None:
    opened = Opened(write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS), "batch", 9, low=0)
    with OpenSession(opened.native, 2) as session:
        for size in (9, 0, 1, 0):
            opened.check(session, size)


def test_inputs_and_outputs_have_the_size_of_now(opened: Opened) -> None:
    assert opened.native.ranges == [(opened.name, 1, opened.high)]
    largest = [shape for _, _, shape in opened.native.described("input")]
    assert largest == [array.shape for array in opened.inputs(opened.high)]
    with OpenSession(opened.native) as session:
        for size in (opened.high, 1, 3):
            assert session.set_size(opened.name, size) == 0
            assert session.size(opened.name) == size
            assert [one[1:] for one in session.now("input")] == [(a.shape, a.nbytes) for a in opened.inputs(size)]
            assert [one[1:] for one in session.now("output")] == [(a.shape, a.nbytes) for a in opened.wanted(size)]


@pytest.mark.long
def test_a_session_goes_from_plan_to_plan(tmp_path: Path) -> None:
    """The tables of all plans are one, with the calls of each."""
    model = write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    opened = Opened(model, "batch", 40, plan="none@5,always@20,default")
    with OpenSession(opened.native, 2) as session:
        for size in (40, 5, 6, 1, 20, 21, 5, 40):
            opened.check(session, size, 4 * (size % 2))
    single = Opened(model, "batch", 40, path=tmp_path / "libsingle.so", plan="none")
    assert opened.path.stat().st_size < 2 * single.path.stat().st_size


def test_two_sizes_are_set_one_by_one(tmp_path: Path) -> None:
    """One output has both in one axis."""
    model, path = write(tmp_path / "merged.onnx", MERGED, MERGED_WEIGHTS), tmp_path / "libmerged.so"
    ranges = {"batch": (1, 5), "tokens": (1, 40)}
    autofuse.compile(model, path, database=str(tmp_path / "a.db"), threads=2, sizes=ranges, format="c")
    theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with OpenSession(OpenNative(path), 2) as session:
        for batch, tokens in ((1, 1), (5, 40), (2, 3), (3, 17), (1, 40), (5, 1)):
            assert (session.set_size("tokens", tokens), session.set_size("batch", batch)) == (0, 0)
            feeds = inputs_of(model, {"batch": batch, "tokens": tokens})
            code, made = session.call(list(feeds.values()), 0)
            assert code == 0
            for found, wanted in zip(made, theirs.run(None, feeds), strict=True):
                assert found.shape == wanted.shape
                np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_size_outside_of_the_range_is_refused_and_changes_nothing(opened: Opened) -> None:
    with OpenSession(opened.native) as session:
        assert session.set_size(opened.name, 3) == 0
        for size in (0, opened.high + 1, -1, 1 << 40):
            assert session.set_size(opened.name, size) == BAD_ARGUMENT
            assert f"set_size: {opened.name} is {size}, the library takes 1 to {opened.high}" in opened.native.why()
        assert session.set_size("length", 2) == BAD_ARGUMENT
        assert f"no open size length; its first one is {opened.name}" in opened.native.why()
        assert session.size(opened.name) == 3
        assert session.size("length") == -1
        opened.check(session, 3)


def test_callers_with_different_sizes_run_side_by_side(opened: Opened) -> None:
    wrong: list[BaseException] = []

    def work(size: int) -> None:
        try:
            with OpenSession(opened.native, 1 + size % 2) as session:
                for step in range(6):
                    opened.check(session, 1 + (size + step) % opened.high)
        except BaseException as error:  # noqa: BLE001  # of a thread, which would only print it
            wrong.append(error)

    callers = [threading.Thread(target=work, args=(size,)) for size in (1, 4, opened.high)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_libraries_of_fixed_sizes_have_no_further_functions(tmp_path: Path) -> None:
    model = write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    database = str(tmp_path / "a.db")
    autofuse.compile(model, tmp_path / "net.so", database=database, shapes={"x": (3, 24)}, format="c")
    assert "set_size" not in (tmp_path / "net.h").read_text()
    with pytest.raises(AttributeError, match="net_open_size"):
        OpenNative(tmp_path / "net.so")


def with_caches(
    model: Path, extended: str = "present*", **sizes: tuple[int, int]
) -> tuple[OpenNative, autofuse.Session]:
    """A free-standing library that keeps the caches of a decoder, and a session of ours that does."""
    options: dict[str, Any] = {"database": str(model.parent / "a.db"), "threads": 2, "sizes": sizes}
    options["caches"] = {extended: "past*"}
    autofuse.compile(model, model.parent / "libnet.so", format="c", **options)
    autofuse.compile(model, model.parent / "own.so", **options)
    return OpenNative(model.parent / "libnet.so"), autofuse.Session(model.parent / "own.so")


@pytest.mark.parametrize("layers", [1, 2])
def test_a_session_keeps_the_caches_of_a_decoder(tmp_path: Path, layers: int) -> None:
    model = written(tmp_path / "decoder.onnx", Decoder(masks=("causal", "padding"), layers=layers))
    native, theirs = with_caches(model, past=(0, 12))
    assert theirs.caches is not None
    names = [one.name for one in theirs.get_inputs()]
    with OpenSession(native, 2) as session:
        assert [name for name, _, _ in native.described("input")] == names
        for sequence in range(2):
            assert session.set_size("past", 0) == 0
            theirs.caches.keep(0)
            for step in range(13):
                assert session.size("past") == step
                feeds = {name: step_inputs(model, step, sequence)[name] for name in names}
                code, (found,) = session.call(list(feeds.values()))
                assert code == 0, native.why()
                np.testing.assert_array_equal(found, theirs.run(None, feeds)[0])
            for number, name in enumerate(theirs.caches.names):
                np.testing.assert_array_equal(session.cache(number), theirs.caches[name])
            assert session.call(list(feeds.values()))[0] == BAD_ARGUMENT
            assert "the caches are full: past is 13, the library takes 12 at most" in native.why()


def test_a_session_keeps_the_caches_of_several_sequences(tmp_path: Path) -> None:
    model = written(tmp_path / "decoder.onnx", Decoder(masks=("causal", "padding"), layers=1, batched=True))
    native, theirs = with_caches(model, batch=(1, 4), past=(0, 12))
    assert theirs.caches is not None
    names = [one.name for one in theirs.get_inputs()]
    with OpenSession(native, 2) as session:
        for batch in (2, 4, 1):
            assert session.set_size("past", 0) == session.set_size("batch", batch) == 0, native.why()
            theirs.caches.keep(0)
            for step in range(6):
                if (batch, step) == (4, 3):  # the first three go on
                    assert session.set_size("batch", 3) == 0
                    theirs.caches.keep(3, [0, 1, 2])
                feeds = step_inputs(model, step, batch=theirs.caches.sequences if step else batch)
                code, (found,) = session.call([feeds[name] for name in names])
                assert code == 0, native.why()
                np.testing.assert_array_equal(found, theirs.run(None, {name: feeds[name] for name in names})[0])
        assert session.set_size("batch", 2) == BAD_ARGUMENT
        assert "batch is 2, but the caches have rows of 1 sequences only: set past to 0 first" in native.why()
        assert session.size("batch") == 1


def test_a_session_keeps_a_past_beside_a_length_that_changes(tmp_path: Path) -> None:
    model = model_of(tmp_path, TwoLengths(step=True))
    native, theirs = with_caches(model, "new*", past=(0, 12), source=(1, 20))
    names = [one.name for one in theirs.get_inputs()]
    with OpenSession(native, 2) as session:
        assert session.set_size("past", 0) == 0
        for source in (5, 20, 1, 9):
            assert session.set_size("source", source) == 0, native.why()
            feeds = inputs_of(model, {"past": 0, "source": source})
            code, (found,) = session.call([feeds[name] for name in names])
            assert code == 0, native.why()
            np.testing.assert_array_equal(found, theirs.run(None, {name: feeds[name] for name in names})[0])
        assert session.size("past") == 4


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    model = write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    with pytest.raises(InputError, match="names no function in C"):
        autofuse.compile(model, tmp_path / "_.so", database=str(tmp_path / "a.db"), sizes=["batch"], format="c")
