"""Packed exports: the same content in less space, and no way to make a small file cost much."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from autofuse.database.database import open_database
from autofuse.database.files.manifest import MANIFEST
from autofuse.database.files.upkeep import export_database, import_database
from autofuse.errors import InputError
from tests.database.recorded import fill


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("source") / "p.db", 1)


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    with open_database(source, read_only=True) as database:
        export_database(database, tmp_path / "packed", compressed=True)
    return tmp_path / "packed"


def import_from(folder: Path) -> int:
    with open_database(folder.parent / "q.db") as database:
        return import_database(database, folder).changes


def restate(folder: Path, table: str, data: bytes, **changes: object) -> None:
    """Replace the content of a file, and state it (or something else) in the manifest."""
    (folder / f"{table}.jsonl.gz").write_bytes(gzip.compress(data, mtime=0))
    manifest = json.loads((folder / MANIFEST).read_text())
    for file in manifest["files"]:
        if file["table"] == table:
            file |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), **changes}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_a_packed_export_holds_what_a_plain_one_does_and_comes_back_whole(
    source: Path, folder: Path, tmp_path: Path
) -> None:
    with open_database(source, read_only=True) as database:
        plain = export_database(database, tmp_path / "plain")
    for file in plain.files:
        unpacked = gzip.decompress((folder / f"{file.table}.jsonl.gz").read_bytes())
        assert unpacked == (tmp_path / "plain" / f"{file.table}.jsonl").read_bytes()
    assert (
        json.loads((folder / MANIFEST).read_text())["files"]
        == json.loads((tmp_path / "plain" / MANIFEST).read_text())["files"]
    )
    assert import_from(folder) > 50
    assert import_from(folder) == import_from(tmp_path / "plain") == 0


def test_equal_contents_make_equal_packed_bytes(source: Path, folder: Path, tmp_path: Path) -> None:
    with open_database(source, read_only=True) as database:
        export_database(database, tmp_path / "again", compressed=True)
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_damage_is_refused_by_name(folder: Path) -> None:
    path = folder / "af_workload.jsonl.gz"
    sound = path.read_bytes()
    for bad in (sound[:-20], sound[: len(sound) // 2], b"not packed", sound[:-8] + b"\x00" * 8, b""):
        path.write_bytes(bad)
        with pytest.raises(InputError, match="packed"):
            import_from(folder)
    path.write_bytes(sound)
    assert import_from(folder) > 50


def test_a_bomb_is_refused_before_it_is_unpacked(folder: Path) -> None:
    restate(folder, "af_workload", b" " * (4 << 20))
    with pytest.raises(InputError, match="cannot be the 4194304"):
        import_from(folder)
    restate(folder, "af_workload", b" " * (4 << 20), bytes=10)
    with pytest.raises(InputError, match="or more, the manifest states 10"):
        import_from(folder)


def test_an_unknown_compression_is_refused(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    for bad in ("zip", 1, None, ["gzip"]):
        (folder / MANIFEST).write_text(json.dumps({**manifest, "compression": bad}))
        with pytest.raises(InputError, match="compression"):
            import_from(folder)
