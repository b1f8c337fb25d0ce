"""What is said of a model in parts: which part runs where, and why operators are in the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from autofuse.graph.cost import flops
from autofuse.graph.parts.source import Node
from autofuse.segments.choice import Choice
from autofuse.segments.worth import work_us

OWN, REST = "autofuse", "ONNX Runtime"
MOST_KINDS = 4


@dataclass(frozen=True)
class PartReport:
    """The report of one part of a model: `side` "autofuse" for a segment, "ONNX Runtime" for a part of the rest.

    `operators`: how many of the model's; `kinds`: their types, most frequent first. `flops`: as far as operators have
    a count. `work_us`: estimated, see `autofuse.segments.worth`; `share`: of the model's. What is not known of an
    operator, as its sizes are open, counts for nothing; `unknown`: how many these are.
    """

    side: str
    operators: int
    kinds: str
    flops: int = 0
    work_us: float = 0.0
    share: float = 0.0
    unknown: int = 0


@dataclass(frozen=True)
class RestReport:
    """The report of operators that ONNX Runtime runs for one `reason`: their types, how many, the name of the first."""

    op_type: str
    count: int
    first: str
    reason: str


def part_reports(choice: Choice) -> tuple[PartReport, ...]:
    """Each part, in the order in which they run; ONNX Runtime's alone where there is no segment."""
    pieces = [(piece.nodes, piece.graph) for piece in choice.pieces]
    if not choice.segments:
        pieces = [(choice.source.nodes, None)]
    found = []
    for nodes, graph in pieces:
        graphs = [choice.source.alone(node) for node in nodes] if graph is None else [graph]
        known = [one for one in graphs if one is not None]
        count = sum(flops(one, operator) for one in known for operator in one.operators)
        side, kinds = (REST if graph is None else OWN), _kinds(node.op_type for node in nodes)
        unknown = len(graphs) - len(known)
        found.append(PartReport(side, len(nodes), kinds, count, sum(map(work_us, known)), unknown=unknown))
    total = sum(part.work_us for part in found)
    return tuple(replace(part, share=part.work_us / total if total else 0.0) for part in found)


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
