"""Nodes of a body or a function, put into a draft under names of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, numpy_helper

from autofuse.graph.loading.draft import Draft, as_constants
from autofuse.graph.model import Operator
from autofuse.graph.nodes import attribute_proto, operator_of


def inlined(draft: Draft, title: str, nodes: Iterable[NodeProto], names: dict[str, str]) -> list[Operator]:
    """The operators of some nodes, in their order; Constants become constants of the draft.

    `names`: what the values that the nodes read and write are called in the draft; inner ones are added to it, and
    begin with `title`.
    """
    made: list[Operator] = []
    for index, node in enumerate(nodes):
        inner = operator_of(node)
        for name in inner.outputs:
            if name not in names:
                names[name] = draft.fresh(f"{title}/{name}") if name else ""
        if inner.op_type == "Constant" and not inner.domain:
            value = as_constants(constant_value(inner), draft.source)
            draft.set_constant(names[inner.outputs[0]], value[inner.outputs[0]])
            continue
        name = f"{title}/{inner.name or f'{inner.op_type}_{index}'}"
        inputs = tuple(names.get(name, name) for name in inner.inputs)
        made.append(replace(inner, name=name, inputs=inputs, outputs=tuple(names[name] for name in inner.outputs)))
    return made


def passed_on(operator: Operator, results: Iterable[str]) -> list[Operator]:
    """Identities that give values the names that the results of `operator` have; nobody reads a nameless one."""
    pairs = zip(results, operator.outputs, strict=False)
    return [Operator(f"{operator.name}/{name}", "Identity", (made,), (name,)) for made, name in pairs if name]


def constant_value(operator: Operator) -> dict[str, NDArray[np.generic]]:
    """{output name: value} of a Constant operator, whichever attribute holds the value."""
    (label, value), *_ = operator.attributes.items()
    array: NDArray[np.generic]
    if isinstance(value, bytes):
        proto = attribute_proto(value)
        array = numpy_helper.to_array(proto.t) if proto.HasField("t") else np.asarray(value)
    else:
        kind = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
        array = np.asarray(value, dtype=kind.get(label))
    return {operator.outputs[0]: array}
