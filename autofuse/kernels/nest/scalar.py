"""The table of elementwise ONNX operators: one scalar definition each, as ONNX Runtime computes it.

A definition takes the operands of one element (None for an absent optional one; a constant operand as a TIR
immediate), the operator, the element type of the result and `bind` (see `autofuse.kernels.tir.math`).
float16 operands are computed in float32 and rounded once. The rules stand in `autofuse.kernels.nest.scalar_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tvm import tirx

from autofuse.graph.own.names import BYTE_LOOKUP, ROUND
from autofuse.graph.own.names import DOMAIN as OWN_DOMAIN
from autofuse.kernels.nest import hyperbolic
from autofuse.kernels.nest import scalar_rules as rules
from autofuse.kernels.nest.quantized import byte_tables, quantization
from autofuse.kernels.tir.bfloat16 import rounded_number
from autofuse.kernels.tir.math import Bind, Expr
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

ScalarDefinition = Callable[[Sequence[Expr], WorkloadOperator, str, Bind], Expr]

_FLOATS = frozenset({"float16", "float32", "float64"})
_SIGNED = frozenset({"int8", "int16", "int32", "int64"})
_UNSIGNED = frozenset({"uint8", "uint16", "uint32", "uint64"})
_INTEGERS = _SIGNED | _UNSIGNED
_NUMBERS = _FLOATS | _INTEGERS
_BOOL = frozenset({"bool"})
ELEMENT_TYPES = _NUMBERS | _BOOL


def _definition(rule: Callable[[rules.Call], Expr]) -> ScalarDefinition:
    def define(args: Sequence[Expr], operator: WorkloadOperator, out_dtype: str, bind: Bind) -> Expr:
        wide = [rules.cast(a, "float32") if a is not None and rules.dtype_of(a) == "float16" else a for a in args]
        return rules.cast(rule(rules.Call(wide, operator, out_dtype, bind)), out_dtype)

    return define


_Rule = Callable[[rules.Call], Expr]
_FLOAT_RULES: dict[str, _Rule] = {
    **{name: partial(rules.function, name.lower()) for name in ("Exp", "Log", "Sin", "Cos")},
    "Sinh": hyperbolic.sinh,
    "Cosh": hyperbolic.cosh,
    "Asinh": hyperbolic.asinh,
    "Acosh": hyperbolic.acosh,
    "Atanh": hyperbolic.atanh,
    "Sqrt": lambda call: tirx.sqrt(call.args[0]),
    "Reciprocal": lambda call: call.const(1) / call.args[0],
    "Sigmoid": rules.sigmoid,
    "Swish": rules.swish,
    "HardSigmoid": rules.hard_sigmoid,
    "HardSwish": rules.hard_swish,
    "LeakyRelu": rules.leaky_relu,
    "Elu": rules.elu,
    "Selu": rules.selu,
    "Celu": rules.celu,
    "ThresholdedRelu": rules.thresholded_relu,
    "Softsign": rules.softsign,
    "Floor": lambda call: tirx.floor(call.args[0]),
    "Ceil": lambda call: tirx.ceil(call.args[0]),
    "Round": lambda call: tirx.nearbyint(call.args[0]),
    "IsNaN": lambda call: rules.is_nan(call.x),
    "IsInf": rules.is_inf,
    "Mean": rules.mean,
    "BatchNormalization": rules.batchnorm,
}
_NARROW_RULES: dict[str, _Rule] = {  # no float64: LLVM has no vector form of these
    **{name: partial(rules.function, name.lower()) for name in ("Erf", "Tanh", "Softplus", "Mish")},
    **{name: partial(rules.function, name.lower()) for name in ("Tan", "Asin", "Acos", "Atan")},
    "Gelu": rules.gelu,
}
_NUMBER_RULES: dict[str, _Rule] = {
    "Add": lambda call: call.args[0] + call.args[1],
    "Sub": rules.subtract,
    "Mul": rules.multiply,
    "Div": rules.divide,
    "Pow": rules.power,
    "Mod": rules.modulo,
    "Neg": rules.negate,
    "Abs": rules.absolute,
    "Sign": rules.sign,
    "Relu": rules.relu,
    "PRelu": rules.prelu,
    "Clip": rules.clip,
    "Min": partial(rules.extreme, tirx.min),
    "Max": partial(rules.extreme, tirx.max),
    "Sum": rules.total,
    "Greater": partial(rules.compare, tirx.GT),
    "Less": partial(rules.compare, tirx.LT),
    "GreaterOrEqual": partial(rules.compare, tirx.GE),
    "LessOrEqual": partial(rules.compare, tirx.LE),
}
_INTEGER_RULES: dict[str, _Rule] = {
    "BitShift": rules.shift,
    "BitwiseAnd": lambda call: tirx.bitwise_and(*call.args),
    "BitwiseOr": lambda call: tirx.bitwise_or(*call.args),
    "BitwiseXor": lambda call: tirx.bitwise_xor(*call.args),
    "BitwiseNot": lambda call: tirx.bitwise_not(call.args[0]),
}
_BOOL_RULES: dict[str, _Rule] = {
    "Not": rules.inverse,
    "And": lambda call: rules.logic(call, tirx.bitwise_and),
    "Or": lambda call: rules.logic(call, tirx.bitwise_or),
    "Xor": lambda call: rules.logic(call, tirx.bitwise_xor),
}
_ANY_RULES: dict[str, _Rule] = {
    "Where": lambda call: tirx.Select(*call.args),
    "Cast": lambda call: call.args[0],
    "Identity": lambda call: call.args[0],
    "Dropout": lambda call: call.args[0],
    "Equal": partial(rules.compare, tirx.EQ),
}

_BFLOAT16_RULES: dict[str, _Rule] = {ROUND: lambda call: rounded_number(call.args[0], call.bind)}
_QUANTIZE_RULES: dict[str, _Rule] = {"QuantizeLinear": quantization.quantize}
_DEQUANTIZE_RULES: dict[str, _Rule] = {"DequantizeLinear": quantization.dequantize}

_TABLES = (
    (_FLOAT_RULES, _FLOATS),
    (_NARROW_RULES, _FLOATS - {"float64"}),
    (_NUMBER_RULES, _NUMBERS),
    (_INTEGER_RULES, _INTEGERS),
    (_BOOL_RULES, _BOOL),
    (_ANY_RULES, ELEMENT_TYPES),
    (_BFLOAT16_RULES, frozenset({"float32"})),
    (_QUANTIZE_RULES, quantization.LEVELS | {"float32"}),
    (_DEQUANTIZE_RULES, quantization.LEVELS | {"float32", "int32"}),
)
SCALAR: Mapping[str, ScalarDefinition] = {
    **{name: _definition(rule) for table, _ in _TABLES for name, rule in table.items()},
    BYTE_LOOKUP: byte_tables.look_up,
}
JOINED: Mapping[str, ScalarDefinition] = {**SCALAR, "QuantizeLinear": _definition(quantization.quantize_by_factors)}
"""The same for a CPU that multiplies and adds in one step."""
_OTHER_DOMAINS = frozenset({("com.microsoft", "Gelu"), (OWN_DOMAIN, ROUND), (OWN_DOMAIN, BYTE_LOOKUP)})
_DTYPES: Mapping[str, frozenset[str]] = {
    **{name: dtypes for table, dtypes in _TABLES for name in table},
    BYTE_LOOKUP: byte_tables.BYTES,
}


def supported(operator: WorkloadOperator, workload: Workload) -> str | None:
    """Why this application has no scalar definition; None when it has one."""
    kind = operator.op_type
    if kind not in SCALAR:
        return f"{kind}: no elementwise definition"
    if operator.domain not in ("", "ai.onnx") and (operator.domain, kind) not in _OTHER_DOMAINS:
        return f"{kind}: unknown domain {operator.domain!r}"
    if any(output >= 0 for output in operator.outputs[1:]):
        return f"{kind}: only the first output is computed"
    allowed = _DTYPES[kind]
    for value in operator.inputs:
        dtype = workload.values[value].dtype if value >= 0 else None
        if dtype is not None and dtype not in allowed:
            return f"{kind}: element type {dtype} of an input (known: {', '.join(sorted(allowed))})"
    result = workload.values[operator.outputs[0]].dtype
    if result not in ELEMENT_TYPES:
        return f"{kind}: element type {result} of the output (known: {', '.join(sorted(ELEMENT_TYPES))})"
    return _variant(operator, workload)


def _variant(operator: WorkloadOperator, workload: Workload) -> str | None:
    kind = operator.op_type
    dtype = workload.values[operator.inputs[0]].dtype
    if kind == BYTE_LOOKUP:
        return byte_tables.lookup_refusal(operator, workload)
    if kind in quantization.TAKEN:
        return quantization.quantization_refusal(operator, workload)
    if kind == "BatchNormalization" and operator.attribute("training_mode", 0):
        return "BatchNormalization: training mode"
    if kind == "Dropout" and len(operator.inputs) > 2 and operator.inputs[2] >= 0:
        mode = workload.values[operator.inputs[2]]
        if mode.kind != "literal" or bool(mode.literal_array().any()):
            return "Dropout: training mode"
    if kind == "Mod" and dtype == "float64":
        return "Mod: floating-point operands of more than 32 bits"
    if kind == "Gelu" and rules.text_of(operator, "approximate", "none") not in ("none", "tanh"):
        return f"Gelu: approximate = {rules.text_of(operator, 'approximate', 'none')!r} (known: none, tanh)"
    return None
