"""Is a whole network right: it is held to ONNX Runtime as closely as ONNX Runtime is to itself.

A deep network can magnify rounding until two right answers lie further apart than any fixed limit allows: ONNX Runtime
with its optimisations and without them then disagrees as much as a compiled library disagrees with either, and so does
ONNX Runtime with itself when its inputs change by their last bit (a detector's scores by 1e-3 of their range).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.model import Graph
from autofuse.graph.own.bfloat16 import in_float32
from autofuse.graph.own.weight_only import in_bytes
from autofuse.measure.checking.reference import run_references
from autofuse.measure.checking.tolerance import LIMITS, compare
from autofuse.measure.networks.bench import ContenderResult, compared

WHOLE_LIMIT = 1e-4
"""Largest error of a network's outputs, as a part of their range."""
SPREADS = 5.0
"""Or so many times the largest distance between ONNX Runtime's own answers, where that is more (a library rounds in
every operator, the last bits of the inputs change once),"""
ROUNDINGS = 2.0
"""or, where a model computes in bfloat16, so many times what all of its roundings move, or in float16, which ONNX
Runtime hardly rounds to, what one result in it may be off by,"""
CHAOTIC = 1e-2
"""yet never more than this part of the range,"""
QUANTISED_SPREADS, QUANTISED_CHAOTIC = 2.0, 0.25
"""or, where a model quantises what it computes, or lets it be, than so many times that distance, and this part. There a
number that lies as good as halfway between two levels goes to either, and what reads it moves by a whole level: over
the layers of a BERT-base in int8, ONNX Runtime's answers with and without its optimisations are 0.08 to 0.13 apart.
Each of its kernels is held to the bits by itself."""
SMALL = 1 << 16
"""Elements of the constants that are moved where no input has floats: those of norms, biases and scales."""
NUDGES = 4
"""Runs of the reference on inputs that differ in the last bit."""

Array = NDArray[np.generic]


def whole_limit(graph: Graph, inputs: Mapping[str, Array]) -> float:
    """Largest error allowed on these inputs, as a part of the range of each output; runs ONNX Runtime some times."""
    plain, *answers = run_references(graph, [inputs, *all_nudged(inputs)])
    answers += run_references(graph, [inputs], optimise=True)
    quantised = quantises(operator.op_type for operator in graph.operators) or any(map(in_bytes, graph.operators))
    if quantised and not answers[:-1]:
        answers += run_references(with_nudged_constants(graph), [inputs])
    roundings = LIMITS["float16"] if graph.float16 else ROUNDINGS * _roundings(graph, inputs, plain)
    return limit_of_answers(plain, answers, roundings, quantised)


def quantises(kinds: Iterable[str]) -> bool:
    """Whether operators of these kinds round what a model computes to levels."""
    return any(kind in ("DynamicQuantizeLinear", "QuantizeLinear") or kind.startswith("QLinear") for kind in kinds)


def all_nudged(inputs: Mapping[str, Array]) -> list[dict[str, Array]]:
    """The inputs on which the reference is run again, to see what their last bits do; none where none is a float."""
    moves = any(array.dtype.kind == "f" for array in inputs.values())
    return [nudged(inputs, seed) for seed in range(NUDGES if moves else 0)]


def limit_of_answers(
    plain: Mapping[str, Array], answers: Sequence[Mapping[str, Array]], roundings: float = 0.0, quantised: bool = False
) -> float:
    """Largest error allowed where the reference says `plain`, and `answers` on inputs that differ in their last bits or
    with its optimisations. `roundings`: what a model in narrow numbers may be off by. `quantised`: it rounds to
    levels."""
    spreads = [max((compare(one[name], plain[name]).max_rel_error for name in plain), default=0.0) for one in answers]
    spread = max(filter(np.isfinite, spreads), default=0.0)  # another class or order of boxes has no distance
    wide = min(QUANTISED_SPREADS * spread, QUANTISED_CHAOTIC) if quantised else 0.0
    return max(WHOLE_LIMIT, min(max(SPREADS * spread, roundings), CHAOTIC), wide)


def _roundings(graph: Graph, inputs: Mapping[str, Array], plain: Mapping[str, Array]) -> float:
    """How far all roundings of a model that computes in bfloat16 move its answer; a library may round some of its
    numbers to the other neighbour, and other engines round none."""
    if not graph.widened:
        return 0.0
    (exact,) = run_references(in_float32(graph), [inputs])
    found = max((compare(exact[name], plain[name]).max_rel_error for name in plain), default=0.0)
    return found if np.isfinite(found) else 0.0


def nudged(inputs: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """The inputs with every float moved to one of its two neighbours, unless one of both is infinite."""
    random = np.random.default_rng(seed)
    found = dict(inputs)
    for name, array in inputs.items():
        if array.dtype.kind == "f":
            towards = np.where(random.random(array.shape) < 0.5, -np.inf, np.inf)
            with np.errstate(over="ignore"):
                moved = np.nextafter(array, towards.astype(array.dtype))
            found[name] = np.where(np.isfinite(moved) & np.isfinite(array), moved, array)
    return found


def with_nudged_constants(graph: Graph) -> Graph:
    """The graph with every float of its small constants moved to one of its two neighbours."""
    small = {name: array for name, array in graph.constants.items() if array.size <= SMALL}
    return replace(graph, constants={**graph.constants, **nudged(small, 0)})


def judged(
    results: Mapping[str, ContenderResult], graph: Graph, inputs: Mapping[str, Array]
) -> dict[str, ContenderResult]:
    """The results, of which those that are off by no more than `whole_limit` are not wrong."""
    return judged_by(results, lambda: whole_limit(graph, inputs))


def judged_by(results: Mapping[str, ContenderResult], limit_of: Callable[[], float]) -> dict[str, ContenderResult]:
    """The results, of which those that are off by no more than a limit are not wrong; it is asked for where that can
    matter."""
    errors = [result.max_rel_error for result in results.values() if result.wrong and result.max_rel_error is not None]
    if not any(error <= QUANTISED_CHAOTIC for error in errors):
        return dict(results)
    limit = limit_of()
    return compared(
        {
            name: replace(result, wrong="")
            if result.wrong and result.max_rel_error is not None and result.max_rel_error <= limit
            else result
            for name, result in results.items()
        }
    )


def difference(graph: Graph, inputs: Mapping[str, Array], results: Sequence[Array]) -> str:
    """How a network's outputs, in the model's order, differ from ONNX Runtime's beyond the limit; "" if not."""
    (wanted,) = run_references(graph, [inputs])
    pairs = zip(graph.outputs, results, strict=True)
    worst = max((compare(got, wanted[name], WHOLE_LIMIT).max_rel_error for name, got in pairs), default=0.0)
    if worst <= WHOLE_LIMIT or (worst <= QUANTISED_CHAOTIC and worst <= whole_limit(graph, inputs)):
        return ""
    return f"off by {worst:.1e} of the range"
