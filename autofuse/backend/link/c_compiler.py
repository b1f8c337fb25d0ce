"""The C compiler of this machine, or one that makes code for another architecture."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autofuse.backend.link.architecture import host_architecture
from autofuse.errors import DeviceError

COMPILE_S = 600
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
        command = [*self.command, *map(str, arguments)]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=COMPILE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeviceError(f"{what} with {self.command[0]} failed: {error}") from error
        if done.returncode:
            raise DeviceError(f"{what} with {self.command[0]} failed: {_reason(done.stderr or done.stdout)[:300]}")


def _reason(said: str) -> str:
    """The line that says most: the first error, else the first line (the linker's; its driver repeats less)."""
    lines = [line for line in said.strip().splitlines() if not line.startswith("collect2:")] or ["no message"]
    return next((line for line in lines if "error:" in line), lines[0])


def c_compiler(architecture: str) -> CCompiler:
    """A C compiler for `architecture`: the one that CC names, else one that is installed.

    DeviceError says what to install.
    """
    given = shlex.split(os.environ.get("CC", ""))
    foreign = architecture != host_architecture()
    names = (f"{architecture}-linux-gnu-gcc",) if foreign else _HERE
    for command in filter(None, (given, *([name] for name in names))):
        found = shutil.which(command[0])
        if found is not None and _is_for(architecture, [found, *command[1:]]):
            return CCompiler(architecture, (found, *command[1:]))
    package = f"gcc-{architecture.replace('_', '-')}-linux-gnu"
    advice = f"{package} (Debian, Ubuntu: apt-get install {package})" if foreign else "gcc or clang"
    raise DeviceError(
        f"no C compiler for {architecture} on this machine: install {advice}, or name one in the variable CC"
    )


def _is_for(architecture: str, command: Sequence[str]) -> bool:
    """Whether a compiler makes code for `architecture`, as it says itself."""
    try:
        done = subprocess.run([*command, "-dumpmachine"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.startswith(ARCHITECTURE_NAMES.get(architecture, (architecture,)))
