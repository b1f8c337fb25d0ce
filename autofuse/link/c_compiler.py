"""The C compiler of this machine, or one that makes code for another architecture."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autofuse.errors import DeviceError, InputError
from autofuse.link.architecture import host_architecture
from autofuse.values.outputs import FULL_DISK

COMPILE_S = 600
CHECKS = Path(__file__).parent
"""The folder of `check.h`: what our C asks of a file before the dynamic loader may see it."""
_HERE = ("cc", "gcc", "clang")
ARCHITECTURE_NAMES = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64", "arm64")}
"""What compilers and build systems call an architecture."""


@dataclass(frozen=True)
class CCompiler:
    """`command` compiles C and assembly, and links, for `architecture`."""

    architecture: str
    command: tuple[str, ...]

    def run(self, arguments: Sequence[str | Path], folder: Path, what: str) -> None:
        """Run it in `folder`; DeviceError with its own words when it cannot do `what`."""
        _run(self.command, arguments, folder, what)

    def link(self, output: Path, objects: Sequence[Path]) -> None:
        """Write a shared library of objects."""
        self.run(
            ["-shared", "-fPIC", "-o", output.absolute(), *objects], output.absolute().parent, "linking the library"
        )

    def run_tool(self, tool: str, arguments: Sequence[str | Path], folder: Path, what: str) -> None:
        """Run "ar" or "objcopy", which belong to the compiler; DeviceError says what to install where it has none."""
        done = subprocess.run(
            [*self.command, f"-print-prog-name={tool}"], capture_output=True, text=True, timeout=60, check=False
        )
        found = shutil.which(done.stdout.strip() or tool)
        if found is None:
            raise DeviceError(f"{what}: {self.command[0]} has no {tool}: install binutils, and gcc or clang")
        _run((found,), arguments, folder, what)


def _run(program: Sequence[str], arguments: Sequence[str | Path], folder: Path, what: str) -> None:
    try:
        done = subprocess.run(
            [*program, *map(str, arguments)], cwd=folder, capture_output=True, text=True, errors="replace",
            timeout=COMPILE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"{what} with {program[0]} failed: {error}") from error
    if done.returncode:
        said = done.stderr or done.stdout
        refuse_full_disk(said, f"{what} with {program[0]}")
        raise DeviceError(f"{what} with {program[0]} failed: {_reason(said)[:300]}")


def refuse_full_disk(said: str, what: str) -> None:
    """InputError where a compiler or linker `said` that a file cannot grow."""
    word = next((word for word in FULL_DISK if word in said), None)
    if word is not None:
        raise InputError(f"{what} failed: {word}; free some space, or name a folder in TMPDIR")


def _reason(said: str) -> str:
    """The line that says most: the first error, else the first line (the linker's; its driver repeats less)."""
    lines = [line for line in said.strip().splitlines() if not line.startswith("collect2:")] or ["no message"]
    return next((line for line in lines if "error:" in line), lines[0])


def c_compiler(architecture: str) -> CCompiler:
    """A C compiler for `architecture`: the one that CC names, else one that is installed, else PyPI's `ziglang`.

    DeviceError says what to install.
    """
    given = shlex.split(os.environ.get("CC", ""))
    foreign = architecture != host_architecture()
    names = (f"{architecture}-linux-gnu-gcc",) if foreign else _HERE
    for command in filter(None, (given, *([name] for name in names))):
        found = shutil.which(command[0])
        if found is not None and _is_for(architecture, [found, *command[1:]]):
            return CCompiler(architecture, (found, *command[1:]))
    if (zig := zig_program()) is not None:
        return CCompiler(architecture, (str(zig), "cc", "-target", f"{architecture}-linux-gnu"))
    package = f"gcc-{architecture.replace('_', '-')}-linux-gnu"
    advice = f"{package} (Debian, Ubuntu: apt-get install {package})" if foreign else "gcc or clang"
    raise DeviceError(
        f"no C compiler for {architecture} on this machine: install {advice}, or `pip install ziglang`, or name one in "
        "the variable CC"
    )


def _is_for(architecture: str, command: Sequence[str]) -> bool:
    """Whether a compiler makes code for `architecture`, as it says itself."""
    try:
        done = subprocess.run([*command, "-dumpmachine"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.startswith(ARCHITECTURE_NAMES.get(architecture, (architecture,)))


def zig_program() -> Path | None:
    """The program inside PyPI's `ziglang`, which compiles and links for any architecture; it is found, not imported."""
    found = importlib.util.find_spec("ziglang")
    for folder in (found.submodule_search_locations or []) if found else []:
        program = Path(folder) / "zig"
        if program.is_file():
            return program
    return None
