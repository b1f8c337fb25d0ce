"""Edges between operators, and the mapping types that planning sees on them.

The paper gives an operator one type. Planning needs a finer look at three places:

- A pointwise operator that broadcasts one operand is one-to-many for *that* edge; along the operand that
  already has the output's shape it is one-to-one (`x * sigmoid(s)`, with `s` one value a channel).
- Concat, Slice, Split and Pad are one-to-one in the paper. They move data as Reshape does, and joining one
  to a convolution is no sure gain, so they plan as reorganize.
- A many-to-many consumer may read each element once (softmax) or often (convolution): in the second case
  a prologue is recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from autofuse.fusion.reach import Reach
from autofuse.graph.mapping import POINTWISE, MappingType, mapping_type
from autofuse.graph.model import Graph, Operator

MOVES = frozenset({"Concat", "Slice", "Split", "Pad", "CenterCropPad"})
"""Copies: planned as reorganize."""

_READ_ONCE = """
    ArgMax ArgMin CumProd CumSum GlobalAveragePool GlobalLpPool GlobalMaxPool GroupNormalization Hardmax
    InstanceNormalization LayerNormalization LogSoftmax LpNormalization MeanVarianceNormalization RMSNormalization
    SkipLayerNormalization Softmax
"""


@dataclass(frozen=True)
class Edge:
    """An edge of the graph: `consumer` reads `tensors` of `producer` (operator names).

    `kind`: mapping type of the consumer along this edge. `blocked`: another path from producer to consumer
    runs through an operator that no group crosses, so the two can hardly share a group.
    """

    producer: str
    consumer: str
    tensors: tuple[str, ...]
    kind: MappingType
    blocked: bool


class Edges:
    """All edges of a graph with planning types; `own` is each operator's type as a producer."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.own: Mapping[str, MappingType] = {op.name: planning_type(graph, op) for op in graph.operators}
        self.reach = reach = Reach(graph)
        crossed = (MappingType.MANY_TO_MANY, MappingType.OPAQUE)
        walls = reach.mask(name for name, kind in self.own.items() if kind in crossed)
        self.into: dict[str, tuple[Edge, ...]] = {}
        found: dict[str, list[Edge]] = {operator.name: [] for operator in graph.operators}
        for consumer in graph.operators:
            edges = []
            here = reach.position[consumer.name]
            for producer in graph.predecessors(consumer):
                tensors = tuple(dict.fromkeys(name for name in consumer.inputs if name in producer.outputs and name))
                below = reach.descendants[reach.position[producer.name]]
                blocked = bool(below & reach.ancestors[here] & walls)
                kind = _kind_along(graph, consumer, tensors, self.own[consumer.name])
                edges.append(Edge(producer.name, consumer.name, tensors, kind, blocked))
            self.into[consumer.name] = tuple(edges)
            for edge in edges:
                found[edge.producer].append(edge)
        self.out = {name: tuple(edges) for name, edges in found.items()}

    @cached_property
    def all(self) -> tuple[Edge, ...]:
        """Every edge, consumers in topological order."""
        return tuple(edge for operator in self.graph.operators for edge in self.into[operator.name])


def planning_type(graph: Graph, operator: Operator) -> MappingType:
    """Mapping type of an operator seen from its result: see the module's text."""
    kind = mapping_type(graph, operator)
    if operator.op_type in MOVES and kind == MappingType.ONE_TO_ONE:
        return MappingType.REORGANIZE
    if kind == MappingType.ONE_TO_MANY and operator.op_type in POINTWISE:
        size = graph.tensors[operator.outputs[0]].elements
        if any(graph.tensors[name].elements == size for name in graph.activations(operator)):
            return MappingType.ONE_TO_ONE
    return kind


def _kind_along(graph: Graph, consumer: Operator, tensors: tuple[str, ...], own: MappingType) -> MappingType:
    if own != MappingType.ONE_TO_ONE or consumer.op_type not in POINTWISE:
        return own
    size = graph.tensors[consumer.outputs[0]].elements
    return MappingType.ONE_TO_MANY if any(graph.tensors[name].elements < size for name in tensors) else own


def reads_once(operator: Operator) -> bool:
    """Whether a many-to-many operator reads each input element about once, so that a prologue costs nothing twice."""
    if operator.op_type in _READ_ONCE.split() or operator.op_type.startswith("Reduce"):
        return True
    if operator.op_type in ("AveragePool", "MaxPool", "LpPool"):
        window = operator.attributes.get("kernel_shape")
        return window is not None and window == operator.attributes.get("strides")
    return False
