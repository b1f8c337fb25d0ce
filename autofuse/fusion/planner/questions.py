"""Which edges are open questions, what can be answered there, and what a good compiler would answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from autofuse.fusion.edges import MOVES, Edge, Edges, reads_once
from autofuse.fusion.planner.sites import EdgeSite
from autofuse.fusion.reach import bits
from autofuse.fusion.relation import Relation, combined, relation
from autofuse.graph.cost import EXPENSIVE, flops, written_bytes
from autofuse.graph.mapping import MAP_RANK, MappingType
from autofuse.graph.model import Graph, Operator

KEEP, FUSE, MERGE = "keep", "fuse", "merge"
"""Answers on an edge: apart; together unless the table breaks them; together even then (two anchors)."""

LATER, EARLIER, BOTH = "later", "earlier", "both"
"""Answers at an operator that several anchors could take as their epilogue."""

SMALL_RESULT, SMALL_WEIGHTS = 4096, 1 << 20
"""Elements of a map of one pixel, and bytes of the weights behind it, up to which its launch is worth saving."""

LARGE_SCORES = 4 << 20
"""Bytes of the scores of an attention from which on they leave a core's caches between its two products. One kernel
that keeps them there is faster then (an encoder over 1,500 tokens takes 0.89 of the time on Zen 4)."""

FEW_SHARING = 8
"""Rows of a product up to which its kernel reads a turned matrix as it lies: for more, packing it takes less than
adding across lanes."""

COPIED_FLOPS = 256
"""Operations of convolutions for each byte that a Concat would copy of their results, up to which one kernel of all
saves more (a tenth, at 15 GB/s both ways) than it loses by tiles that they share."""

_PRODUCTS = frozenset(
    {"Conv", "ConvInteger", "MatMul", "MatMulInteger", "Gemm", "WeightOnlyMatMul", "Bfloat16Conv", "Bfloat16MatMul"}
)
_POOLS = frozenset({"MaxPool", "AveragePool"})
_SUMS = frozenset(
    {"GlobalAveragePool", "GlobalMaxPool", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare"}
)
_FREE = frozenset({MappingType.REORGANIZE, MappingType.SHUFFLE})
_ANCHOR = MappingType.MANY_TO_MANY


@dataclass(frozen=True)
class Question:
    """An open choice at one place; `choices[0]` is the default."""

    kind: str
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Questions:
    """The open questions of a graph. `joins`: by operator, with its rival producers in topological order.

    `whole`: those of the joins whose operator by default takes all rivals into its kernel (see `_is_whole`).
    `anchored`: operators that the default answers put into the group of a many-to-many operator above them.
    `costly`: those whose result takes an expensive pointwise operator to recompute.
    """

    edges: Mapping[EdgeSite, Question]
    joins: Mapping[str, tuple[str, ...]]
    whole: frozenset[str]
    anchored: frozenset[str]
    costly: frozenset[str]


def questions(edges: Edges) -> Questions:
    """All open edges and joins of a graph, judged from local facts and from what can stand above an edge."""
    asked: dict[EdgeSite, Question] = {}
    joins: dict[str, tuple[str, ...]] = {}
    whole: set[str] = set()
    types: dict[str, frozenset[MappingType]] = {}
    anchors: dict[str, int] = {}
    local = _Local(edges)
    for operator in edges.graph.operators:
        name = operator.name
        own = edges.own[name]
        above = {own}
        taken = edges.reach.mask((name,)) if own == _ANCHOR else 0
        rivals: dict[str, int] = {}
        for edge in edges.into[name]:
            if edge.blocked or MappingType.OPAQUE in (own, edges.own[edge.producer]):
                continue
            standing = anchors[edge.producer]
            question = _question(edges, edge, types[edge.producer], standing, local)
            if question is not None:
                asked[EdgeSite(edge.producer, name)] = question
            above |= {combined(kind, own) for kind in types[edge.producer] if _fusible(kind, edge.kind)}
            if own != _ANCHOR and (question is None or question.choices[0] != KEEP):
                taken |= standing
                if standing and edge.kind != MappingType.ONE_TO_MANY:
                    rivals[edge.producer] = standing
        types[name] = frozenset(above)
        anchors[name] = taken
        rivals = _rivals(edges, rivals)
        if len(rivals) > 1:
            joins[name] = tuple(sorted(rivals, key=edges.graph.position.__getitem__))
            whole |= {name} if _is_whole(edges, operator, rivals, local) else set()
    anchored = frozenset(name for name, above in anchors.items() if above)
    return Questions(asked, joins, frozenset(whole), anchored, frozenset(local.costly))


def _rivals(edges: Edges, producers: dict[str, int]) -> dict[str, int]:
    """Producers (with the anchors above them) that compete: none is above another, their anchors differ."""
    reach = edges.reach
    everyone = reach.mask(producers)
    found: dict[str, int] = {}
    for name, anchors in producers.items():
        if not reach.descendants[reach.position[name]] & everyone and anchors not in found.values():
            found[name] = anchors
    return found


def _is_whole(edges: Edges, operator: Operator, rivals: Mapping[str, int], local: _Local) -> bool:
    """Whether a Concat of channels and all rivals above it are best one kernel, each part of which writes its slice.

    `rivals`: producers, with the anchors above them. A rival in a kernel of its own writes a map that the Concat's
    kernel reads and writes again; one kernel saves that, and a launch. So where nobody else reads the map, where
    convolutions alone make it, over as many pixels, and where that is much beside their work: they share their tiles.
    """
    graph = edges.graph
    rank = len(graph.tensors[operator.outputs[0]].shape)
    if operator.op_type != "Concat" or rank < MAP_RANK or operator.attributes.get("axis") not in (1, 1 - rank):
        return False
    private = all(
        len(edges.out[name]) == 1 and graph.returned.isdisjoint(graph.by_name[name].outputs) for name in rivals
    )
    moved = any(graph.by_name[name].op_type in MOVES for name in rivals)
    if not private or moved or any(anchors & ~local.convolutions for anchors in rivals.values()):
        return False
    sizes = [written_bytes(graph, graph.by_name[name]) for name in rivals]
    above = {index for anchors in rivals.values() for index in bits(anchors)}
    work = sum(flops(graph, graph.operators[index]) for index in above)
    return work <= COPIED_FLOPS * (sum(sizes) - max(sizes))


def _fusible(producer: MappingType, consumer: MappingType) -> bool:
    return relation(producer, consumer) != Relation.BREAK


class _Local:
    """The facts that decide defaults. `costly`: operators whose result takes an expensive pointwise operator to
    recompute.

    `reductions`: bit set of the anchors that read each element once; `products`, of convolutions and matrix products;
    `dense`, of those without groups; `convolutions`, of numbers in float.
    `small`: operators whose result is a map of one pixel (squeeze and excite).
    `scored`: softmaxes of attention whose scores are large; `attending`: those, and dense products.
    """

    def __init__(self, edges: Edges) -> None:
        graph, mask = edges.graph, edges.reach.mask
        anchors = [operator for operator in graph.operators if edges.own[operator.name] == _ANCHOR]
        self.reductions = mask(operator.name for operator in anchors if reads_once(operator))
        products = [operator for operator in anchors if operator.op_type in _PRODUCTS]
        self.products = mask(operator.name for operator in products)
        self.convolutions = mask(operator.name for operator in products if operator.op_type == "Conv")
        self.dense = mask(op.name for op in products if op.attributes.get("group", 1) == 1)
        self.scored = {operator.name for operator in anchors if _is_attention(edges, operator)}
        self.attending = self.dense | mask(self.scored)
        self.small = {operator.name for operator in graph.operators if _is_small(graph, operator)}
        self.costly: set[str] = set()
        for operator in edges.graph.operators:
            inherits = edges.own[operator.name] != _ANCHOR
            if operator.op_type in EXPENSIVE or (
                inherits and any(edge.producer in self.costly for edge in edges.into[operator.name])
            ):
                self.costly.add(operator.name)


def _is_attention(edges: Edges, operator: Operator) -> bool:
    """Whether an operator is a softmax over the last axis of large scores, that one product alone reads."""
    if operator.op_type != "Softmax":
        return False
    scores, readers = edges.graph.tensors[operator.outputs[0]], edges.out[operator.name]
    last = operator.attributes.get("axis", -1) in (-1, len(scores.shape) - 1)
    if not last or scores.size_bytes < LARGE_SCORES or len(readers) != 1:
        return False
    reader = edges.graph.by_name[readers[0].consumer]
    return reader.op_type == "MatMul" and reader.inputs[0] == operator.outputs[0]


def _is_small(graph: Graph, operator: Operator) -> bool:
    weights = sum(graph.tensors[name].size_bytes for name in operator.inputs if name in graph.constants)
    shapes = [graph.tensors[name].shape for name in operator.outputs if name]
    pixels = all(len(shape) > 2 and prod(shape[2:]) == 1 for shape in shapes)
    return pixels and all(prod(shape) <= SMALL_RESULT for shape in shapes) and weights <= SMALL_WEIGHTS


def _question(edges: Edges, edge: Edge, above: frozenset[MappingType], anchors: int, local: _Local) -> Question | None:
    """The question on one edge, or None when the table says "through" and nothing can be lost.

    `above`: types that a group ending in the producer can have; `anchors`: bit set of those that by default
    stand above the producer in its group.
    """
    if edge.kind == MappingType.OPAQUE:
        return None
    if edge.kind == _ANCHOR:
        return _prologue(edges, edge, above, anchors, local)
    if any(relation(kind, edge.kind) == Relation.DEPEND for kind in above):
        fuse = _fuse_dependent(edges, edge, anchors, local)
        return Question("depend", (FUSE, KEEP) if fuse else (KEEP, FUSE))
    if edge.kind == MappingType.ONE_TO_MANY:
        fuse = len(edges.out[edge.producer]) == 1 and edge.producer not in local.costly
        return Question("recompute", (FUSE, KEEP) if fuse else (KEEP, FUSE))
    return None


def _fuse_dependent(edges: Edges, edge: Edge, anchors: int, local: _Local) -> bool:
    """Default on a yellow edge into an operator that is no anchor.

    The result of a reduction that is broadcast over its own rows (the mean in a layer normalisation
    written out) joins: the kernel finishes a row before it needs the result. So does a map of one pixel, which the
    kernel finishes whole. A Concat joins the product whose result it holds, which then writes its part in place.
    """
    if edge.kind == MappingType.ONE_TO_MANY:
        if anchors:
            return not anchors & ~local.reductions or edge.producer in local.small
        return len(edges.out[edge.producer]) == 1 and edge.producer not in local.costly
    consumer = edges.graph.by_name[edge.consumer]
    if consumer.op_type in MOVES:
        return not anchors or (consumer.op_type == "Concat" and not anchors & ~local.products)
    return True


def _in_turn(edges: Edges, edge: Edge, anchors: int, local: _Local) -> bool:
    """Default where an anchor stands above another: whether one kernel that computes them in turn loses nothing.

    Each part keeps its own loops, so only choices that they would have to share can cost: a pool or a sum shares none
    with a product. Maps of one pixel cost little but their launch. Large scores of attention never go to memory.
    """
    consumer = edges.graph.by_name[edge.consumer]
    if not anchors or len(consumer.outputs) != 1:
        return False
    if {edge.producer, edge.consumer} & local.scored:
        return not anchors & ~local.attending
    if consumer.op_type in _SUMS:  # where others read its operand too, it rather joins what comes back to that
        return len(edges.out[edge.producer]) == 1 and not anchors & ~local.products
    if consumer.op_type in _POOLS:
        return not anchors & ~local.dense and not consumer.attributes.get("ceil_mode", 0)
    return consumer.op_type in _PRODUCTS and {edge.producer, edge.consumer} <= local.small


def _prologue(edges: Edges, edge: Edge, above: frozenset[MappingType], anchors: int, local: _Local) -> Question:
    """The question on an edge into an anchor.

    Default: apart when an anchor above can take the producer as its epilogue, or when the consumer reads
    elements often (each read would compute the prologue again), or when the producer gathers from several
    places (a Concat inlined is a chain of conditions). A Pad costs nothing and joins even a convolution; neither does
    a matrix that is turned for few rows (see `_is_turned_for_few`). Together with the anchor above where that loses
    nothing (see `_in_turn`).
    """
    own = edges.own[edge.producer]
    merge = any(relation(kind, _ANCHOR) == Relation.BREAK for kind in above)
    in_turn = merge and _in_turn(edges, edge, anchors, local)
    if relation(own, _ANCHOR) == Relation.BREAK:
        return Question("break", (MERGE, KEEP) if in_turn else (KEEP, MERGE))
    graph = edges.graph
    consumer, producer = graph.by_name[edge.consumer], graph.by_name[edge.producer]
    private = len(edges.out[edge.producer]) == 1
    moves = producer.op_type in MOVES
    cheap = (private and producer.op_type == "Pad") if moves else reads_once(consumer)
    turned = private and _is_turned_for_few(graph, producer, consumer)
    choices = (FUSE, KEEP) if (cheap and not anchors) or turned else (KEEP, FUSE)
    kind = "depend" if own in _FREE else "prologue"
    if in_turn:
        return Question(kind, (MERGE, *choices))
    return Question(kind, (*choices, MERGE) if merge else choices)


def _is_turned_for_few(graph: Graph, producer: Operator, consumer: Operator) -> bool:
    """Whether an operator turns a computed matrix for a product of few rows, which reads it as it lies: turning it
    takes longer than the product (the keys of all tokens before, in a step of a decoder)."""
    if producer.op_type != "Transpose" or consumer.op_type != "MatMul" or consumer.inputs[1] != producer.outputs[0]:
        return False
    order, rows = producer.attributes.get("perm"), graph.tensors[consumer.inputs[0]].shape
    if not isinstance(order, tuple) or len(order) < 2 or len(rows) < 2:
        return False
    return order[-2] == len(order) - 1 and rows[-2] <= FEW_SHARING
