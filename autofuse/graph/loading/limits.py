"""Limits on the size of a model; a larger one is refused with a message that names the operator and the way out.

A file of a few hundred bytes can ask for any amount of memory (a Tile, a Pad, functions that call functions), so sizes
are computed before anything is made. What would be folded beyond `FoldBudget` is left to be computed when the model
runs; the other limits refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from onnx import FunctionProto, ModelProto, NodeProto

from autofuse.errors import InputError
from autofuse.graph.model import Operator, Tensor
from autofuse.graph.nodes import subgraphs_of

MAX_TENSOR_BYTES = 2**31 - 1
"""Most elements of a tensor: kernels count them in 32 bits."""
MAX_LIVE_BYTES = 16 << 30
"""Most bytes of all results that are needed at the same time, when operators run one after another."""
MAX_OPERATORS = 100_000
"""Most operators of a model, counted with its functions inlined and with those of its subgraphs."""
MAX_OUTPUTS = 1_000
"""Most outputs of a model. Each may be a kernel of its own, though it is a constant."""
MAX_FOLDED_BYTES, FOLDED_GROWTH = 256 << 20, 8
"""Folding makes no more than so many bytes, and so many times the model's own weights."""
SLOW_FACTOR, FOLD_BYTES = 32, 1 << 14
"""What a byte counts of an operator that the reference computes in a loop of Python, and what each folding costs."""
OPERATOR_ROUNDS, LEAST_ROUNDS, MOST_ROUNDS = 400_000, 8, 100
"""Operators, times rounds, after which simplifying ends."""


@dataclass
class FoldBudget:
    """A budget of constant folding; `left_bytes` falls."""

    left_bytes: int

    @classmethod
    def of(cls, weights_bytes: int) -> FoldBudget:
        """The limits of a model with `weights` bytes of weights."""
        return cls(MAX_FOLDED_BYTES + FOLDED_GROWTH * weights_bytes)

    def take(self, size_bytes: int, slow: bool) -> bool:
        """Whether a result of so many bytes may be folded; if so, it is counted."""
        cost = FOLD_BYTES + size_bytes * (SLOW_FACTOR if slow else 1)
        if cost > self.left_bytes:
            return False
        self.left_bytes -= cost
        return True


def rounds_for(operators: int) -> int:
    """How often a draft of `operators` operators is simplified at most."""
    return min(MOST_ROUNDS, max(LEAST_ROUNDS, OPERATOR_ROUNDS // max(1, operators)))


def check_operator_count(model: ModelProto, source: str) -> None:
    """InputError when the model, its functions inlined, has more than `MAX_OPERATORS`, or one of them calls itself."""
    bodies = {_key(function): function.node for function in model.functions}
    calls = {key: {_name(node) for node in _all_nodes(nodes)} & bodies.keys() for key, nodes in bodies.items()}
    try:
        order = tuple(TopologicalSorter(calls).static_order())
    except CycleError as error:
        name = error.args[1][0][1]
        raise InputError(f"{source}: the model's function {name!r} calls itself; export the model again") from error
    sizes: dict[tuple[str, str], int] = {}
    for key in order:
        sizes[key] = sum(sizes.get(_name(node), 1) for node in _all_nodes(bodies[key]))
    count = 0
    for node in _all_nodes(model.graph.node):
        count += sizes.get(_name(node), 1)
        if count > MAX_OPERATORS:
            what = f", most of them from its function {node.op_type!r}" if _name(node) in sizes else ""
            raise InputError(
                f"{source}: the model has more than {MAX_OPERATORS:,} operators{what}; export a smaller one, or a part"
            )


def check_tensor(tensor: Tensor, operator: Operator, source: str) -> None:
    """InputError when a result is larger than `MAX_TENSOR_BYTES`, or of a negative size."""
    if min(tensor.shape, default=0) < 0:
        raise InputError(
            f"{source}: result {tensor.name!r} of operator {operator.name!r} ({operator.op_type}) has a negative size "
            f"({','.join(map(str, tensor.shape))}): its window is larger than its input, or a size too large to count; "
            "change the operator"
        )
    if tensor.size_bytes > MAX_TENSOR_BYTES:
        shape = "x".join(map(str, tensor.shape))
        raise InputError(
            f"{source}: result {tensor.name!r} of operator {operator.name!r} ({operator.op_type}) has "
            f"{tensor.size_bytes / 1e9:,.1f} GB ({shape} {tensor.dtype}), at most 2 GB are allowed; "
            "use smaller inputs, or change the operator"
        )


def check_inputs(inputs: Iterable[Tensor], source: str) -> None:
    """InputError when an input is larger than `MAX_TENSOR_BYTES`."""
    for tensor in inputs:
        if tensor.size_bytes > MAX_TENSOR_BYTES:
            raise InputError(
                f"{source}: input {tensor.name!r} has {tensor.size_bytes / 1e9:,.1f} GB "
                f"({'x'.join(map(str, tensor.shape))} {tensor.dtype}), at most 2 GB are allowed; use a smaller shape"
            )


def check_live(
    operators: Sequence[Operator],
    tensors: Mapping[str, Tensor],
    constants: Iterable[str],
    outputs: Iterable[str],
    source: str,
) -> None:
    """InputError when the results that are needed at once are larger than `MAX_LIVE_BYTES`."""
    last = {name: place for place, operator in enumerate(operators) for name in operator.inputs if name}
    last |= dict.fromkeys(outputs, len(operators))
    gone: dict[int, list[str]] = {}
    for name, place in last.items():
        gone.setdefault(place, []).append(name)
    fixed, live = set(constants), 0
    alive: set[str] = set()
    for place, operator in enumerate(operators):
        new = [name for name in operator.outputs if name and name not in fixed]
        live += sum(tensors[name].size_bytes for name in new)
        alive.update(new)
        if live > MAX_LIVE_BYTES:
            raise InputError(
                f"{source}: at operator {operator.name!r} ({operator.op_type}) {live / 1e9:,.1f} GB of results are "
                f"needed at once, at most {MAX_LIVE_BYTES >> 30} GiB are allowed; use smaller inputs"
            )
        for name in (*gone.get(place, ()), *(name for name in new if name not in last)):
            if name in alive:
                alive.discard(name)
                live -= tensors[name].size_bytes


def _key(function: FunctionProto) -> tuple[str, str]:
    return ("" if function.domain == "ai.onnx" else function.domain, function.name)


def _name(node: NodeProto) -> tuple[str, str]:
    return ("" if node.domain == "ai.onnx" else node.domain, node.op_type)


def _all_nodes(nodes: Iterable[NodeProto]) -> Iterable[NodeProto]:
    """Nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for body in subgraphs_of(node):
            yield from _all_nodes(body.node)
