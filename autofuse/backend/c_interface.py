"""What a C compiler needs to know to build a program that runs our libraries."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from autofuse.errors import DeviceError
from autofuse.link.c_compiler import CHECKS

FOLDER = Path(__file__).parent / "capi"
"""`autofuse.h`, `autofuse.c` and `example.c`."""


def compiler_arguments() -> list[str]:
    """Arguments after the user's own sources: our C file, headers, and TVM's runtime with its place.

    DeviceError when TVM is not installed.
    """
    tvm, ffi = _folder("tvm"), _folder("tvm_ffi")
    libraries = [tvm / "lib", ffi / "lib"]
    return [
        str(FOLDER / "autofuse.c"),
        f"-I{FOLDER}",
        f"-I{CHECKS}",
        f"-I{ffi / 'include'}",
        *(f"-L{folder}" for folder in libraries),
        "-Wl,--no-as-needed",
        "-ltvm_runtime",
        "-ltvm_ffi",
        *(f"-Wl,-rpath,{folder}" for folder in libraries),
    ]


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise DeviceError(f"package {package!r} is not installed: install autofuse again")
    return Path(spec.origin).parent
