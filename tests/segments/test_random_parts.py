"""Random graphs with operators of both sides sprinkled in: the library's results are ONNX Runtime's."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

import autofuse
from tests.segments.models import assert_same, expected, model_of, normal, written

pytestmark = pytest.mark.usefixtures("any_size")
ROWS, COLUMNS = 3, 6
SHAPE = f"float[{ROWS},{COLUMNS}]"

OWN = (
    "{new} = Relu ({a})",
    "{new} = Tanh ({a})",
    "{new} = Add ({a}, {b})",
    "{new} = Mul ({a}, {b})",
    "{new} = MatMul ({a}, w)",
    "{new}_k = Shape ({a}) {new} = Reshape ({b}, {new}_k)",
    "{new}_l, {new}_r = Split <axis=1, num_outputs=2> ({a}) {new} = Concat <axis=1> ({new}_r, {new}_l)",
    "{new} = com.microsoft.SkipLayerNormalization ({a}, {b}, g)",
)
REFUSED = (
    "{new} = com.microsoft.Trilu ({a})",
    "{new}_s = SequenceConstruct ({a}, {b}) {new} = SequenceAt ({new}_s, one)",
    "{new}_t = Cast <to=8> ({a}) {new} = Cast <to=1> ({new}_t)",
    "{new}_n = NonZero ({a}) {new}_c = Shape <start=1> ({new}_n) {new}_f = Cast <to=1> ({new}_c) "
    "{new}_m = Mul ({new}_f, tiny) {new} = Add ({a}, {new}_m)",
    "{new}_e = Slice ({a}, zero, zero, zero) {new} = Concat <axis=0> ({new}_e, {b})",
    "{new} = If (c) <then_branch = {new}_t () => (" + SHAPE + " {new}_p) {{ {new}_p = Neg ({a}) }}, "
    "else_branch = {new}_e () => (" + SHAPE + " {new}_q) {{ {new}_q = Sigmoid ({b}) }}>",
    "{new}_o = Optional ({a}) {new} = OptionalGetElement ({new}_o)",
)


def random_model(seed: int) -> ModelProto:
    """About a dozen operators; each reads what came before, and some results are outputs."""
    chance = random.Random(seed)
    names, lines = ["x", "y"], []
    for number in range(chance.randint(6, 14)):
        form = chance.choice(REFUSED if chance.random() < 0.3 else OWN)
        a, b = chance.choice(names[-4:]), chance.choice(names)
        lines.append(form.format(new=f"v{number}", a=a, b=b))
        names.append(f"v{number}")
    outputs = {names[-1], *chance.sample(names, 2)}
    results = ", ".join(f"{SHAPE} {name}" for name in sorted(outputs))
    return model_of(
        f"net ({SHAPE} x, {SHAPE} y, bool c) => ({results}) {{ {' '.join(lines)} }}",
        w=normal(COLUMNS, COLUMNS),
        g=normal(COLUMNS, seed=1),
        one=np.array(1, np.int64),
        zero=np.array([0], np.int64),
        tiny=np.array([0.01], np.float32),
    )


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 60))])
def test_a_random_model_in_parts_computes_what_onnx_runtime_does(seed: int, tmp_path: Path) -> None:
    model = random_model(seed)
    library = tmp_path / "model.so"
    autofuse.compile(written(model, tmp_path), library, database=str(tmp_path / "no.db"), threads=1)
    session = autofuse.Session(library)
    for call in range(2):
        feeds = {
            "x": normal(ROWS, COLUMNS, seed=call),
            "y": normal(ROWS, COLUMNS, seed=call + 9),
            "c": np.array(call > 0),
        }
        assert_same(session.run(None, feeds), expected(model, feeds))
