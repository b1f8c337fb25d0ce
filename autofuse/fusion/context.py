"""Content-derived labels: equal situations of any model get equal names, different ones do not."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from autofuse.graph.model import AttributeValue, Graph, Operator


def digest(*parts: object, length: int = 16) -> str:
    """First hexadecimal digits of the SHA-256 of the parts' text."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:length]


def operator_label(graph: Graph, operator: Operator) -> str:
    """What an operator is, without any name: type, attributes, shapes and dtypes, which inputs are constant."""
    attributes = ",".join(f"{key}={_text(value)}" for key, value in sorted(operator.attributes.items()))
    reads = ";".join(_tensor(graph, name) for name in operator.inputs)
    writes = ";".join(_tensor(graph, name) for name in operator.outputs)
    return digest(operator.domain, operator.op_type, attributes, reads, writes)


def contexts(graph: Graph) -> Mapping[str, str]:
    """Label of each operator together with its direct neighbours, by operator name.

    Two operators share a context when they and all their producers and consumers are the same but for
    names and weights. A pair of contexts sees two operators far around an edge.
    """
    own = {operator.name: operator_label(graph, operator) for operator in graph.operators}
    results = set(graph.outputs)
    found: dict[str, str] = {}
    for operator in graph.operators:
        above = [own[graph.producers[name].name] if name in graph.producers else "-" for name in operator.inputs]
        below = []
        for name in operator.outputs:
            users = sorted(own[user.name] for user in graph.consumers.get(name, ())) if name else []
            below.append(("!" if name in results else "") + ",".join(users))
        found[operator.name] = digest(own[operator.name], ";".join(above), ";".join(below))
    return found


def group_signature(graph: Graph, operators: tuple[str, ...]) -> str:
    """Label of a group (names in topological order): equal groups of any model are one piece of work."""
    numbers: dict[str, int] = {}
    _, writes = graph.boundary(operators)
    parts = []
    for name in operators:
        operator = graph.by_name[name]
        wires = [numbers.setdefault(tensor, len(numbers)) for tensor in (*operator.inputs, *operator.outputs) if tensor]
        parts.append(f"{operator_label(graph, operator)}{wires}")
    return digest(*parts, [numbers[tensor] for tensor in writes])


def _tensor(graph: Graph, name: str) -> str:
    if not name:
        return ""
    tensor = graph.tensors[name]
    mark = "c" if name in graph.constants else ""
    return f"{mark}{tensor.dtype}{list(tensor.shape)}"


def _text(value: AttributeValue) -> str:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else repr(value)
