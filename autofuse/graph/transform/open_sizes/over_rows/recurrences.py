"""Recurrences whose steps are an open size: each row of what they read is a step, and each of what they make."""

from __future__ import annotations

from autofuse.graph.model import Operator
from autofuse.graph.own.recurrence import is_batch_first, is_recurrence
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph


def recurs(opened: OpenGraph, operator: Operator) -> bool:
    """Whether an operator is a recurrence over all rows, of one sequence in front of its steps or behind them. Its
    states, and how long its sequences are, have none."""
    if not is_recurrence(operator):
        return False
    projected, *others = operator.inputs
    result, *states = operator.outputs
    steps = opened.axes.get(projected)
    made = steps if not result else opened.axes.get(result)
    first = int(is_batch_first(operator))
    return steps is not None and steps.axis == first and made == steps and not any(map(opened.has, (*others, *states)))
