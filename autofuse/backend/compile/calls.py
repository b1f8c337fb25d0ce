"""Relax functions as the virtual machine runs them: memory planned, kernels called by name, arguments looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autofuse.backend.container.program_spec import looker, weight_looker

UPPER_BOUND = "tir_var_upper_bound"
"""TVM's attribute of a function with open sizes: the largest, for which its memory is planned."""
_WEIGHT = "weight"
_LOOKS = ("vm.builtin.check_tensor_info", "vm.builtin.match_shape")
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
            *(_shapes_lowered() if open_sizes else ()),
            transform.AttachGlobalSymbol(),
        ]
    )
    return passes(module)


def lookers(module: Any) -> dict[Any, Any]:
    """For each program of static shapes a function that takes what it takes, and only looks at that; see
    `Program.looker`. One with open sizes looks at its inputs itself, on every run; its function takes the weights."""
    import tvm
    from tvm import relax
    from tvm.ir.transform import Sequential
    from tvm.relax import transform

    builder = relax.BlockBuilder()
    for variable, function in module.functions_items():
        if isinstance(function, tvm.relax.Function):
            opened = UPPER_BOUND in (function.attrs or {})
            taken = [one for one in function.params if not opened or is_weight(one)]
            name = (weight_looker if opened else looker)(str(variable.name_hint))
            with builder.function(name, [relax.Var(str(one.name), one.ty) for one in taken]):
                builder.emit_func_output(relax.Tuple([]))
    passes = Sequential([transform.ToNonDataflow(), transform.VMShapeLower(), transform.AttachGlobalSymbol()])
    return dict(passes(builder.get()).functions_items())


def weight_name(number: int) -> str:
    """What a program calls its weight of that number."""
    return f"{_WEIGHT}{number}"


def is_weight(variable: Any) -> bool:
    """Whether an argument of a program is a weight."""
    return str(variable.name).startswith(_WEIGHT)


def _shapes_lowered() -> tuple[Any, ...]:
    """The passes by which a program of open sizes reads them from its inputs, and makes shapes of them."""
    from tvm.relax import transform

    return transform.ComputePrimValue(), _shapes_in_front(), transform.VMShapeLower(), _inputs_seen_alone()


def _shapes_in_front() -> Any:
    """The pass by which a program of open sizes makes each shape once, however many of its tensors have it."""
    import tvm
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class InFront(PyExprMutator):  # type: ignore[misc]
        """Rewrites one function."""

        def rewritten(self, function: Any) -> Any:
            """The function with its shapes in front of all else."""
            self.shapes: dict[str, Any] = {}
            body = self.visit_expr(function.body)
            if not self.shapes:  # of fixed sizes, beside others
                return function
            made = relax.BindingBlock([relax.VarBinding(variable, shape) for shape, variable in self.shapes.values()])
            return _with_blocks(function, [made, *body.blocks], body.body)

        def visit_call_(self, call: Any) -> Any:
            """A call, given the shapes that were made in front."""
            given = [self._once(one) if isinstance(one, relax.ShapeExpr) else self.visit_expr(one) for one in call.args]
            return relax.Call(call.op, given, call.attrs, call.ty_args)

        def _once(self, shape: Any) -> Any:
            if all(isinstance(extent, tvm.tirx.IntImm) for extent in shape.values):
                return shape
            known = self.shapes.setdefault(str(shape), (shape, relax.Var(f"shape{len(self.shapes)}", shape.ty)))
            return known[1]

    return _over_functions("ShapesInFront", lambda module, function: InFront(module).rewritten(function))


def _inputs_seen_alone() -> Any:
    """The pass that leaves a program of open sizes only the looks at its inputs, and one of fixed sizes beside it none.
    Its weights are the same at every call
    (two looks at each took a small network longer than all else that open sizes cost it; see `lookers`), and results
    have the shapes that it gave them."""
    from tvm import relax

    def rewritten(_module: Any, function: Any) -> Any:
        opened = UPPER_BOUND in (function.attrs or {})
        inputs = [one for one in function.params if opened and not is_weight(one)]

        def is_kept(binding: Any) -> bool:
            call = binding.value
            if not isinstance(call, relax.Call) or not isinstance(call.op, relax.ExternFunc):
                return True
            return str(call.op.global_symbol) not in _LOOKS or any(map(call.args[0].same_as, inputs))

        blocks = [relax.BindingBlock(list(filter(is_kept, block.bindings))) for block in function.body.blocks]
        return _with_blocks(function, blocks, function.body.body)

    return _over_functions("InputsSeenAlone", rewritten)


def _with_blocks(function: Any, blocks: list[Any], result: Any) -> Any:
    from tvm import relax

    body = relax.SeqExpr(blocks, result)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _over_functions(name: str, rewritten: Callable[[Any, Any], Any]) -> Any:
    """The pass that puts what `rewritten` makes of a module and each of its Relax functions in place of these."""
    import tvm
    from tvm import relax

    def passed(module: Any, _context: Any) -> Any:
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(variable, rewritten(module, function))
        return module

    return tvm.ir.transform.module_pass(passed, opt_level=0, name=name)


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

    return _over_functions("MemoryInSteps", lambda module, function: InSteps(module).visit_expr(function))
