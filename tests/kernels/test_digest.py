"""A kernel's digest: the same for the same code, whatever its names; another for any other code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.script.ir_builder import IRBuilder

from autofuse.device.target import Target
from autofuse.kernels.tir.digest import code_key, code_text, digest

AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)
AVX512 = Target("znver4", 16, 32, 2, 32768, 1 << 20)
VERSIONS = {"tvm": "0.27", "llvm": "22", "tvm_ffi": "0.1"}
ROOT = Path(__file__).resolve().parents[2]


def scaled(argument: str, result: str, loop: str, factor: float = 2.0, size: int = 8) -> Any:
    """`result = factor * argument`, with names of the caller's choice."""
    with IRBuilder() as ib, builder.prim_func(s_tir=True):
        builder.func_name("main")
        x = builder.arg(argument, builder.buffer((size,), "float32"))
        y = builder.arg(result, builder.buffer((size,), "float32"))
        with builder.serial(0, size) as index:
            IRBuilder.name(loop, index)
            builder.buffer_store(y, x[index] * tirx.const(factor, "float32"), [index])
    return ib.get()


def test_names_do_not_count() -> None:
    assert code_text(scaled("x", "y", "i")) == code_text(scaled("weights", "output3", "channel"))


@pytest.mark.parametrize("other", [{"factor": 2.0000002}, {"size": 16}])
def test_every_other_code_has_another_text(other: dict[str, Any]) -> None:
    assert code_key(scaled("x", "y", "i")) != code_key(scaled("x", "y", "i", **other))


def test_names_that_are_swapped_are_other_code() -> None:
    """Numbers follow the order in which names are met, so `y = x * x` and `x = y * y` are not one."""

    def stored(swapped: bool) -> Any:
        with IRBuilder() as ib, builder.prim_func(s_tir=True):
            builder.func_name("main")
            first = builder.arg("x", builder.buffer((8,), "float32"))
            second = builder.arg("y", builder.buffer((8,), "float32"))
            read, written = (second, first) if swapped else (first, second)
            with builder.serial(0, 8) as index:
                builder.buffer_store(written, read[index], [index])
        return ib.get()

    assert code_key(stored(False)) != code_key(stored(True))


def test_target_and_generators_belong_to_the_digest() -> None:
    code = code_key(scaled("x", "y", "i"))
    known = digest(code, AVX2, VERSIONS)
    assert len(known) == 64 and known == digest(code, AVX2, dict(reversed(VERSIONS.items())))
    assert known == digest(code, AVX2, VERSIONS | {"tvm_ffi": "0.2"}), "it makes no code"
    others = {digest(code, AVX512, VERSIONS), digest(code, AVX2, VERSIONS | {"llvm": "23"}), known}
    assert len(others) == 3
    assert digest("", AVX2, VERSIONS) == ""


@pytest.mark.long
def test_the_text_is_the_same_in_every_process() -> None:
    program = (
        "from tests.kernels.kernel_sample import digests\n"
        "print('\\n'.join(f'{name} {key}' for name, key in digests('avx2')))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True, timeout=600,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1 and found.pop().count("\n") > 30
