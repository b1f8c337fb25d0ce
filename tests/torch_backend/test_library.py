"""A session over a graph: from the cache where the database would give the same, else compiled; without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from autofuse.compiler import compile_in
from autofuse.errors import InputError
from autofuse.torch_backend import library
from autofuse.torch_backend.cache import LIBRARY, default_cache
from autofuse.torch_backend.library import open_session
from autofuse.torch_backend.options import Options
from tests.conftest import OnnxBuilder

X = {"x": np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)}
Count = dict[str, int]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Count]:
    """How often a graph was exported, looked up without being built, and built."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    counted = {"exported": 0, "looked up": 0, "built": 0}

    def counting(context: object, model: Path, output: Path | None, *further: object) -> object:
        counted["looked up" if output is None else "built"] += 1
        return compile_in(context, model, output, *further)  # type: ignore[arg-type]

    monkeypatch.setattr(library, "compile_in", counting)
    yield counted


@pytest.fixture
def export(done: Count) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        done["exported"] += 1
        builder = OnnxBuilder()
        builder.op("Relu", "y", builder.dense("dense", "x", (16, 16)))
        builder.save(path, {"x": (4, 16)}, ["y"])

    return write


def options(tmp_path: Path, **given: object) -> Options:
    return Options(database=str(tmp_path / "p.db"), **given)  # type: ignore[arg-type]


def test_a_filled_cache_spares_the_export_and_the_build(
    tmp_path: Path, done: Count, export: Callable[[Path], None]
) -> None:
    (first,) = open_session("key", export, options(tmp_path), 1).run(None, X)
    (again,) = open_session("key", export, options(tmp_path), 1).run(None, X)
    np.testing.assert_array_equal(first, again)
    assert done == {"exported": 1, "looked up": 0, "built": 1}
    open_session("other", export, options(tmp_path), 1)
    assert done["built"] == 2


def test_without_a_key_or_a_cache_nothing_is_kept(tmp_path: Path, done: Count, export: Callable[[Path], None]) -> None:
    open_session(None, export, options(tmp_path), 1)
    open_session("key", export, options(tmp_path, cache=False), 1)
    assert done["built"] == 2
    assert default_cache().report().libraries == 0


def test_a_damaged_library_is_built_again(tmp_path: Path, done: Count, export: Callable[[Path], None]) -> None:
    open_session("key", export, options(tmp_path), 1)
    path = default_cache().folder / "key" / LIBRARY
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    open_session("key", export, options(tmp_path), 1).run(None, X)
    assert done["built"] == 2
    open_session("key", export, options(tmp_path), 1)
    assert done["built"] == 2


def test_a_database_that_knows_more_but_says_the_same_keeps_the_library(
    tmp_path: Path, done: Count, export: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_session("key", export, options(tmp_path), 1)
    monkeypatch.setattr(library, "stamp", lambda _sql: "later")
    open_session("key", export, options(tmp_path), 1).run(None, X)
    assert done == {"exported": 2, "looked up": 1, "built": 1}
    open_session("key", export, options(tmp_path), 1)
    assert done["looked up"] == 1, "what agreed was not noted"


def test_a_database_that_says_otherwise_has_it_built_again(
    tmp_path: Path, done: Count, export: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_session("key", export, options(tmp_path), 1)
    monkeypatch.setattr(library, "stamp", lambda _sql: "later")
    monkeypatch.setattr(library, "_decision", lambda _report: "another plan")
    open_session("key", export, options(tmp_path), 1).run(None, X)
    assert done == {"exported": 2, "looked up": 1, "built": 2}


@pytest.mark.long
def test_tuning_changes_the_stamp(tmp_path: Path, done: Count, export: Callable[[Path], None]) -> None:
    import autofuse

    export(tmp_path / "model.onnx")
    database = str(tmp_path / "p.db")
    open_session("key", export, options(tmp_path), 1)
    autofuse.tune(tmp_path / "model.onnx", database=database, trials=1, threads=1)
    open_session("key", export, options(tmp_path), 1).run(None, X)
    assert done["looked up"] == 1


def test_a_graph_that_cannot_be_compiled_says_why(tmp_path: Path, done: Count) -> None:
    def damaged(path: Path) -> None:
        path.write_bytes(b"no model")

    with pytest.raises(InputError):
        open_session("key", damaged, options(tmp_path), 1)
    assert default_cache().report().libraries == 0


def test_a_full_disk_costs_the_entry_and_nothing_else(
    tmp_path: Path, done: Count, export: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("autofuse.torch_backend.cache.shutil.copyfile", full)
    (found,) = open_session("key", export, options(tmp_path), 1).run(None, X)
    assert found.shape == (4, 16)
    assert "is not kept in" in caplog.text and "No space left" in caplog.text
    assert list(default_cache().folder.glob("[!c]*")) == []
