"""Tensors of a graph whose numbers are all bfloat16: between kernels, and for callers, their 16 bits are enough."""

from __future__ import annotations

from autofuse.graph.model import Graph
from autofuse.graph.own.bfloat16 import rounded_tensors


def half_tensors(graph: Graph) -> frozenset[str]:
    """Names of the float32 tensors that hold nothing but bfloat16; of the inputs, those that callers give as such."""
    found = rounded_tensors(graph.operators, graph.constants, graph.halves.intersection(graph.inputs))
    return frozenset(name for name in found if graph.tensors[name].dtype == "float32")
