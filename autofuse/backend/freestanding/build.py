"""A free-standing library from the machine code of its kernels: their tables and the runtime, compiled and linked."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.compile.assemble import Assembly
from autofuse.backend.container.container import ALIGNMENT, aligned
from autofuse.backend.container.elf import object_symbols
from autofuse.backend.container.metadata import Metadata
from autofuse.backend.freestanding import source
from autofuse.backend.freestanding.description import (
    FREESTANDING,
    HEADER,
    append,
    describe,
    network_name,
)
from autofuse.backend.freestanding.tables import tables_of
from autofuse.backend.library.library import LINKING_BYTES, require_space
from autofuse.backend.link.c_compiler import CCompiler, c_compiler
from autofuse.errors import InputError
from autofuse.values.outputs import Inputs, check_output, output_file, write_output
from autofuse.values.scratch import scratch_folder

MOST_WEIGHT_BYTES = 1 << 31
"""Code reaches its data within so many bytes."""
COPIES = 3
"""Of the weights, on the disk while a library is linked: as bytes, as an object, in the library."""
RUNTIME = ("runtime.c", "threads.c", "cpu.c")
_PROVIDED = frozenset(
    ("TVMFFIErrorSetRaisedFromCStrParts", "TVMFFIErrorSetRaisedFromCStr", "TVMBackendParallelLaunch",
     "TVMBackendAllocWorkspace", "TVMBackendFreeWorkspace")
)  # fmt: skip
"""TVM's functions that threads.c has."""
_OPTIONS = ("-std=gnu11", "-O2", "-fPIC", "-pthread", "-Wall", "-I.", f"-I{source.SOURCES}")
_SHARED = (
    "-shared", "-nostartfiles", "-pthread", "-Wl,-s", "-Wl,--gc-sections", "-Wl,--as-needed", "-Wl,-z,defs",
    "-Wl,-z,noexecstack", "-Wl,--build-id=none", "-Wl,--version-script=exports.map",
)  # fmt: skip
"""Without start files there are no constructors."""
_OWN = {"aarch64": ("-mno-outline-atomics",)}
"""Options of an architecture. Atomics that GCC's library chooses at run time would bring a constructor."""


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
    """Write the library `output` and its header beside it.

    `modules`: TVM's modules of objects of the kernels, by symbol. DeviceError when it cannot be compiled or linked.
    """
    description = describe(network_name(output), title, metadata)
    offsets, size_bytes = _offsets(assembly.weights)
    require_space(output, COPIES * size_bytes + LINKING_BYTES)
    programs = [tables_of(*pair, offsets) for pair in zip(assembly.programs, metadata.programs, strict=True)]
    header = source.header(description)
    with scratch_folder() as folder:
        objects = _write_objects(modules, folder)
        _write_weights(folder / "weights.bin", assembly.weights, offsets)
        for name, text in (
            (f"{description.name}.h", header),
            ("names.h", source.names(description)),
            ("network.c", source.network(description, programs)),
            ("weights.S", source.weights(description, folder / "weights.bin")),
            ("exports.map", source.exports(description)),
        ):
            (folder / name).write_text(text, encoding="utf-8")
        compiler = c_compiler(metadata.architecture)
        with output_file(output, FREESTANDING, parents=True) as part:
            _link(compiler, folder, objects, output.name)
            shutil.copyfile(folder / "library.so", part)
            append(part, description)
    write_output(header_path(output), header, HEADER)


def _write_objects(modules: Mapping[str, Any], folder: Path) -> list[Path]:
    """The object files of kernels; InputError for one that calls what only TVM's own runtime has."""
    paths = []
    for number, (symbol, module) in enumerate(modules.items()):
        path = folder / f"kernel{number}.o"
        module.write_to_file(str(path))
        wanted = {name.removeprefix("__") for name in object_symbols(path.read_bytes()) if _is_tvms(name)}
        if missing := wanted - _PROVIDED:
            raise InputError(
                f"--format c: the kernel {symbol} calls {min(missing)} of TVM's own runtime, which a free-standing "
                "library does not have: compile without --format c"
            )
        paths.append(path)
    return paths


def _is_tvms(symbol: str) -> bool:
    return symbol.startswith(("TVM", "__TVM"))


def _link(compiler: CCompiler, folder: Path, kernels: Sequence[Path], soname: str) -> None:
    """Write library.so in `folder`, which has the sources."""
    what = "compiling the library"
    own = []
    runtime = [source.SOURCES / name for name in RUNTIME]
    for name in (*runtime, folder / "network.c", folder / "weights.S"):
        compiler.run(
            [*_OPTIONS, *_OWN.get(compiler.architecture, ()), "-c", name, "-o", f"{name.stem}.o"], folder, what
        )
        own.append(f"{name.stem}.o")
    objects = [*own, *(path.name for path in kernels)]
    (folder / "objects.txt").write_text("\n".join(objects), encoding="utf-8")
    options = [*_SHARED, f"-Wl,-soname,{soname}", "-o", "library.so", "@objects.txt", "-lm"]
    compiler.run(options, folder, "linking the library")


def _offsets(weights: Sequence[NDArray[np.generic]]) -> tuple[list[int], int]:
    """Where each weight starts among the bytes of all, and how many those are."""
    offsets, size_bytes = [], 0
    for array in weights:
        offsets.append(size_bytes)
        size_bytes = aligned(size_bytes + array.nbytes, ALIGNMENT)
    if size_bytes > MOST_WEIGHT_BYTES - LINKING_BYTES:
        raise InputError(
            f"--format c: the weights are {size_bytes >> 20} MiB, and a free-standing library holds at most "
            f"{(MOST_WEIGHT_BYTES - LINKING_BYTES) >> 20}: compile without --format c"
        )
    return offsets, size_bytes


def _write_weights(path: Path, weights: Sequence[NDArray[np.generic]], offsets: Sequence[int]) -> None:
    with path.open("wb") as file:
        for array, offset in zip(weights, offsets, strict=True):
            file.write(bytes(offset - file.tell()))
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
