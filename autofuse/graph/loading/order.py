"""The nodes of a graph in an order in which each follows what it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto

from autofuse.errors import InputError
from autofuse.graph.model import topological_order
from autofuse.graph.nodes import captured_names

_SHOWN = 8
"""Operators that a message names."""


def sort_nodes(graph: GraphProto, constants: Mapping[str, NDArray[np.generic]], source: str) -> None:
    """Topological order, in place; InputError for a cycle, a missing or a twice written tensor."""
    nodes = list(graph.node)
    known = {value.name for value in graph.input} | set(constants)
    reads = [{name for name in (*node.input, *captured_names(node)) if name} for node in nodes]
    writer: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in (name for name in node.output if name):
            if name in writer or name in known:
                raise InputError(
                    f"{source}: tensor {name!r} is written twice (operator {node.name!r}); export the model again"
                )
            writer[name] = index
    for node, names in zip(nodes, reads, strict=True):
        missing = sorted(name for name in names if name not in known and name not in writer)
        if missing:
            raise InputError(
                f"{source}: operator {node.name!r} reads {missing[0]!r}, which nothing writes; export the model again"
            )
    for value in graph.output:
        if value.name not in known and value.name not in writer:
            raise InputError(f"{source}: nothing writes the output {value.name!r}; export the model again")
    before = {index: {writer[name] for name in names if name in writer} for index, names in enumerate(reads)}
    order = _order(before, nodes, source)
    if order != sorted(order):
        copies = [NodeProto.FromString(nodes[index].SerializeToString()) for index in order]
        del graph.node[:]
        graph.node.extend(copies)


def _order(before: Mapping[int, set[int]], nodes: Sequence[NodeProto], source: str) -> list[int]:
    """Positions of the nodes, each after those that stand in `before`; the given order where that can be."""
    try:
        return topological_order(before, rank=int)
    except CycleError as error:
        names = [repr(nodes[index].name) for index in error.args[1][1:]]
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        raise InputError(f"{source}: the graph has a cycle through {shown}; export the model again") from error
