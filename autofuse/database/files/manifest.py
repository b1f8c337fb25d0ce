"""The manifest of an export: what its files must hold, and who signed that."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, cast

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from autofuse.database.content.values import parse_document
from autofuse.database.records import canonical_json
from autofuse.errors import InputError
from autofuse.values.signatures import Signature, require_signature

FORMAT = "autofuse-export"
MANIFEST = "manifest.json"
MAX_MANIFEST = 1 << 20
GZIP: Literal["gzip"] = "gzip"
Compression = Literal["", "gzip"]
SIGNATURE = "signature"
"""Key of the manifest under which stands what signs the rest of it, as canonical JSON."""
CHUNK = 500
"""Rows that are read or written at a time."""

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class ExportedFile:
    """One file of an export: what it must hold to the byte (once it is decompressed)."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    table: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
    rows: Count
    bytes: Count
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The manifest of an export. `schema`: revision of the tables; `autofuse`: the version that wrote it.

    `compression`: of every file.
    """

    __pydantic_config__ = ConfigDict(strict=True)

    schema: str
    autofuse: str
    files: tuple[ExportedFile, ...]
    compression: Compression = ""

    def path(self, folder: Path, file: ExportedFile) -> Path:
        """The path of one of its files in `folder`."""
        return folder / f"{file.table}.jsonl{'.gz' if self.compression else ''}"

    def names(self) -> list[str]:
        """Names of its files, beside the manifest's own."""
        return [self.path(Path(), file).name for file in self.files]

    def opened(self, path: Path) -> BinaryIO:
        """The content of a file, decompressed."""
        return cast(BinaryIO, gzip.open(path)) if self.compression else path.open("rb")


def read_manifest(folder: Path, trust: Sequence[Path] = ()) -> Manifest:
    """The manifest of the export in a folder; InputError where there is none, or where none of `trust` signed it."""
    place = f"export {folder / MANIFEST}"
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{place}: no such file; name the folder that `autofuse db export` wrote")
    if path.stat().st_size > MAX_MANIFEST:
        raise InputError(f"{place}: {path.stat().st_size} bytes; at most {MAX_MANIFEST} are allowed")
    try:
        body = parse_document(path.read_bytes().decode())
    except ValueError as error:
        raise InputError(f"{place}: it is no JSON: {error}") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise InputError(f"{place}: expected an object with format = {FORMAT!r}")
    signature = body.pop(SIGNATURE, None)
    if trust:
        signed = Signature.from_json(signature, f"{place}: {SIGNATURE}")
        require_signature(f"export {folder}", FORMAT, canonical_json(body).encode(), signed, trust)
    try:
        found = _adapter().validate_json(json.dumps(body))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{place}: {where}: got {first['input']!r:.60}; {first['msg']}") from error
    if len({file.table for file in found.files}) != len(found.files):
        raise InputError(f"{place}: files: a table is named twice")
    return found


@cache
def _adapter() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)
