"""DFT and STFT of sizes that are known: products with a constant matrix of cosines and sines.

y = DFT(x)   becomes   y = x @ M, over the axis and the parts of its numbers together;
y = STFT(x, step, window)   becomes   y = Gather(x, frames) @ M, the window in M where it is constant.

Long transforms are left alone: a fast transform takes fewer operations than a product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, helper

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.writer import Writer
from autofuse.graph.model import Operator

MAX_MATRIX_ELEMENTS = 1 << 21
"""Most elements of a matrix of cosines and sines: 1024 places of a real signal, from one side."""
_AXIS_IS_INPUT = 20
"""Opset from which the axis of a DFT is an input."""


def name_sides(graph: GraphProto) -> None:
    """Writes the default of an STFT's sides into it, in place: ONNX infers the shape of both where it is left out."""
    for node in graph.node:
        if node.op_type == "STFT" and not node.domain and not any(one.name == "onesided" for one in node.attribute):
            node.attribute.append(helper.make_attribute("onesided", 1))


def write_transforms(draft: Draft) -> bool:
    """Puts products in place of every DFT and STFT of known sizes; True when the draft changed."""
    result: list[Operator] = []
    for operator in draft.operators:
        rule = {"DFT": _dft, "STFT": _stft}.get(operator.op_type) if not operator.domain else None
        result += (rule(Writer(draft, operator)) if rule else None) or [operator]
    changed = len(result) != len(draft.operators)
    draft.operators = result
    return changed


def _dft(write: Writer) -> list[Operator] | None:
    draft = write.draft
    if (write.flag("inverse") and write.flag("onesided")) or not write.known(0) or not _is_float(write):
        return None
    shape = write.shape(0)
    axis = write.scalar(2, -2) if draft.opset >= _AXIS_IS_INPUT else int(write.number_of("axis", 1))
    length = None if axis is None else write.scalar(1, shape[axis])
    if axis is None or length is None or length < 1 or shape[-1] not in (1, 2) or axis % len(shape) == len(shape) - 1:
        return None
    axis, rank = axis % len(shape), len(shape)
    given = min(length, shape[axis])
    matrix = _matrix(given, length, shape[-1], write.flag("inverse"), write.flag("onesided"))
    if matrix is None:
        return None
    x = write.input(0)
    if given < shape[axis]:
        bounds = [write.integers(label, [value]) for label, value in (("first", 0), ("last", given), ("along", axis))]
        x = write.op("Slice", "cut", x, *bounds)
    order = [*(place for place in range(rank - 1) if place != axis), axis, rank - 1]
    back = [order.index(place) for place in range(rank)]
    lead = [shape[place] for place in order[:-2]]
    turned = write.op("Transpose", "axis_last", x, perm=tuple(order))
    found = _product(write, turned, matrix, lead, given * shape[-1])
    write.op("Transpose", "", found, output=write.result(0), perm=tuple(back))
    return write.made


def _stft(write: Writer) -> list[Operator] | None:
    if not all(write.known(place) for place in range(3)) or not _is_float(write):
        return None
    shape, step = write.shape(0), write.scalar(1, 0)
    window = write.shape(2)[0] if write.input(2) else 0
    length = write.scalar(3, window)
    fits = step and length and step > 0 and 0 < length <= shape[1] and window in (0, length)
    onesided = bool(write.operator.attributes.get("onesided", 1))
    if not fits or len(shape) != 3 or shape[2] not in (1, 2) or (onesided and shape[2] == 2):
        return None
    assert step is not None and length is not None
    matrix = _matrix(length, length, shape[2], inverse=False, onesided=onesided)
    if matrix is None:
        return None
    count = (shape[1] - length) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(length)
    at = write.draft.add_constant(f"{write.operator.name}/frames", places.astype(np.int64))
    frames = write.op("Gather", "framed", write.input(0), at, axis=1)
    if window:
        column = write.op("Reshape", "window", write.input(2), write.integers("column", [length, 1]))
        frames = write.op("Mul", "weighted", frames, column)
    found = _product(write, frames, matrix, [shape[0], count], length * shape[2])
    write.op("Identity", "", found, output=write.result(0))
    return write.made


def _is_float(write: Writer) -> bool:
    return write.draft.tensors[write.input(0)].dtype in ("float32", "float64")


def _matrix(given: int, length: int, parts: int, inverse: bool, onesided: bool) -> NDArray[np.float64] | None:
    """[given * parts, results * 2]: what each part of each place adds to both parts of each result."""
    results = length // 2 + 1 if onesided else length
    if given * parts * results * 2 > MAX_MATRIX_ELEMENTS:
        return None
    turns = np.outer(np.arange(given), np.arange(results)) % length
    angle = turns * (2 * math.pi / length * (1 if inverse else -1))
    cosine, sine = np.cos(angle), np.sin(angle)
    rows = [np.stack([cosine, sine], axis=-1), np.stack([-sine, cosine], axis=-1)][:parts]
    matrix = np.stack(rows, axis=1).reshape(given * parts, results * 2)
    return matrix / length if inverse else matrix


def _product(write: Writer, x: str, matrix: NDArray[np.float64], lead: Sequence[int], width: int) -> str:
    """`x`, its last two axes as one, times a matrix whose columns are pairs."""
    dtype = write.draft.tensors[write.input(0)].dtype
    weights = write.draft.add_constant(f"{write.operator.name}/cosines_and_sines", matrix.astype(dtype))
    rows = write.op("Reshape", "rows", x, write.integers("row_shape", [*lead, width]))
    product = write.op("MatMul", "product", rows, weights)
    return write.op("Reshape", "pairs", product, write.integers("pair_shape", [*lead, matrix.shape[1] // 2, 2]))
