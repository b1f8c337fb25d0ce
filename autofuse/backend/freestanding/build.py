"""A free-standing library from the machine code of its kernels: their tables and the runtime, compiled and linked."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.compile.assemble import Assembly
from autofuse.backend.compile.function import ANY_SYMBOL, SYMBOL_LENGTH, renamed
from autofuse.backend.container.container import ALIGNMENT, aligned
from autofuse.backend.container.elf import object_symbols, without_unwinding
from autofuse.backend.container.metadata import Metadata
from autofuse.backend.freestanding import source
from autofuse.backend.freestanding.description import (
    FREESTANDING,
    HEADER,
    describe,
    network_name,
)
from autofuse.backend.freestanding.link import OPEN_SIZES, RUNTIME, THREADS, compile_sources, is_archive, link
from autofuse.backend.freestanding.tables import tables_of
from autofuse.backend.library.library import LINKING_BYTES, require_space
from autofuse.errors import InputError
from autofuse.link.c_compiler import c_compiler
from autofuse.link.code_places import keep_places
from autofuse.values.outputs import Inputs, check_output, output_file, write_output
from autofuse.values.scratch import scratch_folder

MOST_WEIGHT_BYTES = 1 << 31
"""Code reaches its data within so many bytes."""
COPIES, ARCHIVE_COPIES = 3, 6
"""Of the weights, on the disk while a library is linked: as bytes, as an object, in the library; an archive is made of
another two objects."""
_PROVIDED = frozenset(
    ("TVMFFIErrorSetRaisedFromCStrParts", "TVMFFIErrorSetRaisedFromCStr", "TVMBackendParallelLaunch",
     "TVMBackendAllocWorkspace", "TVMBackendFreeWorkspace")
)  # fmt: skip
"""TVM's functions that workspace.c and threads.c have."""


def header_path(output: Path) -> Path:
    """The header that is written beside a library."""
    return output.with_name(f"{network_name(output)}.h")


def check_freestanding(output: Path, inputs: Inputs, architecture: str) -> None:
    """Refuse what could not be written in the end: the library, its header, or for want of a C compiler."""
    check_output(output, FREESTANDING, inputs)
    check_output(header_path(output), HEADER, {**inputs, "the library": output})
    c_compiler(architecture)


def write_freestanding(
    modules: Mapping[str, Any], assembly: Assembly, metadata: Metadata, output: Path, *, title: str
) -> None:
    """Write the library `output`, a static archive where its name ends with .a, and its header beside it.

    `modules`: TVM's modules of objects of the kernels, by symbol. DeviceError when it cannot be compiled or linked.
    """
    description = describe(network_name(output), title, metadata)
    offsets, size_bytes = weight_offsets(assembly.weights)
    _check_size(size_bytes)
    copies = ARCHIVE_COPIES if is_archive(output.name) else COPIES
    require_space(output, copies * size_bytes + LINKING_BYTES)
    programs = tables_of(assembly, metadata, offsets)
    header = source.header(description)
    with scratch_folder() as folder:
        objects = write_objects(modules, folder, "--format c", "compile without --format c")
        with (folder / "weights.bin").open("wb") as file:
            write_weights(file, assembly.weights, offsets)
        texts = source.texts(description, programs) | {
            "weights.S": source.weights(description, folder / "weights.bin"),
            "exports.map": source.exports(description),
        }
        texts["names.h"] += objects.names
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        compiler = c_compiler(metadata.architecture)
        with output_file(output, FREESTANDING, parents=True) as part:
            own = [
                *RUNTIME,
                THREADS,
                *([OPEN_SIZES] if source.is_open(description) else []),
                folder / "network.c",
                folder / "weights.S",
            ]
            compile_sources(compiler, folder, own, objects.paths)
            made = link(compiler, folder, output.name, description)
            shutil.copyfile(made, part)
    write_output(header_path(output), header, HEADER)


@dataclass(frozen=True)
class Objects:
    """The object files of kernels. `equal`: symbols whose code is that of another one, which alone is linked."""

    paths: list[Path]
    equal: dict[str, str]

    @property
    def names(self) -> str:
        """What C has to know of `equal`."""
        return "".join(f"#define __tvm_ffi_{symbol} __tvm_ffi_{other}\n" for symbol, other in self.equal.items())


def write_objects(modules: Mapping[str, Any], folder: Path, what: str, advice: str) -> Objects:
    """The objects of kernels, equal code once; InputError for one that calls what only TVM's own runtime has.

    `what`: of the user's is refused then, and `advice` says what to do instead.
    """
    paths: list[Path] = []
    known: dict[bytes, str] = {}
    equal: dict[str, str] = {}
    for number, (symbol, module) in enumerate(modules.items()):
        path = folder / f"kernel{number}.o"
        module.write_to_file(str(path))
        code = path.read_bytes()
        wanted = {name.removeprefix("__") for name in object_symbols(code) if _is_tvms(name)}
        if missing := wanted - _PROVIDED:
            raise InputError(
                f"{what}: the kernel {symbol} calls {min(missing)} of TVM's own runtime, which is not there: {advice}"
            )
        first = known.setdefault(hashlib.sha256(_unnamed(code, symbol)).digest(), symbol)
        if first == symbol:
            path.write_bytes(without_unwinding(code))
            keep_places([path])
            paths.append(path)
        else:
            equal[symbol] = first
    return Objects(paths, equal)


def _unnamed(code: bytes, symbol: str) -> bytes:
    """An object file as it is whatever its function is called, where its name is as long as that of any kernel."""
    return renamed(code, symbol, ANY_SYMBOL) if len(symbol) == SYMBOL_LENGTH else code


def _is_tvms(symbol: str) -> bool:
    return symbol.startswith(("TVM", "__TVM"))


def weight_offsets(weights: Sequence[NDArray[np.generic]]) -> tuple[list[int], int]:
    """Where each weight starts among the bytes of all, and how many those are."""
    offsets, size_bytes = [], 0
    for array in weights:
        offsets.append(size_bytes)
        size_bytes = aligned(size_bytes + array.nbytes, ALIGNMENT)
    return offsets, size_bytes


def write_weights(file: BinaryIO, weights: Sequence[NDArray[np.generic]], offsets: Sequence[int]) -> None:
    """Write the bytes of each weight, `offsets` from where the file stands."""
    start = file.tell()
    for array, offset in zip(weights, offsets, strict=True):
        file.write(bytes(start + offset - file.tell()))
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _check_size(size_bytes: int) -> None:
    if size_bytes > MOST_WEIGHT_BYTES - LINKING_BYTES:
        raise InputError(
            f"--format c: the weights are {size_bytes >> 20} MiB, and a free-standing library holds at most "
            f"{(MOST_WEIGHT_BYTES - LINKING_BYTES) >> 20}: compile without --format c"
        )
