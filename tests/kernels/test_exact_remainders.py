"""Division, remainders and shifts where the processor ends the program or C says nothing: numpy's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.registry import is_own
from autofuse.link.architecture import X86_64, architecture_of
from tests.kernels.conftest import Array, Bench, Small, parsed

INTEGERS = ("int8", "int32", "int64", "uint8", "uint64")


def computed(bench: Bench, small: Small) -> Array:
    bound = bench.bind(small)
    assert is_own(bound.workload)
    target = bench.target()
    return bench.run(small, bound, build_kernel(bound.workload, {}, target), target)["y"]


def operands(dtype: str) -> tuple[Array, Array]:
    """Every pair of: the least and greatest number, small ones, 0 and -1."""
    edges = np.iinfo(dtype)
    given = np.array([edges.min, edges.min + 1, 0, 1, 2, 7, 100, edges.max], dtype)
    given = np.concatenate([given, (np.zeros(3, dtype) - np.array([1, 3, 7], dtype))])
    a, b = np.meshgrid(given, given)
    return a.ravel(), b.ravel()


def quotient(a: Array, b: Array) -> Array:
    """Towards zero; 0 where the divisor is; in integers of any size, then wrapped."""
    whole = [
        0 if not y else abs(int(x)) // abs(int(y)) * (-1 if (x < 0) != (y < 0) else 1)
        for x, y in zip(a, b, strict=True)
    ]
    bits = a.dtype.itemsize * 8
    wrapped = [value & ((1 << bits) - 1) for value in whole]
    return np.array(wrapped, f"uint{bits}").view(a.dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_divide_by_anything(bench: Bench, dtype: str) -> None:
    a, b = operands(dtype)
    made = computed(bench, Small(parsed("y = Div (a, b)"), {"a": a, "b": b}, ["y"]))
    np.testing.assert_array_equal(made, quotient(a, b))


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_leave_a_remainder_by_anything(bench: Bench, dtype: str, fmod: int) -> None:
    a, b = operands(dtype)
    made = computed(bench, Small(parsed(f"y = Mod <fmod={fmod}> (a, b)"), {"a": a, "b": b}, ["y"]))
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(made, (np.fmod if fmod else np.mod)(a, b))


@pytest.mark.parametrize("divisor", [0, -1, 3])
@pytest.mark.parametrize("kind", ["Div", "Mod"])
def test_integers_divide_by_a_constant(bench: Bench, kind: str, divisor: int) -> None:
    a, _ = operands("int32")
    b = np.array(divisor, "int32")
    made = computed(bench, Small(parsed(f"y = {kind} (a, b)"), {"a": a}, ["y"], {"b": b}))
    with np.errstate(divide="ignore"):
        wanted = quotient(a, np.full_like(a, divisor)) if kind == "Div" else np.mod(a, b)
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("kind", ["Div", "Mod"])
def test_a_division_that_the_model_guards_itself_does_not_lose_ours(bench: Bench, kind: str) -> None:
    """TVM knows inside of a choice how its condition ends, but both sides of it are computed."""
    a, b = operands("int32")
    nodes = parsed(f"zero = Equal (b, none); q = {kind} (a, b); y = Where (zero, a, q)")
    made = computed(bench, Small(nodes, {"a": a, "b": b}, ["y"], {"none": np.array(0, "int32")}))
    with np.errstate(divide="ignore"):
        wanted = quotient(a, b) if kind == "Div" else np.mod(a, b)
    np.testing.assert_array_equal(made, np.where(b == 0, a, wanted))


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_remainder_of_floats_is_exact(bench: Bench, dtype: str, fmod: int) -> None:
    chance = np.random.default_rng(5)
    reach = 38 if dtype == "float32" else 4

    def drawn(*special: float) -> Array:
        values = chance.standard_normal(400) * 10.0 ** chance.integers(-reach, reach, 400)
        values[: len(special)] = special
        return values.astype(dtype)

    most = float(np.finfo(dtype).max)
    a = drawn(5, -5, -0.0, most, np.inf, 3, 3, np.nan, most)
    b = drawn(np.inf, -np.inf, np.inf, 1e-7, 2, 0, np.nan, np.inf, 3)
    made = computed(bench, Small(parsed(f"y = Mod <fmod={fmod}> (a, b)"), {"a": a, "b": b}, ["y"]))
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = (np.fmod if fmod else np.mod)(a, b)
    if dtype == "float32" and architecture_of(bench.target()) == X86_64:  # see `autofuse.kernels.tir.llvm_text`
        wanted = np.where(np.abs(wanted) < np.finfo(dtype).tiny, 0, wanted)
    np.testing.assert_array_equal(made, wanted)


def shifted(a: Array, amount: Array, left: bool) -> Array:
    whole = [int(x) << int(n) if left else int(x) >> int(n) for x, n in zip(a, amount, strict=True)]
    bits = a.dtype.itemsize * 8
    return np.array([value & ((1 << bits) - 1) for value in whole], f"uint{bits}").view(a.dtype)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_reach_beyond_the_width(bench: Bench, dtype: str, direction: str) -> None:
    a, _ = operands(dtype)
    amount = (np.arange(a.size) % 70).astype(dtype)
    node: Any = helper.make_node("BitShift", ["a", "b"], ["y"], direction=direction)
    made = computed(bench, Small([node], {"a": a, "b": amount}, ["y"], opset=28))
    np.testing.assert_array_equal(made, shifted(a, amount, direction == "LEFT"))
