"""The names of the kernels of a library: equal functions have one; and whether a kernel takes what it is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autofuse.backend.compile.function import SYMBOL_LENGTH
from autofuse.errors import PlanError
from autofuse.kernels.tir.digest import Distinct
from autofuse.kernels.workload.workload import Value, Workload


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


def refuse_misfit(function: Any, workload: Workload, weights: Sequence[Value]) -> None:
    """PlanError when a TIR function does not take the inputs, these weights and the outputs of a workload: kernels do
    not look at their arguments when they run."""
    inputs, outputs = ([workload.values[place] for place in workload.of_kind(kind)] for kind in ("input", "output"))
    given = [(value.physical_shape, value.stored_dtype) for value in (*inputs, *weights, *outputs)]
    taken = [(tuple(map(int, buffer.shape)), str(buffer.dtype)) for buffer in function.params]
    if given != taken:
        shown = (", ".join(f"{dtype}{list(shape)}" for shape, dtype in some) for some in (given, taken))
        raise PlanError("{}: its kernel is given {}, but takes {}".format(workload.label, *shown))
