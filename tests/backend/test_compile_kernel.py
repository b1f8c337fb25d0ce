"""Compiling for TVM's description of a target, once more with less optimisation where LLVM breaks its own module; and
which instructions LLVM may write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.script.ir_builder import IRBuilder

from autofuse.backend.compile import function as compile_kernel
from autofuse.backend.compile.function import BROKEN, CAREFUL, assembly
from autofuse.backend.compile.host_cpu import core_features, device_named, local_device
from autofuse.backend.compile.realise import required_features
from autofuse.device.profile import require_features
from autofuse.kernels.build import FUNCTION_ATTRIBUTES
from autofuse.kernels.tir.llvm_text import imported

SHIFTED = """
define i64 @shifted(ptr %a) alwaysinline {
  %v = load <16 x i8>, ptr %a, align 1
  %s = shufflevector <16 x i8> %v, <16 x i8> zeroinitializer, <16 x i32> <i32 2, i32 3, i32 4, i32 16, i32 16, i32 16,
    i32 16, i32 16, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison>
  %q = bitcast <16 x i8> %s to <2 x i64>
  %r = extractelement <2 x i64> %q, i64 0
  ret i64 %r
}
"""
"""Three bytes out of a vector, which LLVM takes by `extrq` where there is SSE4a."""


def levels_asked(failures: list[str]) -> list[Any]:
    """Levels of optimisation that a build is asked for which fails with each of these messages in turn."""
    asked = []

    def build(described: Any) -> str:
        asked.append(described.attrs.get("opt-level"))
        if failures:
            raise RuntimeError(failures.pop(0))
        return "built"

    assert compile_kernel._carefully(build, local_device().target()) == "built"
    return asked


def test_a_module_is_optimised_as_far_as_llvm_can() -> None:
    assert levels_asked([]) == [None]


def test_a_module_that_llvm_breaks_is_optimised_less() -> None:
    assert levels_asked([f"LLVM {BROKEN} with the following errors: ..."]) == [None, CAREFUL]


@pytest.mark.parametrize("failures", [["no such intrinsic"], [BROKEN, BROKEN]])
def test_any_other_failure_and_a_second_one_are_told(failures: list[str]) -> None:
    with pytest.raises(RuntimeError, match=failures[-1]):
        levels_asked(failures)


def shifting() -> Any:
    """A kernel that takes bytes out of a vector."""
    with IRBuilder() as ib, builder.prim_func(s_tir=True):
        builder.func_name("main")
        builder.func_attr(FUNCTION_ATTRIBUTES)
        x = builder.arg("x", builder.buffer((16,), "uint8", align=64))
        y = builder.arg("y", builder.buffer((1,), "int64", align=64))
        with imported(SHIFTED):
            builder.buffer_store(y, tirx.call_extern("int64", "shifted", tirx.address_of(x[0])), [0])
    return ib.get()


@pytest.mark.parametrize("name", ["zen3", "zen4", "zen5"])
def test_code_for_amds_cores_has_no_instructions_that_intels_lack(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library for `--device zen3` stopped with an illegal instruction on an Intel CPU that loaded it."""
    target = device_named(name).target()
    assert "extrq" not in assembly(shifting(), target)
    assert "sse4a" not in required_features(target)
    monkeypatch.setattr(compile_kernel, "LEFT_OUT", "nothing")
    assert "extrq" in assembly(shifting(), target), "LLVM writes it unasked"
    assert "sse4a" in required_features(target), "and then a library asks for it"


def test_a_library_asks_for_what_llvm_may_write_beside_vectors() -> None:
    for name in ("zen3", "icelake", "generic-avx2"):
        assert {"lzcnt", "popcnt", "movbe", "ssse3"} <= set(required_features(device_named(name).target()))
    assert "gfni" in required_features(device_named("zen4").target())
    assert {"complxnum", "sha3", "sve"} <= set(required_features(device_named("graviton3").target()))


def test_a_profile_may_take_sse4a_away_but_not_ask_for_what_its_core_lacks() -> None:
    zen = device_named("zen3")
    assert "sse4a" in core_features(zen)
    without = replace(zen.target(), mattr=("-sse4a",))
    assert "extrq" not in assembly(shifting(), without)
    require_features(zen.model_copy(update={"mattr": ("-sse4a",)}), core_features(zen))
