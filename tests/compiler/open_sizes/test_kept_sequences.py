"""Caches of several sequences that a library keeps: each is extended in place, and read where it lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from autofuse import api
from autofuse.api import Session
from autofuse.errors import InputError
from tests.compiler.open_sizes.decoders import Decoder, step_inputs, written
from tests.compiler.open_sizes.models import TOLERANCE, Array, built_over

MOST = 5
FORMS = {
    "of two layers": Decoder(masks=("causal", "padding"), batched=True),
    "of shared heads": Decoder(heads=4, width=20, shared=2, layers=1, batched=True),
    "with turned keys": Decoder(heads=3, width=5, turned=True, scale="both", masks=(), layers=1, batched=True),
    "of one head": Decoder(heads=1, width=12, layers=1, batched=True),
    "of three tokens a step": Decoder(layers=1, tokens=3, batched=True),
    "that count positions": Decoder(layers=1, tokens=3, masks=("causal",), places="counted", batched=True),
}


def kept(model: Path, high: int = 20, **more: object) -> Session:
    """A session that keeps the caches of up to five sequences."""
    built_over(model, {"batch": (1, MOST), "past": (0, high)}, caches={"present*": "past*"}, **more)
    return Session(model.with_suffix(".so"))


def reference(model: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])


def follow(model: Path, session: Session, theirs: onnxruntime.InferenceSession, batch: int, steps: int) -> None:
    """Steps of so many sequences from empty caches on, each compared with what is handed on by the caller."""
    caches, own = session.caches, [one.name for one in session.get_inputs()]
    assert caches is not None
    caches.keep(0)
    added, feeds = step_inputs(model, 0)["token"].shape[1], step_inputs(model, 0, batch=batch)
    for step in range(steps):
        fresh = step_inputs(model, step * added, batch=batch)
        feeds |= {given: fresh[given] for given in own}
        wanted = dict(zip([one.name for one in theirs.get_outputs()], theirs.run(None, feeds), strict=True))
        (found,) = session.run(None, {given: feeds[given] for given in own})
        np.testing.assert_allclose(found, wanted["logits"], rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{batch} {step}")
        feeds |= {given: wanted[given.replace("past", "present")] for given in caches.names}
        for given in caches.names:
            np.testing.assert_allclose(caches[given], feeds[given], rtol=TOLERANCE, atol=TOLERANCE)
    assert (caches.size, caches.sequences) == (steps * added, batch)


@pytest.mark.parametrize("name", FORMS)
def test_kept_caches_are_right_for_every_number_of_sequences(tmp_path: Path, name: str) -> None:
    model = written(tmp_path / "decoder.onnx", FORMS[name])
    session, theirs = kept(model), reference(model)
    for batch, steps in ((MOST, 3), (1, 7), (3, 4), (2, 2)):
        follow(model, session, theirs, batch, steps)


@pytest.mark.long
def test_kept_caches_are_right_up_to_the_last_step(tmp_path: Path) -> None:
    model = written(tmp_path / "decoder.onnx", Decoder(layers=1, batched=True))
    session = kept(model, high=12)
    follow(model, session, reference(model), MOST, 13)
    with pytest.raises(InputError, match="the caches are full: past is 13, the library takes 12 at most"):
        step(session, step_inputs(model, 13, batch=MOST))


@pytest.mark.long
def test_a_fixed_number_of_sequences_has_caches_too(tmp_path: Path) -> None:
    model = written(tmp_path / "decoder.onnx", Decoder(layers=1, batched=True))
    api.compile(
        model, model.with_suffix(".so"), sizes={"batch": 3, "past": (0, 12)}, caches={"present*": "past*"}, threads=1,
        database=str(tmp_path / "x.db"),
    )  # fmt: skip
    session, theirs = Session(model.with_suffix(".so")), reference(model)
    own, feeds = [one.name for one in session.get_inputs()], step_inputs(model, 0, batch=3)
    for number in range(5):
        feeds |= {name: array for name, array in step_inputs(model, number, batch=3).items() if name in own}
        logits, *present = theirs.run(None, feeds)
        np.testing.assert_allclose(step(session, feeds), logits, rtol=TOLERANCE, atol=TOLERANCE)
        feeds |= dict(zip([name for name in feeds if name not in own], present, strict=True))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Session]:
    model = written(tmp_path_factory.mktemp("kept") / "decoder.onnx", Decoder(layers=1, batched=True))
    return model, kept(model)


def step(session: Session, feeds: dict[str, Array]) -> Array:
    return session.run(None, {one.name: feeds[one.name] for one in session.get_inputs()})[0]


def filled(decoder: tuple[Path, Session], past: int, batch: int) -> dict[str, Array]:
    """What a step behind so many tokens is given, all of whose caches the session has now."""
    model, session = decoder
    feeds = step_inputs(model, past, batch=batch)
    assert session.caches is not None
    session.caches.fill({name: feeds[name] for name in session.caches.names})
    return feeds


def test_a_prompt_of_several_sequences_fills_the_caches(decoder: tuple[Path, Session]) -> None:
    model, session = decoder
    for past, batch in ((7, 4), (20, MOST), (1, 1)):
        feeds = filled(decoder, past, batch)
        (wanted,) = reference(model).run(["logits"], feeds)
        np.testing.assert_allclose(step(session, feeds), wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_another_number_of_sequences_is_refused_until_somebody_says_which_go_on(decoder: tuple[Path, Session]) -> None:
    model, session = decoder
    caches = session.caches
    assert caches is not None
    feeds = filled(decoder, 6, 3)
    with pytest.raises(InputError, match="batch is 2, but the caches have rows of 3 sequences: say which"):
        step(session, step_inputs(model, 6, batch=2))
    assert (caches.size, caches.sequences) == (6, 3)
    caches.keep(6, [2, 0, 2, 1])
    fresh = {name: array[[2, 0, 2, 1]] for name, array in feeds.items()}
    (wanted,) = reference(model).run(["logits"], fresh)
    np.testing.assert_allclose(step(session, fresh), wanted, rtol=TOLERANCE, atol=TOLERANCE)
    for name in caches.names:
        np.testing.assert_array_equal(caches[name][:, :, :6], fresh[name])
    caches.keep(0)
    step(session, step_inputs(model, 0, batch=MOST))
    assert (caches.size, caches.sequences) == (1, MOST)


def test_what_does_not_fit_is_refused_and_changes_nothing(decoder: tuple[Path, Session]) -> None:
    model, session = decoder
    caches = session.caches
    assert caches is not None
    filled(decoder, 4, 2)
    with pytest.raises(InputError, match="have 2 sequences, and the library takes 1 to 5: .0, 2. cannot be kept"):
        caches.keep(4, [0, 2])
    with pytest.raises(InputError, match=r"\[\] cannot be kept"):
        caches.keep(4, [])
    more = step_inputs(model, 4, batch=6)
    with pytest.raises(InputError, match="does not fit into"):
        caches.fill({name: more[name] for name in caches.names})
    mixed = step_inputs(model, 4, batch=3) | {"past0k": step_inputs(model, 4, batch=2)["past0k"]}
    with pytest.raises(InputError, match="does not fit into"):
        caches.fill({name: mixed[name] for name in caches.names})
    with pytest.raises(InputError, match="batch is 6, the library takes 1 to 5"):
        step(session, more)
    assert (caches.size, caches.sequences) == (4, 2)


def test_a_run_takes_any_number_of_sequences(decoder: tuple[Path, Session]) -> None:
    model, _ = decoder
    (output,) = api.run(model.with_suffix(".so"), sizes={"batch": 3}).outputs
    assert output.output == "logits"
