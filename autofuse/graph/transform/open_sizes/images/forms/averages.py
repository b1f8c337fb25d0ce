"""Means of windows that count fewer elements at the borders, as quotients of two that count alike.

How many elements of a window are inside of an image depends on where its borders are. The mean of the window with zeros
beyond the borders, and the same mean of ones, have one divisor: their quotient is the mean of what is inside. The ones
are the sum of halves that grow with the image along one side each. That is done to the static graph of each size.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.transform.open_sizes.images.sliding import integers_of
from autofuse.graph.transform.open_sizes.open_graph import with_used


def with_counts_at_borders(graph: Graph) -> Graph:
    """The same graph, in which no AveragePool of float32 counts fewer elements at the borders."""
    tensors, constants, operators = dict(graph.tensors), dict(graph.constants), list[Operator]()
    for operator in graph.operators:
        pads = _pads(graph, operator)
        if pads is None:
            operators.append(operator)
            continue
        (data,), (made,) = operator.inputs, operator.outputs
        image, result = graph.tensors[data].shape, graph.tensors[made].shape
        ones, whole, part = (f"{operator.name}@{label}" for label in ("ones", "whole", "part"))
        halves = [f"{operator.name}@halves{axis}" for axis in range(2, len(image))]
        for axis, name in enumerate(halves, 2):
            shape = tuple(extent if place == axis else 1 for place, extent in enumerate(image))
            tensors[name], constants[name] = Tensor(name, shape, "float32"), np.full(shape, 0.5, np.float32)
        for name, shape in ((ones, (1, 1, *image[2:])), (whole, result), (part, (1, 1, *result[2:]))):
            tensors[name] = Tensor(name, shape, "float32")
        counted = {**operator.attributes, "pads": pads, "ceil_mode": 0, "count_include_pad": 1}
        operators += [
            Operator(ones, "Add", (halves[0], halves[-1]), (ones,)),
            replace(operator, name=whole, outputs=(whole,), attributes=counted),
            replace(operator, name=part, inputs=(ones,), outputs=(part,), attributes=counted),
            Operator(operator.name, "Div", (whole, part), (made,)),
        ]
    return graph if len(operators) == len(graph.operators) else with_used(graph, operators, tensors, constants)


def _pads(graph: Graph, operator: Operator) -> tuple[int, ...] | None:
    """The pads of a mean of windows that leaves out what is beyond the borders, with places behind the last ones as
    its windows reach over these (`ceil_mode`); None of any other operator."""
    if operator.op_type != "AveragePool" or operator.domain or graph.tensors[operator.inputs[0]].dtype != "float32":
        return None
    if str(operator.attributes.get("auto_pad", "NOTSET")) not in ("NOTSET", "VALID"):
        return None
    image, result = (graph.tensors[name].shape[2:] for name in (operator.inputs[0], operator.outputs[0]))
    if len(image) not in (1, 2):
        return None
    rank, over = len(image), bool(operator.attributes.get("ceil_mode", 0))
    pads = integers_of(operator, "pads", (0,) * 2 * rank)
    taps, strides, dilations = (
        integers_of(operator, name, (1,) * rank) for name in ("kernel_shape", "strides", "dilations")
    )
    if (not any(pads) and not over) or (any(pads) and operator.attributes.get("count_include_pad", 0)):
        return None
    ends = [pad + (stride - 1 if over else 0) for pad, stride in zip(pads[rank:], strides, strict=True)]
    axes = zip(image, pads[:rank], ends, taps, dilations, strides, strict=True)
    counts = [(one + begin + end - (tap - 1) * by - 1) // step + 1 for one, begin, end, tap, by, step in axes]
    return (*pads[:rank], *ends) if tuple(counts) == result else None
