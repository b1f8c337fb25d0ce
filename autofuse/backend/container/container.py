"""The file of a library: an ELF image, the weights, a description, and a trailer that vouches for all of it.

    ELF image | padding | weights, each at a multiple of 64 bytes | JSON | table for C | trailer | signature, if any

A dynamic loader sees a plain shared object, since nothing refers to what follows the image. Weights that
were linked in as constants would cost seconds to compile and twice their size to load.

A reader believes nothing: sizes, digests, the description, the table and the image's own headers are checked before
any of it is mapped or run. That keeps damage out. Whoever forges a file with care still has its code run: against
that there are signatures.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.container.elf import image_problem
from autofuse.backend.container.metadata import Metadata, TensorSpec
from autofuse.backend.container.table import table_text, table_texts
from autofuse.errors import InputError
from autofuse.values.outputs import Kind, has_metadata, output_file
from autofuse.values.signatures import PUBLIC_BYTES, SIGNATURE_BYTES, Signature, require_signature, sign

MAGIC = b"AUTOFUS2"
OLD_MAGIC = b"AUTOFUSE"
FREESTANDING_MAGIC = b"AUTOFUSC"
FREESTANDING_TRAILER = struct.Struct("<8sQ")
"""Of a free-standing library: its magic, and bytes of the description before it; see `freestanding.description`."""
ALIGNMENT = 64
PAGE = 4096
HUGE_PAGE = 2 << 20
_TRAILER = struct.Struct("<8sQQQQ32s32s32s32s")
"""Magic; bytes of image, weights (from the next page on), JSON and table; SHA-256 of each."""

_OLD_TRAILER_BYTES = struct.calcsize("<8sQQQ32s32s32s")
_CHUNK = 16 << 20
_MAX_DESCRIPTION = 256 << 20
"""Bytes of JSON or table; those of a network of ten thousand kernels are a few million."""
_SIGNED = struct.Struct(f"<{PUBLIC_BYTES}s{SIGNATURE_BYTES}s8s")
_SIGNED_MAGIC = b"AFSIGNED"
_KIND = "library"
_CODE = "__tvm_ffi__library_bin"
_FUNCTION = "__tvm_ffi_"
"""TVM's names: of the virtual machine's program inside the image, and before that of each kernel."""


@dataclass(frozen=True)
class Sections:
    """Sizes (bytes) and SHA-256 digests of the four parts of a library file."""

    image_bytes: int
    weights_bytes: int
    json_bytes: int
    table_bytes: int
    image_digest: bytes
    weights_digest: bytes
    json_digest: bytes
    table_digest: bytes

    @property
    def weights_offset(self) -> int:
        """Where the weights start: the first page after the image."""
        return aligned(self.image_bytes, PAGE)

    @property
    def json_offset(self) -> int:
        """Where the description starts."""
        return self.weights_offset + self.weights_bytes

    @property
    def file_bytes(self) -> int:
        """Size of the whole file, a signature aside."""
        return self.json_offset + self.json_bytes + self.table_bytes + _TRAILER.size


def write_container(
    path: Path, image: Path, weights: Sequence[NDArray[np.generic]], metadata: Metadata, key: Path | None = None
) -> None:
    """Write the file at once: it stands complete at `path`, or what stood there before is untouched.

    `key`: a private key to sign it with. InputError when it cannot be written (no space, no permission), or when
    something else than a library is there.
    """
    with output_file(path, LIBRARY, parents=True) as part, part.open("wb") as file:
        _write(file, image, weights, metadata, key)


def is_library(path: Path) -> bool:
    """Whether a file ends as the libraries of this or an older autofuse do."""
    with path.open("rb") as file:
        size, _ = _signature(file)
        for magic, length in ((MAGIC, _TRAILER.size), (OLD_MAGIC, _OLD_TRAILER_BYTES)):
            if size >= length:
                file.seek(size - length)
                if file.read(len(magic)) == magic:
                    return True
    return False


LIBRARY = Kind("a library of autofuse", is_library)
ORT_MODEL = "autofuse.version"
"""The key among the metadata of a model for ONNX Runtime under which stands the version of autofuse that wrote it."""


def read_sections(file: BinaryIO, path: Path, trust: Sequence[Path] = ()) -> tuple[Sections, Metadata]:
    """Where the parts lie, and the checked description. InputError when this is no whole library of ours.

    `trust`: files of public keys, one of which must have signed it, if there are any.
    """
    size, signature = _signature(file)
    if size >= _TRAILER.size:
        file.seek(size - _TRAILER.size)
        trailer = file.read(_TRAILER.size)
        magic, *parts = _TRAILER.unpack(trailer)
        sections = Sections(*parts)
        if magic == MAGIC and sections.file_bytes == size:
            if trust:
                require_signature(str(path), _KIND, trailer, signature, trust)
            return sections, _described(file, path, sections)
        file.seek(size - _OLD_TRAILER_BYTES)
        if file.read(len(OLD_MAGIC)) == OLD_MAGIC:
            raise InputError(f"{path}: an older autofuse wrote this library; make it again with `autofuse compile`")
    if freestanding_bytes(file) is not None:
        raise InputError(
            f"{path}: a free-standing library, which programs link; Python loads what `autofuse compile` writes "
            "without --format c"
        )
    if has_metadata(path, ORT_MODEL):
        raise InputError(
            f"{path}: a model that ONNX Runtime runs with the provider beside it; Python loads what `autofuse compile` "
            "writes without --format ort"
        )
    raise InputError(f"{path}: not a library that autofuse wrote, or cut off; make it with `autofuse compile`")


def freestanding_bytes(file: BinaryIO) -> int | None:
    """Bytes of the description of a free-standing library, as its end says; None for any other file."""
    size = file.seek(0, os.SEEK_END)
    if size < FREESTANDING_TRAILER.size:
        return None
    file.seek(size - FREESTANDING_TRAILER.size)
    magic, length = FREESTANDING_TRAILER.unpack(file.read(FREESTANDING_TRAILER.size))
    return int(length) if magic == FREESTANDING_MAGIC else None


def signer_of(file: BinaryIO) -> str:
    """Fingerprint of the key that a library names as its signer's, "" for none; see `read_sections`."""
    _, signature = _signature(file)
    return "" if signature is None else signature.signer


def _signature(file: BinaryIO) -> tuple[int, Signature | None]:
    """Bytes of the file before the signature, and that."""
    size = file.seek(0, os.SEEK_END)
    if size >= _SIGNED.size:
        file.seek(size - _SIGNED.size)
        public, value, magic = _SIGNED.unpack(file.read(_SIGNED.size))
        if magic == _SIGNED_MAGIC:
            return size - _SIGNED.size, Signature(public, value)
    return size, None


def _described(file: BinaryIO, path: Path, sections: Sections) -> Metadata:
    if max(sections.json_bytes, sections.table_bytes) > _MAX_DESCRIPTION:
        raise InputError(f"{path}: the library is damaged (a description of {sections.json_bytes} bytes)")
    file.seek(sections.json_offset)
    body, table = file.read(sections.json_bytes), file.read(sections.table_bytes)
    digests = hashlib.sha256(body).digest(), hashlib.sha256(table).digest()
    if digests != (sections.json_digest, sections.table_digest):
        raise InputError(f"{path}: the library is damaged (its description does not match its checksum)")
    metadata = Metadata.from_json(body, str(path))
    offsets, wanted = [], 0
    for spec in metadata.weights:
        offsets.append(aligned(wanted, ALIGNMENT))
        wanted = offsets[-1] + _size(spec)
    if wanted != sections.weights_bytes:
        raise InputError(f"{path}: the library is damaged (weights of {sections.weights_bytes} bytes, not {wanted})")
    tables = table_texts(metadata, [sections.weights_offset + offset for offset in offsets])
    if table not in [text.encode() for text in tables]:
        raise InputError(f"{path}: the library is damaged (its table is not that of its description)")
    return metadata


def read_image(file: BinaryIO, path: Path, sections: Sections, metadata: Metadata) -> bytes:
    """The ELF image, checked: whole, within its bytes, and with every function that the description names."""
    file.seek(0)
    image = file.read(sections.image_bytes)
    if hashlib.sha256(image).digest() != sections.image_digest or any(
        file.read(sections.weights_offset - sections.image_bytes)
    ):
        raise InputError(f"{path}: the library is damaged (its code does not match its checksum)")
    if not metadata.programs:  # a model that ONNX Runtime runs alone
        if image:
            raise InputError(f"{path}: the library is damaged (it has code, and no program)")
        return image
    symbols = {_FUNCTION + row.symbol for program in metadata.programs for row in program.kernel_rows}
    problem = image_problem(image, metadata.architecture, [_CODE, *symbols])
    missing = [program.entry for program in metadata.programs if program.entry.encode() not in image]
    if problem or missing:
        raise InputError(f"{path}: the library is damaged (its code: {problem or f'there is no program {missing[0]}'})")
    return image


def _own_memory(size_bytes: int) -> mmap.mmap:
    """Zeroed memory of this process alone: what is shared with children, as `mmap` has it by default, is never in huge
    pages. A multiple of their size, which Linux then begins at a page of that size."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return mmap.mmap(-1, max(size_bytes, 1))
    block = mmap.mmap(-1, aligned(max(size_bytes, 1), HUGE_PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    return block


def read_weights(
    file: BinaryIO, path: Path, sections: Sections, specs: Sequence[TensorSpec]
) -> list[NDArray[np.generic]]:
    """The weights as arrays over one checked block of memory, in huge pages where the system has them."""
    wanted = sections.weights_bytes
    block = _own_memory(wanted)
    file.seek(sections.weights_offset)
    digest, place, view = hashlib.sha256(), 0, memoryview(block)
    while place < wanted:
        part = view[place : min(place + _CHUNK, wanted)]
        count = file.readinto(part)  # type: ignore[attr-defined]
        if not count:
            raise InputError(f"{path}: the library is cut off")
        digest.update(part[:count])
        place += count
    if digest.digest() != sections.weights_digest:
        raise InputError(f"{path}: the library is damaged (its weights do not match their checksum)")
    arrays, offset = [], 0
    for spec in specs:
        offset = aligned(offset, ALIGNMENT)
        flat = np.frombuffer(block, np.uint8, _size(spec), offset)
        arrays.append(flat.view(spec.dtype).reshape(spec.shape))
        offset += _size(spec)
    return arrays


def _write(
    file: BinaryIO, image: Path, weights: Sequence[NDArray[np.generic]], metadata: Metadata, key: Path | None
) -> None:
    code = image.read_bytes()
    file.write(code)
    start = aligned(len(code), PAGE)
    file.write(bytes(start - len(code)))
    digest, written = hashlib.sha256(), 0
    offsets = []
    for array in weights:
        gap = bytes(aligned(written, ALIGNMENT) - written)
        offsets.append(written + len(gap))
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        for part in (gap, data):
            file.write(part)
            digest.update(part)
        written += len(gap) + len(data)
    text = metadata.to_json().encode()
    table = table_text(metadata, [start + offset for offset in offsets]).encode()
    file.write(text + table)
    digests = [hashlib.sha256(part).digest() for part in (code, text, table)]
    digests.insert(1, digest.digest())
    trailer = _TRAILER.pack(MAGIC, len(code), written, len(text), len(table), *digests)
    file.write(trailer)
    if key is not None:
        made = sign(key, _KIND, trailer)
        file.write(_SIGNED.pack(made.public, made.value, _SIGNED_MAGIC))


def _size(spec: TensorSpec) -> int:
    return int(np.prod(spec.shape, dtype=np.int64)) * np.dtype(spec.dtype).itemsize


def aligned(value: int, step: int) -> int:
    return -(-value // step) * step
