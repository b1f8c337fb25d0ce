"""Is a whole network right: it is held to ONNX Runtime as closely as ONNX Runtime is to itself.

A deep network can magnify rounding until two right answers lie further apart than any fixed limit allows: ONNX Runtime
with its optimisations and without them then disagrees as much as a compiled library disagrees with either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.model import Graph
from autofuse.measure.bench import ContenderResult
from autofuse.measure.reference import run_reference
from autofuse.measure.tolerance import compare

WHOLE_LIMIT = 1e-4
"""Largest error of a network's outputs, as a part of their range."""
SPREADS = 3.0
"""Or so many times the distance between ONNX Runtime's own two answers, where that is more,"""
CHAOTIC = 1e-2
"""yet never more than this part of the range."""

Array = NDArray[np.generic]


def whole_limit(graph: Graph, inputs: Mapping[str, Array]) -> float:
    """Largest error allowed on these inputs, as a part of the range of each output; runs ONNX Runtime twice."""
    shipped, plain = run_reference(graph, inputs, optimise=True), run_reference(graph, inputs)
    spread = max((compare(shipped[name], plain[name]).max_rel_error for name in graph.outputs), default=0.0)
    return max(WHOLE_LIMIT, min(SPREADS * spread, CHAOTIC)) if np.isfinite(spread) else WHOLE_LIMIT


def judged(
    results: Mapping[str, ContenderResult], graph: Graph, inputs: Mapping[str, Array]
) -> dict[str, ContenderResult]:
    """The results, of which those that are off by no more than `whole_limit` are not wrong."""
    errors = [result.max_rel_error for result in results.values() if result.wrong and result.max_rel_error is not None]
    if not any(error <= CHAOTIC for error in errors):
        return dict(results)
    limit = whole_limit(graph, inputs)
    return {
        name: replace(result, wrong="")
        if result.wrong and result.max_rel_error is not None and result.max_rel_error <= limit
        else result
        for name, result in results.items()
    }


def difference(graph: Graph, inputs: Mapping[str, Array], results: Sequence[Array]) -> str:
    """How a network's outputs, in the model's order, differ from ONNX Runtime's beyond the limit; "" if not."""
    wanted = run_reference(graph, inputs)
    pairs = zip(graph.outputs, results, strict=True)
    worst = max((compare(got, wanted[name], WHOLE_LIMIT).max_rel_error for name, got in pairs), default=0.0)
    if worst <= WHOLE_LIMIT or (worst <= CHAOTIC and worst <= whole_limit(graph, inputs)):
        return ""
    return f"off by {worst:.1e} of the range"
