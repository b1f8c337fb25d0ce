"""Functions of LLVM's text beside a kernel, for what TVM has no types or no intrinsics for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.ir import StringImm


@contextmanager
def imported(text: str) -> Iterator[None]:
    """Code that may call functions of LLVM's text, which LLVM joins with the kernel."""
    with builder.attr(tirx.IntImm("int32", 0), "pragma_import_llvm", StringImm(text)):
        yield
