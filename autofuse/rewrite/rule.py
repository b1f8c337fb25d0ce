"""What a rewrite rule is, and a place where it applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from autofuse.graph.model import Operator
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.work import Change, Work

Finder = Callable[[Work, Operator, Maker], bool]
"""Says whether the rule applies at an operator; if so, the maker holds what it becomes."""


class Kind(StrEnum):
    """The purpose of a rule."""

    SIMPLIFICATION = "simplification"
    COMPOSITE = "composite"
    WEIGHTS = "weights"
    ASSOCIATIVE = "associative"
    DISTRIBUTIVE = "distributive"
    COMMUTATIVE = "commutative"
    MERGE = "merge"
    FISSION = "fission"


PHASE = {
    Kind.SIMPLIFICATION: 0,
    Kind.COMPOSITE: 1,
    Kind.WEIGHTS: 2,
    Kind.ASSOCIATIVE: 2,
    Kind.DISTRIBUTIVE: 2,
    Kind.COMMUTATIVE: 2,
    Kind.MERGE: 3,
    Kind.FISSION: 4,
}
"""Composites are recognised before algebra changes their pieces; siblings merge when each is as small as it gets."""


SMALL_BYTES = 4 << 20
"""Bytes of a result from which on it leaves a core's caches."""


class Default(StrEnum):
    """The default at a match of a rule: what the first trial does."""

    GAIN = "gain"
    """Rewrite where FLOPs fall, or stay and bytes fall."""
    ALWAYS = "always"
    NEVER = "never"
    SMALL = "small"
    """Rewrite where all that is made stays in a core's caches: what is split again is read and written once more."""


@dataclass(frozen=True)
class Rule:
    """A rewrite rule: `before -> after` as text; `exact`: every element is made of the same operations.

    So it keeps its bits, but for the sign of zero, NaN, and the order in which a kernel sums.

    `roots`: types of the operator at which the pattern ends. `guard`: conditions beyond the pattern, as text.
    """

    name: str
    kind: Kind
    text: str
    exact: bool
    roots: frozenset[str]
    find: Finder
    guard: str = ""
    default: Default = Default.GAIN

    @property
    def phase(self) -> int:
        """Rules of a lower phase are applied first."""
        return PHASE[self.kind]


@dataclass(frozen=True)
class Step:
    """A rewrite as a plan names it: the rule, and the operator at which it applies."""

    rule: str
    root: str

    @property
    def text(self) -> str:
        """`rule@operator`, which stands in plans; `of` reads it. An operator's own name may hold an @ too."""
        return f"{self.rule}@{self.root}"

    @classmethod
    def of(cls, text: str) -> Step:
        """The step that `text` names; one of no rule where it names none."""
        rule, _, root = text.partition("@")
        return cls(rule, root)


@dataclass(frozen=True)
class Match:
    """A place where a rule applies.

    `root`: the operator whose result is computed another way, or the first of siblings that merge. `group`: label
    of all matches of one rule that look the same, neighbours included; they share a decision. FLOPs and bytes:
    of all operators that go, and of those that come, each run alone.
    """

    rule: Rule
    root: str
    group: str
    flops_before: int
    flops_after: int
    bytes_before: int
    bytes_after: int
    change: Change

    @property
    def step(self) -> str:
        """How a plan names the match."""
        return Step(self.rule.name, self.root).text

    @property
    def flops_saved(self) -> int:
        """FLOPs that the rewrite saves (negative: costs)."""
        return self.flops_before - self.flops_after

    @property
    def bytes_saved(self) -> int:
        """Bytes moved less, when every operator runs alone (negative: more)."""
        return self.bytes_before - self.bytes_after

    @property
    def pays(self) -> bool:
        """What the first trial does here."""
        if self.rule.default == Default.SMALL:
            made = (one.size_bytes for name, one in self.change.tensors.items() if name not in self.change.made)
            return max(made, default=0) <= SMALL_BYTES
        if self.rule.default != Default.GAIN:
            return self.rule.default == Default.ALWAYS
        if self.rule.kind == Kind.COMPOSITE:
            return self.bytes_saved > 0  # FLOPs of a composite are an estimate, and it may compute more carefully
        return self.flops_saved > 0 or (self.flops_saved == 0 and self.bytes_saved > 0)
