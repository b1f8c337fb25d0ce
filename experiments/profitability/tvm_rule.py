"""What TVM's own FuseOps does with a group: whether it would make one kernel of it.

Groups are laid side by side in one graph, without an edge between them, so that TVM partitions many at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from autofuse.backend.tvm.partition import tvm_plan
from autofuse.errors import AutofuseError
from autofuse.graph.model import Graph, Operator
from autofuse.kernels.workload.as_graph import as_graph
from autofuse.kernels.workload.workload import Workload

OPERATORS_AT_ONCE = 600

Named = tuple[str, Graph]


def fused_by_tvm(workloads: Mapping[str, str]) -> dict[str, bool]:
    """Whether FuseOps makes one kernel of each workload, by key; `workloads`: their texts.

    False too for what TVM cannot say.
    """
    found: dict[str, bool] = {}
    graphs = [(key, _prefixed(as_graph(Workload.from_text(text)), f"{key[:16]}.")) for key, text in workloads.items()]
    for opset in sorted({graph.opset for _, graph in graphs}):
        for batch in _batches([named for named in graphs if named[1].opset == opset]):
            found |= _answers(batch)
    return found


def _answers(batch: Sequence[Named]) -> dict[str, bool]:
    try:
        plan = tvm_plan(side_by_side([graph for _, graph in batch]))
    except AutofuseError:
        if len(batch) == 1:
            return {batch[0][0]: False}
        half = len(batch) // 2  # one of them cannot be said: the others can
        return _answers(batch[:half]) | _answers(batch[half:])
    groups = {frozenset(group.operators) for group in plan.groups}
    return {key: frozenset(operator.name for operator in graph.operators) in groups for key, graph in batch}


def _batches(graphs: Iterable[Named]) -> Iterator[list[Named]]:
    batch: list[Named] = []
    for named in graphs:
        batch.append(named)
        if sum(len(graph.operators) for _, graph in batch) >= OPERATORS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def side_by_side(graphs: Sequence[Graph]) -> Graph:
    """One graph of several that share no name, and have one opset."""
    return Graph(
        "groups",
        tuple(name for graph in graphs for name in graph.inputs),
        tuple(name for graph in graphs for name in graph.outputs),
        tuple(operator for graph in graphs for operator in graph.operators),
        {name: tensor for graph in graphs for name, tensor in graph.tensors.items()},
        {name: array for graph in graphs for name, array in graph.constants.items()},
        graphs[0].opset,
    )


def _prefixed(graph: Graph, prefix: str) -> Graph:
    """The graph with `prefix` before every name."""

    def named(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(prefix + name if name else "" for name in names)

    def moved(operator: Operator) -> Operator:
        inputs, outputs = named(operator.inputs), named(operator.outputs)
        return replace(operator, name=prefix + operator.name, inputs=inputs, outputs=outputs)

    return Graph(
        graph.name,
        named(graph.inputs),
        named(graph.outputs),
        tuple(map(moved, graph.operators)),
        {prefix + name: replace(tensor, name=prefix + name) for name, tensor in graph.tensors.items()},
        {prefix + name: array for name, array in graph.constants.items()},
        graph.opset,
    )
