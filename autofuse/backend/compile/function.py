"""From TIR and Relax to machine code: the target as TVM writes it, single functions, whole programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from autofuse.backend.compile.calls import calls_lowered, lookers
from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.kernels.tir.digest import Distinct
from autofuse.kernels.tir.features import has_feature
from autofuse.kernels.tir.llvm_text import FLUSHES, flushing, hidden_counts
from autofuse.kernels.tir.loops import OF_IMAGES, vector_loops
from autofuse.link.architecture import X86_64, architecture_of
from autofuse.link.linking import exported
from autofuse.values.scratch import scratch_folder

ENTRY = "main"
SYMBOL_LENGTH = 47
"""Of the name of a kernel in a library: one length for all, so that the object of a kernel fits under any name."""
ANY_SYMBOL = "kernel_".ljust(SYMBOL_LENGTH, "0")
"""What a kernel is called while it is translated, and in an object that is kept."""
Told = Callable[[int, int], None]
"""Called with how many kernels of how many are translated."""
LOWERING = {"tirx.disable_cse_tir": True, "tirx.disable_assert": True}
"""LLVM finds common subexpressions again: TVM's own pass takes a fifth of the time for nothing (of long code four
fifths). Kernels do not check their arguments, which took 4 KB of each: whoever calls them checks once, see
`lookers`."""
SCHEDULED = "tirx.is_scheduled"
"""The attribute of functions that our families emit."""
IDLE_PASSES = (
    "s_tir.CompactBufferAllocation", "s_tir.HoistIfThenElse", "s_tir.InferFragment", "s_tir.InjectDoubleBuffer",
    "s_tir.InjectPermutedLayout", "s_tir.InjectSoftwarePipeline", "s_tir.InjectVirtualThread", "s_tir.LowerAutoCopy",
    "s_tir.LowerThreadAllreduce", "s_tir.LowerVtcmAlloc", "s_tir.ThreadSync", "tirx.FP8ComputeLegalize",
    "tirx.FP8StorageLegalize", "tirx.RemoveNoOp",
)  # fmt: skip
"""Passes that find nothing to do in what our families emit: buffers are as large as they have to be, there is no float8
and nothing of a GPU's, and LLVM takes conditions out of loops itself. Of a band of many windows the first took 5 s of
8; the others took more than a tenth of the time of common kernels. The machine code is the same, byte by byte. Without
`s_tir.StmtSimplify` it is not in three of the kernels that the tests sample."""
SLOW_PASSES = ("s_tir.RenormalizeSplitPattern", "s_tir.StmtSimplify")
"""Passes that simplify expressions, left out for kernels over images (`OF_IMAGES`): of a convolution they took 30 of
33 s, since each looks for proofs about extents of which there are none. The machine code of a convolution, a pooling
and a join is the same, byte by byte. The last such pass, `tirx.StmtSimplify`, stays: without it that pooling took 1.7
times as long."""
LONG_VECTORS = 400
"""See `is_long`."""
MANY_VECTORS = 60
"""Vector loops from which on they are lowered before all else. TVM looks through all loops that it has met for each
access: 2,000 such loops took one pass 6 s, and 0.2 s as vectors. The machine code is the same but for the names of
registers; of smaller kernels a few moves differ."""

LEFT_OUT = "sse4a"
"""A feature that is switched off: AMD's CPUs alone have it, and LLVM writes it in place of some shuffles, which others
do as well. A library for one of them stopped on an Intel CPU that has all that its vectors need."""

SETTINGS = (LOWERING, IDLE_PASSES, MANY_VECTORS, FLUSHES, LEFT_OUT)
"""What decides, besides the function and the target, which machine code is made."""

BROKEN, CAREFUL = "module verification failed", 2
"""What TVM says when LLVM's optimiser breaks a module (22.1 does, rarely, where it joins scalars to vectors), and the
level of optimisation at which it does not."""


def tvm_target(target: Target, level: int | None = None) -> Any:
    """TVM's own description of `target`, without `LEFT_OUT`; `level`: of LLVM's optimisation (None: the highest).

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
    if has_feature(target, LEFT_OUT):
        fields["mattr"] = [*target.mattr, f"-{LEFT_OUT}"]
    if level is not None:
        fields["opt-level"] = level
    return tvm.target.Target(fields)


def compile_function(function: Any, target: Target) -> Any:
    """Runtime module whose entry "main" is the TIR `function`, ready to be called and timed in this process."""
    return _compiled(function, target).jit()


def _compiled(function: Any, target: Target, symbol: str = ENTRY) -> Any:
    import tvm

    ours = bool(function.attrs) and SCHEDULED in function.attrs
    function = hidden_counts(function) if ours else function
    if ours and architecture_of(target) == X86_64:
        function = flushing(function)
    module = tvm.IRModule({symbol: function.with_attr("global_symbol", symbol)})
    many = ours and vector_loops(function) > MANY_VECTORS

    def build(described: Any) -> Any:
        return tvm.compile(_as_vectors(module, described, target) if many else module, target=described)

    slow = SLOW_PASSES if ours and OF_IMAGES in function.attrs else ()
    with _lowering((*IDLE_PASSES, *slow) if ours else ()):
        return _carefully(build, target)


def _as_vectors(module: Any, described: Any, target: Target) -> Any:
    """`module` with its vector loops lowered. Where a function has a target, TVM looks up all features of its CPU for
    each loop, to see whether vectors have a length of their own: those of x86 have none."""
    import tvm
    from tvm.tirx import transform

    if architecture_of(target) != X86_64:
        module = transform.BindTarget(tvm.target.Target(described, host=described))(module)
    return transform.VectorizeLoop()(module)


def _carefully(build: Callable[[Any], Any], target: Target) -> Any:
    """What `build` makes for TVM's description of `target`: where LLVM breaks a module, of lower optimisation."""
    try:
        return build(tvm_target(target))
    except Exception as error:  # TVM's InternalError, which it has no module for
        if BROKEN not in str(error):
            raise
    return build(tvm_target(target, CAREFUL))


def _lowering(idle: Sequence[str] = ()) -> Any:
    from tvm.ir.transform import PassContext

    return PassContext(opt_level=3, config=LOWERING, disabled_pass=list(idle))


def export_function(function: Any, target: Target, output: Path) -> None:
    """Write the TIR `function` as a shared library for `target`, perhaps another machine; see `load_kernel`.

    DeviceError when it cannot be linked.
    """
    exported(_compiled(function, target), output, architecture_of(target), output.parent)


def assembly(function: Any, target: Target) -> str:
    """LLVM's assembly of the TIR `function`."""
    return str(_compiled(function, target).mod.inspect_source("s"))


def translate(function: Any, symbol: str, target: Target) -> Any:
    """Runtime module with the machine code of one TIR function, called `symbol` in it. Several threads may do this."""
    return _compiled(function, target, symbol).mod


def write_function(function: Any, path: Path) -> None:
    """Write a TIR function for another process of ours; see `read_function`."""
    import tvm

    path.write_text(tvm.ir.save_json(function), encoding="utf-8")


def read_function(path: Path) -> Any:
    """The TIR function that `write_function` wrote."""
    import tvm

    return tvm.ir.load_json(path.read_text(encoding="utf-8"))


def is_long(function: Any) -> bool:
    """Whether translating a TIR function may take more than a few seconds.

    Of 2,402 kernels of eleven networks those of up to 900 lines, which have about so many vector loops, took 2.2 s of
    processor time at most, and longer ones up to 16 s.
    """
    return vector_loops(function) > LONG_VECTORS


def write_object(function: Any, symbol: str, target: Target, path: Path) -> None:
    """Write the machine code of one TIR function as the object file `path`; see `read_object`.

    `symbol`: of `SYMBOL_LENGTH`.
    """
    translate(function, ANY_SYMBOL, target).write_to_file(str(path))
    if symbol != ANY_SYMBOL:
        path.write_bytes(renamed(path.read_bytes(), ANY_SYMBOL, symbol))


def renamed(code: bytes, symbol: str, other: str) -> bytes:
    """An object file whose function is called otherwise, and all that is named after it: both names are equally long,
    so that nothing in the file moves."""
    assert len(symbol) == len(other) == SYMBOL_LENGTH, f"{symbol!r} and {other!r} are no names of {SYMBOL_LENGTH}"
    return code.replace(symbol.encode(), other.encode())


def read_object(path: Path, symbol: str) -> Any:
    """The module that `translate` made before it was written as an object file, which is needed no more."""
    import tvm

    return tvm.runtime.load_static_library(str(path), [symbol])


class Kept(Protocol):
    """Object code of functions that were translated before; see `autofuse.backend.compile.objects.UserObjects`."""

    def key(self, function: Any, code: str = "") -> str:
        """The name of an object, whatever its function is called. `code`: its `code_key`, where that is known."""

    def take(self, key: str, symbol: str, path: Path) -> bool:
        """Whether it is there; then it is written to `path`, its function called `symbol`."""

    def keep(self, key: str, symbol: str, path: Path) -> None:
        """Keep the object file `path`, whose function is called `symbol`."""

    def bound(self) -> None:
        """Make room."""


class NothingKept:
    """No objects of earlier libraries."""

    def key(self, function: Any, code: str = "") -> str:  # noqa: ARG002
        """See `Kept`."""
        return ""

    def take(self, key: str, symbol: str, path: Path) -> bool:  # noqa: ARG002
        """It is not there."""
        return False

    def keep(self, key: str, symbol: str, path: Path) -> None:
        """It is not kept."""

    def bound(self) -> None:
        """There is nothing."""


NOTHING_KEPT = NothingKept()


def compile_program(
    module: Any, target: Target, ready: Mapping[str, Any] | None = None, told: Told | None = None, jobs: int = 1,
    kept: Kept = NOTHING_KEPT, ahead: Translator | None = None,
) -> Any:  # fmt: skip
    """Executable of an assembled program; each TIR function is lowered as it is, and nothing is fused.

    `ready`: kernels by symbol that are translated already. The others are now, by `ahead`, which may have begun, or
    `jobs` at a time where they are not `kept`.

    Where all shapes are static, the passes that check them at run time are left out, since the library checks its own
    inputs: they would cost a call an argument, on every run. Whoever loads it calls `Program.looker` once instead.
    """
    import tvm
    from tvm import relax

    with _lowering():
        lowered = calls_lowered(module)
        kernels = _kernels(lowered)
        with _begun(ahead, target, jobs, kept) as translator:
            translated = _translated(kernels, ready or {}, told, translator)
        programs = {v: function for v, function in lowered.functions_items() if str(v.name_hint) not in kernels}
        programs |= lookers(module)
        calls = tvm.IRModule(programs).with_attr("external_mods", [translated[name] for name in kernels])
        return relax.build(calls, target=tvm_target(target), relax_pipeline=None)


def compile_kernels(
    module: Any, target: Target, ready: Mapping[str, Any] | None = None, told: Told | None = None, jobs: int = 1,
    kept: Kept = NOTHING_KEPT, ahead: Translator | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The machine code of the kernels of an assembled program, by symbol; see `compile_program`."""
    with _lowering(), _begun(ahead, target, jobs, kept) as translator:
        return _translated(_kernels(module), ready or {}, told, translator)


def _begun(ahead: Translator | None, target: Target, jobs: int, kept: Kept) -> AbstractContextManager[Translator]:
    """The translator that may have begun, which is another's to end; or one for just these kernels."""
    return translating(target, jobs, kept) if ahead is None else nullcontext(ahead)


def _kernels(module: Any) -> dict[str, Any]:
    """The TIR functions of a module, by symbol."""
    import tvm

    named = ((str(variable.name_hint), function) for variable, function in module.functions_items())
    return {name: function for name, function in named if isinstance(function, tvm.tirx.PrimFunc)}


@dataclass
class Translator:
    """Translates kernels in `threads`, from when it is told of each on; equal functions once. See `translating`.

    `kept`: objects of earlier libraries. `folder`: where objects are written.
    """

    target: Target
    kept: Kept
    folder: Path
    threads: ThreadPoolExecutor
    _begun: Distinct[Future[Path]] = field(default_factory=Distinct, init=False)
    _numbers: Iterator[int] = field(default_factory=count, init=False)

    def begin(self, function: Any, code: str = "") -> Future[Path]:
        """The object file of a TIR function, which is called `ANY_SYMBOL` there, as soon as a thread is free; `code`:
        its `code_key`, where that is known."""

        def begun() -> Future[Path]:
            return self.threads.submit(self._write, function, code, self.folder / f"{next(self._numbers)}.o")

        return self._begun.of(function, begun)

    def _write(self, function: Any, code: str, path: Path) -> Path:
        key = self.kept.key(function, code)
        if not self.kept.take(key, ANY_SYMBOL, path):
            write_object(function, ANY_SYMBOL, self.target, path)
            self.kept.keep(key, ANY_SYMBOL, path)
        return path

    def modules(self, kernels: Mapping[str, Any], told: Callable[[int], None]) -> dict[str, Any]:
        """The machine code of each kernel, by symbol. `told`: is called with how many of them are translated."""
        own = {name: function for name, function in kernels.items() if len(name) == SYMBOL_LENGTH}
        begun = {name: self.begin(function) for name, function in own.items()}
        found = {name: self._named(function, name) for name, function in kernels.items() if name not in own}
        for done in as_completed({*begun.values()}):
            for name in (name for name, one in begun.items() if one is done):
                found[name] = self._read(done.result(), name)
            told(len(found))
        return found

    def _named(self, function: Any, name: str) -> Any:
        """What the virtual machine computes shapes of open sizes by has a name of its own, and is kept nowhere."""
        path = self.folder / f"{name}.o"
        translate(function, name, self.target).write_to_file(str(path))
        return read_object(path, name)

    def _read(self, path: Path, name: str) -> Any:
        """LLVM emits machine code as it writes a module, one after the other where they are linked: so it goes through
        a file."""
        own = self.folder / f"{name}.o"
        own.write_bytes(renamed(path.read_bytes(), ANY_SYMBOL, name))
        return read_object(own, name)


@contextmanager
def translating(target: Target, jobs: int = 1, kept: Kept = NOTHING_KEPT) -> Iterator[Translator]:
    """A translator of `jobs` threads, which in the end waits for no kernel that nobody asked for."""
    with scratch_folder() as folder, ThreadPoolExecutor(jobs, "translate") as threads:
        try:
            yield Translator(target, kept, folder, threads)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


def _translated(
    kernels: Mapping[str, Any], ready: Mapping[str, Any], told: Told | None, translator: Translator
) -> dict[str, Any]:
    """The machine code of each kernel, by symbol, in their order: equal kernels make equal libraries."""
    found = {name: ready[name] for name in kernels if name in ready}
    left, known = {name: function for name, function in kernels.items() if name not in found}, len(found)
    if told is not None:
        told(known, len(kernels))
    found |= translator.modules(left, lambda done: told(known + done, len(kernels)) if told is not None else None)
    return {name: found[name] for name in kernels}
