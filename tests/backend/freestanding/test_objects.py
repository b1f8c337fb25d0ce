"""What is linked of kernels: equal code once, and no tables of unwinding."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import autofuse
from autofuse.backend.compile import function
from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.freestanding.build import write_objects
from tests.backend.test_long_kernels import sums
from tests.conftest import OnnxBuilder

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def unwinding_bytes(folder: Path, *objects: Path) -> int:
    """Bytes of the tables of unwinding in a shared object of `objects`."""
    made = folder / "made.so"
    own = "-Wl,--no-ld-generated-unwind-info"  # of calls to what other libraries have
    subprocess.run(["cc", "-shared", "-nostdlib", own, "-o", made, *objects], check=True)
    told = subprocess.run(["size", "-A", made], check=True, capture_output=True, text=True).stdout
    return sum(int(line.split()[1]) for line in told.splitlines() if line.startswith(".eh_frame "))


def test_equal_code_is_linked_once_and_without_tables_of_unwinding(tmp_path: Path) -> None:
    target = local_device().target()
    one, two, other = (name.ljust(function.SYMBOL_LENGTH, "_") for name in ("one", "two", "other"))
    same = function.translate(sums(3, {}), function.ANY_SYMBOL, target)
    path = tmp_path / "same.o"
    modules = {other: function.translate(sums(4, {}), other, target)}
    for name in (one, two):
        same.write_to_file(str(path))
        path.write_bytes(function.renamed(path.read_bytes(), function.ANY_SYMBOL, name))
        modules[name] = function.read_object(path, name)
    objects = write_objects(modules, tmp_path, "a test", "nothing")
    assert objects.equal == {two: one} and len(objects.paths) == 2
    assert objects.names == f"#define __tvm_ffi_{two} __tvm_ffi_{one}\n"
    assert unwinding_bytes(tmp_path, path) > 0
    assert unwinding_bytes(tmp_path, *objects.paths) == 0


@pytest.mark.long
def test_a_kernel_of_long_code_is_the_same_as_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = OnnxBuilder()
    model = net.save(tmp_path / "m.onnx", {"x": (2, 8)}, [net.op("Relu", "y", net.dense("fc", "x", (8, 4)))])
    made = []
    for limit in (function.LONG_VECTORS, -1):
        monkeypatch.setattr(function, "LONG_VECTORS", limit)
        folder = tmp_path / str(limit)
        folder.mkdir()
        monkeypatch.setenv("TMPDIR", str(folder))
        autofuse.compile(model, folder / "net.so", database=str(folder / "a.db"), threads=1, format="c")
        made.append((folder / "net.so").read_bytes())
    assert made[0] == made[1]
