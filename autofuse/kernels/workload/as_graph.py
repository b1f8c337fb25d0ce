"""A workload as a graph of its own, to count what it costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.graph.cost import Cost, group_cost
from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.kernels.workload.workload import Workload


def as_graph(workload: Workload) -> Graph:
    """A graph of one workload: tensors are called `v0`, `v1`, ... after their index, operators `n0`, `n1`, ...

    Literals keep their values; other constants are zeros that take no memory, since only their shapes are known.
    """
    tensors = {
        f"v{index}": Tensor(f"v{index}", value.shape, value.dtype) for index, value in enumerate(workload.values)
    }

    def names(indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(f"v{index}" if index >= 0 else "" for index in indices)

    operators = tuple(
        Operator(f"n{index}", node.op_type, names(node.inputs), names(node.outputs), dict(node.attributes), node.domain)
        for index, node in enumerate(workload.operators)
    )
    constants = {f"v{index}": workload.values[index].literal_array() for index in workload.of_kind("literal")}
    for index in workload.of_kind("constant"):
        value = workload.values[index]
        constants[f"v{index}"] = np.broadcast_to(np.zeros((), value.dtype), value.shape)
    return Graph(
        "workload",
        names(workload.of_kind("input")),
        names(workload.of_kind("output")),
        operators,
        tensors,
        constants,
        workload.opset,
    )


def workload_cost(workload: Workload, *, weights: bool = True) -> Cost:
    """What a workload costs by the definition of its operators; `weights`: with the reading of its constants."""
    graph = as_graph(workload)
    return group_cost(graph, [operator.name for operator in graph.operators], weights=weights)
