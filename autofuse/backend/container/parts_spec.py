"""What a library says about the parts of a model that our kernels and ONNX Runtime compute together."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ConfigDict

from autofuse.backend.container.open_spec import SizeSpec
from autofuse.ort.session import numpy_name

_EXACTLY = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True)
class ValueSpec:
    """An input or output of a model in parts: `type` as ONNX Runtime has it, such as "tensor(float)".

    `shape`: sizes; a text or None for one that is open, None for a rank that is unknown and for what is no tensor.
    """

    __pydantic_config__ = _EXACTLY

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None = None

    @property
    def dtype(self) -> str:
        """numpy's name of the elements; "" for what is no tensor of a type in `DTYPES`."""
        return numpy_name(self.type)


@dataclass(frozen=True)
class PartSpec:
    """One part of a model in parts: the `program` at that position, or `model`, an ONNX file among the weights.

    A part with both is a segment of rows: the program takes as many as its open size may be, the model any
    other number.

    `inputs`, `outputs`: names of values, in the program's or the ONNX file's order.
    """

    __pydantic_config__ = _EXACTLY

    program: int | None
    model: int | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def counts_rows(self) -> bool:
        """Whether it is a segment of rows."""
        return self.program is not None and self.model is not None


@dataclass(frozen=True)
class Parts:
    """A model that our kernels and ONNX Runtime compute together: its parts, in the order in which they run.

    `provider`: the execution provider of ONNX Runtime that runs what is ours inside of its parts, a library among the
    weights; None where nothing is. `sizes`: those of the model that are open, where a head of it is ours.
    """

    __pydantic_config__ = _EXACTLY

    inputs: tuple[ValueSpec, ...]
    outputs: tuple[ValueSpec, ...]
    order: tuple[PartSpec, ...]
    provider: int | None = None
    sizes: tuple[SizeSpec, ...] = ()

    @property
    def of_rows(self) -> frozenset[int]:
        """The programs of segments of rows, by their positions."""
        return frozenset(part.program for part in self.order if part.program is not None and part.counts_rows)
