"""What a library holds besides its segments: models that ONNX Runtime runs, and the programs of segments of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.compile.assemble import AssembledProgram, BoundKernel
from autofuse.backend.container.metadata import Metadata, Parts, PartSpec, Program, TensorSpec
from autofuse.graph.model import Graph, Origin
from autofuse.graph.transform.open_sizes.stored_shapes import OpenRows


@dataclass(frozen=True, eq=False)
class RowProgram:
    """The program of a segment of rows as it is assembled: its graph, the kernels of its groups, what stays open in it,
    and how the assembled program is `described`."""

    graph: Graph
    kernels: Sequence[BoundKernel]
    given: OpenRows
    described: Callable[[AssembledProgram], Program]


@dataclass(frozen=True, eq=False)
class Rest:
    """What ONNX Runtime runs of a model, and in which order: the `model` of each part is a position in `models`.

    `provider`: the library of the execution provider that runs segments inside of them; empty where there are none.
    `rows`: programs of segments of rows; the `program` of a part that is one is a position in these.
    """

    models: tuple[bytes, ...]
    parts: Parts
    origin: Origin = field(default_factory=Origin)
    provider: bytes = b""
    rows: tuple[RowProgram, ...] = ()


def with_rest(
    metadata: Metadata, weights: Sequence[NDArray[np.generic]], rest: Rest | None
) -> tuple[Metadata, list[NDArray[np.generic]]]:
    """A description and its weights, with the ONNX models of the rest behind them."""
    if rest is None:
        return metadata, list(weights)
    files = [*rest.models, *([rest.provider] if rest.provider else [])]
    models = [np.frombuffer(file, np.uint8) for file in files]
    specs = tuple(TensorSpec(f"model{n}", array.shape, "uint8") for n, array in enumerate(models))
    first = len(weights)
    provider = first + len(rest.models) if rest.provider else None
    order = [_placed(part, first, len(metadata.programs) - len(rest.rows)) for part in rest.parts.order]
    parts = replace(rest.parts, order=tuple(order), provider=provider)
    return replace(metadata, weights=metadata.weights + specs, parts=parts, origin=rest.origin), [*weights, *models]


def _placed(part: PartSpec, first: int, others: int) -> PartSpec:
    """A part with the positions that it has in the library, whose models begin at weight `first`, and whose segments of
    rows come after so many `others`."""
    if part.model is None:
        return part
    rows = None if part.program is None else others + part.program
    return replace(part, program=rows, model=first + part.model)
