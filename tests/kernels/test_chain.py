"""Chains of products and normalisations agree with ONNX Runtime by blocks of rows; operands are read as they lie."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.fused.chain import Chain, chained
from autofuse.kernels.families.registry import nests_of
from autofuse.kernels.schedule.knobs import open_knobs
from tests.kernels.conftest import Array, Bench, Small, parsed, real

SHORT = {"contraction.vectors": 1, "contraction.pixels": 3}
AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)


def chain(
    text: str, inputs: dict[str, Array], opset: int = 17, outputs: tuple[str, ...] = ("y",), **constants: Any
) -> Small:
    return Small(parsed(text), inputs, outputs, {k: np.asarray(v) for k, v in constants.items()}, opset)


def heads(*lead: int, queries: int = 7, keys: int = 11, depth: int = 5) -> dict[str, Array]:
    """Queries, transposed keys and values."""
    return {
        "q": real(*lead, queries, depth, seed=1),
        "k": real(*lead, depth, keys, seed=2),
        "v": real(*lead, keys, depth, seed=3),
    }


ATTENTION = "s = MatMul (q, k); p = Softmax <axis=-1> (s); y = MatMul (p, v)"
SCALED = "s = MatMul (q, k); t = Mul (s, c); u = Add (t, m); p = Softmax <axis=-1> (u); o = MatMul (p, v)"
JOINED = f"{SCALED}; r = Transpose <perm=[0, 2, 1, 3]> (o); y = Reshape (r, z)"
ROWS = {"x": real(2, 9, 12)}
WEIGHTS = {"w": real(12, 20, seed=1), "b": real(20, seed=2), "g": real(20, seed=3), "h": real(20, seed=4)}

CHAINS = {
    "attention": chain(ATTENTION, heads(2, 3)),
    "attention, many vectors": chain(ATTENTION, heads(3, queries=24, keys=40, depth=16)),
    "masked, joined": chain(JOINED, heads(2, 3) | {"m": real(2, 1, 1, 11)}, c=np.float32(0.3), z=np.array([2, 7, 15])),
    "keys are shared": chain(ATTENTION, {"q": real(2, 3, 7, 5), "k": real(1, 1, 5, 11), "v": real(3, 11, 6)}),
    "values only": chain("p = Softmax <axis=-1> (s); y = MatMul (p, v)", {"s": real(3, 7, 11), "v": real(3, 11, 6)}),
    "scores only": chain("s = MatMul (q, k); y = LogSoftmax <axis=-1> (s)", {"q": real(3, 7, 5), "k": real(3, 5, 11)}),
    "keys turned inside": chain(
        f"k = Transpose <perm=[0, 2, 1]> (j); {ATTENTION}",
        {"q": real(3, 7, 5), "j": real(3, 11, 5), "v": real(3, 11, 6)},
    ),
    "an epilogue behind the softmax": chain(
        "s = MatMul (q, k); p = Softmax (s); d = Mul (p, e); y = MatMul (d, v)",
        heads(3) | {"e": real(3, 7, 11)},
    ),
    "dense, normalised": chain(
        "d = MatMul (x, w); a = Add (d, b); y = LayerNormalization <axis=-1> (a, g, h)", ROWS, **WEIGHTS
    ),
    "dense, normalised, dense": chain(
        "d = MatMul (x, w); a = Add (d, b); n = LayerNormalization (a, g, h); e = MatMul (n, f); y = Relu (e)",
        ROWS,
        **WEIGHTS,
        f=real(20, 10, seed=5),
    ),
    "two dense layers": chain(
        "d = MatMul (x, w); r = Relu (d); y = MatMul (r, f)", ROWS, w=WEIGHTS["w"], f=real(20, 10, seed=5)
    ),
    "gemms": chain(
        "d = Gemm <transB=1> (x, w, b); r = Tanh (d); y = Gemm (r, f)",
        {"x": real(13, 12)},
        w=real(20, 12, seed=1),
        b=WEIGHTS["b"],
        f=real(20, 10, seed=5),
    ),
}


@pytest.mark.parametrize(("rows", "operand"), [(0, "direct"), (5, "direct"), (4, "packed"), (32, "packed")])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_agrees_in_blocks_of_any_size(bench: Bench, name: str, rows: int, operand: str) -> None:
    bench.check(
        CHAINS[name], schedule={**SHORT, "last_axis.rows": 2, "chain.rows": rows, "contraction.operand": operand}
    )


def units(bench: Bench, small: Small) -> list[int]:
    """How many nests each unit of a kernel has."""
    workload = bench.bind(small).workload
    return [len(unit.nests) if isinstance(unit, Chain) else 1 for unit in chained(workload, nests_of(workload))]


@pytest.mark.parametrize("name", CHAINS)
def test_every_nest_of_a_chain_is_found(bench: Bench, name: str) -> None:
    assert units(bench, CHAINS[name]) == [len(nests(bench, CHAINS[name]))]


def nests(bench: Bench, small: Small) -> list[Any]:
    return nests_of(bench.bind(small).workload)


APART = {
    "the scores are wanted": chain(ATTENTION, heads(2, 3), outputs=("y", "p")),
    "scores are turned": chain(
        "s = MatMul (q, k); t = Transpose <perm=[0, 2, 1]> (s); y = Softmax <axis=-1> (t)",
        {"q": real(3, 7, 5), "k": real(3, 5, 11)},
    ),
    "rows are joined": chain(
        "s = MatMul (q, k); t = Reshape (s, z); y = Softmax <axis=-1> (t)",
        {"q": real(3, 7, 5), "k": real(3, 5, 11)},
        z=[21, 11],
    ),
    "another axis": chain(
        "n = LayerNormalization <axis=1> (x, g); y = MatMul (n, w)",
        {"x": real(2, 9, 12)},
        g=real(9, 12),
        w=WEIGHTS["w"],
    ),
    "the right operand": chain(
        "s = MatMul (q, k); y = MatMul (a, s)", {"q": real(3, 7, 5), "k": real(3, 5, 11), "a": real(3, 6, 7)}
    ),
    "read twice": chain(
        "s = MatMul (q, k); p = Softmax <axis=-1> (s); y = MatMul (p, v); z = Relu (s)", heads(3), outputs=("y", "z")
    ),
}


@pytest.mark.parametrize("name", APART)
def test_nests_that_do_not_hand_on_rows_alone_stay_apart(bench: Bench, name: str) -> None:
    assert len(units(bench, APART[name])) > 1
    bench.check(APART[name], schedule={**SHORT, "chain.rows": 4})


def test_scores_exist_by_blocks_only(bench: Bench) -> None:
    workload = bench.bind(chain(ATTENTION, heads(4, queries=64, keys=64, depth=8))).workload

    def largest(rows: int) -> int:
        schedule = {"chain.rows": rows, "contraction.operand": "direct"}
        text = build_kernel(workload, schedule, AVX2).function.script()
        return max(int(size) for size in re.findall(r"alloc_buffer\(\((\d+),\)", text))

    assert largest(0) == 4 * 64 * 64
    assert largest(16) == 16 * 64


OPERANDS = {
    "as it is": ("y = MatMul (q, v)", {"q": real(2, 7, 11), "v": real(2, 11, 21)}, True),
    "heads taken apart": (
        "h = Reshape (v, z); t = Transpose <perm=[0, 2, 1, 3]> (h); y = MatMul (q, t)",
        {"q": real(2, 3, 7, 11), "v": real(2, 11, 27)},
        True,
    ),
    "a slice": ("t = Slice (v, f, l, a); y = MatMul (q, t)", {"q": real(2, 7, 11), "v": real(2, 11, 21)}, True),
    "turned": (
        "t = Transpose <perm=[0, 2, 1]> (v); y = MatMul (q, t)",
        {"q": real(2, 7, 11), "v": real(2, 21, 11)},
        False,
    ),
    "by a Gemm, turned": ("y = Gemm <transB=1> (q, v)", {"q": real(7, 11), "v": real(21, 11)}, False),
    "computed": ("t = Exp (v); y = MatMul (q, t)", {"q": real(2, 7, 11), "v": real(2, 11, 21)}, False),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_an_operand_is_read_as_it_lies_where_its_columns_are_neighbours(bench: Bench, name: str) -> None:
    text, inputs, direct = OPERANDS[name]
    constants = {"z": np.array([2, 11, 3, 9]), "f": np.array([3]), "l": np.array([19]), "a": np.array([2])}
    used = {key: value for key, value in constants.items() if f", {key}" in text}
    small = chain(text, inputs, **used)
    knobs = open_knobs(bench.bind(small).workload, AVX2, load_space("default", "avx2").schedule)
    assert ("contraction.operand" in knobs) == direct
    bench.check(small, schedule={**SHORT, "contraction.operand": "direct"})
    bench.check(small, schedule={"contraction.vectors": 2, "contraction.operand": "direct"})
