"""The built artefact: one file to carry about, loaded and called without the model it was made from."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autofuse.backend.container.container import (
    read_image,
    read_sections,
    read_weights,
    signer_of,
    write_container,
)
from autofuse.backend.container.metadata import Metadata
from autofuse.backend.library.arrays import Array
from autofuse.backend.library.compiled import Inputs, Library, blamed
from autofuse.backend.library.parted import PartedLibrary, launches
from autofuse.backend.library.runtime import load_module
from autofuse.backend.library.threads import usable_threads
from autofuse.device.host import host_features
from autofuse.errors import DeviceError, InputError
from autofuse.link.architecture import host_architecture
from autofuse.link.linking import exported
from autofuse.values.outputs import refuse_pipe
from autofuse.values.scratch import scratch_folder

LINKING_BYTES = 32 << 20
"""Temporary space for object code: about a megabyte for a network of a hundred kernels, with room for the linker."""


def export(executable: Any, weights: Sequence[Array], metadata: Metadata, path: Path, key: Path | None = None) -> None:
    """Write a compiled program, its weights and its description to the one file `path`.

    `key`: a private key to sign it with. DeviceError when no linker is found or the file cannot be written; what
    stood at `path` then stays.
    """
    require_space(path)
    with scratch_folder() as folder:
        image = folder / "image.so"
        try:
            exported(executable, image, metadata.architecture, folder)
        except DeviceError as error:
            raise DeviceError(f"{path}: {error}") from error
        write_container(path, image, weights, metadata, key)


def require_space(path: Path, wanted: int = LINKING_BYTES) -> None:
    """InputError when the temporary folder has no room for what is linked to `path`; `wanted`: bytes.

    LLVM ends the process when it cannot write, so a full temporary folder has to be noticed before."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < wanted:
        raise InputError(
            f"{path}: cannot link the library: the disk of {tempfile.gettempdir()} is full ({free >> 20} MiB free, "
            f"{wanted >> 20} needed); free some space, or name another folder in TMPDIR"
        )


def read_metadata(path: Path, trust: Sequence[Path] = ()) -> Metadata:
    """The description of a library file; none of its code is loaded. InputError: see `load`."""
    with _opened(path) as file:
        return read_sections(file, path, trust)[1]


def load(
    path: Path, threads: int | None = None, *, pad: bool = False, trust: Sequence[Path] = ()
) -> Library | PartedLibrary:
    """The library in `path`, to be called on `threads` threads (by default those it was tuned for).

    Loading runs its code, with all rights of this process. `pad`: see `Library`. `trust`: files of public keys; the
    library must then be signed by one of them.

    InputError when the file is missing, damaged, not ours or not trusted; DeviceError when this machine lacks a CPU
    feature that the code uses, or TVM has another version than the one that built it.
    """
    path = Path(path)
    with _opened(path) as file:
        sections, metadata = read_sections(file, path, trust)
        _check_host(path, metadata)
        image = read_image(file, path, sections, metadata)
        weights = read_weights(file, path, sections, metadata.weights)
    if threads is None:
        threads = min(metadata.threads, usable_threads())
    if metadata.parts is not None and pad:
        raise InputError(f"{path}: ONNX Runtime runs a part of this model, so its inputs cannot be padded")
    with blamed(f"{path}: the library's code"):
        if metadata.parts is not None:
            module = _load_image(image) if image else None
            return PartedLibrary(metadata, module, weights, threads, str(path))
        return Library(metadata, _load_image(image), weights, threads, pad)


def check(path: Path, trust: Sequence[Path] = ()) -> tuple[Metadata, str, str]:
    """The description of a library that is whole, its signer's fingerprint ("" when nobody signed it), its SHA-256.

    Every byte is checked as by `load`, and none of its code is loaded. InputError: see there.
    """
    with _opened(path) as file:
        sections, metadata = read_sections(file, path, trust)
        read_image(file, path, sections, metadata)
        read_weights(file, path, sections, metadata.weights)
        signer = signer_of(file)
        file.seek(0)
        return metadata, signer, hashlib.file_digest(file, "sha256").hexdigest()


def count_kernels(library: Library | PartedLibrary, inputs: Inputs, program: int = 0) -> int:
    """Kernels that a call of `program` launches, counted while it runs. DeviceError unless they are exactly its own."""
    if isinstance(library, PartedLibrary):
        return launches(library, inputs)
    rows = library.metadata.programs[program].kernel_rows
    launched, planned = library.launched(inputs), Counter(row.symbol for row in rows)
    if launched != planned:
        extra, missing = dict(launched - planned), dict(planned - launched)
        raise DeviceError(f"a call launches other kernels than planned: beyond the plan {extra}, missing {missing}")
    return sum(launched.values())


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        refuse_pipe(Path(path))
        file = Path(path).open("rb")  # noqa: SIM115  # closed below; errors of the reader are not ours to translate
    except OSError as error:
        raise InputError(f"{path}: cannot read the library: {error.strerror or error}") from error
    with file:
        yield file


def _check_host(path: Path, metadata: Metadata) -> None:
    machine = host_architecture()
    if metadata.architecture != machine:
        raise DeviceError(f"{path}: built for {metadata.architecture}, this machine is {machine}")
    missing = sorted(set(metadata.cpu_features) - host_features())
    if missing:
        raise DeviceError(
            f"{path}: built for CPU {metadata.target.get('mcpu')!r}; this machine lacks {', '.join(missing)}: "
            "compile the model on this machine or for its device profile"
        )
    for name, version in installed_versions().items():
        built = metadata.versions.get(name)
        if name != "autofuse" and built != version:
            raise DeviceError(f"{path}: built with {name} {built}, installed is {version}: compile the model again")


def installed_versions() -> dict[str, str]:
    """Versions that a library depends on, by package."""
    from importlib.metadata import version

    from autofuse import __version__

    return {"autofuse": __version__, "apache-tvm": version("apache-tvm"), "apache-tvm-ffi": version("apache-tvm-ffi")}


def _load_image(image: bytes) -> Any:
    """The checked bytes as a module: from a file of this load alone, so that nothing can change under it."""
    with scratch_folder() as folder:
        name = folder / "image.so"
        name.write_bytes(image)
        return load_module(name)
