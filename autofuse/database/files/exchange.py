"""A database as text to review and to send: one JSON-lines file a table, and a manifest with their SHA-256.

Equal contents make equal bytes, whatever the order of recording or merging: rows carry no number of their own, refer
to others by a hash of what tells them apart, and stand in the order of their time.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, cast

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from sqlalchemy import MetaData, StaticPool, create_engine

from autofuse import __version__
from autofuse.database.content.forms import NUMBER, Form, forms
from autofuse.database.content.values import Raw, parse_document
from autofuse.database.files.export_folder import files_to_replace, new_files, replace_files, sweep_exports
from autofuse.database.records import canonical_json
from autofuse.database.tables import migration
from autofuse.database.tables.schema import HEAD_REVISION, Base
from autofuse.errors import DatabaseError, InputError
from autofuse.values.outputs import all_or_none, output_folder
from autofuse.values.signatures import Signature, require_signature, sign

FORMAT = "autofuse-export"
MANIFEST = "manifest.json"
MAX_MANIFEST = 1 << 20
MAX_LINE = 64 << 20
REFERENCE_DIGITS = 20
CHUNK = 500
SAMPLES = "af_sample"
GZIP: Literal["gzip"] = "gzip"
Compression = Literal["", "gzip"]
SIGNATURE = "signature"
"""Key of the manifest under which stands what signs the rest of it, as canonical JSON."""
MOST_EXPANSION = 250
"""Bytes that one byte of a compressed file may stand for, at most: JSON lines of measurements are far below it."""

Count = Annotated[int, Field(ge=0)]
References = dict[str, dict[int, str]]


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


# Export ------------------------------------------------------------------------------------------


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
        old = files_to_replace(folder, lambda: [MANIFEST, *_manifest(folder).names()])
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


# Import ------------------------------------------------------------------------------------------


def read_export(folder: Path, staging: Path, trust: Sequence[Path] = ()) -> Manifest:
    """Make the database `staging` of an export, at the schema that it was written with.

    `trust`: files of public keys, one of which must have signed it, if there are any.

    Nothing is read before each file has the size and SHA-256 that the manifest states; nothing of it is ever run.
    InputError names the file, the line and the value that is wrong.
    """
    try:
        manifest = _manifest(folder, trust)
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


def _manifest(folder: Path, trust: Sequence[Path] = ()) -> Manifest:
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
