"""From TIR and Relax to machine code: the target as TVM writes it, single functions, whole programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from autofuse.device.target import Target
from autofuse.errors import InputError

ENTRY = "main"
LOWERING = {"tirx.disable_cse_tir": True}
"""LLVM finds common subexpressions again: TVM's own pass takes a fifth of the time for nothing."""


BROKEN, CAREFUL = "module verification failed", 2
"""What TVM says when LLVM's optimiser breaks a module (22.1 does, rarely, where it joins scalars to vectors), and the
level of optimisation at which it does not."""


def tvm_target(target: Target, level: int | None = None) -> Any:
    """TVM's own description of `target`; `level`: of LLVM's optimisation (None: the highest).

    InputError for a CPU or feature name that LLVM does not know: TVM only logs it and makes generic code.
    """
    import tvm
    from tvm.target import codegen

    fields: dict[str, Any] = {"kind": "llvm", "mcpu": target.mcpu, "num-cores": target.cores}
    if target.mtriple is not None:
        fields["mtriple"] = target.mtriple
    triple = target.mtriple or str(codegen.llvm_get_system_triple())
    if not codegen.llvm_is_valid_cpu(target.mcpu, triple):
        known = codegen.llvm_get_cpu_archlist(tvm.target.Target({"kind": "llvm", "mtriple": triple}))
        names = ", ".join(sorted(map(str, known))) or "none: TVM's LLVM lacks this architecture"
        raise InputError(f"target: mcpu {target.mcpu!r} is not known for {triple}; allowed: {names}")
    if target.mattr:
        wrong = [name for name in target.mattr if name[:1] not in "+-" or len(name) < 2]
        if wrong:
            raise InputError(f"target: mattr {wrong[0]!r} must read +feature or -feature")
        fields["mattr"] = list(target.mattr)
    if level is not None:
        fields["opt-level"] = level
    return tvm.target.Target(fields)


def compile_function(function: Any, target: Target) -> Any:
    """Runtime module whose entry "main" is the TIR `function`, ready to be called and timed in this process."""
    with _lowering():
        return _compiled(function, target).jit()


def _compiled(function: Any, target: Target) -> Any:
    import tvm

    module = tvm.IRModule({ENTRY: function.with_attr("global_symbol", ENTRY)})
    return _carefully(lambda described: tvm.compile(module, target=described), target)


def _carefully(build: Callable[[Any], Any], target: Target) -> Any:
    """What `build` makes for TVM's description of `target`: where LLVM breaks a module, of lower optimisation."""
    try:
        return build(tvm_target(target))
    except Exception as error:  # TVM's InternalError, which it has no module for
        if BROKEN not in str(error):
            raise
    return build(tvm_target(target, CAREFUL))


def _lowering() -> Any:
    from tvm.ir.transform import PassContext

    return PassContext(opt_level=3, config=LOWERING)


def export_function(function: Any, target: Target, output: Path) -> None:
    """Write the TIR `function` as a shared library for `target`, perhaps another machine; see `load_kernel`.

    DeviceError when it cannot be linked.
    """
    from autofuse.backend.link.architecture import architecture_of
    from autofuse.backend.link.linking import exported

    exported(_compiled(function, target), output, architecture_of(target), output.parent)


def assembly(function: Any, target: Target) -> str:
    """LLVM's assembly of the TIR `function`."""
    return str(_compiled(function, target).mod.inspect_source("s"))


def compile_program(module: Any, target: Target) -> Any:
    """Executable of an assembled program; each TIR function is lowered as it is, and nothing is fused.

    All shapes are static and the library checks its own inputs, so the passes that check shapes at run
    time are left out: they would cost a call an argument, on every run.
    """
    from tvm import relax
    from tvm.ir.transform import Sequential
    from tvm.relax import transform

    passes = Sequential(
        [
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
            transform.LowerAllocTensor(),
            transform.KillAfterLastUse(),
            transform.LowerRuntimeBuiltin(),
            transform.AttachGlobalSymbol(),
        ]
    )
    with _lowering():
        return _carefully(lambda described: relax.build(module, target=described, relax_pipeline=passes), target)
