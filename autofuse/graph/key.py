"""Content key of a graph: what plans and choices in the profiling database belong to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from autofuse.graph.model import Graph


def graph_key(graph: Graph) -> str:
    """SHA-256 over operators with their names, attributes and wiring, and all shapes; weights do not count.

    A plan names operators, so equal keys mean that a plan of one graph is a plan of the other.
    """
    operators = [
        [op.name, op.domain, op.op_type, list(op.inputs), list(op.outputs), _attributes(op.attributes)]
        for op in graph.operators
    ]
    tensors = [
        [t.name, list(t.shape), graph.dtype_for_callers(t.name), t.name in graph.constants]
        for t in graph.tensors.values()
    ]
    body = [list(graph.inputs), list(graph.outputs), operators, sorted(tensors), graph.opset]
    return hashlib.sha256(json.dumps(body, separators=(",", ":")).encode()).hexdigest()


def open_key(key: str, names: Iterable[str]) -> str:
    """Key of a graph, or of a model, of which the sizes of such names stay open, from its key at fixed sizes."""
    return hashlib.sha256(f"{key} open {' '.join(sorted(names))}".encode()).hexdigest()


def _attributes(attributes: object) -> list[list[str]]:
    assert hasattr(attributes, "items")
    return sorted([str(name), repr(value)] for name, value in attributes.items())
