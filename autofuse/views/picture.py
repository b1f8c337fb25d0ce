"""A plan as a picture: an SVG file of the kernels, their operators and the tensors between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from xml.sax.saxutils import escape

from autofuse.fusion.edges import planning_type
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.relation import combined
from autofuse.fusion.skeleton import folded_into, realise, settled
from autofuse.graph.mapping import MappingType
from autofuse.graph.model import Graph

CHARACTER, LINE, PADDING = 6.7, 15, 8
GAP_X, GAP_Y, MARGIN = 26, 46, 24
MOST_LINES = 14
SWEEPS = 4
"""Passes that order the kernels of a layer by where their neighbours stand."""

COLOURS: Mapping[MappingType, str] = {
    MappingType.MANY_TO_MANY: "#dbe9f9",
    MappingType.ONE_TO_MANY: "#fbe8cf",
    MappingType.ONE_TO_ONE: "#e0f2dd",
    MappingType.REORGANIZE: "#eceaf6",
    MappingType.SHUFFLE: "#eceaf6",
    MappingType.OPAQUE: "#e4e4e4",
}


@dataclass(frozen=True)
class Card:
    """One kernel, input or output of the picture, before it has a place. `title`: what a mouse over it shows."""

    lines: tuple[str, ...]
    title: str
    colour: str

    @property
    def width(self) -> float:
        """Pixels."""
        return 2 * PADDING + CHARACTER * max(len(line) for line in self.lines)

    @property
    def height(self) -> float:
        """Pixels."""
        return 2 * PADDING + LINE * len(self.lines)


def picture(graph: Graph, plan: FusionPlan, notes: Mapping[tuple[str, ...], str] | None = None) -> str:
    """The SVG text of a plan of `graph` (before folding): a box a kernel, data flowing downward.

    `notes`: a short text for groups (by their operators), such as a time, shown in the first line of the box.
    """
    cards, links = _cards(graph, plan, notes or {})
    layers = _layers(len(cards), links)
    return _drawn(cards, links, layers, graph.name)


def _cards(
    graph: Graph, plan: FusionPlan, notes: Mapping[tuple[str, ...], str]
) -> tuple[list[Card], dict[tuple[int, int], list[str]]]:
    """All boxes, and the tensors between each two: inputs, kernels, outputs."""
    graph, plan = settled(graph, plan)
    realised = realise(graph, plan)
    folded: dict[str, list[str]] = {}
    for name, owner in folded_into(graph, plan.folds).items():
        folded.setdefault(owner, []).append(f"  + {graph.by_name[name].op_type} folded in")
    cards = [Card((name, _shape(graph, name)), f"input {name}", "#ffffff") for name in graph.inputs]
    maker = {name: index for index, name in enumerate(graph.inputs)}
    links: dict[tuple[int, int], list[str]] = {}
    for number, group in enumerate(plan.groups, 1):
        here = len(cards)
        reads, writes = realised.boundary(group.operators)
        cards.append(_kernel(realised, group.operators, f"kernel {number}", folded, notes.get(group.operators, "")))
        for name in reads:
            if name in maker:
                links.setdefault((maker[name], here), []).append(name)
        maker.update(dict.fromkeys(writes, here))
    for name in graph.outputs:
        if name in maker:
            links.setdefault((maker[name], len(cards)), []).append(name)
            cards.append(Card((name, _shape(graph, name)), f"output {name}", "#ffffff"))
    return cards, {pair: [f"{name} {_shape(realised, name)}" for name in names] for pair, names in links.items()}


def _kernel(graph: Graph, names: Sequence[str], head: str, folded: Mapping[str, list[str]], note: str) -> Card:
    lines = [f"{head}: {note}" if note else head]
    for name in names:
        operator = graph.by_name[name]
        shapes = ", ".join(_shape(graph, out) for out in operator.outputs if out)
        lines += [f"{operator.op_type} {shapes}", *folded.get(name, [])]
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"... {len(names)} operators"]
    kind = reduce(combined, (planning_type(graph, graph.by_name[name]) for name in names))
    return Card(tuple(lines), "\n".join(names), COLOURS[kind])


def _shape(graph: Graph, name: str) -> str:
    return "x".join(map(str, graph.tensors[name].shape)) or "scalar"


def _layers(count: int, links: Mapping[tuple[int, int], object]) -> list[list[int]]:
    """Boxes by the longest way to them, each layer ordered so that few lines cross."""
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for source, sink in links:
        above[sink].append(source)
        below[source].append(sink)
    depth = [0] * count
    for box in range(count):  # boxes stand in an order in which they can run
        depth[box] = max((depth[source] + 1 for source in above[box]), default=0)
    for box in range(count):
        if not above[box] and below[box]:
            depth[box] = min(depth[sink] for sink in below[box]) - 1  # a late input stands beside its reader
    layers: list[list[int]] = [[] for _ in range(max(depth, default=0) + 1)]
    for box in range(count):
        layers[depth[box]].append(box)
    for sweep in range(SWEEPS):
        place = {box: index - len(layer) / 2 for layer in layers for index, box in enumerate(layer)}
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            near = above if sweep % 2 == 0 else below
            layer.sort(key=lambda box: sum(place[o] for o in near[box]) / len(near[box]) if near[box] else place[box])
            place.update((box, index - len(layer) / 2) for index, box in enumerate(layer))
    return layers


def _drawn(
    cards: Sequence[Card], links: Mapping[tuple[int, int], list[str]], layers: Sequence[Sequence[int]], name: str
) -> str:
    widths = [sum(cards[box].width + GAP_X for box in layer) - GAP_X for layer in layers]
    width = max(widths, default=0) + 2 * MARGIN
    corners: dict[int, tuple[float, float]] = {}
    top: float = MARGIN
    for layer, extent in zip(layers, widths, strict=True):
        left = (width - extent) / 2
        for box in layer:
            corners[box] = left, top
            left += cards[box].width + GAP_X
        top += max((cards[box].height for box in layer), default=0) + GAP_Y
    body = [_line(cards, corners, pair, names) for pair, names in links.items()]
    body += [_box(card, *corners[box]) for box, card in enumerate(cards)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top:.0f}" '
            f'viewBox="0 0 {width:.0f} {top:.0f}" font-family="monospace" font-size="11">',
            f"<title>{escape(name)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *body,
            "</svg>\n",
        ]
    )


def _line(
    cards: Sequence[Card], corners: Mapping[int, tuple[float, float]], pair: tuple[int, int], names: Sequence[str]
) -> str:
    (x1, y1), (x2, y2) = corners[pair[0]], corners[pair[1]]
    x1, y1, x2 = x1 + cards[pair[0]].width / 2, y1 + cards[pair[0]].height, x2 + cards[pair[1]].width / 2
    bend = max(GAP_Y / 2, (y2 - y1) / 2)
    path = f"M{x1:.1f} {y1:.1f} C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
    title = escape("\n".join(names))
    return f'<path d="{path}" fill="none" stroke="#8a8a8a"><title>{title}</title></path>'


def _box(card: Card, left: float, top: float) -> str:
    weights = [' font-weight="bold"', *[""] * (len(card.lines) - 1)]
    texts = [
        f'<text x="{left + PADDING:.1f}" y="{top + PADDING + LINE * (row + 0.75):.1f}"{weight}>{escape(line)}</text>'
        for row, (line, weight) in enumerate(zip(card.lines, weights, strict=True))
    ]
    frame = (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{card.width:.1f}" height="{card.height:.1f}" rx="5" '
        f'fill="{card.colour}" stroke="#5c6670"/>'
    )
    return "\n".join(["<g>", f"<title>{escape(card.title)}</title>", frame, *texts, "</g>"])
