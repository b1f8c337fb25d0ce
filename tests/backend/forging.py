"""Libraries as an attacker makes them: other content, with sizes and checksums that are right again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autofuse.backend.container import container
from autofuse.backend.container.container import MAGIC, PAGE
from autofuse.backend.container.metadata import Metadata
from autofuse.backend.container.table import table_text

Body = dict[str, Any]


def parts_of(path: Path) -> tuple[bytes, bytes, bytes, bytes]:
    """Image, weights, JSON and table of a library."""
    with path.open("rb") as file:
        sections, _ = container.read_sections(file, path)
    whole = path.read_bytes()
    places = (0, sections.weights_offset, sections.json_offset, sections.json_offset + sections.json_bytes)
    sizes = (sections.image_bytes, sections.weights_bytes, sections.json_bytes, sections.table_bytes)
    image, weights, body, table = (whole[place : place + size] for place, size in zip(places, sizes, strict=True))
    return image, weights, body, table


def packed(image: bytes, weights: bytes, body: bytes, table: bytes) -> bytes:
    """A library of these parts."""
    parts = (image, weights, body, table)
    digests = [hashlib.sha256(part).digest() for part in parts]
    trailer = container._TRAILER.pack(MAGIC, *map(len, parts), *digests)
    return image + bytes(-len(image) % PAGE) + weights + body + table + trailer


def forged(
    source: Path,
    target: Path,
    *,
    image: Callable[[bytes], bytes] | None = None,
    body: Callable[[Body], object] | None = None,
    text: Callable[[bytes], bytes] | None = None,
    table: Callable[[bytes], bytes] | None = None,
) -> Path:
    """`source` with its image, its description (parsed, or as text) or its table changed; the table follows."""
    code, weights, description, lines = parts_of(source)
    if image is not None:
        code = image(code)
        lines = _table(description, len(code))
    if body is not None:
        parsed = json.loads(description)
        body(parsed)
        description = json.dumps(parsed, sort_keys=True, separators=(",", ":")).encode()
        lines = _table(description, len(code)) or lines
    description = text(description) if text is not None else description
    lines = table(lines) if table is not None else lines
    target.write_bytes(packed(code, weights, description, lines))
    return target


def _table(description: bytes, image_bytes: int) -> bytes:
    """The table of a description, where it makes sense; the attacker knows how."""
    try:
        metadata = Metadata.from_json(description, "forged")
    except ValueError:
        return b""
    offsets, end = [], 0
    for spec in metadata.weights:
        offsets.append(container._aligned(end, container.ALIGNMENT))
        end = offsets[-1] + container._size(spec)
    start = container._aligned(image_bytes, PAGE)
    return table_text(metadata, [start + offset for offset in offsets]).encode()
