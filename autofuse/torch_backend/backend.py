"""The backend that `torch.compile(model, backend="autofuse")` finds through the entry point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.torch_backend.options import FIXED, parse_options
from autofuse.torch_backend.refusals import refuse_training


def autofuse(
    module: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Any:
    """A graph that dynamo has found, as what runs in its place: compiled at its first call, by what the database knows.

    `options`: see `autofuse.torch_backend.options.Options`. A graph that cannot be compiled runs in eager, with one
    `EagerWarning` that says why. InputError for options that there are not, and where onnxscript is missing.
    """
    from autofuse.torch_backend.export import check_exporter
    from autofuse.torch_backend.graph import Graph
    from autofuse.torch_backend.open_sizes import symbols_of

    known = parse_options(options, mode)
    check_exporter()
    places = list(module.graph.find_nodes(op="placeholder"))
    weights = tuple(number for number, node in enumerate(places) if _is_weight(node, example_inputs[number]))
    numbers = _without_tensors(module, places)
    open_sizes = bool(numbers) or any(_is_open(value) for value in example_inputs)
    symbols = symbols_of(module, weights) if open_sizes and known.sizes != FIXED else ()
    graph = Graph(module, weights, open_sizes, known, symbols, numbers)
    if _is_training(module):
        graph.refuse(refuse_training(sum(node.op.startswith("call_") for node in module.graph.nodes)))
    return graph


def _is_weight(node: Any, example: Any) -> bool:
    """Whether an argument is a parameter or buffer of a module: it stays the same tensor from call to call."""
    import torch

    kept = node.meta.get("tensor_dict") or {}
    return isinstance(example, torch.nn.Parameter) or bool(kept.get("_dynamo_static_input_type"))


def _without_tensors(module: Any, places: Sequence[Any]) -> tuple[int, ...]:
    """Arguments that are tensors for a number each, which the graph asks of them; from now on it takes the numbers.

    Dynamo makes such of Python's floats (an epsilon, a probability) where sizes are left open, and torch.export would
    not know that they are the same at each call.
    """
    found = []
    for place, node in enumerate(places):
        value, users = node.meta.get("example_value"), list(node.users)
        asked = [user.op == "call_method" and user.target == "item" for user in users]
        if users and all(asked) and getattr(value, "ndim", None) == 0:
            found.append(place)
            for user in users:
                user.replace_all_uses_with(node)
                module.graph.erase_node(user)
    if found:
        module.recompile()
    return tuple(found)


def _is_open(value: Any) -> bool:
    """Whether dynamo left a size or number to each call."""
    import torch

    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | float)


def _is_training(module: Any) -> bool:
    """Whether a backward pass may want a result."""
    output = next(iter(module.graph.find_nodes(op="output")))
    found = [node.meta.get("example_value") for node in output.all_input_nodes]
    return any(getattr(value, "requires_grad", False) for value in found)
