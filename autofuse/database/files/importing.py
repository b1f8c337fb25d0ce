"""Taking in an export: checked against its manifest before anything of it is read, each value before it is stored."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

from sqlalchemy import MetaData, StaticPool, create_engine

from autofuse.database.content.forms import NUMBER, Form, forms
from autofuse.database.content.values import Raw, parse_document
from autofuse.database.files.manifest import CHUNK, ExportedFile, Manifest, read_manifest
from autofuse.database.tables import migration
from autofuse.database.tables.schema import HEAD_REVISION, Base
from autofuse.errors import InputError

MAX_LINE = 64 << 20
MOST_EXPANSION = 250
"""Bytes that one byte of a compressed file may stand for, at most: JSON lines of measurements are far below it."""


def read_export(folder: Path, staging: Path, trust: Sequence[Path] = ()) -> Manifest:
    """Make the database `staging` of an export, at the schema that it was written with.

    `trust`: files of public keys, one of which must have signed it, if there are any.

    Nothing is read before each file has the size and SHA-256 that the manifest states; nothing of it is ever run.
    InputError names the file, the line and the value that is wrong.
    """
    try:
        manifest = read_manifest(folder, trust)
        _refuse_altered(folder, manifest)
        metadata = _empty_database(staging, manifest)
        known = {form.name: form for form in forms(metadata)}
        with closing(sqlite3.connect(staging, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            numbers: dict[str, dict[str, int]] = {}
            for file in _sorted(manifest, known):
                _read_table(connection, manifest, manifest.path(folder, file), known[file.table], numbers)
            connection.execute("COMMIT")
    except (EOFError, zlib.error) as error:
        raise InputError(f"export {folder}: a compressed file is damaged: {error}") from error
    except OSError as error:
        raise InputError(f"export {folder}: {error.filename or ''}: {error.strerror or error}") from error
    return manifest


def _refuse_altered(folder: Path, manifest: Manifest) -> None:
    allowed = {form.name for form in forms(Base.metadata)}
    for file in manifest.files:
        if file.table not in allowed and manifest.schema == HEAD_REVISION:
            raise InputError(f"export {folder}: table {file.table!r:.60}: allowed are {', '.join(sorted(allowed))}")
        path = manifest.path(folder, file)
        if path.is_symlink() or not path.is_file():
            raise InputError(f"export {path}: no such file, although the manifest names it")
        size = path.stat().st_size
        if manifest.compression and file.bytes > size * MOST_EXPANSION:
            raise InputError(f"export {path}: its {size} bytes cannot be the {file.bytes} that the manifest states")
        size, digest = _content(manifest, path, file.bytes)
        if size != file.bytes:
            more = " or more" if size > file.bytes else ""
            raise InputError(f"export {path}: {size} bytes{more}, the manifest states {file.bytes}")
        if digest != file.sha256:
            raise InputError(f"export {path}: its SHA-256 is {digest[:16]}…, the manifest states {file.sha256[:16]}…")


def _content(manifest: Manifest, path: Path, most: int) -> tuple[int, str]:
    """Size and SHA-256 of a file's content; reading ends soon after `most` bytes."""
    digest, size = hashlib.sha256(), 0
    with manifest.opened(path) as stream:
        while size <= most and (part := stream.read(1 << 20)):
            digest.update(part)
            size += len(part)
    return size, digest.hexdigest()


def _empty_database(path: Path, manifest: Manifest) -> MetaData:
    """A database at the manifest's schema, and its tables as they really are."""
    path.write_bytes(_blank(manifest.schema))
    engine = create_engine(f"sqlite:///{path}")
    try:
        metadata = MetaData()
        metadata.reflect(engine)
        return metadata
    finally:
        engine.dispose()


@cache
def _blank(revision: str) -> bytes:
    """A database file at a schema, without rows; DatabaseError for an unknown schema."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    try:
        with engine.begin() as connection:
            migration.create(connection, revision, "export")
        with engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            return raw.serialize()
    finally:
        engine.dispose()


def _sorted(manifest: Manifest, known: Mapping[str, Form]) -> list[ExportedFile]:
    order = {name: place for place, name in enumerate(known)}
    for file in manifest.files:
        if file.table not in order:
            raise InputError(f"export: schema {manifest.schema} has no table {file.table!r:.60}")
    return sorted(manifest.files, key=lambda file: order[file.table])


def _read_table(
    connection: sqlite3.Connection, manifest: Manifest, path: Path, form: Form, numbers: dict[str, dict[str, int]]
) -> None:
    own = numbers.setdefault(form.name, {})
    insert = f"INSERT INTO {form.name} ({', '.join(form.columns)}) VALUES ({', '.join('?' * len(form.columns))})"
    rows: list[list[Raw]] = []
    line = 0
    with manifest.opened(path) as stream:
        try:
            while raw := stream.readline(MAX_LINE + 1):
                line += 1
                rows.append(_row(raw, form, own, numbers))
                if len(rows) == CHUNK:
                    connection.executemany(insert, rows)
                    rows.clear()
            connection.executemany(insert, rows)
        except InputError as error:
            raise InputError(f"export {path}, line {line}: {error}") from error
        except sqlite3.IntegrityError as error:
            raise InputError(f"export {path}, by line {line}: a row breaks a rule of the table ({error})") from error


def _row(raw: bytes, form: Form, own: dict[str, int], numbers: Mapping[str, Mapping[str, int]]) -> list[Raw]:
    if len(raw) > MAX_LINE:
        raise InputError(f"longer than {MAX_LINE} bytes")
    try:
        body = parse_document(raw.decode())
    except ValueError as error:
        raise InputError(f"it is no JSON: {error}") from error
    if not isinstance(body, dict) or body.keys() != set(form.columns):
        raise InputError(f"expected an object with exactly {', '.join(form.columns)}")
    values: list[object] = []
    for column in form.columns:
        value = body[column]
        if column == NUMBER:
            if not isinstance(value, str) or value in own:
                raise InputError(f"id: got {value!r:.60}, expected a text that no other row has")
            own[value] = len(own) + 1
            value = own[value]
        elif column in form.references and value is not None:
            value = _number(value, form.references[column], column, numbers)
        elif column in form.documents and value is not None:
            value = json.dumps(value)
        values.append(value)
    return form.checked(values)


def _number(value: object, table: str, column: str, numbers: Mapping[str, Mapping[str, int]]) -> int:
    known: Mapping[str, int] = numbers.get(table, {})
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{column}: got {value!r:.60}, which names no row of {table}")
    return known[value]
