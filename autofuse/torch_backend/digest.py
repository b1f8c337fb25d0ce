"""What a graph is known by on the disk: its operators, sizes, types and weights, whatever its values are called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

FORMAT = 1
"""Changes whenever the same digest could mean another library."""
_NAMED = frozenset(("dtype", "device", "layout", "memory_format", "Size", "qscheme"))
"""torch's classes of constants that their text tells apart."""
_KNOWN = ("torch", "math", "operator", "_operator", "builtins")
"""Packages whose functions do the same under the same version."""
_OPERATORS = ("aten.", "prims.")


class UnknownGraphError(Exception):
    """A graph whose text does not say what it computes: it is compiled, and never kept."""


def graph_text(module: Any) -> str:
    """A graph of torch.fx as lines, one an operator, in which values have numbers instead of names.

    Constants of tensors stand by their place among those of the module, see `Digest`. UnknownGraphError for
    functions of others, whose code nobody sees here.
    """
    numbers: dict[Any, int] = {}
    lines = []
    for number, node in enumerate(module.graph.nodes):
        words = [node.op]
        if node.op == "get_attr":
            words.append(_attribute(module, str(node.target)))
        elif node.op == "call_module":
            raise UnknownGraphError(f"it calls the module {node.target}")
        elif node.op in ("call_function", "call_method"):
            words.append(_function(node.target))
        if node.op != "placeholder":
            words += [_spelled(node.args, numbers), _spelled(node.kwargs, numbers)]
        lines.append(" ".join(words))
        numbers[node] = number
    return "\n".join(lines)


def _attribute(module: Any, target: str) -> str:
    value: Any = module
    for name in target.split("."):
        value = getattr(value, name)
    if hasattr(value, "graph"):
        return f"{{{graph_text(value)}}}"
    return target  # a tensor: its content is among the weights of the digest


def _function(target: Any) -> str:
    if isinstance(target, str):
        return target
    module = getattr(target, "__module__", None) or ""
    text = f"{module}.{getattr(target, '__qualname__', target)}"
    if type(target).__name__ == "OpOverload" and str(target).startswith(_OPERATORS):
        return str(target)
    if module.partition(".")[0] in _KNOWN and not module.startswith("torch._ops"):
        return text
    if not module and type(target).__name__ in ("method_descriptor", "builtin_function_or_method"):
        return str(getattr(target, "__qualname__", target))
    raise UnknownGraphError(f"it calls {text}")


def _spelled(value: Any, numbers: Mapping[Any, int]) -> str:
    if value is None or type(value) in (bool, int, float, str, complex):
        return repr(value)
    if isinstance(value, slice):
        return f"slice{_spelled((value.start, value.stop, value.step), numbers)}"
    if type(value).__name__ in _NAMED and type(value).__module__.partition(".")[0] == "torch":
        return str(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key!r}: {_spelled(item, numbers)}" for key, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_spelled(item, numbers) for item in value)}]"
    try:
        return f"%{numbers[value]}"
    except (KeyError, TypeError):
        raise UnknownGraphError(f"it holds a {type(value).__name__}") from None


def digest(text: str, circumstances: Mapping[str, Any], weights: Sequence[tuple[str, memoryview]]) -> str:
    """The key of a library: SHA-256 of the graph's text, of what else decides the code, and of all weights.

    `circumstances`: plain values by name (sizes, types, threads, versions). `weights`: what each is (its name or place,
    shape and type), and its bytes.
    """
    found = hashlib.sha256(json.dumps([FORMAT, text, circumstances], sort_keys=True).encode())
    for name, content in weights:
        found.update(f"\n{name} {content.nbytes} ".encode())
        found.update(content)
    return found.hexdigest()
