"""A database as text to review and to send: one JSON-lines file a table, and a manifest with their SHA-256.

Equal contents make equal bytes, whatever the order of recording or merging: rows carry no number of their own, refer
to others by a hash of what tells them apart, and stand in the order of their time.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, cast

from autofuse import __version__
from autofuse.database.content.forms import NUMBER, Form, forms
from autofuse.database.content.values import Raw, parse_document
from autofuse.database.files.export_folder import files_to_replace, new_files, replace_files, sweep_exports
from autofuse.database.files.manifest import (
    CHUNK,
    FORMAT,
    MANIFEST,
    SIGNATURE,
    Compression,
    ExportedFile,
    Manifest,
    read_manifest,
)
from autofuse.database.records import canonical_json
from autofuse.database.tables.schema import HEAD_REVISION, Base
from autofuse.errors import DatabaseError, InputError
from autofuse.values.outputs import all_or_none, output_folder
from autofuse.values.signatures import sign

REFERENCE_DIGITS = 20
SAMPLES = "af_sample"

References = dict[str, dict[int, str]]


def export(
    connection: sqlite3.Connection,
    folder: Path,
    *,
    samples: bool = True,
    compression: Compression = "",
    key: Path | None = None,
) -> Manifest:
    """Write all rows into `folder`, in place of an export that was there; without `samples`, no single times.

    `key`: a private key that signs the manifest, and so all that it states.

    Only files that the manifest of that export names are replaced or removed, one by one, once the new ones are whole;
    others beside them stay. InputError when the folder holds something else, or cannot be written; DatabaseError for a
    damaged row.
    """
    try:
        sweep_exports(folder, MANIFEST)
        old = files_to_replace(folder, lambda: [MANIFEST, *read_manifest(folder).names()])
        with all_or_none([folder]), new_files(output_folder(folder, option="export folder")) as fresh:
            manifest = _write(connection, fresh, samples, compression, key)
            replace_files(folder, fresh, old, [MANIFEST, *manifest.names()])
    except OSError as error:
        raise InputError(f"export folder {folder}: {error.strerror or error}; name another folder") from error
    return manifest


def _write(
    connection: sqlite3.Connection, folder: Path, samples: bool, compression: Compression, key: Path | None
) -> Manifest:
    references: References = {}
    files = []
    for form in forms(Base.metadata):
        if form.name == SAMPLES and not samples:
            continue
        digest, size, rows = hashlib.sha256(), 0, 0
        with _created(folder / f"{form.name}.jsonl", compression) as file:
            for line in _lines(connection, form, references):
                file.write(line)
                digest.update(line)
                size += len(line)
                rows += 1
        files.append(ExportedFile(form.name, rows, size, digest.hexdigest()))
    manifest = Manifest(HEAD_REVISION, __version__, tuple(files), compression)
    body: dict[str, object] = {"format": FORMAT, **asdict(manifest)}
    if not compression:
        del body["compression"]
    if key is not None:
        body[SIGNATURE] = sign(key, FORMAT, canonical_json(body).encode()).to_json()
    (folder / MANIFEST).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return manifest


@contextmanager
def _created(path: Path, compression: Compression) -> Iterator[BinaryIO]:
    """A new file to write to; compressed without a name or a time, so that equal contents make equal bytes."""
    if not compression:
        with path.open("wb") as file:
            yield file
        return
    with (
        path.with_name(f"{path.name}.gz").open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=9, mtime=0) as packed,
    ):
        yield cast(BinaryIO, packed)


def _lines(connection: sqlite3.Connection, form: Form, references: References) -> Iterator[bytes]:
    names: Mapping[int, str] = _reference_names(connection, form, references) if form.numbered else {}
    for row in _ordered_rows(connection, form, names, references):
        body: dict[str, object] = {}
        for column, value in zip(form.columns, row, strict=True):
            if column == NUMBER:
                body[column] = names[int(value or 0)]
            elif column in form.references:
                body[column] = None if value is None else references[form.references[column]][int(value)]
            elif value is not None and column in form.documents:
                body[column] = parse_document(str(value))
            elif value is not None and column in form.booleans:
                body[column] = bool(value)
            else:
                body[column] = value
        yield json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _reference_names(connection: sqlite3.Connection, form: Form, references: References) -> dict[int, str]:
    """The name of each row, kept for those that refer to it; in the order in which they are written."""
    time = next((name for name in ("started_at", "created_at") if name in form.columns), None)
    columns = [NUMBER, *form.identity, *([time] if time else [])]
    found = []
    for row in connection.execute(f"SELECT {', '.join(columns)} FROM {form.name}"):
        values = [
            references[form.references[column]][value] if column in form.references and value is not None else value
            for column, value in zip(form.identity, row[1:], strict=False)
        ]
        text = canonical_json([form.name, *values])
        keyed = form.identity == ("key",)
        name = str(values[0]) if keyed else hashlib.sha256(text.encode()).hexdigest()
        found.append((str(row[-1]) if time else "", name[:REFERENCE_DIGITS], row[0]))
    found.sort()
    names = {number: name for _, name, number in found}
    if len(set(names.values())) != len(names):
        raise DatabaseError(f"table {form.name}: two rows are told apart by nothing; `autofuse db check` says more")
    references[form.name] = names
    return names


def _ordered_rows(
    connection: sqlite3.Connection, form: Form, names: Mapping[int, str], references: References
) -> Iterator[list[Raw]]:
    key = NUMBER if form.numbered else form.identity[0]
    order = list(names) if form.numbered else list(references[form.references[key]])
    place = form.at[key]
    for start in range(0, len(order), CHUNK):
        some = order[start : start + CHUNK]
        query = f"SELECT {', '.join(form.columns)} FROM {form.name} WHERE {key} IN ({', '.join('?' * len(some))})"
        rank = {number: index for index, number in enumerate(some)}
        rows = connection.execute(f"{query} ORDER BY {', '.join(form.identity)}", some).fetchall()
        for row in sorted(rows, key=lambda row: rank[row[place]]):
            try:
                yield form.settled(form.checked(row))
            except InputError as error:
                raise DatabaseError(f"table {form.name}, row {row[0]!r}: {error}") from error
