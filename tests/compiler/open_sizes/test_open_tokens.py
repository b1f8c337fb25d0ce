"""One library for every number of tokens, which attention mixes: right at each, or refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import InputError
from tests.compiler.open_sizes.models import built, check, write
from tests.compiler.open_sizes.tokens import MOST, Form, written

SIZES = (1, 2, 3, 7, 8, 9, 16, 31, 33, 40)
FORMS = {
    "as BERT": Form(masks=("padding",), picked=0),
    "as GPT-2": Form(heads=3, width=5, masks=("causal",), fused=True, picked=-1),
    "as T5": Form(scale="", masks=("bias",)),
    "as Llama": Form(heads=4, masks=("causal", "expanded"), turned=True, shared=2),
    "as ModernBERT": Form(masks=("padding", "near")),
    "of one function": Form(scale="both", masks=("expanded",), safe=True),
    "of matrices": Form(heads=4, width=20, flat=True),
    "of one head": Form(heads=1, width=16),
    "with one mask for two": Form(masks=("expanded", "causal"), layers=2),
}


def model_of(folder: Path, form: Form, spoilt: str = "") -> Path:
    return write(folder / "tokens.onnx", *written(form, spoilt))


QUICK = ("as BERT", "as GPT-2", "as Llama", "as ModernBERT")
"""Forms that have, together, nearly all that there is."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in FORMS]
)
def test_attention_is_right_at_every_number_of_tokens(tmp_path: Path, name: str) -> None:
    model = model_of(tmp_path, FORMS[name])
    check(model, built(model, "tokens", 1, 40), "tokens", SIZES)


SPOILT = {
    "axis": "Softmax '.*': it is no softmax of a row of scores",
    "plain": "it is not the leading axis",
    "turned": "Transpose '.*': it turns the scores",
    "output": "is an output, whose size grows with the square of it",
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_attention_of_another_kind_is_refused_by_name(tmp_path: Path, spoilt: str) -> None:
    with pytest.raises(InputError, match=f"tokens cannot stay open at .*{SPOILT[spoilt]}.*--shape or --buckets"):
        built(model_of(tmp_path, Form(), spoilt), "tokens", 1, 40)


def test_a_token_that_short_sequences_lack_is_refused(tmp_path: Path) -> None:
    model = model_of(tmp_path, Form(picked=2))
    with pytest.raises(InputError, match="index 2 is outside of an axis of 1"):
        built(model, "tokens", 1, 40)
    check(model, built(model, "tokens", 3, 40), "tokens", (3, 4, 40))


def test_more_tokens_than_a_table_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        built(model_of(tmp_path, Form()), "tokens", 1, MOST + 1)


def _drawn(random: np.random.Generator) -> Form:
    heads = int(random.choice([1, 2, 3, 4, 6]))
    masks = [mask for mask in ("padding", "expanded", "causal", "bias") if random.random() < 0.3]
    return Form(
        heads=heads,
        width=2 * int(random.integers(1, 20)),
        scale=str(random.choice(["scores", "both", ""])),
        masks=tuple(masks),
        flat=bool(random.random() < 0.3),
        turned=bool(random.random() < 0.3),
        shared=2 if heads % 2 == 0 and random.random() < 0.3 else 1,
        safe=bool(random.random() < 0.3),
        fused=bool(random.random() < 0.5),
        layers=int(random.integers(1, 3)),
        picked=[None, 0, -1][int(random.integers(3))],
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_random_attention_is_right_at_every_number_of_tokens_or_refused(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng([seed, 7])
    form, spoilt = _drawn(random), str(random.choice([*SPOILT, *[""] * 12]))
    model = model_of(tmp_path, form, spoilt)
    try:
        library = built(model, "tokens", 1, 40, plan=str(random.choice(["best", "none"])))
    except InputError as error:
        assert spoilt, (form, str(error))
        assert "--sizes" in str(error)
        return
    assert not spoilt, f"nobody noticed: {form}"
    check(model, library, "tokens", SIZES)
