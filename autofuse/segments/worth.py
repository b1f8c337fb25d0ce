"""Whether entering a segment pays, by a rule that measures nothing; a race of whole models decides where there is one.

The work of a segment is what its operators would take one by one on one core of a common machine, at `FLOPS_PER_US` and
`BYTES_PER_US`. Kernels of ours are expected to save `GAIN` of that; each change of side takes `CHANGE_US`, or
`CHANGE_INSIDE_US` where ONNX Runtime drives and a segment is a node of its own.
"""

from __future__ import annotations

from autofuse.graph.cost import operator_cost
from autofuse.graph.model import Graph

FLOPS_PER_US = 40e3
BYTES_PER_US = 10e3
GAIN = 0.1
CHANGE_US = 5.0
CHANGES = 2
"""Into a segment and out of it."""
CHANGE_INSIDE_US = 0.5
"""Measured: 0.26 us for a segment more; the rest is for what ONNX Runtime cannot fuse across its edge any more."""
LEAST_US = CHANGES * CHANGE_US / GAIN
"""Least work of a segment that is entered."""


def least_us(inside: bool) -> float:
    """Least work of a segment that is entered; `inside`: of ONNX Runtime, as a node."""
    return LEAST_US * (CHANGE_INSIDE_US / CHANGE_US if inside else 1.0)


def work_us(graph: Graph) -> float:
    """Microseconds that the operators of a segment would take."""
    costs = [operator_cost(graph, operator) for operator in graph.operators]
    return sum(max(c.flops / FLOPS_PER_US, (c.bytes_read + c.bytes_written) / BYTES_PER_US) for c in costs)


def too_small(work: float, least_us: float | None = None) -> str:
    """Why a segment of so much work is not entered; "" when it is. `least_us`: another limit than `LEAST_US`."""
    least = LEAST_US if least_us is None else least_us
    if work >= least:
        return ""
    return f"a segment of about {work:.1f} us of work does not pay for entering it (at least {least:g} us)"
