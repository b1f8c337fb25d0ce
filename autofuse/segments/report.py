"""What is said of a model in parts: which part runs where, and why operators are in the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from autofuse.graph.cost import flops
from autofuse.graph.parts.source import Node
from autofuse.segments.choice import Choice

OWN, REST = "autofuse", "ONNX Runtime"
MOST_KINDS = 4


@dataclass(frozen=True)
class PartReport:
    """The report of one part of a model: `side` "autofuse" for a segment, "ONNX Runtime" for a part of the rest.

    `operators`: how many of the model's; `kinds`: their types, most frequent first. `flops`: as far as ONNX Runtime's
    operators have a count. `work_us`: estimated of a segment (see `autofuse.segments.worth`); 0 for the rest.
    """

    side: str
    operators: int
    kinds: str
    flops: int = 0
    work_us: float = 0.0


@dataclass(frozen=True)
class RestReport:
    """The report of operators that ONNX Runtime runs for one `reason`: their types, how many, the name of the first."""

    op_type: str
    count: int
    first: str
    reason: str


def part_reports(choice: Choice) -> tuple[PartReport, ...]:
    """Each part, in the order in which they run; ONNX Runtime's alone where there is no segment."""
    source = choice.source
    pieces = [(piece.nodes, piece.graph, piece.work_us) for piece in choice.pieces]
    if not choice.segments:
        pieces = [(source.nodes, None, 0.0)]
    return tuple(
        PartReport(
            REST if graph is None else OWN,
            len(nodes),
            _kinds(node.op_type for node in nodes),
            sum(map(source.flops_of, nodes) if graph is None else (flops(graph, one) for one in graph.operators)),
            work,
        )
        for nodes, graph, work in pieces
    )


def rest_reports(choice: Choice) -> tuple[RestReport, ...]:
    """Why operators are in the rest, those of one reason together."""
    found: dict[str, list[Node]] = {}
    for place, reason in sorted(choice.reasons.items()):
        found.setdefault(reason, []).append(choice.source.nodes[place])
    return tuple(
        RestReport(", ".join(dict.fromkeys(node.op_type for node in nodes)), len(nodes), nodes[0].name, reason)
        for reason, nodes in found.items()
    )


def _kinds(types: Iterable[str]) -> str:
    counted = Counter(types).most_common()
    more = f", {len(counted) - MOST_KINDS} more" if len(counted) > MOST_KINDS else ""
    return ", ".join(f"{count} {kind}" for kind, count in counted[:MOST_KINDS]) + more
