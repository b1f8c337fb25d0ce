"""Compiles the sources of a network, and joins them with its kernels: a shared object, or a static archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autofuse.backend.freestanding import source
from autofuse.backend.freestanding.description import Description, append
from autofuse.link.c_compiler import CCompiler

RUNTIME = tuple(source.SOURCES / name for name in ("runtime.c", "sizes.c", "workspace.c", "cpu.c"))
"""What every library of kernels has; `THREADS` launches tasks in one that has threads of its own."""
THREADS = source.SOURCES / "threads.c"
OPEN_SIZES = source.SOURCES / "open.c"
"""The functions of a library with open sizes."""
_OPTIONS = (
    "-std=gnu11", "-O2", "-fno-asynchronous-unwind-tables", "-fPIC", "-pthread", "-Wall", "-I.", f"-I{source.SOURCES}",
)  # fmt: skip
_SHARED = (
    "-shared", "-nostartfiles", "-pthread", "-Wl,-s", "-Wl,--gc-sections", "-Wl,--as-needed", "-Wl,-z,defs",
    "-Wl,-z,noexecstack", "-Wl,--build-id=none", "-Wl,--version-script=exports.map",
)  # fmt: skip
"""Without start files there are no constructors."""
_OWN = {"aarch64": ("-mno-outline-atomics",)}
"""Options of an architecture. Atomics that GCC's library chooses at run time would bring a constructor."""
_WHAT = "linking the library"


def compile_sources(
    compiler: CCompiler, folder: Path, own: Sequence[Path], kernels: Sequence[Path], includes: Sequence[Path] = ()
) -> None:
    """Compile the sources `own` in `folder`; objects.txt there names their objects, and those of the kernels."""
    objects = []
    options = [*_OPTIONS, *(f"-I{include}" for include in includes), *_OWN.get(compiler.architecture, ()), "-c"]
    for name in own:
        objects.append(f"{name.stem}.o")
        compiler.run([*options, name, "-o", objects[-1]], folder, "compiling the library")
    (folder / "objects.txt").write_text("\n".join([*objects, *(path.name for path in kernels)]), encoding="utf-8")


def is_archive(file_name: str) -> bool:
    """Whether a library of this name is a static archive."""
    return file_name.endswith(".a")


def link(compiler: CCompiler, folder: Path, file_name: str, description: Description) -> Path:
    """The library of what `compile_sources` left in `folder`; its description stands where no loader looks."""
    if is_archive(file_name):
        return _archive(compiler, folder, description)
    made = link_shared(compiler, folder, file_name)
    append(made, description)
    return made


def link_shared(compiler: CCompiler, folder: Path, soname: str) -> Path:
    """The shared object of what `compile_sources` left in `folder`; "exports.map" there says what others see."""
    compiler.run([*_SHARED, f"-Wl,-soname,{soname}", "-o", "library.so", "@objects.txt", "-lm"], folder, _WHAT)
    return folder / "library.so"


def _archive(compiler: CCompiler, folder: Path, description: Description) -> Path:
    """One object, in which only the functions of the header have names that others see: a program may take several."""
    (folder / "names.txt").write_text("\n".join(source.exported(description)), encoding="utf-8")
    compiler.run(["-r", "-nostdlib", "-Wl,--build-id=none", "-o", "whole.o", "@objects.txt"], folder, _WHAT)
    member = f"{description.name}.o"
    compiler.run_tool("objcopy", ["--keep-global-symbols=names.txt", "--strip-debug", "whole.o", member], folder, _WHAT)
    append(folder / member, description)
    compiler.run_tool("ar", ["rcsD", "library.a", member], folder, _WHAT)
    return folder / "library.a"
