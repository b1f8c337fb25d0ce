"""Which fusion decisions a search may take, and how large a group may grow."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.errors import InputError

KINDS = (
    "fold", "depend", "break", "recompute", "prologue", "join", "seed", "copy", "eliminate", "horizontal", "batch",
    "rewrite",
)  # fmt: skip
"""Every kind of decision; `autofuse.fusion.planner.planner.Decision` says what each one asks ("rewrite":
`autofuse.fusion.planner.rewriting`)."""


@dataclass(frozen=True)
class FusionSpace:
    """The fusion decisions that a search may take. `decide`: kinds that are open; the others keep their default answer.

    `max_group_operators`: no group grows beyond it. The default leaves room for a matrix product with
    the tanh form of GELU written out, bias, residual and head split (18 operators).
    `exact`: nothing that changes rounding is done before planning: no such rewrite, no folded BatchNormalization.
    """

    decide: tuple[str, ...] = KINDS
    max_group_operators: int = 24
    exact: bool = False

    def __post_init__(self) -> None:
        for kind in self.decide:
            if kind not in KINDS:
                raise InputError(f"fusion.decide: {kind!r} is no kind of decision; allowed: {', '.join(KINDS)}")
        if self.max_group_operators < 1:
            raise InputError(f"fusion.max_group_operators: {self.max_group_operators} is below 1")
