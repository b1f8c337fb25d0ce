"""Compiling for TVM's description of a target, once more with less optimisation where LLVM breaks its own module."""

from __future__ import annotations

from typing import Any

import pytest

from autofuse.backend.compile import function as compile_kernel
from autofuse.backend.compile.function import BROKEN, CAREFUL
from autofuse.backend.compile.host_cpu import local_device


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
