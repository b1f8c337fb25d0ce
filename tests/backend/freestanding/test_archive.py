"""Static archives: one program takes several networks, and needs nothing beside itself at run time."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse
from autofuse.backend.compile import function
from autofuse.errors import InputError
from tests.backend.freestanding.test_package import IN_CMAKE, IN_CPP, run, told
from tests.conftest import OnnxBuilder

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

BOTH = """
#include "net.h"
#include "other.h"
#include <stdio.h>

static float net_value(void) {
  float x[3 * 8 * 8] = {0}, y[4];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  net_session *session;
  return net_create(&session, 0, 2) || net_run(session, inputs, outputs) ? -1 : (net_destroy(session), y[0]);
}

static float other_value(void) {
  float x[6] = {0}, y[6];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  other_session *session;
  return other_create(&session, 0, 1) || other_run(session, inputs, outputs) ? -1 : (other_destroy(session), y[0]);
}

int main(void) { return printf("%.9g %.9g\\n", net_value(), other_value()) < 0; }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`libnet.a` and `libother.a`, the package of the first in `out`, and `net.so` to compare with."""
    made = tmp_path_factory.mktemp("archive")
    net = OnnxBuilder()
    net.op("Relu", "a", net.conv_bn("stem", "x", (3, 8)))
    net.op("Flatten", "flat", net.op("GlobalAveragePool", "pool", "a"))
    model = net.save(made / "net.onnx", {"x": (1, 3, 8, 8)}, [net.op("Sigmoid", "y", net.dense("fc", "flat", (8, 4)))])
    exp = OnnxBuilder()
    other = exp.save(made / "other.onnx", {"x": (6,)}, [exp.op("Exp", "y", "x")])
    database = str(made / "p.db")
    autofuse.compile(model, made / "libnet.a", database=database, threads=2, format="c")
    autofuse.compile(model, made / "net.so", database=database, threads=2)
    autofuse.compile(other, made / "libother.a", database=database, threads=2, format="c")
    autofuse.package(made / "libnet.a", made / "out")
    return made


@pytest.fixture(scope="module")
def wanted(folder: Path) -> np.float32:
    """The first value of `net` for zeros."""
    session = autofuse.Session(folder / "net.so")
    return np.float32(session.run(None, session.empty_inputs())[0].flat[0])


def test_one_program_takes_two_networks(folder: Path, wanted: np.float32, tmp_path: Path) -> None:
    (tmp_path / "both.c").write_text(BOTH)
    libraries = [folder / "libnet.a", folder / "libother.a"]
    run(["cc", "-Wall", "-Werror", "-I", folder, "both.c", *libraries, "-pthread", "-lm", "-o", "both"], tmp_path)
    assert run(["./both"], tmp_path) == f"{wanted:.9g} 1\n"


def test_a_program_without_any_shared_library(folder: Path, wanted: np.float32, tmp_path: Path) -> None:
    (tmp_path / "both.c").write_text(BOTH)
    libraries = [folder / "libnet.a", folder / "libother.a"]
    run(["cc", "-static", "-I", folder, "both.c", *libraries, "-pthread", "-lm", "-o", "both"], tmp_path)
    assert "not a dynamic executable" in run("ldd both 2>&1 || true", tmp_path, LC_ALL="C")
    assert run(["./both"], tmp_path) == f"{wanted:.9g} 1\n"


def test_only_the_functions_of_the_header_have_names(folder: Path) -> None:
    shown = run(["nm", "--defined-only", "--extern-only", "libnet.a"], folder)
    names = {line.split()[-1] for line in shown.splitlines() if " " in line}
    assert names == {f"net_{name}" for name in ("create", "destroy", "run", "input", "output", "threads", "error")}
    (member,) = run(["ar", "t", "libnet.a"], folder).split()
    assert member == "net.o"


def test_the_example_of_its_package_runs_as_its_comment_says(folder: Path, wanted: np.float32) -> None:
    text = (folder / "out/share/net/example.c").read_text()
    command = text[text.index("`cc ") + 1 : text.index("`", text.index("`cc ") + 1)]
    assert run(command, folder / "out") == told(wanted)
    (folder / "out/example").unlink()


def test_pkg_config_and_cmake_find_it(folder: Path, wanted: np.float32, tmp_path: Path) -> None:
    if shutil.which("pkg-config") is None or shutil.which("cmake") is None:
        pytest.skip("there is no pkg-config, or no CMake")
    (tmp_path / "user.cpp").write_text(IN_CPP)
    (tmp_path / "CMakeLists.txt").write_text(IN_CMAKE)
    shutil.copy(folder / "out/share/net/example.c", tmp_path)
    found = {"PKG_CONFIG_PATH": str(folder / "out/lib/pkgconfig")}
    run("g++ user.cpp $(pkg-config --cflags --libs net) -o user", tmp_path, **found)
    assert run("./user", tmp_path) == f"same {wanted:.9g}\n"
    run(["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={folder / 'out'}"], tmp_path)
    run(["cmake", "--build", "build"], tmp_path)
    assert run(["build/example"], tmp_path) == told(wanted)
    assert run(["build/user"], tmp_path) == f"same {wanted:.9g}\n"


def test_an_archive_does_not_depend_on_which_kernel_is_translated_first(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = function.write_object

    def compiled(late: str) -> bytes:
        def written(kernel: Any, symbol: str, *rest: Any) -> None:
            time.sleep(0.5 if late in symbol else 0.0)
            write(kernel, symbol, *rest)

        monkeypatch.setattr(function, "write_object", written)
        output = tmp_path / late / "libnet.a"
        output.parent.mkdir()
        autofuse.compile(folder / "net.onnx", output, database=str(folder / "p.db"), threads=2, format="c")
        return output.read_bytes()

    assert compiled("kernel0") == compiled("kernel1")


def test_a_second_archive_replaces_the_first_and_nothing_else_is_one(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "libnet.a"
    shutil.copy(folder / "libnet.a", copy)
    autofuse.compile(folder / "net.onnx", copy, database=str(folder / "p.db"), threads=2, format="c")
    assert copy.read_bytes() == (folder / "libnet.a").read_bytes()
    run(["ar", "rcs", "mine.a", folder / "net.onnx"], tmp_path)
    with pytest.raises(InputError, match=r"mine\.a' exists and is not a free-standing library"):
        autofuse.compile(folder / "net.onnx", tmp_path / "mine.a", database=str(folder / "p.db"), format="c")
