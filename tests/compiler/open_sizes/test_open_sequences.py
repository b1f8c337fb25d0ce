"""One library for every number of sequences of every length: right at each, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler.open_sizes.models import built_over, check_over, write
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
