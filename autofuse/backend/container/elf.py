"""The little of the ELF format that tells whether an image may be handed to the dynamic loader.

The loader believes what an image says: parts beyond the end of the file become SIGBUS, addresses beyond the image
SIGSEGV, and constructors run before anything can be asked. So all of this is read here first, from plain bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

MACHINES = {"x86_64": 62, "aarch64": 183}
"""`e_machine` by architecture."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_IDENTITY = b"\x7fELF\x02\x01\x01"
"""64 bits, little-endian, version 1."""
_SHARED, _LOAD, _DYNAMIC, _OBJECT_SYMBOLS, _DYNAMIC_SYMBOLS = 3, 1, 2, 2, 11
_EXCLUDED, _UNWINDING = 0x80000000, b".eh_frame"
"""A flag of a section: the linker leaves it out. The section by which debuggers and exceptions find the caller."""
_MOST_MEMORY = 1 << 32
_ADDRESSES = frozenset(
    (3, 4, 5, 6, 7, 12, 13, 17, 23, 25, 26, 32, 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFE)
)  # fmt: skip
"""Tags of the dynamic section that hold an address: tables, hashes, relocations, constructors and destructors."""


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    file_bytes: int
    memory_bytes: int


def image_problem(image: bytes, architecture: str, symbols: Sequence[str]) -> str:
    """Why `image` is no shared object for `architecture` that defines `symbols`, within its bytes; "" when it is."""
    try:
        return _problem(image, architecture, symbols)
    except (struct.error, IndexError, ValueError, UnicodeDecodeError):
        return "its headers point outside of it"


def _problem(image: bytes, architecture: str, symbols: Sequence[str]) -> str:
    identity, kind, machine, _, _, segments_at, sections_at, _, _, size, count, section_size, sections, _ = (
        _HEADER.unpack_from(image)
    )
    if not identity.startswith(_IDENTITY) or kind != _SHARED:
        return "it is no shared object of 64 bits"
    if machine != MACHINES.get(architecture, -1):
        return f"it is not for {architecture}"
    if size != _SEGMENT.size or not count:
        return "it has no segments"
    found = list(_segments(image, segments_at, count))
    if problem := _segments_problem(found, len(image)):
        return problem
    if problem := _dynamic_problem(image, found):
        return problem
    if section_size != _SECTION.size:
        return "it has no table of symbols"
    missing = set(symbols) - set(_defined(image, sections_at, sections))
    return f"it does not define {min(missing)}" if missing else ""


def _segments(image: bytes, start: int, count: int) -> Iterator[_Segment]:
    for number in range(count):
        kind, _, offset, address, _, file_bytes, memory_bytes, _ = _SEGMENT.unpack_from(
            image, start + number * _SEGMENT.size
        )
        yield _Segment(kind, offset, address, file_bytes, memory_bytes)


def _segments_problem(segments: Sequence[_Segment], size: int) -> str:
    if any(one.offset + one.file_bytes > size for one in segments):
        return "a segment of it lies beyond its end"
    loads = [one for one in segments if one.kind == _LOAD]
    if any(one.file_bytes > one.memory_bytes for one in loads) or sum(one.memory_bytes for one in loads) > _MOST_MEMORY:
        return "the sizes of its segments are impossible"
    ends = [(one.address, one.address + one.memory_bytes) for one in loads]
    if not ends or any(end > start for (_, end), (start, _) in pairwise(ends)):
        return "its segments overlap"
    return "" if ends[-1][1] <= _MOST_MEMORY else "the addresses of its segments are impossible"


def _dynamic_problem(image: bytes, segments: Sequence[_Segment]) -> str:
    dynamic = [one for one in segments if one.kind == _DYNAMIC]
    loads = [one for one in segments if one.kind == _LOAD]
    if len(dynamic) != 1 or not _inside(loads, dynamic[0].address, dynamic[0].file_bytes, dynamic[0].offset):
        return "its dynamic section is missing or elsewhere"
    start, end = dynamic[0].offset, dynamic[0].offset + dynamic[0].file_bytes
    for tag, value in struct.iter_unpack("<qQ", image[start : end - (end - start) % 16]):
        if tag == 0:
            return ""
        if tag in _ADDRESSES and not _inside(loads, value, 1):
            return f"its dynamic section points outside of it (tag {tag})"
    return "its dynamic section has no end"


def _inside(loads: Sequence[_Segment], address: int, size: int, offset: int | None = None) -> bool:
    """Whether so many bytes of the file (there, at `offset`) come to lie at `address`: what is not read is zero."""
    return any(
        one.address <= address
        and address + size <= one.address + one.file_bytes
        and offset in (None, one.offset + address - one.address)
        for one in loads
    )


def object_symbols(image: bytes) -> frozenset[str]:
    """Names of the global symbols of an object file: those that it defines, and those that it wants."""
    start, size, count = (_HEADER.unpack_from(image)[place] for place in (6, 11, 12))
    if size != _SECTION.size:
        return frozenset()
    return frozenset(name for name, _, is_local in _symbols(image, start, count, _OBJECT_SYMBOLS) if not is_local)


def without_unwinding(image: bytes) -> bytes:
    """An object file whose tables of unwinding no linker takes into a shared object: no exception passes a kernel."""
    start, size, count, names = (_HEADER.unpack_from(image)[place] for place in (6, 11, 12, 13))
    made = bytearray(image)
    if size != _SECTION.size:
        return image
    names_at = _SECTION.unpack_from(image, start + names * _SECTION.size)[4]
    for place in range(start, start + count * _SECTION.size, _SECTION.size):
        name, kind, flags, *rest = _SECTION.unpack_from(image, place)
        if image.startswith(_UNWINDING + b"\0", names_at + name):
            _SECTION.pack_into(made, place, name, kind, flags | _EXCLUDED, *rest)
    return bytes(made)


def _defined(image: bytes, start: int, count: int) -> Iterator[str]:
    """Names of the dynamic symbols that the image itself defines."""
    return (name for name, section, _ in _symbols(image, start, count, _DYNAMIC_SYMBOLS) if section)


def _symbols(image: bytes, start: int, count: int, wanted: int) -> Iterator[tuple[str, int, bool]]:
    """Symbols of the tables of one kind: name, section that it is defined in (0: in none), whether it is local."""
    sections = [_SECTION.unpack_from(image, start + number * _SECTION.size) for number in range(count)]
    for _, kind, _, _, offset, size, link, _, _, entry in sections:
        if kind != wanted or entry != _SYMBOL.size or offset + size > len(image):
            continue
        names_at, names_size = sections[link][4], sections[link][5]
        names = image[names_at : names_at + names_size]
        for name, info, _, section, _, _ in _SYMBOL.iter_unpack(image[offset : offset + size - size % entry]):
            if name < len(names):
                yield names[name : names.index(b"\0", name)].decode(), section, info >> 4 == 0
