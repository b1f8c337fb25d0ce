"""Constant folding: operators whose inputs are all known are evaluated by ONNX's own reference."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.broadcasts import place_picked, sinking
from autofuse.graph.mapping import names
from autofuse.graph.model import Operator, Tensor
from autofuse.graph.nodes import SUPPORTED_DTYPES, make_model

MAX_GROWN_BYTES = 1 << 20
"""A folded result may be this large whatever it is made from (a mask, a table of positions)..."""
MAX_GROWTH = 8
"""...or this many times its inputs (a weight cast or dequantized); else the operator stays."""

_SLOW_ELEMENTS = 1 << 18
_SLOW = frozenset(("Erf", "Gelu", "Celu", "Mish"))
_GROWING = frozenset(("ConstantOfShape", "Expand", "Tile", "Range", "OneHot", "Pad"))
_LOOPS = frozenset(("GatherND", "ScatterElements", "ScatterND", "Compress", "TopK"))
"""Operators whose reference is a loop of Python."""

_REFERENCE_FROM = {"DequantizeLinear": 19}
"""Opsets from which on the reference knows an operator, whose meaning is older."""

FOLDABLE = names(
    """Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    Cast CastLike Ceil Clip Compress Concat ConstantOfShape Cos Cosh CumSum DepthToSpace DequantizeLinear Div Elu Equal
    Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual HardSigmoid HardSwish
    IsInf IsNaN LeakyRelu Less LessOrEqual Log MatMul Max Mean Min Mod Mul Neg NonZero Not OneHot Or PRelu Pad
    Pow Range Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
    Reshape Round ScatterElements ScatterND Selu Shape Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign
    SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh Tile TopK Transpose Trilu Unsqueeze Where Xor"""
)
"""Deterministic operators that the reference evaluates as the standard says; Resize and the like are left alone."""


def fold_constants(draft: Draft) -> bool:
    """Replace operators of known results by constants; True when the draft changed.

    A result that is an output of the graph stays behind an Identity operator of the same name. An Expand that goes
    behind its readers is left: its readers are folded before it. So is a Gather that becomes one.
    """
    kept: list[Operator] = []
    sunk = sinking(draft)
    for operator in draft.operators:
        left = not sunk.union(draft.unfolded).isdisjoint(operator.outputs) or place_picked(draft, operator) is not None
        results = None if left else _results(draft, operator)
        if results is None:
            kept.append(operator)
            continue
        for name, array in zip(operator.outputs, results, strict=True):
            if name in draft.returned:
                constant = draft.add_constant(f"{name}/value", array)
                kept.append(replace(operator, op_type="Identity", inputs=(constant,), outputs=(name,), attributes={}))
            elif name:
                draft.set_constant(name, array)
    changed = len(kept) != len(draft.operators) or any(a is not b for a, b in zip(kept, draft.operators, strict=True))
    draft.operators = kept
    return changed


def _results(draft: Draft, operator: Operator) -> list[NDArray[np.generic]] | None:
    """Values of all outputs, or None when the operator is not folded."""
    empty = _empty_results(draft, operator)
    if empty is not None or operator.op_type not in FOLDABLE:
        return empty
    if sum(name in draft.returned for name in operator.outputs) and len(operator.outputs) > 1:
        return None
    shape = draft.shape(operator.inputs[0]) if operator.inputs else None
    if shape is not None and operator.op_type == "Shape":
        return [shape_value(operator, shape)]
    if shape is not None and operator.op_type == "Size":
        return [np.asarray(math.prod(shape), dtype=np.int64)]
    if not all(name in draft.constants for name in operator.inputs if name):
        return None
    inputs = {name: draft.constants[name] for name in operator.inputs if name}
    if not _small_enough(draft, operator, inputs):
        return None
    return evaluate(operator, inputs, draft.opset, draft.tensors)


def _empty_results(draft: Draft, operator: Operator) -> list[NDArray[np.generic]] | None:
    """Arrays without elements, where all results are such: nothing needs to be computed."""
    known = [draft.tensors.get(name) for name in operator.outputs if name and name not in draft.returned]
    if len(known) != len(operator.outputs) or not known:
        return None
    found = [t for t in known if t is not None and not t.elements and t.dtype in SUPPORTED_DTYPES]
    return [np.zeros(t.shape, dtype=t.dtype) for t in found] if len(found) == len(known) else None


def shape_value(operator: Operator, shape: tuple[int, ...]) -> NDArray[np.generic]:
    """What the Shape operator makes of an input of that shape."""
    start, end = operator.attributes.get("start", 0), operator.attributes.get("end")
    assert isinstance(start, int) and (end is None or isinstance(end, int))
    return np.asarray(shape[start:end] if shape else (), dtype=np.int64)


def _small_enough(draft: Draft, operator: Operator, inputs: dict[str, NDArray[np.generic]]) -> bool:
    read = sum(array.nbytes for array in inputs.values())
    limit = max(MAX_GROWN_BYTES, MAX_GROWTH * read)
    if operator.op_type in _SLOW and read > 4 * _SLOW_ELEMENTS:
        return False
    known = [draft.tensors.get(name) for name in operator.outputs if name]
    written: float = sum(tensor.size_bytes for tensor in known if tensor and tensor.dtype in SUPPORTED_DTYPES)
    if not all(known) or operator.op_type in _GROWING:  # inference counts in 64 bits, and overflows
        written = max(written, 8 * _bound_elements(operator, list(inputs.values())))
    if not written <= limit:  # NaN too
        return False
    return draft.folding.take(int(written), operator.op_type in _SLOW or operator.op_type in _LOOPS)


def _bound_elements(operator: Operator, arrays: list[NDArray[np.generic]]) -> float:
    """Upper bound of the output's elements, from the values of the inputs; infinity or NaN where these are huge."""
    size = max((array.size for array in arrays), default=1)
    last = arrays[-1].astype(np.float64).reshape(-1) if arrays and arrays[-1].dtype.kind in "iuf" else np.zeros(0)
    with np.errstate(all="ignore"):
        match operator.op_type:
            case "ConstantOfShape":
                return float(np.prod(last))
            case "Tile":
                return float(arrays[0].size * np.prod(last))
            case "Expand":
                pairs = zip_longest(reversed(arrays[0].shape), last[::-1], fillvalue=1.0)
                return math.prod(max(float(own), float(wished)) for own, wished in pairs)
            case "Range":
                start, limit, delta = (float(array.reshape(-1)[0]) for array in arrays)
                return max(0.0, (limit - start) / delta) if delta else 0.0
            case "OneHot":
                return arrays[0].size * float(arrays[1].reshape(-1)[0])
            case "Pad":
                pads = float(np.abs(arrays[1].astype(np.float64)).sum())
                return float(np.prod([extent + pads for extent in arrays[0].shape]))
    return math.prod(max(array.size, 1) for array in arrays) if len(arrays) > 1 and size < 4096 else 2 * size


def evaluate(
    operator: Operator, inputs: dict[str, NDArray[np.generic]], opset: int, tensors: dict[str, Tensor]
) -> list[NDArray[np.generic]] | None:
    """Outputs of one operator on constants; None when the reference fails or contradicts shape inference."""
    described = [Tensor(name, array.shape, array.dtype.name) for name, array in inputs.items()]
    outputs = [name for name in operator.outputs if name]
    if operator.op_type == "GatherElements" and not operator.domain:
        return _gathered(operator, inputs[operator.inputs[0]], inputs[operator.inputs[1]])
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a mean of nothing is NaN
            known_from = max(opset, _REFERENCE_FROM.get(operator.op_type, 0))
            model = make_model("fold", [operator], described, outputs, {}, known_from)
            results = [np.asarray(item) for item in ReferenceEvaluator(model).run(None, dict(inputs))]
    except Exception:  # noqa: BLE001 - any failure of the reference only means: leave the operator to the kernels
        return None
    for name, array in zip(outputs, results, strict=True):
        known = tensors.get(name)
        if array.dtype.name not in SUPPORTED_DTYPES:
            return None
        if known is not None and (known.shape != array.shape or known.dtype != array.dtype.name):
            return None
    by_name = {name: _owned(array) for name, array in zip(outputs, results, strict=True)}
    return [by_name.get(name, np.zeros(0)) for name in operator.outputs]


def _gathered(
    operator: Operator, data: NDArray[np.generic], indices: NDArray[np.generic]
) -> list[NDArray[np.generic]] | None:
    """What GatherElements picks; None for an index outside. The reference fails where indices have fewer elements."""
    axis = operator.attributes.get("axis", 0)
    assert isinstance(axis, int)
    axis, extents = axis % data.ndim, list(indices.shape)
    extents[axis] = data.shape[axis]
    try:
        picked = np.take_along_axis(data[tuple(map(slice, extents))], indices.astype(np.int64), axis)
    except (IndexError, ValueError):
        return None
    return [_owned(picked)]


def _owned(array: NDArray[np.generic]) -> NDArray[np.generic]:
    result = np.array(array, order="C", copy=True)
    result.setflags(write=False)
    return result
