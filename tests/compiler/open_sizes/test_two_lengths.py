"""Two lengths that are open together: the tokens of a decoder, or of its past, and the places that it attends to."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from autofuse.api import Session
from autofuse.compiler.open_sizes.reading import read_open
from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from tests.compiler.open_sizes.models import TOLERANCE, built_over, check_over, inputs_of
from tests.compiler.open_sizes.two_lengths import MOST, Form, model_of

LENGTHS = {"target": (1, MOST), "source": (1, MOST + 8)}
PAIRS = [
    {"target": target, "source": source} for target, source in product((1, 2, 7, 8, 13, MOST), (1, 2, 9, MOST + 8))
]


@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.long)])
def test_two_lengths_are_right_at_every_pair(tmp_path: Path, shared: bool) -> None:
    model = model_of(tmp_path, Form(shared=shared))
    check_over(model, built_over(model, LENGTHS), PAIRS)


@pytest.mark.long
def test_two_lengths_of_several_sequences(tmp_path: Path) -> None:
    model = model_of(tmp_path, Form(batched=True, shared=True))
    library = built_over(model, {"batch": (1, 3), **LENGTHS})
    check_over(model, library, [{"batch": batch, **pair} for batch in (1, 3) for pair in PAIRS[::3]])


def test_a_step_keeps_its_past_beside_an_open_source(tmp_path: Path) -> None:
    model = model_of(tmp_path, Form(step=True, batched=True))
    sizes = {"batch": (1, 3), "past": (0, 12), "source": (1, 20)}
    built_over(model, sizes, caches={"new*": "past*"})
    session, theirs = Session(model.with_suffix(".so")), onnxruntime.InferenceSession(str(model))
    own = [one.name for one in session.get_inputs()]
    outputs = [one.name for one in theirs.get_outputs()]
    assert session.caches is not None
    for batch, source in ((1, 20), (3, 1), (2, 7)):
        session.caches.keep(0)
        feeds = inputs_of(model, {"batch": batch, "past": 0, "source": source})
        for _ in range(4):
            wanted = dict(zip(outputs, theirs.run(None, feeds), strict=True))
            (found,) = session.run(None, {name: feeds[name] for name in own})
            np.testing.assert_allclose(found, wanted[outputs[0]], rtol=TOLERANCE, atol=TOLERANCE)
            feeds |= {name.replace("new", "past"): value for name, value in wanted.items() if name.startswith("new")}
        assert (session.caches.size, session.caches.sequences) == (4, batch)


def test_scores_of_both_lengths_are_no_output(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="target and source as two lengths: .*is an output, whose size grows"):
        read_open(model_of(tmp_path, Form(spoilt=True)), {}, [OpenSize(name, *ends) for name, ends in LENGTHS.items()])


def test_a_source_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="let source start at 1"):
        built_over(model_of(tmp_path, Form(step=True)), {"past": (0, 12), "source": (0, 20)})
