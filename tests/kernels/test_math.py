"""Vectorizable functions: their error bounds over the whole float32 range, and that no library call is left."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as builder

from autofuse.kernels.tir import math as kernel_math

LANES = 8
Float64 = NDArray[np.float64]
EDGES = (0.0, math.inf, math.nan, 1e-45, 1.1754944e-38, 3.4028235e38, 1e-30, 1e30)
KNEES = (1.0, 0.5, 2.0, 88.72283, 88.72284, 87.3, 87.4, 0.70710678, 1.4142135, 9.01, 9.8, 3.9, 4.1, 20.0)
SPECIAL = np.array([*EDGES, *KNEES], np.float32)


def build(function: Callable[..., Any], count: int, inputs: int, target: dict[str, str], statements: bool) -> Any:
    """A library whose `main(inputs..., output)` applies `function`; names become statements or nested lets."""
    with IRBuilder() as current, builder.prim_func():
        builder.func_name("main")
        builder.func_attr({"tirx.noalias": True, "global_symbol": "main"})
        sources = [builder.arg(f"x{k}", builder.buffer((count,), "float32")) for k in range(inputs)]
        result = builder.arg("y", builder.buffer((count,), "float32"))
        with builder.serial(0, count // LANES) as block, builder.vectorized(0, LANES) as lane:
            loads = [source[block * LANES + lane] for source in sources]
            binder = kernel_math.LetBinder()
            value = function(*loads, builder.bind) if statements else binder.wrap(function(*loads, binder))
            builder.buffer_store(result, value, [block * LANES + lane])
    return tvm.compile(tvm.IRModule({"main": current.get()}), target=tvm.target.Target(target))


def host() -> dict[str, str]:
    return {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()}


def run(library: Any, *arrays: NDArray[np.float32]) -> NDArray[np.float32]:
    result = tvm.runtime.tensor(np.full(arrays[0].shape, 777.0, np.float32))
    library["main"](*(tvm.runtime.tensor(array) for array in arrays), result)
    return np.asarray(result.numpy())


def every_1024th_float() -> NDArray[np.float32]:
    """One bit pattern of each 1024, at a random place in it; the special values in front."""
    step = 1 << 10
    patterns = np.arange(0, 1 << 32, step, dtype=np.int64) + np.random.default_rng(0).integers(0, step, 1 << 22)
    sample = patterns.astype(np.uint32).view(np.float32)
    sample[: 2 * SPECIAL.size] = np.concatenate([SPECIAL, -SPECIAL])
    return sample


def softplus64(x: Float64) -> Float64:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def erfc64(x: Float64) -> Float64:
    return np.array([math.erfc(value) for value in x])


def gelu_tanh64(x: Float64) -> Float64:
    return x / (1.0 + np.exp(-2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


# name: (reference, greatest error in units of the last place, greatest absolute error allowed beside it)
FUNCTIONS: dict[str, tuple[Callable[[Float64], Float64], float, float]] = {
    "exp": (np.exp, 1.3, 1.7e-38),
    "log": (np.log, 1.0, 0.0),
    "tanh": (np.tanh, 5.0, 0.0),
    "erf": (lambda x: np.array([math.erf(value) for value in x]), 5.0, 0.0),
    "sigmoid": (lambda x: 1.0 / (1.0 + np.exp(-x)), 4.0, 4.2e-39),
    "silu": (lambda x: x / (1.0 + np.exp(-x)), 5.0, 3.8e-37),
    "softplus": (softplus64, 4.0, 1.7e-38),
    "mish": (lambda x: x * np.tanh(softplus64(x)), 5.0, 1.5e-36),
    "asin": (np.arcsin, 4.0, 0.0),
    "acos": (np.arccos, 4.0, 2e-7),
    "atan": (np.arctan, 4.0, 0.0),
    "gelu": (lambda x: 0.5 * x * erfc64(-x * math.sqrt(0.5)), 4.0, 9e-7),
    "gelu_tanh": (gelu_tanh64, 4.0, 5e-7),
}


def assert_close(got: NDArray[np.float32], exact: Float64, ulps: float, absolute: float, x: Any) -> None:
    """NaN and infinities where `exact`, rounded, has them; elsewhere within either bound."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        finite = np.isfinite(got) & np.isfinite(rounded)
        error = np.where(finite, np.abs(got - exact), 0.0)
        allowed = np.maximum(ulps * np.spacing(np.abs(rounded)).astype(np.float64), absolute)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    np.testing.assert_array_equal(got[np.isinf(rounded)], rounded[np.isinf(rounded)])
    assert not np.isinf(got[np.isfinite(rounded)]).any()
    wrong = np.where(finite & (error > allowed))[0][:3]
    assert wrong.size == 0, f"f({x[wrong]}) = {got[wrong]}, exact {exact[wrong]}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_error_bound_holds_over_the_whole_float32_range(name: str) -> None:
    reference, ulps, absolute = FUNCTIONS[name]
    x = every_1024th_float()
    got = run(build(getattr(kernel_math, name), x.size, 1, host(), True), x)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    assert_close(got, exact, ulps, absolute, x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_fused_multiply_add_and_with_nested_lets_the_error_stays_small(name: str) -> None:
    reference, ulps, absolute = FUNCTIONS[name]
    x = every_1024th_float()[:: 1 << 4].copy()
    got = run(build(getattr(kernel_math, name), x.size, 1, {"kind": "llvm"}, False), x)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    assert_close(got, exact, 1.6 * ulps, 2 * absolute, x)


@pytest.mark.parametrize(("target", "ulps", "absolute"), [("host", 6.0, 8.4e-39), ("generic", 0.0, 2e-7)])
def test_the_exponential_of_softmax_keeps_its_bound_below_zero(target: str, ulps: float, absolute: float) -> None:
    x = -np.abs(every_1024th_float())
    got = run(build(kernel_math.exp_below, x.size, 1, host() if target == "host" else {"kind": "llvm"}, True), x)
    with np.errstate(all="ignore"):
        assert_close(got, np.exp(x.astype(np.float64)), ulps, absolute, x)


@pytest.mark.parametrize(("name", "ulps", "absolute"), [("sin", 2.0, 1e-7), ("cos", 2.0, 1e-7), ("tan", 4.0, 0.0)])
def test_waves_keep_their_bound_below_two_to_the_fifty_and_are_nan_beyond(
    name: str, ulps: float, absolute: float
) -> None:
    x = every_1024th_float()
    got = run(build(getattr(kernel_math, name), x.size, 1, host(), True), x)
    inside = np.abs(x) < 2.0**50
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(np.where(inside, x, np.nan).astype(np.float64))
    assert_close(got, exact, ulps, absolute, x)


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_the_ends_are_exactly_one(name: str) -> None:
    x = np.array([10.0, 50.0, 3e38, math.inf] * 2, np.float32)
    assert run(build(getattr(kernel_math, name), x.size, 1, host(), True), x).tolist() == [1.0] * 8
    assert run(build(getattr(kernel_math, name), x.size, 1, {"kind": "llvm"}, True), -x).tolist() == [-1.0] * 8


def power_operands() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """All pairs of special values, random bit patterns, moderate pairs, bases near 1, whole exponents."""
    random = np.random.default_rng(1)
    special = np.concatenate([SPECIAL, -SPECIAL, np.array([3, 7, -7, 2.5, 16777217, 33554432, 0.99999994], np.float32)])
    base, exponent = (part.ravel() for part in np.meshgrid(special, special))
    count = 1 << 16
    patterns = random.integers(0, 1 << 32, (2, count)).astype(np.uint32).view(np.float32)
    bases = [base, patterns[0], np.exp(random.uniform(-5, 5, count)), 1 + random.uniform(-1e-3, 1e-3, count)]
    exponents = [exponent, patterns[1], random.uniform(-15, 15, count), random.uniform(-1e5, 1e5, count)]
    bases.append(random.uniform(-9, 9, count))
    exponents.append(random.integers(-9, 9, count))
    size = sum(part.size for part in bases) // LANES * LANES
    with np.errstate(invalid="ignore"):
        return np.concatenate(bases).astype(np.float32)[:size], np.concatenate(exponents).astype(np.float32)[:size]


@pytest.mark.parametrize("target", [host(), {"kind": "llvm"}], ids=["host", "generic"])
def test_power_is_rounded_right_and_keeps_the_special_cases_of_c(target: dict[str, str]) -> None:
    x, y = power_operands()
    got = run(build(kernel_math.pow, x.size, 2, target, True), x, y)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    assert_close(got, exact, 1.0, 0.0, np.stack([x, y], 1))
    number = ~np.isnan(exact)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(exact)[number])


@pytest.mark.parametrize("name", [*FUNCTIONS, "sin", "cos", "tan", "pow"])
def test_on_avx2_the_loop_is_vector_code_without_library_calls(name: str) -> None:
    inputs = 2 if name == "pow" else 1
    target = {"kind": "llvm", "mcpu": "znver3", "mtriple": "x86_64-linux-gnu"}
    library = build(getattr(kernel_math, name), 64, inputs, target, True)
    assembly = library.mod.inspect_source("asm")
    assert re.search(r"\bvf(n?m)(add|sub)\w+\s.*%ymm", assembly)
    assert not re.search(r"\bv(mul|add|sub|div|f\w+)s[sd]\b", assembly)
    called = set(re.findall(r"\b(?:call|jmp)q?\s+\*?([a-z]\w*)", assembly))
    assert {symbol for symbol in called if not symbol.startswith(("TVM", "main"))} == set()


def test_a_let_binder_names_expressions_but_not_constants_or_names() -> None:
    binder = kernel_math.LetBinder()
    x = tirx.Var("x", "float32")
    assert binder(x).same_as(x)
    assert binder(3) == 3
    name = binder(x * x)
    wrapped = binder.wrap(name + name)
    assert isinstance(wrapped, tirx.Let)
    assert wrapped.var.same_as(name)
