"""The places of a graph at which something is left open, as values, and the one text of each.

Trials and plans in databases name no site: a decision's name is derived from the content around its sites, see
`autofuse.fusion.planner.planner.Decision`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SeedSite:
    """The whole graph: where its groups begin to grow."""

    @property
    def text(self) -> str:
        """Nothing: there is one such site."""
        return ""

    @property
    def operators(self) -> tuple[str, ...]:
        """None: it is about the whole graph."""
        return ()


@dataclass(frozen=True)
class _OperatorSite:
    operator: str

    @property
    def text(self) -> str:
        """Name of the operator."""
        return self.operator

    @property
    def operators(self) -> tuple[str, ...]:
        """The one operator."""
        return (self.operator,)


class FoldSite(_OperatorSite):
    """A BatchNormalization that may be folded into the convolution beside it."""


class JoinSite(_OperatorSite):
    """An operator that several anchors could take as their epilogue."""


class CopySite(_OperatorSite):
    """An operator that each of its readers may compute for itself."""


class RewriteSite(_OperatorSite):
    """The operator at which a rewrite rule applies."""


@dataclass(frozen=True)
class EdgeSite:
    """An edge that may be inside of a kernel, or between two."""

    producer: str
    consumer: str

    @property
    def text(self) -> str:
        """`producer -> consumer`."""
        return f"{self.producer} -> {self.consumer}"

    @property
    def operators(self) -> tuple[str, ...]:
        """The producer, then the consumer."""
        return self.producer, self.consumer


@dataclass(frozen=True)
class SiblingSite:
    """Operators that do not need one another, in topological order, and may share a kernel side by side."""

    operators: tuple[str, ...]

    @property
    def text(self) -> str:
        """`first = second = third`."""
        return " = ".join(self.operators)


Site = SeedSite | FoldSite | EdgeSite | JoinSite | CopySite | SiblingSite | RewriteSite
