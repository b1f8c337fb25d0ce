"""Linking objects into a shared library: by the C compiler here, by a bare linker for another architecture."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse.device.target import Target
from autofuse.errors import DeviceError
from autofuse.link.architecture import architecture_of, host_architecture
from autofuse.link.c_compiler import c_compiler, refuse_full_disk, zig_program
from autofuse.link.code_places import keep_places

LINK_S = 120

_CROSS: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "aarch64": (
        ("aarch64-linux-gnu-ld", ()),
        ("aarch64-linux-gnu-gcc", ("-nostdlib",)),
        ("ld.lld", ("-m", "aarch64linux")),
    ),
    "x86_64": (
        ("x86_64-linux-gnu-ld", ()),
        ("x86_64-linux-gnu-gcc", ("-nostdlib",)),
        ("ld.lld", ("-m", "elf_x86_64")),
    ),
}
"""Linkers of each architecture for use on another: program, and what it needs to hear. Objects from LLVM refer to
nothing but TVM's runtime, which the device has, so that no sysroot and no C library are needed."""

_EMULATION = {"aarch64": "aarch64linux", "x86_64": "elf_x86_64"}
_PACKAGE = {"aarch64": "binutils-aarch64-linux-gnu", "x86_64": "binutils-x86-64-linux-gnu"}


@dataclass(frozen=True)
class BareLinker:
    """`command` makes a shared library of the objects that follow it, after `-o FILE`."""

    architecture: str
    command: tuple[str, ...]

    def link(self, output: Path, objects: Sequence[Path]) -> None:
        """Write the shared library; DeviceError with the linker's own words when it cannot."""
        command = [*self.command, "-shared", "-o", str(output), *map(str, objects)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LINK_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeviceError(
                f"{output}: cannot link for {self.architecture} with {self.command[0]}: {error}"
            ) from error
        if done.returncode:
            refuse_full_disk(done.stderr, f"{output}: linking with {self.command[0]}")
            said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise DeviceError(f"{output}: cannot link for {self.architecture} with {self.command[0]}: {said[-1]}")


def for_tvm(link: Callable[[Path, Sequence[Path]], None], architecture: str) -> Callable[..., None]:
    """The function that TVM's `export_library` calls with an output and its objects.

    TVM adds an empty C file where all kernels are translated already; no linker has a use for it.
    """

    def compile_shared(output: str, objects: Any, *_: Any, **_options: Any) -> None:
        files = [objects] if isinstance(objects, str) else list(objects)
        linked = [Path(file) for file in files if not str(file).endswith(".c")]
        keep_places(linked)
        link(Path(output), linked)

    compile_shared.object_format = "o"  # type: ignore[attr-defined]
    # Of a library whose kernels are all translated before, which does not say what it is for.
    compile_shared.get_target_triple = lambda: f"{architecture}-linux-gnu"  # type: ignore[attr-defined]
    return compile_shared


def exported(executable: Any, output: Path, architecture: str, folder: Path) -> None:
    """Write what `tvm.compile` made to the shared library `output`; objects go to `folder`.

    DeviceError says which linker is missing, or what it said.
    """
    foreign = architecture != host_architecture()
    link = cross_linker(architecture).link if foreign else c_compiler(architecture).link
    executable.export_library(str(output), fcompile=for_tvm(link, architecture), workspace_dir=str(folder))


def require_linker(target: Target) -> None:
    """DeviceError when code for `target` could be made here but not linked, so that nobody waits for it in vain."""
    if architecture_of(target) != host_architecture():
        cross_linker(architecture_of(target))


def cross_linker(architecture: str) -> BareLinker:
    """A linker for `architecture` on this machine, which is another; DeviceError says what to install."""
    for program, options in _CROSS.get(architecture, ()):
        found = shutil.which(program)
        if found:
            return BareLinker(architecture, (found, *options))
    zig = zig_program()
    if zig is not None and architecture in _EMULATION:
        return BareLinker(architecture, (str(zig), "ld.lld", "-m", _EMULATION[architecture]))
    wanted = _PACKAGE.get(architecture)
    advice = (
        f"install one: `pip install ziglang`, or the package {wanted} (Debian, Ubuntu: apt-get install {wanted})"
        if wanted
        else f"allowed architectures: {', '.join(_CROSS)}"
    )
    raise DeviceError(f"no linker for {architecture} on this machine: {advice}")


def host_linker() -> BareLinker | None:
    """A bare linker for objects of this machine, without the compiler driver around it; None where there is none."""
    found = shutil.which("ld") if sys.platform == "linux" else None
    return None if found is None else BareLinker(host_architecture(), (found,))
