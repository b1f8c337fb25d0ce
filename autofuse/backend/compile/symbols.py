"""The names of the kernels of a library: equal functions have one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from autofuse.backend.compile.function import SYMBOL_LENGTH
from autofuse.kernels.tir.digest import Distinct


class Symbols:
    """The names of TIR functions in a library; structurally equal ones are one.

    `files`: objects of those that are translated already, by name.
    """

    def __init__(self) -> None:
        self._known: Distinct[str] = Distinct()
        self._count = 0
        self.files: dict[str, Path] = {}

    def of(self, function: Any, label: str) -> str:
        """The symbol of `function`; `label` says what it computes."""
        return self._known.of(function, lambda: self._new(function, label))

    def _new(self, function: Any, label: str) -> str:  # noqa: ARG002  # other names are made of the function
        symbol = f"kernel{self._count}_{re.sub(r'[^0-9A-Za-z]+', '_', label)}"[:SYMBOL_LENGTH].ljust(SYMBOL_LENGTH, "_")
        self._count += 1
        return symbol
