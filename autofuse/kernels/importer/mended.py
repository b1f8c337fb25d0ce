"""What TVM's converters and TIR get wrong, said so that they get it right."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from autofuse.kernels.tir.integers import safe_divisor
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator

_DIVISIONS = ("Div", "Mod", "FloorDiv", "FloorMod")


def mended_workload(workload: Workload) -> Workload:
    """The workload in operators whose converters are right; see `_RULES`."""
    values = list(workload.values)
    operators: list[WorkloadOperator] = []
    for operator in workload.operators:
        rule = _RULES.get(operator.op_type)
        operators += rule(operator, values) if rule else [operator]
    return Workload(tuple(values), tuple(operators), workload.opset)


def _scaled_regions(operator: WorkloadOperator, values: list[Value]) -> list[WorkloadOperator]:
    """RoiAlign of scaled regions, not with spatial_scale: TVM shifts the regions before it scales them."""
    scale = operator.attribute("spatial_scale", 1.0)
    if scale == 1.0:
        return [operator]
    data, regions, *rest = operator.inputs
    shape, dtype = values[regions].shape, values[regions].dtype
    factor = _added(values, Value("literal", (), dtype, literal=json.dumps(scale)))
    scaled = _added(values, Value("inner", shape, dtype))
    attributes = tuple(item for item in operator.attributes if item[0] != "spatial_scale")
    aligned = replace(operator, inputs=(data, scaled, *rest), attributes=attributes)
    return [WorkloadOperator("Mul", (regions, factor), (scaled,)), aligned]


def _place_of_extreme(operator: WorkloadOperator, values: list[Value]) -> list[WorkloadOperator]:
    """Clip(place, first, last): among nothing but the worst values (all -infinity) TVM's place lies beside the axis."""
    data, result = values[operator.inputs[0]], values[operator.outputs[0]]
    axis = operator.attribute("axis", 0)
    assert isinstance(axis, int)
    bounds = [_added(values, Value("literal", (), result.dtype, literal=str(n))) for n in (0, data.shape[axis] - 1)]
    found = _added(values, Value("inner", result.shape, result.dtype))
    return [replace(operator, outputs=(found,)), WorkloadOperator("Clip", (found, *bounds), operator.outputs)]


def _floored(operator: WorkloadOperator, values: list[Value]) -> list[WorkloadOperator]:
    """Mod of floats with the sign of the divisor, from that with the sign of the dividend: by infinity TVM's is NaN."""
    result, (a, b) = values[operator.outputs[0]], operator.inputs
    if not result.dtype.startswith("float") or operator.attribute("fmod", 0):
        return [operator]
    zero = _added(values, Value("literal", (), result.dtype, literal="0.0"))
    rest, sum_, sign, product = (_added(values, Value("inner", result.shape, result.dtype)) for _ in range(4))
    divisor = _added(values, Value("inner", values[b].shape, result.dtype))
    apart = _added(values, Value("inner", result.shape, "bool"))
    return [
        WorkloadOperator("Mod", (a, b), (rest,), (("fmod", 1),)),
        WorkloadOperator("Sign", (rest,), (sign,)),
        WorkloadOperator("Sign", (b,), (divisor,)),
        WorkloadOperator("Mul", (sign, divisor), (product,)),
        WorkloadOperator("Less", (product, zero), (apart,)),
        WorkloadOperator("Add", (rest, b), (sum_,)),
        WorkloadOperator("Where", (apart, sum_, rest), operator.outputs),
    ]


def _hardmax(operator: WorkloadOperator, values: list[Value]) -> list[WorkloadOperator]:
    """OneHot(ArgMax(x)), whose place is mended as above: TVM's own finds none among nothing but -infinity."""
    data, axis = values[operator.inputs[0]], operator.attribute("axis", -1)
    assert isinstance(axis, int)
    axis %= len(data.shape)
    place = _added(values, Value("inner", (*data.shape[:axis], *data.shape[axis + 1 :]), "int64"))
    depth = _added(values, Value("literal", (), "int64", literal=str(data.shape[axis])))
    levels = _added(values, Value("literal", (2,), data.dtype, literal="[0, 1]"))
    found = WorkloadOperator("ArgMax", operator.inputs, (place,), (("axis", axis), ("keepdims", 0)))
    chosen = WorkloadOperator("OneHot", (place, depth, levels), operator.outputs, (("axis", axis),))
    return [*_place_of_extreme(found, values), chosen]


def _log_sum_exp(operator: WorkloadOperator, values: list[Value]) -> list[WorkloadOperator]:
    """log(sum(exp(x - m))) + m with a finite m: TVM's is the maximum itself, and infinity less infinity is NaN."""
    data, result = values[operator.inputs[0]], values[operator.outputs[0]]
    if not data.dtype.startswith("float") or len(operator.inputs) < 2 or values[operator.inputs[1]].kind != "literal":
        return [operator]
    axes = {int(axis) % len(data.shape) for axis in values[operator.inputs[1]].literal_array().reshape(-1)}
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(data.shape))
    largest = float(np.finfo(data.dtype).max)
    low, high = (_added(values, Value("literal", (), data.dtype, literal=json.dumps(n))) for n in (-largest, largest))
    top, middle, total, log, whole = (_added(values, Value("inner", kept, data.dtype)) for _ in range(5))
    less, power = (_added(values, Value("inner", data.shape, data.dtype)) for _ in range(2))
    shape = _added(values, Value("literal", (len(result.shape),), "int64", literal=json.dumps(result.shape)))
    over, keep = operator.inputs[1], (("keepdims", 1),)
    return [
        WorkloadOperator("ReduceMax", (operator.inputs[0], over), (top,), keep),
        WorkloadOperator("Clip", (top, low, high), (middle,)),
        WorkloadOperator("Sub", (operator.inputs[0], middle), (less,)),
        WorkloadOperator("Exp", (less,), (power,)),
        WorkloadOperator("ReduceSum", (power, over), (total,), keep),
        WorkloadOperator("Log", (total,), (log,)),
        WorkloadOperator("Add", (log, middle), (whole,)),
        WorkloadOperator("Reshape", (whole, shape), operator.outputs),
    ]


def _added(values: list[Value], value: Value) -> int:
    values.append(value)
    return len(values) - 1


_RULES: Mapping[str, Callable[[WorkloadOperator, list[Value]], list[WorkloadOperator]]] = {
    "RoiAlign": _scaled_regions,
    "ArgMax": _place_of_extreme,
    "ArgMin": _place_of_extreme,
    "Hardmax": _hardmax,
    "Mod": _floored,
    "ReduceLogSumExp": _log_sum_exp,
}


def mended_function(function: Any, workload: Workload) -> Any:
    """`function` with a code for sinh and cosh, with maxima that start at infinity, and divisors that are never 0."""
    from tvm import tirx
    from tvm.ir import Call
    from tvm_ffi import structural_map

    rules = [(Call, _by_exp), (tirx.FloatImm, _from_infinity)]
    if _holds_extremes(workload):
        rules = rules[:1]
    rules += [(getattr(tirx, name), _divided) for name in _DIVISIONS]
    for rule in rules:
        function = structural_map(function, rule)
    return function


def _by_exp(call: Any) -> Any:
    """TVM has no code for the intrinsics sinh and cosh."""
    from tvm import tirx

    name = getattr(call.op, "name", "")
    if name not in ("tirx.sinh", "tirx.cosh"):
        return call
    rising, falling = tirx.exp(call.args[0]), tirx.exp(-call.args[0])
    return (rising - falling if name == "tirx.sinh" else rising + falling) * 0.5


def _from_infinity(number: Any) -> Any:
    """The maximum of nothing but -infinity is no finite number, which TVM starts from."""
    from tvm import tirx

    dtype = str(number.ty.dtype)
    largest = float(np.finfo(dtype).max) if dtype in ("float16", "float32", "float64") else 0.0
    return tirx.const(np.copysign(np.inf, number.value), dtype) if abs(number.value) == largest else number


def _holds_extremes(workload: Workload) -> bool:
    """Whether the largest number of a type stands in the model itself, such as a bound of Clip."""
    literals = [workload.values[index].literal_array() for index in workload.of_kind("literal")]
    floats = [array for array in literals if array.dtype.kind == "f"]
    return any((np.abs(array) == np.finfo(array.dtype.name).max).any() for array in floats)


def _divided(node: Any) -> Any:
    """Of integers by what is only known at run time: a divisor of 0 ends the program."""
    from tvm import tirx

    dtype = str(node.ty.dtype)
    if not dtype.startswith(("int", "uint")) or isinstance(node.b, tirx.IntImm):
        return node
    negated = tirx.Select(tirx.EQ(node.b, tirx.const(-1, dtype)), tirx.const(0, dtype) - node.a, node.a)
    remainder = isinstance(node, (tirx.Mod, tirx.FloorMod))
    dividend = node.a if remainder or dtype.startswith("u") else negated
    nothing = tirx.EQ(node.b, tirx.const(0, dtype))
    dividend = dividend if remainder else tirx.Select(nothing, tirx.const(0, dtype), dividend)
    return type(node)(dividend, safe_divisor(node.b))
