"""What a group of operators with an open size is: which kernel it has."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.graph.transform.open_sizes.attention import Attention
from autofuse.graph.transform.open_sizes.over_rows.shifts import Shift


@dataclass(frozen=True)
class Picked:
    """`rows` of what an operator reads: the first ones, or the last ones."""

    rows: int
    last: bool = False


@dataclass(frozen=True, kw_only=True)
class GroupKind:
    """What a group of operators is where it is not of rows: an `attention`, an operator with `picked` rows, one that
    `reduces` over all of them, one that `sums` those before each, one that `counts` them, a recurrence over them
    (`recurs`), one that `appends` some to a cache, one that `turns` an input or an output, one that puts their
    `sequences` in front or behind, or two that `shift` rows."""

    attention: Attention | None = None
    picked: Picked | None = None
    reduces: bool = False
    sums: bool = False
    counts: bool = False
    recurs: bool = False
    appends: bool = False
    turns: bool = False
    sequences: bool = False
    shift: Shift | None = None

    @property
    def in_tiles(self) -> bool:
        """Whether its kernel is one of tiles of rows, or of fixed sizes; else it is one of all rows at once."""
        whole = self.reduces or self.sums or self.counts or self.recurs or self.appends or self.turns or self.sequences
        return self.attention is None and self.shift is None and not whole

    @property
    def of_cache(self) -> bool:
        """Whether the open size is the length of a cache to it, which may be empty."""
        return self.appends or (self.attention is not None and self.attention.queries is None)
