"""The loops of a TIR function: how many are vectors, whether one is shared among threads, whether they go over images
of open sizes."""

from __future__ import annotations

from typing import Any

OF_IMAGES = "autofuse.of_images"
"""The attribute of functions over images whose extents and strides are known when they run."""


def vector_loops(function: Any) -> int:
    """How many loops of a TIR function are vectors."""
    from tvm import tirx
    from tvm_ffi import structural_walk

    found: list[bool] = []
    structural_walk(function.body, (tirx.For, lambda loop: found.append(loop.kind == tirx.ForKind.VECTORIZED)))
    return sum(found)


def is_parallel(function: Any) -> bool:
    """Whether a TIR function shares its work among threads."""
    from tvm import tirx
    from tvm_ffi import VisitInterrupt, structural_walk

    def found(loop: Any) -> Any:
        return VisitInterrupt() if loop.kind == tirx.ForKind.PARALLEL else None

    return structural_walk(function.body, (tirx.For, found), order="pre") is not None
