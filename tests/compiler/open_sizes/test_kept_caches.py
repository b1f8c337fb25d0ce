"""Caches that a library keeps and extends in place: what is handed on by others, without the copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

from autofuse import api
from autofuse.api import Session
from autofuse.cli.main import app
from autofuse.errors import InputError
from tests.compiler.open_sizes.decoders import Decoder, step_inputs, written
from tests.compiler.open_sizes.models import TOLERANCE, Array, built, write

FORMS = {
    "of two layers": Decoder(masks=("causal", "padding")),
    "of shared heads": Decoder(heads=4, width=20, shared=2, layers=1),
    "with turned keys": Decoder(heads=3, width=5, turned=True, scale="both", masks=(), layers=1),
    "that count positions": Decoder(layers=1, masks=(), places="counted"),
}


def kept(model: Path, **more: int) -> Session:
    """A session that keeps the caches of a decoder."""
    built(model, "past", 0, more.get("high", 40), caches={"present*": "past*"})
    return Session(model.with_suffix(".so"))


@pytest.mark.parametrize("name", FORMS)
def test_caches_that_are_kept_are_those_that_are_handed_on(tmp_path: Path, name: str) -> None:
    model = written(tmp_path / "decoder.onnx", FORMS[name])
    session, theirs = kept(model), onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    assert session.caches is not None
    own = [one.name for one in session.get_inputs()]
    assert not {*own} & {*session.caches.names}
    feeds = step_inputs(model, 0)
    for step in range(41):
        fresh = step_inputs(model, step)
        feeds |= {given: fresh[given] for given in own}
        wanted = dict(zip([one.name for one in theirs.get_outputs()], theirs.run(None, feeds), strict=True))
        (found,) = session.run(None, {given: feeds[given] for given in own})
        np.testing.assert_allclose(found, wanted["logits"], rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"step {step}")
        feeds |= {given: wanted[given.replace("past", "present")] for given in session.caches.names}
        for given in session.caches.names:
            np.testing.assert_allclose(session.caches[given], feeds[given], rtol=TOLERANCE, atol=TOLERANCE)
    with pytest.raises(InputError, match="the caches are full: past is 41, the library takes 40 at most"):
        session.run(None, {given: feeds[given] for given in own})


def one_layer(folder: Path) -> tuple[Path, Session]:
    model = written(folder / "decoder.onnx", Decoder(layers=1))
    return model, kept(model, high=20)


def step(session: Session, feeds: dict[str, Array]) -> Array:
    own = [one.name for one in session.get_inputs()]
    return session.run(None, {name: feeds[name] for name in own})[0]


def test_caches_are_filled_and_cut(tmp_path: Path) -> None:
    model, session = one_layer(tmp_path)
    assert session.caches is not None and session.caches.size == 0
    feeds = step_inputs(model, 7)
    session.caches.fill({name: feeds[name] for name in session.caches.names})
    first = step(session, feeds)
    assert session.caches.size == 8
    session.caches.keep(7)
    np.testing.assert_array_equal(step(session, feeds), first)
    theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(first, theirs.run(["logits"], feeds)[0], rtol=TOLERANCE, atol=TOLERANCE)


def test_run_begins_with_empty_caches_and_races_refuse_them(tmp_path: Path) -> None:
    model, _ = one_layer(tmp_path)
    library = model.with_suffix(".so")
    (output,) = api.run(library).outputs
    assert output.output == "logits"
    assert api.library_check(library).caches == ("past0k", "past0v")
    with pytest.raises(InputError, match="keeps its caches between calls"):
        api.bench(model, library=library, sizes={"past": (0, 20)}, database=str(tmp_path / "a.db"))


def test_what_does_not_fit_into_caches_is_refused(tmp_path: Path) -> None:
    model, session = one_layer(tmp_path)
    caches = session.caches
    assert caches is not None
    feeds = step_inputs(model, 7)
    with pytest.raises(InputError, match="all together, and nothing else: past0k, past0v"):
        caches.fill({"past0k": feeds["past0k"]})
    with pytest.raises(InputError, match="cache 'past0v': .* not beside the others"):
        caches.fill({"past0k": feeds["past0k"], "past0v": feeds["past0v"][:, :, :3]})
    with pytest.raises(InputError, match="no cache 'past1k'; its caches: past0k, past0v"):
        caches["past1k"]
    with pytest.raises(InputError, match="have 0 rows; 1 cannot be kept"):
        caches.keep(1)
    with pytest.raises(InputError, match="unknown input 'past0k'"):
        session.run(None, feeds)


def test_a_call_that_fails_adds_nothing(tmp_path: Path) -> None:
    model, session = one_layer(tmp_path)
    with pytest.raises(InputError, match="'mask': .* the model takes .1, past . 1."):
        step(session, {**step_inputs(model, 0), "mask": np.ones((1, 5, 1), np.int64)})
    assert session.caches is not None and session.caches.size == 0


def test_a_library_without_caches_keeps_none(tmp_path: Path) -> None:
    model = written(tmp_path / "decoder.onnx", Decoder(layers=1))
    built(model, "past", 0, 20)
    assert Session(model.with_suffix(".so")).caches is None


REFUSED = {
    "another name": ({"y": "past"}, "the model has no output 'y'; its outputs: present, copy, other"),
    "another input": ({"present": "x"}, "the model has no input 'x'; its inputs: past, new"),
    "an output that is none": ({"other": "past"}, "'other' is not 'past' with new rows behind it .Concat."),
    "an input that is needed": ({"present": "past"}, "Concat '.*' needs 'past' as it was"),
    "one star": ({"present*": "past"}, "both names have one ., or none has"),
    "a star for nothing": ({"z*": "past*"}, "the model has no such output"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_cache_is_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    caches, reason = REFUSED[name]
    text = (
        "d (float[1, 2, past, 4] past, float[1, 2, 1, 4] new) =>"
        " (float[1, 2, later, 4] present, float[1, 2, later, 4] copy, float[1, 2, 1, 4] other) {"
        " present = Concat <axis = 2> (past, new) n = Neg (new) copy = Concat <axis = 2> (past, n) other = Relu (n) }"
    )
    model = write(tmp_path / "refused.onnx", text, {})
    with pytest.raises(InputError, match=f"--cache .*{reason}"):
        built(model, "past", 0, 40, caches=caches)


def test_caches_need_an_open_size(tmp_path: Path) -> None:
    model = written(tmp_path / "decoder.onnx", Decoder(layers=1))
    with pytest.raises(InputError, match="--cache: caches grow along an open size: give --sizes"):
        api.compile(model, tmp_path / "x.so", caches={"present*": "past*"}, database=str(tmp_path / "x.db"))


def test_caches_are_named_on_the_command_line(tmp_path: Path) -> None:
    model, library = written(tmp_path / "decoder.onnx", Decoder(layers=1)), tmp_path / "decoder.so"
    words = ["compile", model, "-o", library, "--db", tmp_path / "x.db", "--sizes", "past=0:20"]
    done = CliRunner().invoke(app, [*map(str, words), "--cache", "present0k=past0k", "--cache", "present0v=past0v"])
    assert done.exit_code == 0, done.output
    session = Session(library)
    assert session.caches is not None and session.caches.names == ("past0k", "past0v")
    done = CliRunner().invoke(app, [*map(str, words), "--cache", "present0k"])
    assert done.exit_code and "allowed: OUTPUT=INPUT such as" in done.output
