"""Where linkers put the code of objects: at a multiple of one number, alone and beside others."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import pytest

from autofuse import api
from autofuse.backend.library.library import load
from autofuse.link.architecture import host_architecture
from autofuse.link.c_compiler import c_compiler
from autofuse.link.code_places import CODE_ALIGNMENT, keep_places
from tests.compiler.open_sizes.models import PERCEPTRON, PERCEPTRON_WEIGHTS, write


@pytest.fixture
def objects(tmp_path: Path) -> list[Path]:
    """Three objects of a few instructions each."""
    compiler = c_compiler(host_architecture())
    for number in range(3):
        (tmp_path / f"{number}.c").write_text(f"int f{number}(int x) {{ return {number + 2} * x; }}\n")
        compiler.run(["-c", "-O2", "-fPIC", f"{number}.c"], tmp_path, "compiling")
    return [tmp_path / f"{number}.o" for number in range(3)]


def places(library: Path, names: Sequence[str]) -> set[int]:
    """Where the functions of a library begin, as remainders."""
    loaded = ctypes.CDLL(str(library))
    return {(ctypes.cast(loaded[name], ctypes.c_void_p).value or 0) % CODE_ALIGNMENT for name in names}


def test_code_begins_at_multiples_alone_and_beside_others(objects: list[Path], tmp_path: Path) -> None:
    keep_places(objects)
    keep_places(objects)
    compiler = c_compiler(host_architecture())
    compiler.link(tmp_path / "alone.so", objects[1:2])
    compiler.link(tmp_path / "all.so", objects)
    (alone,) = places(tmp_path / "alone.so", ["f1"])
    assert places(tmp_path / "all.so", ["f0", "f1", "f2"]) == {alone} == {0}
    assert [ctypes.CDLL(str(tmp_path / "all.so"))[f"f{number}"](5) for number in range(3)] == [10, 15, 20]


def test_what_is_no_object_is_left_as_it_is(tmp_path: Path) -> None:
    texts = [b"", b"no object", b"\x7fELF\x01\x01" + bytes(58)]
    paths = [tmp_path / str(number) for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text)
    keep_places(paths)
    assert [path.read_bytes() for path in paths] == texts


def test_every_kernel_of_a_library_begins_at_such_a_multiple(tmp_path: Path) -> None:
    """As it does in a library of its own, in which it is measured."""
    model = write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    path = tmp_path / "rows.so"
    api.compile(model, path, database=str(tmp_path / "a.db"), threads=1, shapes={"x": (4, 24)}, plan="none")
    symbols = {row.symbol for row in load(path, 1).metadata.kernel_rows}
    assert len(symbols) > 1
    assert places(path, [f"__tvm_ffi_{symbol}" for symbol in symbols]) == {0}
