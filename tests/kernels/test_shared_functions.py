"""Costly functions that several nests of a kernel need are computed once; cheap ones where they are read."""

from __future__ import annotations

import pytest

from autofuse.kernels.families.registry import nests_of
from tests.kernels.conftest import Bench, Small, parsed, real


def over_rows(text: str, outputs: str = "y") -> Small:
    """A model of a map."""
    return Small(parsed(text), {"x": real(1, 4, 5, 20)}, outputs.split())


MEAN = "m = ReduceMean <axes=[2], keepdims=1> (t); y = Add (t, m)"
TURNED = "u = Transpose <perm=[0, 1, 3, 2]> (t); v = Transpose <perm=[0, 1, 3, 2]> (u); s = Add (t, v)"
SHARED = {
    "by a mean and what it is added to": over_rows(f"t = Tanh (x); {MEAN}"),
    "by a mean, behind something cheap": over_rows(f"a = Tanh (x); t = Neg (a); {MEAN}"),
    "at two places": over_rows(f"t = Tanh (x); {TURNED}; y = ReduceMax <axes=[3], keepdims=1> (s)"),
    "by a mean and the outside": over_rows("t = Tanh (x); y = ReduceMean <axes=[2], keepdims=1> (t)", "t y"),
    "by two parts of a Concat": over_rows("t = Tanh (x); a = Neg (t); b = Abs (t); y = Concat <axis=1> (a, b)"),
}
ALONE = {
    "cheap": over_rows(f"t = Neg (x); {MEAN}"),
    "read by a mean alone": over_rows("t = Tanh (x); y = ReduceMean <axes=[2], keepdims=1> (t)"),
    "read twice at one place": over_rows(
        "t = Tanh (x); s = Mul (t, t); u = Add (s, t); y = ReduceMean <axes=[2], keepdims=1> (u)"
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_what_several_nests_need_has_a_nest_of_its_own(bench: Bench, name: str) -> None:
    workload = bench.bind(SHARED[name]).workload
    first, *others = nests_of(workload)
    assert first.anchor is None
    assert len(first.stores) == 1
    assert all(set(first.stores).isdisjoint(nest.stores) for nest in others)
    bench.check(SHARED[name])


@pytest.mark.parametrize("name", ALONE)
def test_what_one_nest_needs_is_computed_in_its_loops(bench: Bench, name: str) -> None:
    own = [nest for nest in nests_of(bench.bind(ALONE[name]).workload) if nest.anchor is None]
    assert all(value in bench.bind(ALONE[name]).workload.of_kind("output") for nest in own for value in nest.stores)
    bench.check(ALONE[name])


CHAIN = "p = Softplus (c); t = Tanh (p); y = Sigmoid (t)"
ANCHORS = {
    "convolution": ("Conv (x, w)", (1, 16, 5, 13), {"w": real(16, 16, 1, 1)}),
    "convolution that fills no vector": ("Conv (x, w)", (1, 5, 5, 13), {"w": real(7, 5, 1, 1)}),
    "product": ("MatMul (x, w)", (9, 20), {"w": real(20, 70)}),
    "pool": ("AveragePool <kernel_shape=[3, 3], pads=[1, 1, 1, 1]> (x)", (1, 16, 5, 13), {}),
    "softmax of rows": ("Softmax <axis=-1> (x)", (1, 3, 5, 21), {}),
    "logarithm of a softmax": ("LogSoftmax <axis=-1> (x)", (1, 3, 5, 21), {}),
    "softmax of columns": ("Softmax <axis=1> (x)", (1, 3, 5, 41), {}),
}


@pytest.mark.parametrize("name", ANCHORS)
@pytest.mark.parametrize("lanes", [16, 4])
def test_a_chain_of_functions_behind_an_anchor_agrees(bench: Bench, name: str, lanes: int) -> None:
    text, shape, constants = ANCHORS[name]
    small = Small(parsed(f"c = {text}; {CHAIN}"), {"x": real(*shape)}, ["y"], constants)
    bench.check(small, lanes=lanes)
    if len(shape) == 4 and shape[1] % lanes == 0:
        bench.check(small, {"x": f"c{lanes}", "y": f"c{lanes}"}, lanes=lanes)
