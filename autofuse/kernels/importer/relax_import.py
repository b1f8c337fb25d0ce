"""A workload through TVM's own ONNX importer to one TIR function, not scheduled yet."""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.kernels.importer.chain import Call, chain
from autofuse.kernels.importer.mended import mended_function
from autofuse.kernels.importer.tvm_log import without_warnings
from autofuse.kernels.workload.workload import Workload


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
        calls = _Calls(_legalise(model), [value.name for value in model.graph.input], workload)
        function = calls.merged()
    except UnsupportedOperatorError:
        raise
    except Exception as error:  # TVM raises whatever type its converters and passes happen to raise
        raise UnsupportedOperatorError(workload, _last_line(error)) from error
    _check_signature(workload, function, len(calls.extra))
    return ImportedFunction(function.without_attr("global_symbol"), tuple(calls.extra))


def _legalise(model: Any) -> Any:
    """Relax module whose `main` calls TIR functions only (or operators that have none)."""
    import tvm
    from tvm.relax import backend, transform
    from tvm.relax.frontend.onnx import from_onnx

    with without_warnings(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        module = transform.DecomposeOpsForInference()(from_onnx(model))
        with tvm.target.Target({"kind": "llvm"}):
            module = backend.DispatchSortScan()(module)
        return transform.LegalizeOps()(transform.CanonicalizeBindings()(module))


class _Calls:
    """The TIR calls of a legalised `main`; every constant becomes an argument, every result a tensor of its own."""

    def __init__(self, module: Any, input_names: list[str], workload: Workload) -> None:
        from tvm import relax

        self._relax = relax
        self._module = module
        self._workload = workload
        main = module["main"]
        self._bindings = [binding for block in main.body.blocks for binding in block.bindings]
        self._refuse_others()
        self._parameters = self._all_parameters(main, input_names, workload)
        self._dtypes = [workload.values[index].dtype for index in workload.of_kind("output")]
        self._constants: list[tuple[Any, Any]] = []
        self._body = main.body.body
        self._collect_constants()
        self.extra = [np.array(constant.value.numpy(), order="C") for constant, _ in self._constants]

    def merged(self) -> Any:
        """One function of all calls, merged by FuseTIR, or chained as they are where FuseTIR gives up."""
        try:
            return mended_function(self._with_unread(self._fused()), self._workload)
        except Exception:  # noqa: BLE001  # FuseTIR fails in many ways on blocks without loops: scatter, sort, cumsum
            return mended_function(self._chained(), self._workload)

    def _fused(self) -> Any:
        from tvm.relax.transform import FuseTIR

        relax = self._relax
        builder = relax.BlockBuilder()
        inner = [*self._parameters, *(variable for _, variable in self._constants)]
        with builder.function("group", inner, attrs={"Primitive": True}, private=True):
            with builder.dataflow():
                result = builder.emit_output(self._emit(builder))
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
            raise ValueError(f"FuseTIR left {len(functions)} functions")
        return functions[0]

    def _with_unread(self, function: Any) -> Any:
        """`function` with the arguments that FuseTIR dropped because no call reads them."""
        from tvm import tirx

        kept = {str(parameter.name): parameter for parameter in function.params}
        inputs = [kept.pop(str(variable.name), None) for variable in self._arguments()]
        filled = [_buffer(v) if i is None else i for i, v in zip(inputs, self._arguments(), strict=True)]
        outputs = [parameter for parameter in function.params if str(parameter.name) in kept]
        return tirx.PrimFunc([*filled, *outputs], function.body, function.ret_type, function.attrs)

    def _emit(self, builder: Any) -> Any:
        """Emit every call into the group; the expression of its results."""
        from tvm import topi

        relax = self._relax
        environment: dict[Any, Any] = {}
        functions: dict[Any, Any] = {}
        fresh: set[Any] = set()
        for binding in self._bindings:
            value = binding.value
            if self._is_call_tir(value):
                callee = value.args[0]
                if callee not in functions:
                    functions[callee] = builder.add_func(self._module[callee], callee.name_hint)
                arguments = [functions[callee], self._mapped(value.args[1], environment)]
                made = builder.emit(relax.Call(value.op, arguments, value.attrs, value.ty_args))
                environment[binding.var] = made
                fresh.add(made)
            elif isinstance(value, relax.TupleGetItem):
                held = self._mapped(value.tuple_value, environment)
                if not isinstance(held, relax.Tuple):
                    held = builder.emit(relax.TupleGetItem(held, value.index))
                    fresh.add(held)
                environment[binding.var] = held.fields[value.index] if isinstance(held, relax.Tuple) else held
            elif isinstance(value, relax.Tuple | relax.Var) or _is_constant(value):
                environment[binding.var] = self._mapped(value, environment)
        results = []
        for field, dtype in zip(self._results(environment), self._dtypes, strict=True):
            if _widened(str(field.ty.dtype.dtype), dtype):
                results.append(builder.emit_te(topi.cast, field, dtype))
            elif field in fresh:
                fresh.discard(field)
                results.append(field)
            else:
                results.append(builder.emit_te(topi.identity, field))
        return results[0] if len(results) == 1 else relax.Tuple(results)

    def _chained(self) -> Any:
        """The functions of the calls one after the other, their results in buffers of the merged function."""
        from tvm import te, tirx, topi

        relax = self._relax
        environment: dict[Any, Any] = {}
        calls: list[Call] = []
        inputs = [_buffer(variable) for variable in self._arguments()]
        buffers = dict(zip(self._arguments(), inputs, strict=True))
        for binding in self._bindings:
            value = binding.value
            if self._is_call_tir(value):
                outputs = [tirx.decl_buffer(ty.shape.values, ty.dtype.dtype, "held") for ty in _flat(value.ty_args[0])]
                arguments = [buffers[field] for field in self._mapped(value.args[1], environment).fields]
                calls.append(Call(self._module[value.args[0]], (*arguments, *outputs)))
                fields = [relax.Var(f"field{i}", ty) for i, ty in enumerate(_flat(value.ty_args[0]))]
                buffers.update(zip(fields, outputs, strict=True))
                environment[binding.var] = fields[0] if len(fields) == 1 else relax.Tuple(fields)
            elif isinstance(value, relax.TupleGetItem):
                environment[binding.var] = self._mapped(value.tuple_value, environment).fields[value.index]
            elif isinstance(value, relax.Tuple | relax.Var) or _is_constant(value):
                environment[binding.var] = self._mapped(value, environment)
        results = []
        for field in self._results(environment):
            source = te.placeholder(field.ty.shape.values, field.ty.dtype.dtype)
            results.append(_buffer(field))
            calls.append(Call(te.create_prim_func([source, topi.identity(source)]), (buffers[field], results[-1])))
        return chain(calls, inputs, results)

    def _arguments(self) -> list[Any]:
        return [*self._parameters, *(variable for _, variable in self._constants)]

    def _results(self, environment: dict[Any, Any]) -> list[Any]:
        result = self._mapped(self._body, environment)
        return list(result.fields) if isinstance(result, self._relax.Tuple) else [result]

    def _mapped(self, expression: Any, environment: dict[Any, Any]) -> Any:
        """`expression` over the variables of the function that is being made."""
        relax = self._relax
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([self._mapped(field, environment) for field in expression.fields])
        if _is_constant(expression):
            return next(variable for constant, variable in self._constants if constant.same_as(expression))
        return environment.get(expression, expression) if isinstance(expression, relax.Var) else expression

    def _all_parameters(self, main: Any, names: list[str], workload: Workload) -> list[Any]:
        """A parameter for every input of the model, also those that the importer dropped since nothing reads them."""
        relax = self._relax
        known = {str(parameter.name): parameter for parameter in main.params}
        indices = (*workload.of_kind("input"), *workload.of_kind("constant"))
        parameters = []
        for name, index in zip(names, indices, strict=True):
            value = workload.values[index]
            made = relax.Var(name, relax.TensorType(value.shape, value.dtype))
            parameters.append(known.get(name, made))
        return parameters

    def _collect_constants(self) -> None:
        """Give each tensor constant that is read a variable that will be the argument for it."""
        relax = self._relax
        reads = [value.args[1] if self._is_call_tir(value := b.value) else value for b in self._bindings]
        for expression in (*reads, self._body):
            for field in expression.fields if isinstance(expression, relax.Tuple) else (expression,):
                if _is_constant(field) and not any(constant.same_as(field) for constant, _ in self._constants):
                    self._constants.append((field, relax.Var(f"const{len(self._constants)}", field.ty)))

    def _refuse_others(self) -> None:
        """ValueError when `main` computes something that is no TIR call, and needs it."""
        relax = self._relax
        for binding in self._bindings:
            value = binding.value
            if self._is_call_tir(value):
                if len(value.args) > 2:
                    raise ValueError("a shape is only known at run time")
            elif isinstance(value, relax.Call) and not isinstance(value.ty, relax.ShapeType):
                name = getattr(value.op, "name", None) or str(value.op)
                raise ValueError(f"TVM lowers it to a runtime call ({name}), not to loops")
            elif isinstance(value, relax.If):
                raise ValueError("control flow inside a group")

    def _is_call_tir(self, value: Any) -> bool:
        return isinstance(value, self._relax.Call) and getattr(value.op, "name", "") == "relax.call_tir"


def _buffer(variable: Any) -> Any:
    from tvm import tirx

    return tirx.decl_buffer(variable.ty.shape.values, variable.ty.dtype.dtype, str(variable.name))


def _widened(made: str, wanted: str) -> bool:
    """Whether TVM computed in another width of the same kind of number (OneHot: float64 for float32)."""
    return made != wanted and np.dtype(made).kind == np.dtype(wanted).kind in "iuf"


def _flat(ty: Any) -> list[Any]:
    return list(ty.fields) if hasattr(ty, "fields") else [ty]


def _is_constant(expression: Any) -> bool:
    from tvm.ir import GenericConst

    return isinstance(expression, GenericConst)


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


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"TVM's importer fails ({lines[-1][:200] if lines else type(error).__name__})"
