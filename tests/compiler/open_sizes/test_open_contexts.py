"""Attention of open rows to a context of a fixed length, and of fixed queries to open rows: right at every size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from autofuse.compiler.open_sizes.reading import read_open
from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from tests.compiler.open_sizes.models import Array, built, built_over, check, check_over, weight, write

SIZES = (1, 2, 3, 7, 8, 9, 13, 31, 40)
HEADS, WIDTH = 2, 8
ALL = HEADS * WIDTH


@dataclass(frozen=True)
class Form:
    """`context`: places that the rows attend to, of an input with a mask; 0 where fixed queries, `latents`, attend to
    the rows. `apart`: keys come as inputs of heads. `spoilt`: scores change places on their way. `batched`: of several
    sequences."""

    context: int = 0
    latents: int = 0
    apart: bool = False
    spoilt: bool = False
    batched: bool = False


def written(form: Form) -> tuple[str, dict[str, Array]]:
    """The text of a model, and its weights."""
    batch = "batch" if form.batched else "1"
    weights = {name: weight(ALL, ALL, seed=seed) for seed, name in enumerate("qkvo")}
    weights |= {"heads": np.array([0, -1, HEADS, WIDTH]), "flat": np.array([0, -1, ALL]), "low": np.float32(-50)}
    weights |= {"between": np.array([1, 2]), "one": np.float32(1), "latents": weight(1, max(1, form.latents), ALL) * 9}
    weights |= {"zero": np.array([0]), "nine": np.array([9]), "end": np.array([99]), "last": np.array([3])}
    weights |= {"scale": np.float32(WIDTH**-0.5)}
    lines = ["pq = MatMul (queries, q)", "pk = MatMul (keys, k)", "pv = MatMul (keys, v)"]
    if form.apart:
        lines = lines[:1]
    for name in "q" if form.apart else "qkv":
        lines += [f"s{name} = Reshape (p{name}, heads)", f"{name}h = Transpose <perm = [0, 2, 1, 3]> (s{name})"]
    lines += ["kt = Transpose <perm = [0, 1, 3, 2]> (kh)", "qk = MatMul (qh, kt)", "scores = Mul (qk, scale)"]
    if form.context and not form.apart:
        lines += ["kept = Cast <to = 1> (mask)", "lost = Sub (one, kept)", "bias = Mul (lost, low)"]
        lines += ["spread = Unsqueeze (bias, between)", "masked = Add (scores, spread)"]
    else:
        lines += ["masked = Identity (scores)"]
    if form.spoilt:
        lines += ["front = Slice (masked, zero, nine, last)", "behind = Slice (masked, nine, end, last)"]
        lines += ["turned = Concat <axis = -1> (behind, front)", "p = Softmax <axis = -1> (turned)"]
    else:
        lines += ["p = Softmax <axis = -1> (masked)"]
    lines += ["pvs = MatMul (p, vh)", "t = Transpose <perm = [0, 2, 1, 3]> (pvs)", "r = Reshape (t, flat)"]
    lines += ["made = MatMul (r, o)", "y = Add (made, queries)"]
    rows = f"float[{batch}, tokens, {ALL}]"
    if form.apart:
        keys = f"float[{batch}, {HEADS}, {form.context}, {WIDTH}]"
        given, result = f"{rows} queries, {keys} kh, {keys} vh", f"{rows} y"
    elif form.context:
        context = f"float[{batch}, {form.context}, {ALL}] keys, int64[{batch}, {form.context}] mask"
        given, result = f"{rows} queries, {context}", f"{rows} y"
    else:
        lines = ["queries = Identity (latents)", *lines]
        given, result = f"{rows} keys", f"float[{batch}, {form.latents}, {ALL}] y"
    body = "\n".join(f"  {line}" for line in lines)
    return f"attending ({given}) => ({result}) {{\n{body}\n}}", weights


FORMS = {
    "a context": Form(context=37),
    "keys and values of heads": Form(context=64, apart=True),
    "one place": Form(context=1),
    "many latents": Form(latents=12),
    "a few latents": Form(latents=3),
}


BRIEF = ("a context", "many latents")


@pytest.mark.parametrize("name", [one if one in BRIEF else pytest.param(one, marks=pytest.mark.long) for one in FORMS])
def test_attention_to_a_fixed_number_is_right_at_every_size(tmp_path: Path, name: str) -> None:
    model = write(tmp_path / "m.onnx", *written(FORMS[name]))
    check(model, built(model, "tokens", 1, 40), "tokens", SIZES)


@pytest.mark.long
def test_latents_and_contexts_of_several_sequences(tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", *written(Form(context=20, batched=True)))
    library = built_over(model, {"batch": (1, 3), "tokens": (1, 30)})
    check_over(model, library, [{"batch": batch, "tokens": tokens} for batch in (1, 2, 3) for tokens in (1, 7, 8, 30)])


def test_scores_that_change_places_are_refused(tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", *written(Form(context=37, spoilt=True)))
    with pytest.raises(InputError, match="Concat '.*': it moves scores"):
        read_open(model, {}, [OpenSize("tokens", 1, 40)])
