"""The provider's library: its C sources, compiled for this machine or for another architecture."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from autofuse import __version__
from autofuse.link.architecture import host_architecture
from autofuse.link.c_compiler import CHECKS, c_compiler
from autofuse.values.locks import held, lock_folder, own_folder
from autofuse.values.outputs import Inputs, Kind, check_output, has_mark, output_file

SOURCES = Path(__file__).parent / "sources"
PROVIDER = "AutofuseExecutionProvider"
"""The provider's name in ONNX Runtime."""
FILE = "libautofuse_ort.so"
"""What its library is called beside a model."""
_OPTIONS = (
    "-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-Wall", "-fvisibility=hidden", "-Wl,-s", "-Wl,--as-needed",
    "-Wl,-z,defs", "-Wl,-z,noexecstack", "-Wl,--build-id=none",
)  # fmt: skip
LIBRARY = Kind("an execution provider of autofuse", lambda path: has_mark(path, PROVIDER.encode()))


def write_provider(output: Path, architecture: str) -> None:
    """Write the library to `output`; that of this machine is compiled once.

    DeviceError when there is no C compiler for `architecture`, or it cannot make it; InputError when it cannot be
    written there.
    """
    kept = provider_library() if architecture == host_architecture() else None
    with output_file(output, LIBRARY, parents=True) as part:
        if kept is None:
            _compile(part, architecture)
        else:
            shutil.copyfile(kept, part)


def _compile(output: Path, architecture: str) -> None:
    wanted: list[str | Path] = [*_options(), *_sources(), "-ldl", "-o", output.absolute()]
    c_compiler(architecture).run(wanted, SOURCES, "compiling the provider")


def check_provider(output: Path, inputs: Inputs, architecture: str) -> None:
    """Refuse what `write_provider` could not do in the end."""
    check_output(output, LIBRARY, inputs)
    c_compiler(architecture)


def provider_library() -> Path:
    """The library for this machine: made at the first call, and kept in the user's cache from then on.

    Errors: see `write_provider`.
    """
    path = _folder() / f"{_digest(host_architecture())[:32]}.so"
    if not path.is_file():
        with held(lock_folder() / "provider.lock", "compiles the provider"):
            if not path.is_file():
                with output_file(path, LIBRARY, parents=True) as part:
                    _compile(part, host_architecture())
    return path


def kept_library(image: bytes) -> Path:
    """The library of these bytes, kept in the user's cache from the first call on.

    A file without a place would do for the dynamic loader once only: it knows libraries by their paths.
    """
    path = _folder() / f"{hashlib.sha256(image).hexdigest()[:32]}.so"
    if not path.is_file():
        with output_file(path, LIBRARY, parents=True) as part:
            part.write_bytes(image)
    return path


def _folder() -> Path:
    """A folder of this user alone: whatever lies there is loaded."""
    from platformdirs import user_cache_path

    found = user_cache_path("autofuse") / "provider"
    return found if own_folder(found) else lock_folder()


def _options() -> list[str]:
    return [*_OPTIONS, f'-DAUTOFUSE_VERSION="{__version__}"', f"-I{CHECKS}"]


def _sources() -> list[Path]:
    return sorted(SOURCES.glob("*.c"))


def _digest(architecture: str) -> str:
    """Changes with whatever the library is made of."""
    found = hashlib.sha256(repr((architecture, _options(), os.environ.get("CC", ""))).encode())
    for path in (*sorted(SOURCES.iterdir()), CHECKS / "check.h"):
        found.update(path.read_bytes())
    return found.hexdigest()
