"""The names of the kernels of a library: equal functions have one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from autofuse.backend.compile.function import SYMBOL_LENGTH


class Symbols:
    """The names of TIR functions in a library; structurally equal ones are one.

    `files`: objects of those that are translated already, by name.
    """

    def __init__(self) -> None:
        self._known: dict[int, list[tuple[Any, str]]] = {}
        self._count = 0
        self.files: dict[str, Path] = {}

    def of(self, function: Any, label: str) -> str:
        """The symbol of `function`; `label` says what it computes."""
        from tvm_ffi import structural_equal, structural_hash

        bare = function.without_attr("global_symbol")
        known = self._known.setdefault(int(structural_hash(bare)), [])
        for other, symbol in known:
            if structural_equal(other, bare):
                return symbol
        symbol = self._new(function, label)
        known.append((bare, symbol))
        return symbol

    def _new(self, function: Any, label: str) -> str:  # noqa: ARG002  # other names are made of the function
        symbol = f"kernel{self._count}_{re.sub(r'[^0-9A-Za-z]+', '_', label)}"[:SYMBOL_LENGTH].ljust(SYMBOL_LENGTH, "_")
        self._count += 1
        return symbol
