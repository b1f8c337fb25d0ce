"""Libraries as an attacker makes them: other content, with sizes and checksums that are right again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autofuse.backend.container import container
from experiments.fuzz.forge import built, table_of

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
    return built([image, weights, body, table])


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
        lines = table_of(description, len(code))
    if body is not None:
        parsed = json.loads(description)
        body(parsed)
        description = json.dumps(parsed, sort_keys=True, separators=(",", ":")).encode()
        lines = table_of(description, len(code)) or lines
    description = text(description) if text is not None else description
    lines = table(lines) if table is not None else lines
    target.write_bytes(packed(code, weights, description, lines))
    return target
