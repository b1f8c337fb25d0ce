"""What is said of a model in parts: which part runs where, and why operators are in the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from autofuse.graph.cost import flops
from autofuse.graph.model import Graph
from autofuse.graph.parts.source import Node
from autofuse.segments.choice import Choice, Inside, Piece
from autofuse.segments.worth import work_us

OWN, REST = "autofuse", "ONNX Runtime"
MOST_KINDS = 4
ROWS_UP_TO = "up to {} rows: "
"""Said of a segment of rows before its operators."""


@dataclass(frozen=True)
class PartReport:
    """The report of one part of a model: `side` "autofuse" for a segment, "ONNX Runtime" for a part of the rest.

    `operators`: how many of the model's; `kinds`: their types, most frequent first. `flops`: as far as operators have
    a count. `work_us`: estimated, see `autofuse.segments.worth`; `share`: of the model's. What is not known of an
    operator, as its sizes are open, counts for nothing; `unknown`: how many these are. `most_rows`: set of a segment of
    rows, see `Piece`.
    """

    side: str
    operators: int
    kinds: str
    flops: int = 0
    work_us: float = 0.0
    share: float = 0.0
    unknown: int = 0
    most_rows: int = 0


@dataclass(frozen=True)
class RestReport:
    """The report of operators that ONNX Runtime runs for one `reason`: their types, how many, the name of the first."""

    op_type: str
    count: int
    first: str
    reason: str


def part_reports(choice: Choice) -> tuple[PartReport, ...]:
    """Each part, in the order in which they run; ONNX Runtime's alone where there is no segment."""
    pieces = [(piece.nodes, piece.graph, piece.most_rows) for piece in choice.pieces]
    if not choice.segments and not choice.rows:
        pieces = [(choice.source.nodes, None, 0)]
    found = []
    for nodes, graph, most_rows in pieces:
        graphs = [choice.source.alone(node) for node in nodes] if graph is None else [graph]
        known = [one for one in graphs if one is not None]
        side = REST if graph is None and not most_rows else OWN
        kinds = ROWS_UP_TO.format(most_rows) + _kinds(nodes) if most_rows else _kinds(nodes)
        work, unknown = sum(map(work_us, known)), len(graphs) - len(known)
        found.append(PartReport(side, len(nodes), kinds, _flops(known), work, 0.0, unknown, most_rows))
    found += [_inside(inside) for inside in choice.bodies]
    total = sum(part.work_us for part in found)
    return tuple(replace(part, share=part.work_us / total if total else 0.0) for part in found)


def kinds_of(piece: Piece) -> str:
    """Operators of a segment of rows, and how many rows its kernels take."""
    return ROWS_UP_TO.format(piece.most_rows) + _kinds(piece.nodes)


def _inside(inside: Inside) -> PartReport:
    """The segments of a body, as far as one round of it goes."""
    pieces, node = inside.choice.all_segments, inside.body.node
    nodes = [one for piece in pieces for one in piece.nodes]
    graphs = [piece.graph for piece in pieces if piece.graph is not None]
    kinds = f"inside of {node.op_type} {node.name}: {_kinds(nodes)}"
    return PartReport(OWN, len(nodes), kinds, _flops(graphs), sum(map(work_us, graphs)))


def _flops(graphs: Iterable[Graph]) -> int:
    return sum(flops(graph, operator) for graph in graphs for operator in graph.operators)


def rest_reports(choice: Choice) -> tuple[RestReport, ...]:
    """Why operators are in the rest, those of one reason together."""
    found: dict[str, list[Node]] = {}
    for place, reason in sorted(choice.reasons.items()):
        found.setdefault(reason, []).append(choice.source.nodes[place])
    return tuple(
        RestReport(", ".join(dict.fromkeys(node.op_type for node in nodes)), len(nodes), nodes[0].name, reason)
        for reason, nodes in found.items()
    )


def _kinds(nodes: Iterable[Node]) -> str:
    counted = Counter(node.op_type for node in nodes).most_common()
    more = f", {len(counted) - MOST_KINDS} more" if len(counted) > MOST_KINDS else ""
    return ", ".join(f"{count} {kind}" for kind, count in counted[:MOST_KINDS]) + more
