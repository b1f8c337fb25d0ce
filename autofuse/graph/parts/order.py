"""The nodes of a model in an order in which they can run, and those that are needed at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from graphlib import CycleError

from onnx import GraphProto, NodeProto

from autofuse.errors import InputError
from autofuse.graph.model import topological_order
from autofuse.graph.nodes import captured_names, give_names


def sorted_nodes(graph: GraphProto, given: Collection[str], source: str) -> list[NodeProto]:
    """The nodes in topological order, each with a name of its own."""
    nodes = list(graph.node)
    give_names(nodes)
    writer = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    before = {
        place: {writer[n] for n in (*node.input, *captured_names(node)) if n in writer and n not in given}
        for place, node in enumerate(nodes)
    }
    try:
        return [nodes[place] for place in topological_order(before, rank=int)]
    except CycleError as error:
        raise InputError(f"{source}: the graph has a cycle; export the model again") from error


def needed_nodes(nodes: Sequence[NodeProto], outputs: Collection[str]) -> list[NodeProto]:
    """Those of the nodes, in topological order, that the outputs need."""
    wanted, found = set(outputs), list[NodeProto]()
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update((*node.input, *captured_names(node)))
            found.append(node)
    return found[::-1]
