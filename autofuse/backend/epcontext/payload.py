"""A payload: a head, the shared object of the segments, and their weights; the provider reads it (`ort/provider`)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse.backend.compile.assemble import Assembly
from autofuse.backend.container.container import PAGE, aligned
from autofuse.backend.container.metadata import Metadata
from autofuse.backend.freestanding import source
from autofuse.backend.freestanding.build import weight_offsets, write_objects, write_weights
from autofuse.backend.freestanding.description import describe
from autofuse.backend.freestanding.link import RUNTIME, compile_sources, link_shared
from autofuse.backend.freestanding.tables import tables_of
from autofuse.backend.library.library import LINKING_BYTES, require_space
from autofuse.link.c_compiler import c_compiler
from autofuse.ort.provider.build import SOURCES as PROVIDER
from autofuse.values.scratch import scratch_folder

MAGIC, FORMAT, FORMAT_OF_SIZES, FORMAT_OF_SUMS = b"AUTOFUSP", 1, 4, 5
HEAD = struct.Struct("<8sIIQQQQ")
"""Magic, format, nothing; place and bytes of the image, place and bytes of the weights: `af_payload_head`."""
SOURCES = Path(__file__).parent / "sources"
OPEN = "autofuse_open_segments"
"""The one function of the shared object."""
_NAME = "autofuse_segments"


@dataclass(frozen=True)
class Payload:
    """A payload that was written to `path`. `sha256`: of it, in hexadecimal digits."""

    path: Path
    size_bytes: int
    sha256: str


def write_payload(
    modules: Mapping[str, Any], assembly: Assembly, metadata: Metadata, path: Path, *, title: str
) -> Payload:
    """Write the payload of the programs of `metadata`, a segment each, to `path`.

    `modules`: TVM's modules of objects of the kernels, by symbol. DeviceError when it cannot be compiled or linked.
    """
    offsets, size_bytes = weight_offsets(assembly.weights)
    require_space(path, size_bytes + LINKING_BYTES)
    opened = [program.opened for program in metadata.programs if program.opened is not None]
    sums = any(one.further for spec in opened for axes in spec.extents for one in axes)
    form = FORMAT_OF_SUMS if sums else FORMAT_OF_SIZES if opened else FORMAT
    with scratch_folder() as folder:
        image = _image(modules, assembly, metadata, offsets, folder, title)
        start = aligned(HEAD.size, PAGE)
        weights = aligned(start + len(image), PAGE)
        with path.open("wb") as file:
            file.write(HEAD.pack(MAGIC, form, 0, start, len(image), weights, size_bytes))
            file.write(bytes(start - file.tell()) + image)
            file.write(bytes(weights - file.tell()))
            write_weights(file, assembly.weights, offsets)
            file.truncate(weights + size_bytes)
    return Payload(path, path.stat().st_size, _sha256(path))


def _image(
    modules: Mapping[str, Any],
    assembly: Assembly,
    metadata: Metadata,
    offsets: list[int],
    folder: Path,
    title: str,
) -> bytes:
    """The shared object: kernels, tables, and the runtime without threads and weights of its own."""
    description = describe(_NAME, title, metadata)
    programs = tables_of(assembly, metadata, offsets)
    texts = source.texts(description, programs)
    objects = write_objects(modules, folder, "--format ort", "compile without --format ort")
    texts["names.h"] += f"{objects.names}#define AF_WEIGHTS_ELSEWHERE\n"
    texts["exports.map"] = f"{{\n  global:\n    {OPEN};\n  local:\n    *;\n}};\n"
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    own = [*RUNTIME, SOURCES / "team.c", SOURCES / "segments.c", folder / "network.c"]
    compiler = c_compiler(metadata.architecture)
    compile_sources(compiler, folder, own, objects.paths, [SOURCES, PROVIDER])
    return link_shared(compiler, folder, "segments").read_bytes()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
