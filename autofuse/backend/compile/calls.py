"""Relax functions as the virtual machine runs them: memory planned, kernels called by name, arguments looked at."""

from __future__ import annotations

from typing import Any

from autofuse.backend.container.metadata import looker

UPPER_BOUND = "tir_var_upper_bound"
"""TVM's attribute of a function with open sizes: the largest, for which its memory is planned."""
PAGE_BYTES = 4096
"""The least memory that TVM's pool hands out."""


def calls_lowered(module: Any) -> Any:
    """`module` with its Relax functions as the virtual machine runs them: memory planned, kernels called by name."""
    from tvm.ir.transform import Sequential
    from tvm.relax import transform

    open_sizes = any(UPPER_BOUND in (function.attrs or {}) for _, function in module.functions_items())
    passes = Sequential(
        [
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
            transform.LowerAllocTensor(),
            *((_in_steps(),) if open_sizes else ()),
            transform.KillAfterLastUse(),
            transform.LowerRuntimeBuiltin(),
            *((transform.ComputePrimValue(), transform.VMShapeLower()) if open_sizes else ()),
            transform.AttachGlobalSymbol(),
        ]
    )
    return passes(module)


def lookers(module: Any) -> dict[Any, Any]:
    """For each program of static shapes a function that takes what it takes, and only looks at that; see
    `Program.looker`. One with open sizes looks itself, on every run."""
    import tvm
    from tvm import relax
    from tvm.ir.transform import Sequential
    from tvm.relax import transform

    builder = relax.BlockBuilder()
    for variable, function in module.functions_items():
        if isinstance(function, tvm.relax.Function) and UPPER_BOUND not in (function.attrs or {}):
            arguments = [relax.Var(str(one.name), one.ty) for one in function.params]
            with builder.function(looker(str(variable.name_hint)), arguments):
                builder.emit_func_output(relax.Tuple([]))
    passes = Sequential([transform.ToNonDataflow(), transform.VMShapeLower(), transform.AttachGlobalSymbol()])
    return dict(passes(builder.get()).functions_items())


def _in_steps() -> Any:
    """The pass that takes memory of open sizes in steps of two: a result of a size that did not come before finds
    memory in the pool that a result of another size left there, and the pool does not keep some for each size."""
    import tvm
    from tvm import relax, tirx
    from tvm.relax.expr_functor import PyExprMutator, mutator

    allocate = tvm.ir.Op.get("relax.memory.alloc_storage")

    @mutator
    class InSteps(PyExprMutator):  # type: ignore[misc]
        """Rewrites the sizes of what is allocated."""

        def visit_call_(self, call: Any) -> Any:
            """A call as it is, but for the memory that it asks for."""
            if not call.op.same_as(allocate):
                return call
            (size,) = call.args[0].values
            if isinstance(size, tirx.IntImm):
                return call
            # a power of two has one bit: that above the highest one of the number below it
            room = tirx.const(1, "int64") << (64 - tirx.clz(tirx.max(size, PAGE_BYTES) - 1))
            return relax.Call(call.op, [relax.ShapeExpr([room]), *call.args[1:]], call.attrs, call.ty_args)

    def rewritten(module: Any, _context: Any) -> Any:
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(variable, InSteps(module).visit_expr(function))
        return module

    return tvm.ir.transform.module_pass(rewritten, opt_level=0, name="MemoryInSteps")
