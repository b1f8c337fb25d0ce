"""A workload through TVM's own ONNX importer to one TIR function, not scheduled yet."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.kernels.workload import Workload


class UnsupportedOperatorError(InputError):
    """TVM can make no single correct kernel of a workload; the text names its operators and the reason."""

    def __init__(self, workload: Workload, reason: str) -> None:
        self.operators = tuple(operator.op_type for operator in workload.operators)
        self.reason = reason
        super().__init__(f"no kernel for {'+'.join(self.operators)}: {reason}")


@dataclass(frozen=True, eq=False)
class ImportedFunction:
    """`function`: arguments are the workload's inputs, its constants, `extra`, its outputs, all plain.

    `extra`: values that the importer made up (axes, limits, tables), to be handed to each call.
    """

    function: Any
    extra: tuple[NDArray[np.generic], ...]


def import_workload(workload: Workload, model: Any) -> ImportedFunction:
    """The one TIR function that computes `workload`.

    `model`: the ONNX ModelProto of the workload, whose inputs are the workload's inputs, then its constants.
    UnsupportedOperatorError when TVM has no converter, or cannot make a single function of it.
    """
    try:
        lowered = _legalise(model)
        pieces = _Pieces(lowered)
        function = pieces.only() if pieces.is_single else pieces.fused()
    except UnsupportedOperatorError:
        raise
    except Exception as error:  # noqa: BLE001  # TVM raises whatever type its converters and passes happen to raise
        raise UnsupportedOperatorError(workload, _first_line(error)) from error
    _check_signature(workload, function, len(pieces.extra))
    return ImportedFunction(function.without_attr("global_symbol"), tuple(pieces.extra))


def _legalise(model: Any) -> Any:
    """Relax module whose `main` calls TIR functions only (or operators that have none)."""
    from tvm.relax import transform
    from tvm.relax.frontend.onnx import from_onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = from_onnx(model)
    module = transform.DecomposeOpsForInference()(module)
    return transform.LegalizeOps()(transform.CanonicalizeBindings()(module))


class _Pieces:
    """The calls of a legalised `main`, with every constant made an argument and every output a fresh tensor."""

    def __init__(self, module: Any) -> None:
        from tvm import relax

        self._relax = relax
        self._module = module
        self._main = module["main"]
        self._bindings = [binding for block in _blocks(self._main) for binding in block.bindings]
        self._calls = [b for b in self._bindings if self._is_call_tir(b.value)]
        self._constants = self._constant_arguments()
        self.extra = [np.array(constant.value.numpy(), order="C") for constant, _ in self._constants]
        self._refuse_others()

    @property
    def is_single(self) -> bool:
        """Whether `main` is exactly one call over its parameters in order, so that nothing is left to merge."""
        if len(self._calls) != 1:
            return False
        (call,) = self._calls
        arguments = list(call.value.args[1].fields)
        expected = [*self._main.params, *(constant for constant, _ in self._constants)]
        whole = len(arguments) == len(expected) and all(map(_same, arguments, expected))
        results = self._result_fields()
        aliases = {binding.var: binding.value for binding in self._bindings}
        return whole and len(results) == 1 and self._resolved(results[0], aliases).same_as(call.var)

    def only(self) -> Any:
        """The function of the only call."""
        return self._module[self._calls[0].value.args[0]]

    def fused(self) -> Any:
        """One function made by FuseTIR of all calls."""
        from tvm.relax.transform import FuseTIR

        relax = self._relax
        builder = relax.BlockBuilder()
        inner = [relax.Var(f"in{i}", param.ty) for i, param in enumerate(self._main.params)]
        inner += [variable for _, variable in self._constants]
        with builder.function("group", inner, attrs={"Primitive": True}, private=True):
            with builder.dataflow():
                result = builder.emit_output(self._emit(builder, dict(zip(self._main.params, inner, strict=False))))
            builder.emit_func_output(result)
        group = builder.get().get_global_var("group")
        outer = [relax.Var(f"arg{i}", variable.ty) for i, variable in enumerate(inner)]
        with builder.function("main", outer):
            with builder.dataflow():
                result = builder.emit_output(relax.Call(group, outer))
            builder.emit_func_output(result)
        merged = FuseTIR()(builder.finalize())
        functions = [f for _, f in merged.functions_items() if not isinstance(f, relax.Function)]
        if len(functions) != 1:
            raise ValueError(f"TVM's FuseTIR left {len(functions)} functions")
        return functions[0]

    def _emit(self, builder: Any, environment: dict[Any, Any]) -> Any:
        """Emit every call into the group; the expression of its results."""
        relax = self._relax
        functions: dict[Any, Any] = {}
        fresh: set[Any] = set()
        for binding in self._bindings:
            value = binding.value
            if self._is_call_tir(value):
                callee = value.args[0]
                if callee not in functions:
                    functions[callee] = builder.add_func(self._module[callee], callee.name_hint)
                arguments = self._mapped(value.args[1], environment)
                call = relax.Call(
                    value.op, [functions[callee], arguments, *value.args[2:]], value.attrs, value.ty_args
                )
                environment[binding.var] = builder.emit(call)
                fresh.add(environment[binding.var])
            elif isinstance(value, relax.TupleGetItem):
                held = self._mapped(value.tuple_value, environment)
                if isinstance(held, relax.Tuple):
                    environment[binding.var] = held.fields[value.index]
                else:
                    environment[binding.var] = builder.emit(relax.TupleGetItem(held, value.index))
                    fresh.add(environment[binding.var])
            elif isinstance(value, relax.Tuple | relax.Var) or _is_constant(value):
                environment[binding.var] = self._mapped(value, environment)
        return self._emit_results(builder, environment, fresh)

    def _emit_results(self, builder: Any, environment: dict[Any, Any], fresh: set[Any]) -> Any:
        """Each result its own tensor: an input or a repeated result is copied."""
        from tvm import topi

        relax = self._relax
        results = []
        for field in self._result_fields(environment):
            if field in fresh:
                fresh.discard(field)
            else:
                field = builder.emit_te(topi.identity, field)
            results.append(field)
        return results[0] if len(results) == 1 else relax.Tuple(results)

    def _result_fields(self, environment: dict[Any, Any] | None = None) -> list[Any]:
        """The results of `main`, mapped through `environment` when given."""
        relax = self._relax
        aliases = environment if environment is not None else {b.var: b.value for b in self._bindings}
        result = self._resolved(self._main.body.body, aliases)
        fields = list(result.fields) if isinstance(result, relax.Tuple) else [result]
        return [self._mapped(field, environment) for field in fields] if environment is not None else fields

    def _resolved(self, expression: Any, aliases: dict[Any, Any]) -> Any:
        """`expression` followed through plain renamings."""
        relax = self._relax
        while isinstance(expression, relax.Var) and expression in aliases:
            target = aliases[expression]
            if not isinstance(target, relax.Tuple | relax.Var) or target.same_as(expression):
                break
            expression = target
        return expression

    def _mapped(self, expression: Any, environment: dict[Any, Any]) -> Any:
        relax = self._relax
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([self._mapped(field, environment) for field in expression.fields])
        if _is_constant(expression):
            return next(variable for constant, variable in self._constants if constant.same_as(expression))
        return environment.get(expression, expression) if isinstance(expression, relax.Var) else expression

    def _constant_arguments(self) -> list[tuple[Any, Any]]:
        """Each tensor constant that a call or the result reads, with the argument that will stand for it."""
        found: list[tuple[Any, Any]] = []
        reads = [field for call in self._calls for field in call.value.args[1].fields]
        reads += [binding.value for binding in self._bindings]
        reads += self._result_fields()
        for expression in reads:
            fields = expression.fields if isinstance(expression, self._relax.Tuple) else [expression]
            for field in fields:
                if _is_constant(field) and not any(constant.same_as(field) for constant, _ in found):
                    found.append((field, self._relax.Var(f"const{len(found)}", field.ty)))
        return found

    def _refuse_others(self) -> None:
        """ValueError when `main` computes something that is no TIR call, and needs it."""
        relax = self._relax
        for binding in self._bindings:
            value = binding.value
            if self._is_call_tir(value):
                if len(value.args) > 2:
                    raise ValueError("a shape is only known at run time")
            elif isinstance(value, relax.Call) and not self._is_shape(value):
                name = getattr(value.op, "name", None) or getattr(value.args[0], "global_symbol", str(value.op))
                raise ValueError(f"TVM lowers it to a runtime call ({name}), not to loops")
            elif isinstance(value, relax.If):
                raise ValueError("control flow inside a group")

    def _is_call_tir(self, value: Any) -> bool:
        return isinstance(value, self._relax.Call) and getattr(value.op, "name", "") == "relax.call_tir"

    def _is_shape(self, call: Any) -> bool:
        return isinstance(call.ty, self._relax.ShapeType)


def _blocks(function: Any) -> list[Any]:
    return list(function.body.blocks)


def _is_constant(expression: Any) -> bool:
    from tvm.ir import GenericConst

    return isinstance(expression, GenericConst)


def _same(left: Any, right: Any) -> bool:
    return bool(left.same_as(right))


def _check_signature(workload: Workload, function: Any, extra: int) -> None:
    """The function's buffers must be the workload's values, or a call would read or write out of bounds."""
    values = [workload.values[i] for kind in ("input", "constant", "output") for i in workload.of_kind(kind)]
    buffers = list(function.params)
    outputs = len(workload.of_kind("output"))
    kept = buffers[: len(buffers) - outputs - extra] + buffers[len(buffers) - outputs :]
    made = [(_static_shape(buffer), str(buffer.dtype)) for buffer in kept]
    wanted = [(value.shape, value.dtype) for value in values]
    if made != wanted:
        raise UnsupportedOperatorError(workload, f"TVM infers tensors {made}, the model says {wanted}")


def _static_shape(buffer: Any) -> tuple[int, ...]:
    from tvm.tirx import IntImm

    return tuple(int(extent) if isinstance(extent, int | IntImm) else -1 for extent in buffer.shape)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"TVM's importer fails ({lines[-1][:200] if lines else type(error).__name__})"
