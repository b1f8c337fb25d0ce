"""Tensors of a graph whose numbers are all bfloat16: between kernels their 16 bits are enough."""

from __future__ import annotations

import numpy as np

from autofuse.graph.model import Graph, Operator
from autofuse.graph.own.names import DOMAIN, ROUND
from autofuse.graph.own.rounding import is_rounded

_MOVES = frozenset(
    {
        "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Neg", "Relu", "Reshape", "Slice",
        "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators whose results are numbers of their first input, zeros, or their negatives."""
_OF_ALL = frozenset({"Clip", "Concat", "Max", "Min"})
"""Operators whose results are numbers of any of their inputs."""


def half_tensors(graph: Graph) -> frozenset[str]:
    """Names of the computed float32 tensors that hold nothing but bfloat16."""
    found: set[str] = set()
    for operator in graph.operators:
        if _is_round(operator) or _keeps(graph, operator, found):
            found |= {name for name in operator.outputs if name and graph.tensors[name].dtype == "float32"}
    return frozenset(found)


def _is_round(operator: Operator) -> bool:
    return operator.domain == DOMAIN and operator.op_type == ROUND


def _keeps(graph: Graph, operator: Operator, found: set[str]) -> bool:
    """Whether an operator makes bfloat16 of bfloat16."""
    if operator.domain or operator.op_type not in _MOVES | _OF_ALL:
        return False
    sources = operator.inputs[:1] if operator.op_type in _MOVES else operator.inputs
    names = [name for name in sources if name]
    return any(name in found for name in names) and all(name in found or _is_constant(graph, name) for name in names)


def _is_constant(graph: Graph, name: str) -> bool:
    return name in graph.constants and is_rounded(np.asarray(graph.constants[name]))
