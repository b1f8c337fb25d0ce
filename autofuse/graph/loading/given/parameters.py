"""Inputs of a model that an operator needs as a constant, such as the axes of a sum: the option that makes them so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from onnx import GraphProto, ValueInfoProto
from onnx.defs import onnx_opset_version

from autofuse.graph.loading.constants import FOLDABLE
from autofuse.graph.mapping import names
from autofuse.graph.model import Operator, Tensor
from autofuse.graph.nodes import dtype_name, schema_of
from autofuse.values.arguments import command_line

_PARAMETERS = names(
    """axes axis block_shape cond delta depth dft_length ends frame_length frame_step image_shape k limit output_shape
    pads ratio repeats roi scales shape size sizes split start starts steps training_mode"""
)
"""What ONNX's schemas call inputs that decide what an operator does; only their values are known to be data."""
_ZERO = names("axes axis pads roi start starts training_mode")
"""Of these 0 is the likelier value, of the others 1."""
_FIRST = names("ConstantOfShape")
"""Operators whose only input is a shape, and is called `input`."""
_KEPT = names("Loop Scan")
"""Operators that no constant makes a kernel of."""
MOST_NAMED = 3

Types = Mapping[str, tuple[str, Sequence[int | None] | None]]
"""Inputs of a model: the type of their elements, and their sizes (None: open)."""


def types_of_inputs(inputs: Iterable[ValueInfoProto]) -> Types:
    """The inputs of a file that are tensors."""
    found: dict[str, tuple[str, Sequence[int | None] | None]] = {}
    for value in inputs:
        if value.type.WhichOneof("value") == "tensor_type":
            tensor = value.type.tensor_type
            sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
            found[value.name] = dtype_name(tensor.elem_type), sizes if tensor.HasField("shape") else None
    return found


def types_of_tensors(inputs: Iterable[Tensor]) -> Types:
    """The inputs of a graph."""
    return {tensor.name: (tensor.dtype, tensor.shape) for tensor in inputs}


def plain_operators(graph: GraphProto) -> list[Operator]:
    """The nodes of a file as far as a hint needs them: their attributes may be damaged."""
    return [Operator(n.name, n.op_type, tuple(n.input), tuple(n.output), domain=n.domain) for n in graph.node]


class Parameters:
    """The operators of a model whose parameters are inputs of it. `constants`: names of values that are known."""

    def __init__(self, operators: Iterable[Operator], types: Types, constants: Iterable[str]) -> None:
        self._types, self._constants, self._operators = types, frozenset(constants), tuple(operators)
        self._writer = {name: operator for operator in self._operators for name in operator.outputs if name}

    def hint(self, operator: Operator) -> str:
        """Which inputs of the model to give a value, as the end of a message; "" where that would not help."""
        return _hint(self._open(operator), self._types)

    def hint_of_all(self) -> str:
        """The same for all operators."""
        return _hint(self._open_of_all(), self._types)

    def inputs(self) -> tuple[str, ...]:
        """Inputs of the model that decide what any operator does."""
        return tuple(self._open_of_all())

    def _open_of_all(self) -> dict[str, str]:
        return {name: word for operator in self._operators for name, word in self._open(operator).items()}

    def _open(self, operator: Operator) -> dict[str, str]:
        """Inputs of the model that decide what an operator does -> the parameter of it that each decides."""
        if operator.domain not in ("", "ai.onnx") or operator.op_type in _KEPT:
            return {}
        schema = schema_of(operator.op_type, onnx_opset_version())
        found: dict[str, str] = {}
        for place, name in enumerate(operator.inputs):
            word = schema.inputs[min(place, len(schema.inputs) - 1)].name if schema and schema.inputs else ""
            if word.lower() in _PARAMETERS or operator.op_type in _FIRST:
                found |= dict.fromkeys(self._sources(name) or (), word.lower())
        return found

    def _sources(self, name: str) -> frozenset[str] | None:
        """Inputs of the model that a value is computed from; None where an operator is run for it, or it is large."""
        seen: set[str] = set()
        waiting, found = [name], set[str]()
        while waiting:
            value = waiting.pop()
            if not value or value in seen or value in self._constants:
                continue
            seen.add(value)
            if value in self._types:
                sizes = self._types[value][1]
                if sizes is None or len(sizes) > 1:
                    return None
                found.add(value)
                continue
            writer = self._writer.get(value)
            if writer is None or (writer.op_type not in FOLDABLE and writer.op_type not in ("Identity", "Constant")):
                return None
            waiting += [] if writer.op_type in ("Shape", "Size") else writer.inputs
        return frozenset(found)


def _hint(found: Mapping[str, str], types: Types) -> str:
    """The text for inputs and the parameters that they decide."""
    if not found:
        return ""
    told = [f"{name!r} ({_type(*types[name])})" for name in found]
    options = [word for name, parameter in found.items() for word in ("--constant", _example(name, parameter, types))]
    more = f", and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
    verb = "is an input that decides" if len(told) == 1 else "are inputs that decide"
    return (
        f"{', '.join(told[:MOST_NAMED])}{more} {verb} what is computed: give its value, e.g. "
        f"{command_line(options[: 2 * MOST_NAMED])}"
    )


def _type(dtype: str, sizes: Sequence[int | None] | None) -> str:
    return f"{dtype}[{','.join('?' if size is None else str(size) for size in sizes or ())}]"


def _example(name: str, parameter: str, types: Types) -> str:
    """The input with a value that may be the right one."""
    dtype, sizes = types[name]
    first = 0 if parameter in _ZERO else 1
    count = math.prod(1 if size is None else size for size in sizes or ())
    values = [first + (number if parameter == "axes" else 0) for number in range(count)]
    words = [str(bool(value)).lower() if dtype == "bool" else str(value) for value in values]
    return f"{name}=[{','.join(words)}]" if sizes else f"{name}={words[0]}"
