"""A size that dynamo leaves open: where it stands in the arguments and results of a graph, and from where to where its
library goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse.graph.loading.files import read_model
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.torch_backend.refusals import RefusedError

LEAST, MOST = 2, 512
"""The range of a size of which nobody says one: dynamo makes a graph of its own of size 1."""


@dataclass(frozen=True)
class Symbol:
    """A size that dynamo leaves open, by its `name` there.

    `axes`: (place, axis, more) of each tensor that has it among the arguments, `more` longer. `numbers`: (place, more)
    of arguments that are numbers. `results`: the same of results. `most`: what dynamo knows it is at most.
    """

    name: str
    axes: tuple[tuple[int, int, int], ...]
    numbers: tuple[tuple[int, int], ...] = ()
    results: tuple[tuple[int, int], ...] = ()
    most: int | None = None

    def value(self, args: Sequence[Any]) -> int:
        """The size in these arguments."""
        place, axis, more = self.axes[0]
        return int(args[place].shape[axis]) - more

    def is_in(self, args: Sequence[Any]) -> bool:
        """Whether it is the same wherever it stands."""
        size = self.value(args)
        tensors = all(args[place].shape[axis] == size + more for place, axis, more in self.axes)
        return tensors and all(args[place] == size + more for place, more in self.numbers)


@dataclass(frozen=True)
class Opened:
    """A size that the library of a graph leaves open, from `low` to `high`."""

    symbol: Symbol
    low: int
    high: int

    def takes(self, args: Sequence[Any]) -> bool:
        """Whether the size of these arguments is in the range."""
        return self.low <= self.symbol.value(args) <= self.high and self.symbol.is_in(args)

    def in_file(self, path: Path, names: dict[int, str]) -> OpenSize:
        """The open size under its name in an ONNX file, whose inputs are called so by their place.

        RefusedError where torch's exporter has fixed it.
        """
        dims = {value.name: value.type.tensor_type.shape.dim for value in read_model(path).graph.input}
        found = {dims[names[place]][axis].dim_param for place, axis, more in self.symbol.axes if not more}
        name = next(iter(found), "")
        if len(found) != 1 or not name:
            raise RefusedError("torch's exporter makes it a fixed number")
        return OpenSize(name, self.low, self.high)


def masked(opened: Sequence[Opened], sizes: Sequence[Any]) -> tuple[Any, ...]:
    """Shapes and numbers of all arguments, see `sizes_of`, without the sizes that are open."""
    found = [list(one) if isinstance(one, tuple) else one for one in sizes]
    for number, one in enumerate(opened):
        for place, axis, more in one.symbol.axes:
            found[place][axis] = f"size {number} + {more}"
        for place, more in one.symbol.numbers:
            found[place] = f"size {number} + {more}"
    return tuple(tuple(one) if isinstance(one, list) else one for one in found)


def symbols_of(module: Any, weights: Sequence[int]) -> tuple[Symbol, ...]:
    """The sizes that dynamo leaves open in a graph, in the order in which its arguments have them.

    Without those that only numbers have, of which a multiple or a product stands somewhere, or of which a result that
    is a number is made in another way than by an addition.
    """
    import torch

    axes: dict[Any, list[tuple[int, int, int]]] = {}
    numbers: dict[Any, list[tuple[int, int]]] = {}
    results: dict[Any, list[tuple[int, int]]] = {}
    others: set[Any] = set()
    environment: Any = None
    for place, node in enumerate(module.graph.find_nodes(op="placeholder")):
        value = node.meta.get("example_value")
        if isinstance(value, torch.SymInt):
            environment = value.node.shape_env
            _note(value, numbers, others, place)
        elif isinstance(value, torch.Tensor) and place not in weights:
            for axis, size in enumerate(value.shape):
                _note(size, axes, others, place, axis)
    output = next(iter(module.graph.find_nodes(op="output")))
    for place, node in enumerate(output.args[0]):
        value = node.meta.get("example_value") if hasattr(node, "meta") else None
        if isinstance(value, torch.SymInt):
            _note(value, results, others, place)
    return tuple(
        Symbol(str(symbol), tuple(sorted(found, key=lambda one: one[2])), tuple(numbers.get(symbol, ())),
               tuple(results.get(symbol, ())), _most(environment, symbol))
        for symbol, found in axes.items()
        if symbol not in others and any(not more for _, _, more in found)
    )  # fmt: skip


def _note(size: Any, found: dict[Any, list[Any]], others: set[Any], *where: int) -> None:
    """Enters a size among what is `found` of its symbol; what is more than a sum, into `others`."""
    expression = getattr(getattr(size, "node", None), "expr", None)
    free = set() if expression is None else expression.free_symbols
    if len(free) == 1:
        symbol = next(iter(free))
        more = expression - symbol
        if more.is_Integer and more >= 0:
            found.setdefault(symbol, []).append((*where, int(more)))
            return
    others |= free


def _most(environment: Any, symbol: Any) -> int | None:
    """What dynamo, or `mark_dynamic`, says that a size is at most."""
    known = None if environment is None else environment.var_to_range.get(symbol)
    upper = None if known is None else known.upper
    return int(upper) if upper is not None and getattr(upper, "is_Integer", False) else None


def range_of(symbol: Symbol, args: Sequence[Any], wished: tuple[int, int] | None) -> Opened | None:
    """The range of a library for these arguments: as `wished`, or else the default one; None where there is none."""
    size = symbol.value(args)
    low, high = wished or (LEAST, max(MOST, 1 << (size - 1).bit_length()))
    if wished is None and symbol.most is not None:
        high = min(high, symbol.most)
    found = Opened(symbol, low, high)
    return found if low < high and found.takes(args) else None
