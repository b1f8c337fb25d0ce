"""A variant of an operator: what decides how TVM's importer translates it, and so what one check of it speaks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.graph.mapping import names
from autofuse.graph.model import AttributeValue
from autofuse.graph.nodes import schema_of
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator

_EXACT = frozenset(("to", "dtype", "direction", "mode"))
_WINDOWS = frozenset(("kernel_shape", "strides", "dilations"))
_ANY = frozenset(("perm", "axes"))
_LAID_OUT = names(
    """AffineGrid AveragePool BatchNormalization Conv ConvTranspose GlobalAveragePool GlobalLpPool GlobalMaxPool
    GridSample LpPool MaxPool MaxUnpool Resize Upsample"""
)
"""Operators whose converters differ by the number of spatial dimensions."""
_RESAMPLING = frozenset(("Resize", "Upsample"))


@dataclass(frozen=True)
class Variant:
    """One operator without its sizes.

    `version`: of the operator's schema. `types`: of inputs and outputs, such as "float32 - int64 > float32" ("-": an
    absent one). `known`: inputs whose value is known when compiling, with that of a switch. `rank`: dimensions of the
    first input, where converters differ by them, else 0. `attributes`: name -> class of the value, if present.
    """

    operator: str
    version: int
    types: str
    known: str
    rank: int
    attributes: tuple[tuple[str, str], ...] = ()

    @property
    def facets(self) -> Mapping[str, str | int]:
        """Everything but the operator, by name; attributes are called `.name`."""
        plain: dict[str, str | int] = {
            "version": self.version,
            "types": self.types,
            "known": self.known,
            "rank": self.rank,
        }
        return plain | {f".{name}": value for name, value in self.attributes}

    def __str__(self) -> str:
        attributes = "".join(f", {name} {value}" for name, value in self.attributes)
        rank = f", {self.rank} dimensions" if self.rank else ""
        return f"{self.types}{rank}{attributes}"


def variant_of(workload: Workload, operator: WorkloadOperator) -> Variant:
    """The variant of an operator of a workload."""
    schema = schema_of(operator.op_type, workload.opset, operator.domain)
    values = workload.values
    types = [[values[i].dtype if i >= 0 else "-" for i in part] for part in (operator.inputs, operator.outputs)]
    known = [_known(p, values[i]) for p, i in enumerate(operator.inputs) if i >= 0 and values[i].kind == "literal"]
    rank = len(values[operator.inputs[0]].shape) if operator.inputs and operator.inputs[0] >= 0 else 0
    attributes = tuple((name, _class(name, value, rank)) for name, value in operator.attributes)
    if operator.op_type in _RESAMPLING:
        attributes += (("sizes", _sizes(values[operator.inputs[0]].shape, values[operator.outputs[0]].shape)),)
    return Variant(
        operator.op_type,
        schema.since_version if schema else 0,
        f"{' '.join(types[0])} > {' '.join(types[1])}".strip(),
        " ".join(known),
        rank if operator.op_type in _LAID_OUT else 0,
        attributes,
    )


def _known(place: int, value: Value) -> str:
    """A switch, such as the training mode of Dropout, decides what is computed."""
    switch = value.dtype == "bool" and not value.shape
    return f"{place}={value.literal}" if switch else str(place)


def _sizes(before: tuple[int, ...], after: tuple[int, ...]) -> str:
    grows = any(new > old for old, new in zip(before, after, strict=True))
    shrinks = any(new < old for old, new in zip(before, after, strict=True))
    return {(True, False): "larger", (False, True): "smaller", (True, True): "both"}.get((grows, shrinks), "same")


def _class(name: str, value: AttributeValue, rank: int) -> str:
    """What of an attribute's value matters; the check draws values of each class at random."""
    if isinstance(value, str):
        return _equation(value) if name == "equation" else value
    if isinstance(value, bytes):
        return "tensor"
    if isinstance(value, tuple):
        return _list_class(name, tuple(float(v) if isinstance(v, (int, float)) else 0.0 for v in value))
    if name == "axis":
        return "last" if value in (-1, rank - 1) else "first" if value == 0 else "inner"
    if isinstance(value, float):
        return "0" if value == 0 else "< 0" if value < 0 else "> 0"
    if name in _EXACT or value in (0, 1):
        return str(value)
    return "> 1" if value > 1 else "< 0"


def _list_class(name: str, numbers: tuple[float, ...]) -> str:
    if name in _ANY:
        return "any"
    if name in _WINDOWS:
        return "1" if all(number == 1 for number in numbers) else "> 1"
    if name == "pads":
        half = len(numbers) // 2
        return "0" if not any(numbers) else "even" if numbers[:half] == numbers[half:] else "uneven"
    return "0" if not any(numbers) else "some"


def _equation(text: str) -> str:
    """Of Einsum: operands, and what is unusual about them."""
    left, arrow, _ = text.replace(" ", "").partition("->")
    terms = left.split(",")
    marks = [f"{len(terms)} operands"]
    marks += ["..."] if "..." in text else []
    marks += [] if arrow else ["no result named"]
    marks += ["diagonal"] if any(len(set(term)) < len(term) for term in (t.replace(".", "") for t in terms)) else []
    return ", ".join(marks)
